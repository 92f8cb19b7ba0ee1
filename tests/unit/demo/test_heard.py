"""The demo's producer behind an edge: what it hears is counted once, and the demo says it."""

import threading
from pathlib import Path

from pipeline.demo.heard import EdgeFollower, Heard, Hearing
from protos.turnout.v1.edge_pb2 import FollowResponse, ReplayedRow
from tests.unit.edge.edge_world import GAME
from tests.unit.edge.follow_world import following, refusal, sent, through


def test_each_event_of_the_simulator_is_counted_once(tmp_path: Path) -> None:
    """Landed and refused events add up to the acknowledged ones, and a replay changes neither number."""
    hearing = Hearing(tmp_path)
    with following() as (script, client):
        follower = EdgeFollower(client.follow(), tmp_path)
        assert hearing.look() is None
        sent(client, "a", "b", "c")
        script.messages.put(refusal("b", 0))
        script.messages.put(through(1))
        script.messages.put(FollowResponse(replayed=[ReplayedRow(game=GAME, event_id="b")]))
        heard = follower.close(threading.Event())
    assert (heard.landed, heard.refused, heard.waiting) == (2, {"contract": 1}, 0)
    assert heard.is_whole
    assert Heard.read(tmp_path) == heard
    assert "came back to its producer" in (hearing.look() or "")
    assert hearing.look() is None


def test_events_without_an_outcome_are_counted_at_the_end(tmp_path: Path) -> None:
    """A signal to stop ends the wait, and nobody takes the run for a whole one."""
    stop = threading.Event()
    stop.set()
    with following() as (_, client):
        follower = EdgeFollower(client.follow(), tmp_path)
        sent(client, "a", "b")
        heard = follower.close(stop)
    assert (heard.is_sent, heard.waiting, heard.is_whole) == (True, 2, False)


def test_the_demo_forgets_what_an_earlier_run_was_told(tmp_path: Path) -> None:
    """A second run in the same folder says only what its own producer hears."""
    with following() as (script, client):
        follower = EdgeFollower(client.follow(), tmp_path)
        sent(client, "a")
        script.messages.put(refusal("a", 0))
        follower.close(threading.Event())
    assert Heard.read(tmp_path).refusals == 1
    assert Hearing(tmp_path).look() is None
    assert Heard.read(tmp_path) == Heard()
