"""The incident of withdrawn times through which games were complete."""

from pipeline.health.incidents.through import SHOWN_SECONDS, judge_through, keep_through
from pipeline.store.rows import Withdrawal

NOW = 1_800_000_000.0
STEP = Withdrawal("clock", NOW - 10, 4, NOW - 20, NOW - 80)


def test_times_that_went_back_are_one_incident_until_they_are_passed_again() -> None:
    """L8: no time goes back without an incident, which stays until bronze has passed the latest of them again."""
    (opened,) = keep_through((), [STEP], NOW - 80, NOW, lambda: "i1")
    assert opened.finding.title == "The time through which games are complete went back to 2027-01-15 07:58:40 UTC"
    assert "clock was set back" in opened.finding.evidence[0]
    assert (opened.games, opened.since, opened.tone, opened.ended_at) == ((), STEP.at, "late", None)
    later = NOW + SHOWN_SECONDS
    (same,) = keep_through([opened], [STEP], NOW - 21, later, lambda: "i2")
    assert (same.incident_id, same.ended_at) == ("i1", None)
    (soon,) = keep_through([opened], [STEP], NOW, NOW + 1, lambda: "i2")
    assert soon.ended_at is None, "a person sees it, however soon the times are passed again"
    (ended,) = keep_through([same], [STEP], NOW - 20, later, lambda: "i2")
    assert ended.ended_at == later
    assert keep_through([ended], [STEP], NOW, later + 1, lambda: "i2") == ()


def test_times_of_a_clock_that_was_ahead_are_not_waited_for() -> None:
    """L8: times that no source had reached are passed once bronze is complete through the moment of the step."""
    ahead = Withdrawal("clock", NOW, 4, NOW + 86_400, None)
    assert judge_through([ahead], NOW - 1, NOW + SHOWN_SECONDS) is not None
    assert judge_through([ahead], NOW, NOW + SHOWN_SECONDS) is None
    assert judge_through([ahead], None, NOW + SHOWN_SECONDS) is not None, "no time is known"


def test_an_incident_names_each_reason() -> None:
    """L1: what took times back is named in words, the newest first, and what stayed by the newest."""
    found = judge_through([Withdrawal("restore, truncated", NOW - 9, 2, NOW - 30, None), STEP], None, NOW)
    assert found is not None
    assert [each.split(", noticed")[0] for each in found.evidence] == [
        "the control store's clock was set back",
        "bronze was restored from an older copy and the source lost records that ingest had read",
    ]
    lost = judge_through([Withdrawal("older_copy", NOW - 9, 2, NOW - 30, None)], None, NOW)
    assert lost is not None
    assert lost.title == "No time is known any more through which games are complete"
