"""A spool keeps each event until it has an outcome, through kills at any moment, within its bytes."""

import errno
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.edge.client import EdgeAcknowledged, EdgeClient, EdgeEvent, EdgeOutcome, EdgeRejected
from pipeline.edge.spooling import spool as spool_module
from pipeline.edge.spooling.spool import Spool, SpoolFull
from pipeline.edge.spooling.spooled_client import MAX_EVENT_BYTES, SpooledEdgeClient
from protos.turnout.v1.wrapper_pb2 import Wrapper
from tests.checkout import ROOT
from tests.unit.edge.edge_world import GAME, TOKEN, HeldLog, edge_in_thread, payload
from tests.unit.edge.spool_world import MOST, SpoolWorld, left


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_a_spool_killed_at_any_moment_has_what_is_not_settled(seed: int) -> None:
    """Whatever was appended and not settled is there in order, damaged ends or not, and never more than the bytes."""
    draw = Random(seed)
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(spool_module, "FILE_BYTES", 300)
        world = SpoolWorld(Path(folder), draw)
        for _ in range(draw.randrange(60)):
            world.step()
        world.end()
        assert world.spool.wait_settled(0.0)
        assert world.spool.size_bytes == 0
        world.spool.close()


def test_a_damaged_file_is_kept(tmp_path: Path) -> None:
    """Events behind damaged bytes cannot be read: the file stays for a person, and the spool goes on."""
    spool = Spool(tmp_path, MOST)
    for number in range(3):
        spool.append(b"event %d" % number)
    spool.close()
    (path,) = tmp_path.glob("*.events")
    raw = bytearray(path.read_bytes())
    raw[raw.index(b"event 1")] ^= 1
    path.write_bytes(raw)
    spool = Spool(tmp_path, MOST)
    first = spool.following(0.0)
    assert first is not None
    assert (first.record, spool.following(0.0)) == (b"event 0", None)
    spool.settle(first)
    assert spool.wait_settled(0.0)
    assert [each.suffix for each in tmp_path.iterdir() if each.name != "lock"] == [".damaged"]
    spool.close()


def test_one_process_uses_a_folder(tmp_path: Path) -> None:
    """Two clients on one folder would send events twice and delete each other's files."""
    spool = Spool(tmp_path, MOST)
    with pytest.raises(BlockingIOError):
        Spool(tmp_path, MOST)
    spool.close()
    with pytest.raises(ValueError, match="closed"):
        spool.append(b"late")
    Spool(tmp_path, MOST).close()


def test_a_full_disk_takes_nothing_of_an_event(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An event that the disk takes in part leaves no trace, and `send` raises that there is no room."""
    spool = Spool(tmp_path, MOST, 0.0)
    write = os.write
    monkeypatch.setattr(os, "write", lambda handle, content: write(handle, content[:5]))
    with pytest.raises(SpoolFull, match="disk"):
        spool.append(b"event")
    monkeypatch.undo()
    spool.append(b"next")
    assert left(tmp_path) == [b"next"]
    spool.close()


def test_a_disk_that_others_fill_takes_no_event(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without room for one byte, or for a file, `append` says that there is no room, as for a part of an event."""
    spool = Spool(tmp_path, MOST, 0.0)

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    for name in ("open", "write"):
        with monkeypatch.context() as patch:
            patch.setattr(os, name, full)
            with pytest.raises(SpoolFull, match="disk"):
                spool.append(b"event")
    spool.append(b"next")
    assert left(tmp_path) == [b"next"]
    spool.close()


def test_a_fork_takes_no_event(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fork shares file and lock with its parent, which deletes the file once its own records are settled."""
    spool = Spool(tmp_path, MOST, 0.0)
    spool.append(b"of the parent")
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: 1)
        with pytest.raises(RuntimeError, match="a folder of its own"):
            spool.append(b"of the fork")
    assert left(tmp_path) == [b"of the parent"]
    spool.close()


class Outcomes:
    """The outcomes of events, as a client gives them."""

    def __init__(self) -> None:
        self.found: dict[str, EdgeOutcome] = {}
        self._lock = threading.Lock()

    def __call__(self, outcome: EdgeOutcome) -> None:
        with self._lock:
            self.found[outcome.event_id] = outcome


def test_events_wait_on_disk_while_no_edge_answers(tmp_path: Path) -> None:
    """Without an edge `send` returns at once; the next process sends the same ids, and refused ones leave the disk."""
    away = SpooledEdgeClient(EdgeClient("127.0.0.1:1", TOKEN, call_seconds=1.0), tmp_path, most_bytes=100_000)
    sent = [away.send(EdgeEvent(GAME, 1, payload(number))) for number in range(100)]
    sent.append(away.send(EdgeEvent(GAME, 1, b"\xff", event_id="bad")))
    with pytest.raises(ValueError, match="edge takes"):
        away.send(EdgeEvent(GAME, 1, bytes(MAX_EVENT_BYTES)))
    with pytest.raises(SpoolFull, match="no room"):
        sent.extend(away.send(EdgeEvent(GAME, 1, payload(1))) for _ in range(1_000))
    assert not away.close()
    outcomes = Outcomes()
    with edge_in_thread() as edge:
        again = SpooledEdgeClient(EdgeClient(edge.address, TOKEN), tmp_path, outcomes)
        assert again.close(30)
        assert [Wrapper.FromString(each).event_id for each in edge.log.values] == [
            each for each in sent if each != "bad"
        ]
    assert [*outcomes.found] == sent
    assert isinstance(outcomes.found.pop("bad"), EdgeRejected)
    assert {type(each) for each in outcomes.found.values()} == {EdgeAcknowledged}
    assert not [*tmp_path.glob("*.events")]


def test_an_event_that_the_client_gives_up_stays(tmp_path: Path) -> None:
    """A wrong token loses no event: a process with the right one sends them."""
    with edge_in_thread() as edge:
        wrong = SpooledEdgeClient(EdgeClient(edge.address, "wrong"), tmp_path)
        wrong.send(EdgeEvent(GAME, 1, payload(), event_id="kept"))
        assert not wrong.close(0.3)
        with SpooledEdgeClient(EdgeClient(edge.address, TOKEN), tmp_path) as right:
            assert right.flush(30)
        assert [Wrapper.FromString(each).event_id for each in edge.log.values] == ["kept"]


_PRODUCER = """
import sys
from pathlib import Path
from pipeline.edge.client import EdgeClient, EdgeEvent
from pipeline.edge.spooling.spooled_client import SpooledEdgeClient
address, token, folder, first = sys.argv[1:]
client = SpooledEdgeClient(EdgeClient(address, token, batch_events=20), Path(folder))
payload = sys.stdin.buffer.read()
for number in range(int(first), 10**9):
    print(client.send(EdgeEvent("Chess", 1, payload, event_id=f"e{number}")), flush=True)
"""


def test_a_producer_killed_under_load_loses_no_event_that_it_has_sent(tmp_path: Path) -> None:
    """Each event whose `send` returned reaches the log, through five kills and an edge that is away in between."""
    draw, sent, log = Random(57), list[str](), HeldLog(at_once=True)
    for round_ in range(5):
        with edge_in_thread(log=log) as edge:
            address = "127.0.0.1:1" if round_ == 2 else edge.address
            command = [sys.executable, "-c", _PRODUCER, address, TOKEN, str(tmp_path), str(len(sent))]
            before = len(sent)
            with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT) as producer:
                assert producer.stdin is not None
                assert producer.stdout is not None
                producer.stdin.write(payload())
                producer.stdin.close()
                wanted = draw.randrange(20, 2_000)
                sent += [producer.stdout.readline().decode().strip() for _ in range(wanted)]
                producer.send_signal(signal.SIGKILL)
                sent += [line.decode().strip() for line in producer.stdout.readlines() if line.endswith(b"\n")]
            assert len(sent) > before
    outcomes = Outcomes()
    with (
        edge_in_thread(log=log) as edge,
        SpooledEdgeClient(EdgeClient(edge.address, TOKEN), tmp_path, outcomes) as last,
    ):
        assert last.flush(60)
    found = {Wrapper.FromString(each).event_id for each in log.values}
    assert {*sent} - found == set()
    assert found - {*sent} <= {f"e{number}" for number in range(len(sent) + 5)}  # of which nobody read the answer
