"""Each fault of Break it on a real demo: what an operator should see is seen in the time that the fault says."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from sqlalchemy import Engine, func, select

from pipeline.base.names import game_key
from pipeline.cli.main import cli
from pipeline.data.contracts.policies import Policies
from pipeline.data.contracts.registry import LocalRegistry, Registration
from pipeline.demo.breaking import channel
from pipeline.demo.breaking.faults import FAULTS, QUARANTINE_ROWS
from pipeline.demo.server_process import free_ports
from pipeline.health.facts.fleet import Fleet, GameRow, read_fleet
from pipeline.settings.tree import Paths, load
from pipeline.store import audit
from pipeline.store.database.engine import open_store
from pipeline.store.database.tables import group_runs

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

CHESS, GARDEN = game_key("Chess"), game_key("Gem Garden")
_READY_SECONDS = 360.0
_SLACK = 3.0  # two cores, on which the whole demo and the tests run: what a fault says holds for an idle machine


class Demo:
    """A running demo, seen through its control store and its commands."""

    def __init__(self, env: Path) -> None:
        settings, self.paths = load(env)
        self.env = env
        self.engine: Engine = open_store(settings, self.paths)

    def fleet(self) -> Fleet:
        return read_fleet(self.engine)

    def game(self, key: str) -> GameRow:
        row = self.fleet().row(key)
        assert row is not None
        return row

    def driver(self, kind: str, name: str) -> str:
        state = self.fleet().state(kind, name)
        return "none" if state is None else state.liveness.state

    def deaths(self, group: str) -> int:
        """Return how many drivers of a group have died."""
        died = select(func.count()).where(group_runs.c.group_name == group, group_runs.c.died == 1)
        with self.engine.connect() as connection:
            return connection.scalar(died) or 0

    def well(self) -> bool:
        statuses = {row.verdict.status for row in self.fleet().rows}
        return len(self.fleet().rows) == 6 and statuses == {"RUNNING"} and self.driver("group", "a") == "running"

    def run(self, *words: str) -> Result:
        return CliRunner().invoke(cli, [*words, "--env-dir", str(self.env)])

    def begin(self, fault: str, *target: str) -> Result:
        done = self.run("demo", "break", fault, *target)
        assert done.exit_code == 0, done.output
        return done

    def mend(self, fault: str, *target: str) -> None:
        done = self.run("demo", "mend", fault, *target)
        assert done.exit_code == 0, done.output

    def refused(self, key: str) -> dict[str, int]:
        """Return how many rows of a game each reason refused, as quarantine has them."""
        listed = json.loads(self.run("quarantine", "list", "--json").output.splitlines()[-1])["counts"]
        return {each["reason"]: each["rows"] for each in listed if each["game_key"] == key}


def until(seen: Callable[[], bool], seconds: float) -> None:
    """Look until something is seen, and fail when it is not in time."""
    deadline = time.monotonic() + seconds
    while not seen():
        assert time.monotonic() < deadline, f"not seen within {seconds:g} s"
        time.sleep(0.5)


def within(fault: str, sign: int) -> float:
    return FAULTS[fault].signs[sign].seconds * _SLACK


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    """Start a demo, and end it with Ctrl-C."""
    env = tmp_path_factory.mktemp("break") / "env"
    env.mkdir()
    dashboard, catalog = free_ports(None, 1)
    (env / "turnout.toml").write_text(f"[dashboard]\nport = {dashboard}\n[access]\nport = {catalog}\n")
    options = ("--games", "6", "--versions", "3", "--rate", "200", "--bad-share", "0", "--env-dir", str(env))
    with (env / "demo.log").open("wb") as log:
        process = subprocess.Popen([sys.executable, "-m", "pipeline", "demo", *options], stderr=log)
        try:
            until(lambda: channel.is_offered(Paths(env)), _READY_SECONDS)
            made = Demo(env)
            until(made.well, _READY_SECONDS)
            yield made
            made.begin("freeze", "b")  # still frozen when the demo ends
            made.begin("silence")
        finally:
            process.send_signal(signal.SIGINT)
            assert process.wait(180) == 0
    assert not channel.is_offered(Paths(env))
    assert not Paths(env).break_it.exists()
    acts = [each.action for each in audit.entries(made.engine) if each.phase == "ended"]
    assert {"break it: end freeze", "break it: end silence"} <= set(acts)
    assert made.driver("group", "b") == "stopped"
    proof = json.loads(made.run("verify", "--json").output.splitlines()[-1])
    assert proof["ok"] is True  # nothing is lost, doubled or misrouted, whatever was broken
    made.engine.dispose()


def test_a_killed_driver_is_seen_and_restarted(demo: Demo) -> None:
    """Its games are in trouble, the other group's are not, and the controller mends it alone."""
    until(demo.well, _READY_SECONDS)
    demo.begin("kill", "a")
    until(lambda: demo.driver("group", "a") != "running", within("kill", 0))
    others = {row.verdict.status for row in demo.fleet().rows if row.group == "b"}
    assert others == {"RUNNING"}
    until(demo.well, _READY_SECONDS)


def test_a_frozen_driver_is_unknown_and_never_healthy(demo: Demo) -> None:
    """Its reports count no more; thawed it goes on."""
    until(demo.well, _READY_SECONDS)
    demo.begin("freeze", "a")
    until(lambda: demo.driver("group", "a") == "unknown", within("freeze", 0))
    assert "RUNNING" not in {row.verdict.status for row in demo.fleet().rows if row.group == "a"}
    demo.mend("freeze", "a")
    until(demo.well, _READY_SECONDS)


def test_a_crash_loop_is_seen_and_ends(demo: Demo) -> None:
    """Several deaths stand in the record of the group, the other group is well, and so is this one afterwards."""
    until(demo.well, _READY_SECONDS)
    before = demo.deaths("a")
    demo.begin("crash", "a")
    until(lambda: demo.deaths("a") >= before + 2, within("crash", 1))
    assert {row.verdict.status for row in demo.fleet().rows if row.group == "b"} == {"RUNNING"}
    demo.mend("crash", "a")
    until(demo.well, _READY_SECONDS)


def test_a_full_disk_fails_streams_and_refuses_no_row(demo: Demo) -> None:
    """All games of the group fail for the system's reason; with room again they land everything."""
    until(demo.well, _READY_SECONDS)
    games = [row.game_key for row in demo.fleet().rows if row.group == "a"]
    refused = {key: demo.refused(key) for key in games}
    demo.begin("disk", "a")
    until(lambda: {demo.game(key).verdict.status for key in games} == {"FAILED"}, within("disk", 0))
    assert all("File too large" in str(demo.game(key).reported) for key in games)
    demo.mend("disk", "a")
    until(demo.well, _READY_SECONDS)
    assert {key: demo.refused(key) for key in games} == refused


def test_a_starved_driver_recovers(demo: Demo) -> None:
    """It goes on slowly, and well again afterwards."""
    until(demo.well, _READY_SECONDS)
    demo.begin("starve", "b")
    until(lambda: channel.look(demo.paths).active != (), 5.0)
    demo.mend("starve", "b")
    until(demo.well, _READY_SECONDS)


def test_a_locked_store_is_never_shown_as_well(demo: Demo) -> None:
    """No heartbeat is written, so nothing counts as known; afterwards all drivers go on by themselves."""
    until(demo.well, _READY_SECONDS)
    demo.begin("lock")
    until(lambda: {demo.driver("group", each) for each in "ab"} <= {"unknown", "dead"}, within("lock", 0))
    assert "RUNNING" not in {row.verdict.status for row in demo.fleet().rows}
    demo.mend("lock")
    until(demo.well, _READY_SECONDS)


def test_a_silent_source_is_nobodys_fault(demo: Demo) -> None:
    """No row arrives, and no game falls behind."""
    until(demo.well, _READY_SECONDS)
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
    until(demo.well, _READY_SECONDS)
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
    until(demo.well, _READY_SECONDS)
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
    until(demo.well, _READY_SECONDS)
