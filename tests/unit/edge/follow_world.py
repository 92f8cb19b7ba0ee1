"""A client that follows what a test says, as an edge would."""

import asyncio
import queue
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from pipeline.edge.client import EdgeClient, EdgeEvent
from pipeline.edge.statuses import EdgeStatus
from pipeline.store.edge_producers import EdgeProducer
from protos.turnout.v1.edge_pb2 import FollowRequest, FollowResponse, GameThrough, LogPosition, RefusedRow
from tests.unit.edge.edge_world import GAME, TOKEN, HeldLog, edge_in_thread, payload


@dataclass
class Script:
    """A tail whose messages a test gives; None ends a stream, a status ends it with that."""

    requests: "queue.Queue[FollowRequest]" = field(default_factory=queue.Queue)
    messages: "queue.Queue[FollowResponse | EdgeStatus | None]" = field(default_factory=queue.Queue)

    async def serve(self, raw: bytes, caller: Callable[[], EdgeProducer], say: Callable[[bytes], Any]) -> None:
        self.requests.put(FollowRequest.FromString(raw))
        while True:
            caller()
            try:
                message = self.messages.get_nowait()
            except queue.Empty:
                await asyncio.sleep(0.005)
                continue
            if message is None:
                return
            if isinstance(message, EdgeStatus):
                raise message
            await say(message.SerializeToString())

    def drain(self) -> None: ...

    def close(self) -> None: ...


def through(offset: int, topic_id: str = "", *former: str) -> FollowResponse:
    position = LogPosition(partition=0, offset=offset)
    landed = GameThrough(games=[GAME], through=[position], topic_id=topic_id, former_topic_ids=former)
    return FollowResponse(landed=[landed], token=b"token")


def refusal(event_id: str, offset: int) -> FollowResponse:
    row = RefusedRow(game=GAME, event_id=event_id, offset=offset, reason="contract", detail="d", field="payload")
    return FollowResponse(refused=[row])


@contextmanager
def following(log: HeldLog | None = None) -> Iterator[tuple[Script, EdgeClient]]:
    """A client that follows a script; the beginning of its stream is over."""
    script: Any = Script()
    with (
        edge_in_thread(log=log, tail=script) as edge,
        EdgeClient(edge.address, TOKEN, linger_seconds=0.0) as client,
    ):
        outcomes = client.follow()
        script.requests.get(timeout=30)
        script.messages.put(FollowResponse(token=b"begun"))
        while not outcomes.epoch:
            outcomes.wait(0.005)
        yield script, client


def sent(client: EdgeClient, *ids: str) -> None:
    for each in ids:
        client.send(EdgeEvent(GAME, 1, payload(), event_id=each)).result(30)
