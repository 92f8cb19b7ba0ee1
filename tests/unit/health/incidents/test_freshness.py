"""The incident of tables that are not as fresh as output contracts promise."""

from dataclasses import replace
from itertools import count

from pipeline.health.incidents.freshness import keep_freshness
from pipeline.health.incidents.incidents import Incident
from pipeline.health.verdicts.freshness import FreshnessVerdict
from tests.unit.health.verdicts.freshness_world import NOW, verdict

GO = replace(verdict(through=900), game_key="go", game="Go")


def test_all_broken_promises_are_one_incident() -> None:
    """It names each game with its contract and readers, ends once all are kept, and opens again instead of twice."""
    ids = map(str, count())

    def look(before: tuple[Incident, ...], now: float, *found: FreshnessVerdict) -> tuple[Incident, ...]:
        return keep_freshness(before, found, now, lambda: next(ids))

    assert look((), NOW, verdict(through=1)) == ()
    (one,) = first = look((), NOW, verdict(through=601), replace(GO, through_at=NOW))
    assert one.finding.title == "Chess is not as fresh as its contract promises"
    assert one.finding.action is not None
    assert one.finding.action.query == {"game": "chess", "rows": "contract"}
    (two,) = second = look(first, NOW + 10, verdict(through=601), GO)
    assert (two.incident_id, two.since, two.games) == (one.incident_id, NOW, ())
    assert two.finding.title == "2 games are not as fresh as their contracts promise"
    said = "; at most 10 min are promised (readers: BI)"
    assert two.finding.evidence == (
        f"Chess, contract sales: complete through 2027-01-15 07:49:59 UTC, 10 min ago{said}",
        f"Go, contract sales: complete through 2027-01-15 07:45:00 UTC, 15 min ago{said}",
    )
    (ended,) = third = look(second, NOW + 20, verdict(through=1))
    assert (ended.ended_at, ended.tone) == (NOW + 20, "recovering")
    (again,) = look(third, NOW + 30, verdict())
    assert (again.incident_id, again.ended_at, again.since) == (one.incident_id, None, NOW)
