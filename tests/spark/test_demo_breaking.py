"""Each fault of Break it on a real demo: what an operator should see is seen in the time that the fault says."""

from collections.abc import Iterator

import pytest

from pipeline.base.names import game_key
from pipeline.data.contracts.policies import Policies
from pipeline.data.contracts.registry import LocalRegistry, Registration
from pipeline.demo.breaking import channel
from pipeline.demo.breaking.faults import QUARANTINE_ROWS
from pipeline.store import audit
from tests.spark.live_demo_world import READY_SECONDS, Demo, running, until, within

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

CHESS, GARDEN = game_key("Chess"), game_key("Gem Garden")


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    with running(tmp_path_factory.mktemp("break") / "env") as made:
        yield made
        made.begin("freeze", "b")  # still frozen when the demo ends
        made.begin("silence")
    assert not channel.is_offered(made.paths)
    assert not made.paths.break_it.exists()
    acts = [each.action for each in audit.entries(made.engine) if each.phase == "ended"]
    assert {"break it: end freeze", "break it: end silence"} <= set(acts)
    assert made.driver("group", "b") == "stopped"
    assert made.json("verify")["ok"] is True  # nothing is lost, doubled or misrouted, whatever was broken
    made.engine.dispose()


def test_a_killed_driver_is_seen_and_restarted(demo: Demo) -> None:
    """Its games are in trouble, the other group's are not, and the controller mends it alone."""
    until(demo.well, READY_SECONDS)
    demo.begin("kill", "a")
    until(lambda: demo.driver("group", "a") != "running", within("kill", 0))
    others = {row.verdict.status for row in demo.fleet().rows if row.group == "b"}
    assert others == {"RUNNING"}
    until(demo.well, READY_SECONDS)


def test_a_frozen_driver_is_unknown_and_never_healthy(demo: Demo) -> None:
    """Its reports count no more; thawed it goes on."""
    until(demo.well, READY_SECONDS)
    demo.begin("freeze", "a")
    until(lambda: demo.driver("group", "a") == "unknown", within("freeze", 0))
    assert "RUNNING" not in {row.verdict.status for row in demo.fleet().rows if row.group == "a"}
    demo.mend("freeze", "a")
    until(demo.well, READY_SECONDS)


def test_a_crash_loop_is_seen_and_ends(demo: Demo) -> None:
    """Several deaths stand in the record of the group, the other group is well, and so is this one afterwards."""
    until(demo.well, READY_SECONDS)
    before = demo.deaths("a")
    demo.begin("crash", "a")
    until(lambda: demo.deaths("a") >= before + 2, within("crash", 1))
    assert {row.verdict.status for row in demo.fleet().rows if row.group == "b"} == {"RUNNING"}
    demo.mend("crash", "a")
    until(demo.well, READY_SECONDS)


def test_a_full_disk_fails_streams_and_refuses_no_row(demo: Demo) -> None:
    """All games of the group fail for the system's reason; with room again they land everything."""
    until(demo.well, READY_SECONDS)
    games = [row.game_key for row in demo.fleet().rows if row.group == "a"]
    refused = {key: demo.refused(key) for key in games}
    demo.begin("disk", "a")
    until(lambda: {demo.game(key).verdict.status for key in games} == {"FAILED"}, within("disk", 0))
    assert all("File too large" in str(demo.game(key).reported) for key in games)
    demo.mend("disk", "a")
    until(demo.well, READY_SECONDS)
    assert {key: demo.refused(key) for key in games} == refused


def test_a_starved_driver_recovers(demo: Demo) -> None:
    """It goes on slowly, and well again afterwards."""
    until(demo.well, READY_SECONDS)
    demo.begin("starve", "b")
    until(lambda: channel.look(demo.paths).active != (), 5.0)
    demo.mend("starve", "b")
    until(demo.well, READY_SECONDS)


def test_a_locked_store_is_never_shown_as_well(demo: Demo) -> None:
    """No heartbeat is written, so nothing counts as known; afterwards all drivers go on by themselves."""
    until(demo.well, READY_SECONDS)
    demo.begin("lock")
    until(lambda: {demo.driver("group", each) for each in "ab"} <= {"unknown", "dead"}, within("lock", 0))
    assert "RUNNING" not in {row.verdict.status for row in demo.fleet().rows}
    demo.mend("lock")
    until(demo.well, READY_SECONDS)


def test_a_silent_source_is_nobodys_fault(demo: Demo) -> None:
    """No row arrives, and no game falls behind."""
    until(demo.well, READY_SECONDS)
    demo.begin("silence")
    seqs: list[int | None] = []

    def level() -> bool:
        seqs.append(demo.fleet().newest_bronze_seq)
        return len(seqs) > 10 and len(set(seqs[-10:])) == 1

    until(level, within("silence", 0))
    assert {row.verdict.status for row in demo.fleet().rows} == {"RUNNING"}
    demo.mend("silence")
    until(lambda: demo.fleet().newest_bronze_seq != seqs[-1], within("silence", 0))


def test_poison_and_a_full_quarantine_keep_to_their_game(demo: Demo) -> None:
    """The rows stand in quarantine under the reason that the fault says, and no neighbour has any."""
    until(demo.well, READY_SECONDS)
    demo.begin("quarantine", "Gem Garden")
    until(lambda: demo.refused(GARDEN) == {"malformed_payload": QUARANTINE_ROWS}, within("quarantine", 1))
    demo.begin("poison", CHESS)
    until(lambda: demo.refused(CHESS).get("malformed_payload", 0) > 40, within("poison", 1))
    demo.mend("poison", "Chess")
    for key in (row.game_key for row in demo.fleet().rows if row.game_key not in {CHESS, GARDEN}):
        assert demo.refused(str(key)) == {}
    assert demo.well()


def test_a_breaking_schema_waits_in_quarantine_until_it_is_mended(demo: Demo) -> None:
    """Once the version is registered again its rows land, and a replay lands those that waited."""
    until(demo.well, READY_SECONDS)
    assert "refused first" in demo.begin("schema", "Chess").output
    until(lambda: demo.refused(CHESS).get("quarantined_schema", 0) > 20, within("schema", 1))
    registry = LocalRegistry(demo.engine)
    newest = registry.snapshot().of(CHESS)[-1]
    mended = Policies((("incompatible", "side-column"),))
    registry.register_many([Registration("Chess", newest.message, newest.definition, mended, format=newest.format)])
    demo.mend("schema", "Chess")
    done = demo.run("repair", "replay", "Chess", "--quarantine-reason", "quarantined_schema", "--reason", "mended")
    assert done.exit_code == 0, done.output
    assert "quarantined_schema" not in demo.refused(CHESS)
    until(demo.well, READY_SECONDS)
