"""The faults of a demo, each on real processes and a real control store; only Spark and the broker are missing."""

import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from pipeline.base.actor import current_user
from pipeline.base.errors import Refused
from pipeline.base.names import game_key
from pipeline.data.contracts.policies import Policies
from pipeline.data.contracts.registry import LocalRegistry, Registration
from pipeline.demo.breaking import faults
from pipeline.demo.breaking.faults import FAULTS
from pipeline.demo.demo import not_own
from pipeline.platforms.local.child_processes import Children
from pipeline.settings.tree import load
from pipeline.store import audit
from pipeline.store.processes.leases import Lease, Process
from protos.turnout.v1.wrapper_pb2 import Wrapper
from tests.unit.demo.house_world import House

CHESS = game_key("Chess")
_DRIVER = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(600)'])"

_WRITER = """
import subprocess, sys
WORKER = '''
import sys
for _ in sys.stdin:
    try:
        with open(sys.argv[1], "ab", buffering=0) as file:
            file.write(b"x")
        print("wrote", flush=True)
    except OSError as error:
        print(error.strerror, flush=True)
'''
worker = subprocess.Popen([sys.executable, "-c", WORKER, sys.argv[2]], stdin=-1, stdout=-1, text=True)
for line in sys.stdin:
    with open(sys.argv[1], "ab", buffering=0) as file:
        file.write(b"x")
    print(line, file=worker.stdin, flush=True, end="")
    print("driver wrote, worker", worker.stdout.readline(), end="", flush=True)
worker.stdin.close()
"""
"""A driver with one worker: both append to a file for each line that they read."""


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[House]:
    made = House(tmp_path)
    yield made
    made.breaker.end_all()
    made.engine.dispose()


@pytest.fixture
def driver(demo: House) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a driver of group a that has started another process, in a session of its own."""
    with subprocess.Popen([sys.executable, "-c", _DRIVER], start_new_session=True) as process:
        Lease(demo.engine, "group", "a", 600.0, Process.of(process.pid)).acquire()
        yield process
        os.killpg(process.pid, signal.SIGKILL) if process.poll() is None else None


def states(session: int) -> set[str]:
    """Return the states of all processes of a session, as the system has them."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[3]) == session:
                found.add(fields[0])
    return found


def until(seen: Callable[[], bool]) -> None:
    ends = time.monotonic() + 20
    while not seen():
        assert time.monotonic() < ends
        time.sleep(0.01)


def test_a_killed_driver_takes_its_processes_with_it(demo: House, driver: "subprocess.Popen[bytes]") -> None:
    """SIGKILL reaches the driver and all that it started; without a driver the fault is refused."""
    assert "Killed the driver of a" in demo.breaker.begin("kill", "a")
    assert driver.wait(20) == -signal.SIGKILL
    until(lambda: states(driver.pid) <= {"Z"})  # init reaps a child that outlived its parent when it comes to it
    assert demo.breaker.active == ()
    with pytest.raises(Refused, match="There is no driver of group a"):
        demo.breaker.begin("kill", "a")
    assert [each[:2] for each in demo.acts()] == [("break it: kill", "begun"), ("break it: kill", "ended")] * 2


def test_a_frozen_driver_goes_on_when_the_fault_ends(demo: House, driver: "subprocess.Popen[bytes]") -> None:
    """SIGSTOP reaches all its processes, and SIGCONT too: by undo, and when the demo ends."""
    for ends in (lambda: demo.breaker.undo("freeze", "a"), demo.breaker.end_all):
        demo.breaker.begin("freeze", "a")
        os.waitid(os.P_PID, driver.pid, os.WSTOPPED | os.WNOWAIT)
        until(lambda: states(driver.pid) == {"T"})  # a child stops a moment after its parent
        with pytest.raises(Refused, match="End it first"):
            demo.breaker.begin("freeze", "a")
        ends()
        os.waitid(os.P_PID, driver.pid, os.WCONTINUED | os.WNOWAIT)
        assert "T" not in states(driver.pid)
        assert demo.breaker.active == ()


def test_a_frozen_driver_that_was_killed_is_forgotten(demo: House, driver: "subprocess.Popen[bytes]") -> None:
    """Once the controller has killed it the fault is over by itself."""
    demo.breaker.begin("freeze", "a")
    demo.breaker.look()
    assert [each.fault for each in demo.breaker.active] == ["freeze"]
    os.killpg(driver.pid, signal.SIGKILL)
    driver.wait(20)
    demo.breaker.look()
    assert demo.breaker.active == ()


def test_each_further_driver_is_killed_until_the_fault_ends(demo: House, driver: "subprocess.Popen[bytes]") -> None:
    """A crash loop kills whatever holds the group's lease, once a second, and nothing after its end."""
    demo.breaker.begin("crash", "a")
    assert driver.wait(20) == -signal.SIGKILL
    demo.breaker.look()  # no driver yet: it waits for the next one
    for dies in (True, False):
        with subprocess.Popen([sys.executable, "-c", _DRIVER], start_new_session=True) as further:
            Lease(demo.engine, "group", "a", 600.0, Process.of(further.pid)).acquire()
            demo.breaker.look()
            if dies:
                assert further.wait(20) == -signal.SIGKILL
                demo.breaker.undo("crash", "a")
            else:
                assert further.poll() is None
                os.killpg(further.pid, signal.SIGKILL)


def test_a_starved_driver_stands_and_runs_in_turn(demo: House, driver: "subprocess.Popen[bytes]") -> None:
    """It is stopped and goes on, again and again; when the fault ends it runs."""
    demo.breaker.begin("starve", "a")
    for _ in range(2):
        os.waitid(os.P_PID, driver.pid, os.WSTOPPED)
        os.waitid(os.P_PID, driver.pid, os.WCONTINUED)
    demo.breaker.undo("starve", "a")
    assert "T" not in states(driver.pid)
    assert driver.poll() is None


def test_a_full_disk_fails_writes_and_ends_no_process(demo: House, tmp_path: Path) -> None:
    """A worker's write fails with the system's reason; the driver's own writes go on, and so do both after the end."""
    command = [sys.executable, "-c", _WRITER, str(tmp_path / "driver"), str(tmp_path / "worker")]
    with subprocess.Popen(
        command, start_new_session=True, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as writer:
        assert writer.stdin is not None
        assert writer.stdout is not None
        Lease(demo.engine, "group", "a", 600.0, Process.of(writer.pid)).acquire()

        def writes() -> str:
            print("write", file=writer.stdin, flush=True)
            return writer.stdout.readline().strip() if writer.stdout else ""

        assert writes() == "driver wrote, worker wrote"
        demo.breaker.begin("disk", "a")
        assert writes() == "driver wrote, worker File too large"
        demo.breaker.undo("disk", "a")
        assert writes() == "driver wrote, worker wrote"
        writer.stdin.close()


def test_a_locked_store_takes_no_write_until_the_fault_ends(demo: House) -> None:
    """The act is in the audit log before nobody can write, and its end once everybody can."""

    def can_write() -> bool:
        with closing(sqlite3.connect(demo.paths.control_db, timeout=0.0, isolation_level=None)) as connection:
            try:
                connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                return False
            return True

    demo.breaker.begin("lock", "")
    demo.breaker.look()
    assert not can_write()
    assert demo.acts()[-1] == ("break it: lock", "ended", "succeeded")
    demo.breaker.undo("lock", "")
    assert can_write()
    assert demo.acts()[-1] == ("break it: end lock", "ended", "succeeded")


def test_a_fault_ends_also_where_nobody_may_act_any_more(demo: House) -> None:
    """A role that was taken away keeps a person from ending it, and never the demo."""
    demo.breaker.begin("silence", "")
    Path(demo.paths.settings_file).write_text('[roles]\noperators = ["nobody@example.com"]\n')
    with pytest.raises(Refused, match="may not break the demo"):
        demo.breaker.undo("silence", "")
    assert demo.source.did == ["stop"]
    demo.breaker.end_all()
    assert demo.source.did == ["stop", "start"]


def test_a_process_that_is_no_driver_of_the_demo_is_left_alone(demo: House) -> None:
    """A lease that names a process of another session, such as this one, reaches nobody."""
    Lease(demo.engine, "group", "a", 600.0, Process.this()).acquire()
    for fault in ("kill", "freeze"):
        with pytest.raises(Refused, match="left alone"):
            demo.breaker.begin(fault, "a")


def test_a_child_that_is_held_is_not_started_again(tmp_path: Path) -> None:
    """The demo restarts what dies, but not what a fault has ended; once started again it is watched as before."""
    with Children(tmp_path / "logs") as children:
        child = children.start("simulate", ["sleep", "600"])
        children.hold("simulate", 20)
        assert child.process is not None
        assert child.process.poll() is not None
        assert children.dead() == []
        children.start("simulate", ["sleep", "601"])
        assert (child.process.poll(), child.command) == (None, ["sleep", "601"])
        children.end("simulate", 20)
        assert children.dead() == [child]


def test_the_source_is_silent_until_the_fault_ends(demo: House) -> None:
    """The simulator is ended once, and started once."""
    demo.breaker.begin("silence", "")
    assert demo.source.did == ["stop"]
    demo.breaker.undo("silence", "")
    assert demo.source.did == ["stop", "start"]
    with pytest.raises(Refused, match="nothing to end"):
        demo.breaker.undo("silence", "")


@pytest.mark.parametrize("game", ["Chess", "Go", "Ludo"])
def test_poison_is_refused_by_every_decoder(demo: House, game: str) -> None:
    """A poisoned game gets rows that its format does not accept, until the fault ends."""
    demo.breaker.begin("poison", game)
    assert demo.first.wait(20)
    assert {event.game for event in demo.sent} == {game}
    assert demo.refused() == {"malformed_payload"}
    demo.breaker.undo("poison", game)
    assert demo.breaker.active == ()


def test_quarantine_gets_one_burst(demo: House) -> None:
    """All rows are sent before the fault is answered, none of them decodes, and each is another event."""
    demo.breaker.begin("quarantine", CHESS)
    assert len(demo.sent) == faults.QUARANTINE_ROWS
    assert len({Wrapper.FromString(event.value).event_id for event in demo.sent}) == faults.QUARANTINE_ROWS
    assert demo.refused() == {"malformed_payload"}
    assert demo.breaker.active == ()


@pytest.mark.parametrize("game", ["Chess", "Go", "Ludo"])
def test_a_breaking_schema_is_refused_and_can_be_mended(demo: House, game: str) -> None:
    """The default policy refuses the release, its rows are quarantined by policy, and land once a person says where."""
    said = demo.breaker.begin("schema", game)
    assert demo.first.wait(20)
    assert "refused first: " in said
    key = game_key(game)
    schemas = LocalRegistry(demo.engine).snapshot()
    (newest,) = schemas.of(key)[-1:]
    assert schemas.placement(key, newest.schema_id).quarantined is not None
    assert {Wrapper.FromString(event.value).schema_id for event in demo.sent} == {newest.schema_id}
    mend(demo, game)
    assert LocalRegistry(demo.engine).snapshot().placement(key, newest.schema_id).quarantined is None
    assert demo.refused() == set()
    demo.breaker.undo("schema", game)
    outcomes = [each.outcome for each in audit.entries(demo.engine) if each.action == "register a schema"]
    assert outcomes == [None, "failed", None, "succeeded"]


def mend(demo: House, game: str) -> None:
    """Register quarantined versions again, as the page Schemas does, with a policy by which their rows land."""
    schemas, registry = LocalRegistry(demo.engine).snapshot(), LocalRegistry(demo.engine)
    for each, placement in schemas.placed(game_key(game)):
        if placement.quarantined is not None:
            policies = Policies((("incompatible", "side-column"),))
            registry.register_many([Registration(game, each.message, each.definition, policies, format=each.format)])


def test_a_breaking_release_breaks_another_field_once_it_is_mended(demo: House) -> None:
    """The fault can be done again; where it was mended another text becomes a number, until none is left."""
    said: list[str] = []
    refusal = ""
    while not refusal and len(said) < 20:
        try:
            said += [demo.breaker.begin("schema", "Chess")]
            demo.breaker.undo("schema", "Chess")
            said += [demo.breaker.begin("schema", "Chess")]
            demo.breaker.undo("schema", "Chess")
            mend(demo, "Chess")
        except Refused as refused:
            refusal = str(refused)
    changes = [each.partition("refused first: ")[2] for each in said]
    assert "every breaking release" in refusal
    assert changes[0::2] == changes[1::2]
    assert len(set(changes)) == len(changes) / 2


@pytest.mark.parametrize(
    ("fault", "target"),
    [
        ("shell", "a"), ("kill", "nobody"), ("kill", ""), ("kill", "../a"), ("kill", CHESS), ("kill", "ingest"),
        ("poison", "a"), ("poison", ""), ("silence", "a"), ("freeze", "\u202e"),
    ],
)  # fmt: skip
def test_a_fault_or_target_that_is_not_there_is_refused(demo: House, fault: str, target: str) -> None:
    """Nothing is done, and nothing is in the audit log."""
    with pytest.raises(Refused):
        demo.breaker.begin(fault, target)
    assert (demo.acts(), demo.source.did, demo.sent) == ([], [], [])


def test_a_fault_needs_the_role(demo: House) -> None:
    """A demo with roles is broken by its operators alone."""
    Path(demo.paths.settings_file).write_text('[roles]\noperators = ["nobody@example.com"]\n')
    with pytest.raises(Refused, match="may not break the demo"):
        demo.breaker.begin("silence", "")
    assert (demo.acts(), demo.source.did) == ([], [])


def test_every_fault_is_audited_by_the_user_of_the_demo(demo: House) -> None:
    """The log has each fault and its end, with the person and the target."""
    demo.breaker.begin("poison", "Chess")
    demo.breaker.undo("poison", CHESS)
    entries = [each for each in audit.entries(demo.engine) if each.action.startswith("break it")]
    assert [each.action for each in entries] == ["break it: poison"] * 2 + ["break it: end poison"] * 2
    assert {(each.actor, each.targets) for each in entries} == {(current_user(), (f"game:{CHESS}",))}


def test_a_fault_ends_by_itself(demo: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its time is bounded, and it is over at once where it cannot go on."""
    demo.breaker.begin("poison", "Chess")
    (active,) = demo.breaker.active
    monkeypatch.setattr("pipeline.demo.breaking.breaker.time.time", lambda: active.until + 1)
    demo.breaker.look()
    assert demo.breaker.active == ()
    monkeypatch.undo()
    demo.fails = Refused("the broker is away")
    demo.breaker.begin("poison", "Chess")
    for thread in [each for each in threading.enumerate() if each.name == "break it: rows"]:
        thread.join(20)
    demo.breaker.look()
    assert demo.breaker.active == ()


def test_every_fault_says_what_to_see_and_how_it_is_mended() -> None:
    """A fault that lasts has an end and a limit; each names pages and seconds."""
    for fault in FAULTS.values():
        assert fault.signs
        assert fault.mend
        assert bool(fault.undo) == (fault.limit_seconds > 0), fault.name


@pytest.mark.parametrize(
    ("text", "environ", "why"),
    [
        ("", {}, None),
        ('[source]\nkind = "kafka"', {"TURNOUT_SOURCE__BOOTSTRAP_SERVERS": "127.0.0.1:1"}, None),
        ('[source]\nkind = "kafka"', {}, "broker"),
        ('[source]\npath = "/prod"', {}, "source"),
        ('[store]\nurl = "sqlite:////prod/control.db"', {}, "store"),
        ('[access]\ncatalog = "unity"', {}, "catalog"),
    ],
)
def test_a_demo_that_shares_something_is_never_broken(
    tmp_path: Path, text: str, environ: dict[str, str], why: str | None
) -> None:
    """No setting alone offers faults: store, source and catalog must be the demo's own."""
    (tmp_path / "turnout.toml").write_text(text)
    said = not_own(load(tmp_path, {})[0], environ)
    assert said is None if why is None else why in str(said)
