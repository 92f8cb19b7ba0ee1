"""What waits in the source: judged on its own, and as a floor of what may be said of every stream."""

from dataclasses import replace

import pytest

from listeners.status import Status
from pipeline.health.headlines.pages import of_fleet
from pipeline.health.headlines.standings import Situation
from pipeline.health.verdicts.judgement import Judgement
from pipeline.health.verdicts.liveness import Liveness
from pipeline.health.verdicts.source import judge_source
from pipeline.store.rows import SourceReading
from tests.unit.health.verdicts.judgement_world import INGEST, LEVEL, NOW, REPORTED, Given

LIVE = Liveness("running", NOW - 600, None)
LATE = SourceReading(NOW - 2, 70.0, 75.0, 760_000, 60.0)


@pytest.mark.parametrize(
    ("reading", "condition", "sentence"),
    [
        (LEVEL, "level", "nothing waits in the source"),
        (replace(LEVEL, age_seconds=2.0, peak_seconds=3.0, rows=1), "level",
         "ingest is 2 s behind its source: 1 row waits"),
        (replace(LATE, age_seconds=38.0, peak_seconds=38.0), "behind",
         "ingest is 38 s behind its source: 760,000 rows wait"),
        (LATE, "late", "ingest was 75 s behind its source within the last minute: 760,000 rows wait now"),
        (replace(LATE, age_seconds=0.0, peak_seconds=61.0, rows=0), "late",
         "ingest was 61 s behind its source within the last minute: 0 rows wait now"),
        (replace(LATE, age_seconds=9_000.0, peak_seconds=None, rows=None), "late",
         "ingest is 2 h behind its source: an unknown number of rows waits"),
        (replace(LATE, age_seconds=None, reason="the broker is away"), "unknown",
         "what waits in the source is unknown: the broker is away"),
        (None, "unknown", "what waits in the source is unknown: ingest was started and has not measured it yet"),
        (replace(LEVEL, measured_at=NOW - 601), "unknown",
         "what waits in the source is unknown: ingest was started and has not measured it yet"),
        (replace(LEVEL, measured_at=NOW - 16), "unknown",
         "what waits in the source is unknown: ingest beats, but has not measured it for 16 s"),
        (replace(LEVEL, measured_at=NOW + 60), "unknown",
         "what waits in the source is unknown: it was measured 60 s in the future: a clock is wrong"),
    ],
)  # fmt: skip
@pytest.mark.proves("G130")
def test_a_number_counts_only_when_it_was_measured_just_now(
    reading: SourceReading | None, condition: str, sentence: str
) -> None:
    """What was not read in this run, a moment ago, is unknown; what is older than the objective is late."""
    found = judge_source(reading, LIVE, NOW, 15.0)
    assert (found.condition, found.sentence) == (condition, sentence)
    assert (found.age_seconds is None) is (condition == "unknown")
    assert found.is_problem is (condition in {"late", "unknown"})


def test_ingest_that_has_just_started_is_no_problem() -> None:
    """For two minutes nobody need look, and no stream is called healthy; then the source is unknown and a problem."""
    for seconds, is_problem, status in ((5, False, "STARTING"), (121, True, "UNKNOWN"), (-60, True, "UNKNOWN")):
        found = Given(ingest=replace(INGEST, started_at=NOW - seconds), source=None).judge()
        assert (found.source.is_problem, found.healthy, found.games["g"].status) == (is_problem, not is_problem, status)
        assert found.headline.startswith("1 stream level with bronze; what waits in the source is unknown: ingest was")


@pytest.mark.parametrize("state", ["not_started", "stopped", "failed", "dead", "unknown"])
def test_without_ingest_the_source_is_unknown(state: str) -> None:
    """However fresh the last number is, nobody reads the source any more."""
    found = judge_source(LEVEL, Liveness(state, NOW - 9, "is away"), NOW, 15.0)  # type: ignore[arg-type]
    assert (found.condition, found.age_seconds, found.rows) == ("unknown", None, None)
    assert found.sentence == "ingest is away, so what waits in its source is unknown"


def test_lag_is_the_age_of_the_oldest_wherever_it_waits() -> None:
    """The source's age is a floor, and a lag of which a part is unknown is unknown."""
    late, unknown = judge_source(LATE, LIVE, NOW, 15.0), judge_source(None, LIVE, NOW, 15.0)
    assert (late.lag(0.0), late.lag(300.0), late.lag(None)) == (70.0, 300.0, None)
    assert unknown.lag(0.0) is None


@pytest.mark.parametrize(("status", "shown"), [("RUNNING", "LAGGING"), ("AT_RISK", "LAGGING"), ("FAILED", "FAILED"),
                                               ("CATCHING_UP", "CATCHING_UP"), ("PAUSED", "PAUSED")])  # fmt: skip
def test_a_late_source_is_one_problem_and_no_stream_is_healthy(status: str, shown: str) -> None:
    """1,000 streams that have all of bronze are not healthy when the source is late, and are not 1,000 problems."""
    given = Given(source=LATE, reported=replace(REPORTED, status=status))
    found = given.judge()
    assert found.games["g"].status == shown
    assert [each.text for each in found.problems if each.kind == "ingest"] == [found.source.sentence]
    assert len([each for each in found.problems if each.kind == "stream"]) == (
        Status(status).is_trouble and status == shown
    )
    assert "healthy" not in found.headline
    assert found.headline.endswith("; ingest was 75 s behind its source within the last minute: 760,000 rows wait now")


@pytest.mark.proves("G130")
def test_with_ingest_dead_no_game_runs() -> None:
    """A game was shown as running with no lag while nothing read the source."""
    for ingest in (replace(INGEST, state="stopped"), replace(INGEST, heartbeat_at=NOW - 600)):
        found = Given(ingest=ingest).judge()
        verdict = found.games["g"]
        assert (verdict.status, verdict.waits_for_ingest) == ("UNKNOWN", True)
        assert str(verdict.reason).startswith("ingest is ")
        assert str(verdict.reason).endswith(", so what waits in its source is unknown; last report: RUNNING")
        assert [each.kind for each in found.problems] == ["ingest"], "one trouble"
        assert found.headline.startswith("1 stream level with bronze; ingest ")


def test_a_backlog_that_is_not_late_is_said_and_is_no_problem() -> None:
    """From a quarter of the objective on people may see it come."""
    found = Given(source=replace(LATE, age_seconds=38.0, peak_seconds=38.0)).judge()
    assert (found.healthy, found.games["g"].status) == (True, "RUNNING")
    assert found.headline == "1 stream healthy; ingest is 38 s behind its source: 760,000 rows wait"


def young(**source: object) -> Judgement:
    """Return the judgement while ingest runs for 90 s, with what it measured."""
    return Given(ingest=replace(INGEST, started_at=NOW - 90), source=replace(LATE, **source)).judge()  # type: ignore[arg-type]


def test_rows_that_waited_for_a_start_are_no_problem_for_two_minutes() -> None:
    """Ingest that has just started is late by what came before: its streams are starting, and then late."""
    for seconds, is_problem, status in ((30, False, "STARTING"), (121, True, "LAGGING")):
        waits = replace(LATE, peak_seconds=None)
        found = Given(ingest=replace(INGEST, started_at=NOW - seconds), source=waits).judge()
        assert (found.source.condition, found.source.is_problem, found.healthy) == ("late", is_problem, not is_problem)
        assert (found.games["g"].status, "healthy" in found.headline) == (status, False)


def test_a_start_ends_once_and_for_all_when_what_waited_is_read() -> None:
    """While rows wait for it the fleet starts, however few; then none of these counts, and what waits anew is late."""
    for waits in (95.0, 40.0, 0.5):
        found = young(age_seconds=waits, peak_seconds=None)
        assert (found.games["g"].status, found.healthy, found.source.is_starting) == ("STARTING", True, True)
        assert of_fleet(Situation(found, (), ())).text == "Ingest reads what waited for its start"
    read = young(age_seconds=0.9, peak_seconds=0.9, rows=300)
    assert (read.games["g"].status, read.headline) == ("RUNNING", "1 stream healthy")
    assert [each.text for each in Situation(read, (), ()).standings] == []
    again = young(age_seconds=61.0, peak_seconds=61.0)
    assert (again.games["g"].status, again.healthy, again.source.is_starting) == ("LAGGING", False, False)
    nothing = young(age_seconds=0.0, peak_seconds=None, rows=0)
    assert (nothing.games["g"].status, nothing.headline) == ("RUNNING", "1 stream healthy")
