"""The client: an event has one outcome, and only what the edge acknowledged is acknowledged."""

import pytest
from confluent_kafka import KafkaError

from pipeline.edge.client import EdgeAcknowledged, EdgeClient, EdgeEvent, EdgeGaveUp, EdgeRejected
from protos.turnout.v1.wrapper_pb2 import Wrapper
from tests.unit.edge.edge_world import GAME, TOKEN, HeldLog, edge_in_thread, known_of, payload, schema_of


def test_each_event_gets_its_own_outcome_and_an_id() -> None:
    """A batch of good and bad events is split: each future has what became of its event."""
    with edge_in_thread() as edge, EdgeClient(edge.address, TOKEN, producer_id="test") as client:
        good = client.send(EdgeEvent(GAME, 1, payload(), event_time=1_700_000_000.5, sequence=3))
        bad = client.send(EdgeEvent(GAME, 1, b"\xff", event_id="bad"))
        other = client.send(EdgeEvent("Go", 1, payload()))
        named = client.send(EdgeEvent(GAME, 1, payload(2), event_id="named"))
        assert client.flush(30)
        assert named.result(0) == EdgeAcknowledged("named")
        first = good.result(0)
        assert isinstance(first, EdgeAcknowledged)
        assert isinstance(bad.result(0), EdgeRejected)
        assert bad.result(0).event_id == "bad"
        refused = other.result(0)
        assert isinstance(refused, EdgeRejected)
        assert (refused.reason, refused.field) == ("not_allowed", "game")
        (raw,) = (each for each in edge.log.values if Wrapper.FromString(each).event_id != "named")
        sent = Wrapper.FromString(raw)
        assert (sent.event_id, sent.producer_id, sent.sequence) == (first.event_id, "test", 3)
        assert sent.event_time.ToMicroseconds() == 1_700_000_000_500_000


def test_a_batch_that_the_log_lost_is_sent_again_with_the_same_ids() -> None:
    """An event is acknowledged once, however many tries it took, and its copies have one event id."""

    class Failing(HeldLog):
        tries = 0

        def acknowledge(self, error: KafkaError | None = None, *, but: int = 0) -> None:
            self.tries += 1
            super().acknowledge(KafkaError(KafkaError._MSG_TIMED_OUT) if self.tries < 3 else error, but=but)

    log = Failing(at_once=True)
    with edge_in_thread(log=log) as edge, EdgeClient(edge.address, TOKEN) as client:
        outcome = client.send(EdgeEvent(GAME, 1, payload())).result(60)
        assert isinstance(outcome, EdgeAcknowledged)
        assert {Wrapper.FromString(each).event_id for each in log.values} == {outcome.event_id}
        assert len(log.values) == 3


def test_without_an_edge_an_event_gives_up_and_is_not_acknowledged() -> None:
    """The queue is bounded, and nothing that never arrived counts as sent."""
    client = EdgeClient("127.0.0.1:1", TOKEN, give_up_seconds=0.2, call_seconds=1.0)
    future = client.send(EdgeEvent(GAME, 1, b"x"))
    with pytest.raises(EdgeGaveUp):
        future.result(30)
    assert client.close(5)
    with pytest.raises(ValueError, match="closed"):
        client.send(EdgeEvent(GAME, 1, b"x"))


def test_a_wrong_token_gives_up_at_once() -> None:
    """A status that no retry changes is not tried again."""
    with edge_in_thread() as edge, EdgeClient(edge.address, "wrong") as client:
        with pytest.raises(EdgeGaveUp, match="UNAUTHENTICATED"):
            client.send(EdgeEvent(GAME, 1, payload())).result(30)
        with pytest.raises(EdgeGaveUp):
            client.wait_until_ready(0.1)
    with edge_in_thread(known=known_of(schema_of())) as edge, EdgeClient(edge.address, TOKEN) as client:
        client.wait_until_ready(30)
