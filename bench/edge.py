"""`python -m bench.edge`: messages a core of the gRPC edge, beside a bare gRPC echo and a bare producer.

Each server runs pinned to the first core; the client and a broker of the bench's own share the others, so latencies are
pessimistic. "A core" is messages ÷ CPU time of the server's process, with all threads. See docs/performance.md.
"""

import argparse
import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import quantiles
from typing import Any, Final

import grpc

from bench import cpu, machine
from bench.command import carry_out
from bench.text import number, table
from pipeline.data.contracts.registry import LocalRegistry
from pipeline.demo.broker import Broker
from pipeline.demo.samples.supported import payload_schema, sample
from pipeline.demo.server_process import free_ports
from pipeline.edge.client import EdgeClient
from pipeline.edge.service import SERVICE
from pipeline.lake.kafka.acknowledged import AcknowledgedProducer, Delivered
from pipeline.lake.kafka.producer import ensure_topic
from pipeline.platforms.local.child_processes import turnout
from pipeline.settings.tree import load
from pipeline.store.database.engine import open_store
from pipeline.store.edge_producers import EdgeProducer, apply, sha256_of
from protos.turnout.v1.edge_pb2 import PublishRequest, PublishResponse
from protos.turnout.v1.wrapper_pb2 import Wrapper

_TOKEN: Final = "bench"  # noqa: S105 -- of an edge of the bench's own
_GAME: Final = "Chess"
_TOPIC: Final = "bench-edge"
_CALLS: Final = 8  # in flight
_GOAL_CORE: Final = 50_000.0
_GOAL_FRAME: Final = 0.6
_GOAL_SECONDS: Final = 0.050
_BATCH: Final = "edge, 100 a call"
_HALF: Final = "edge, 100 a call, half load"
_FRAME: Final = "edge, stream, 1 a frame"
_ECHO_BATCH: Final = "echo, 100 a call"
_ECHO_FRAME: Final = "echo, stream, 1 a frame"
_PRODUCER: Final = "producer, 100 a batch"

Sent = tuple[int, list[float]]
"""Messages that were answered, and the seconds of each request."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One server under one kind of load."""

    messages: int
    seconds: float
    cpu_seconds: float
    p50: float | None = None  # seconds of a request
    p99: float | None = None

    @property
    def per_core(self) -> float:
        """Messages for each second of the server's CPU time."""
        return self.messages / self.cpu_seconds if self.cpu_seconds else 0.0


def measure(folder: Path, seconds: float) -> dict[str, Measured]:
    """Return what each server did, by name."""
    first, *rest = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, set(rest) or {first})
    with Broker.start(folder / "broker") as broker:
        environ = {
            "TURNOUT_SOURCE__KIND": "kafka", "TURNOUT_SOURCE__TOPIC": _TOPIC,
            "TURNOUT_SOURCE__BOOTSTRAP_SERVERS": broker.address,
        }  # fmt: skip
        ensure_topic(broker.address, _TOPIC, 4)
        requests = _requests(folder / "env", environ)
        found = dict(_of_edge(folder / "env", environ, requests, seconds, first))
        found |= dict(_of_echo(requests, seconds, first))
        return found | {_PRODUCER: _of_producer(broker.address, seconds, first)}


def _requests(env: Path, environ: Mapping[str, str]) -> dict[int, bytes]:
    """Prepare an environment with one game and one producer; return a request by its number of messages."""
    settings, paths = load(env, environ)
    engine = open_store(settings, paths)
    LocalRegistry(engine, paths.bronze).register(_GAME, *payload_schema("puzzle", 5))
    producer = EdgeProducer("bench", sha256_of(_TOKEN), games=(_GAME,))
    apply(engine, [producer], 0, "bench", "bench", action="apply edge producers", target="producers")
    engine.dispose()
    return {count: PublishRequest(wrappers=_wrappers(count)).SerializeToString() for count in (1, 100)}


def _wrappers(count: int) -> list[bytes]:
    made = sample("protobuf", "puzzle", 5, 1)
    payloads = [made.encode(made.event(each, each, 1_700_000_000_000_000)) for each in range(count)]
    return [
        Wrapper(game=_GAME, schema_id=1, payload=each, event_id=f"e{place}", producer_id="bench").SerializeToString()
        for place, each in enumerate(payloads)
    ]


def _of_edge(
    env: Path, environ: Mapping[str, str], requests: Mapping[int, bytes], seconds: float, core: int
) -> Iterator[tuple[str, Measured]]:
    (port,) = free_ports(None)
    address = f"127.0.0.1:{port}"
    command = turnout("edge", "run", "--env-dir", str(env), "--listen-token", address, "--name", "bench")
    with _running(command, core, env / "edge.log", environ) as server:
        with EdgeClient(address, _TOKEN) as client:
            client.wait_until_ready(60)
        yield _BATCH, (full := _under(server, address, lambda c, until: _calls(c, requests[100], until), seconds))
        rate = full.messages / full.seconds / 2 / 100
        yield _HALF, _under(server, address, lambda c, until: _paced(c, requests[100], until, rate), seconds)
        yield _FRAME, _under(server, address, lambda c, until: _streams(c, requests[1], until), seconds)


def _of_echo(requests: Mapping[int, bytes], seconds: float, core: int) -> Iterator[tuple[str, Measured]]:
    (port,) = free_ports(None)
    address = f"127.0.0.1:{port}"
    with _running([sys.executable, "-m", "bench.edge", "--echo", str(port)], core, Path(os.devnull), {}) as server:
        with grpc.insecure_channel(address) as channel:
            grpc.channel_ready_future(channel).result(30)
        yield _ECHO_BATCH, _under(server, address, lambda c, until: _calls(c, requests[100], until), seconds)
        yield _ECHO_FRAME, _under(server, address, lambda c, until: _streams(c, requests[1], until), seconds)


def _of_producer(bootstrap: str, seconds: float, core: int) -> Measured:
    command = [sys.executable, "-m", "bench.edge", "--produce", bootstrap, "--seconds", str(seconds)]
    done = subprocess.run(["taskset", "-c", str(core), *command], capture_output=True, text=True, check=True)
    messages, spent = done.stdout.split()
    return Measured(int(messages), seconds, float(spent))


@contextmanager
def _running(command: list[str], core: int, log: Path, environ: Mapping[str, str]) -> Iterator[int]:
    """Run a server on one core; yield its process id."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        pinned = ["taskset", "-c", str(core), *command]
        process = subprocess.Popen(pinned, env={**os.environ, **environ}, stdout=output, stderr=output)
    try:
        yield process.pid
    finally:
        process.terminate()
        process.wait(30)


def _under(server: int, address: str, load_of: Callable[[Any, float], Awaitable[Sent]], seconds: float) -> Measured:
    """Put a server under a load for a second, then for the given time, and measure that."""

    async def run() -> Measured:
        async with grpc.aio.insecure_channel(address) as channel:
            await load_of(channel, time.monotonic() + 1.0)
            before, began = _spent(server), time.monotonic()
            messages, took = await load_of(channel, began + seconds)
            lasted = time.monotonic() - began
            cuts = quantiles(took, n=100) if len(took) > 1 else [0.0] * 99
            return Measured(messages, lasted, _spent(server) - before, cuts[49], cuts[98])

    return asyncio.run(run())


def _spent(pid: int) -> float:
    return cpu.total([cpu.parse_stat(Path(f"/proc/{pid}/stat").read_text("utf-8"))]).cpu_seconds


_METADATA: Final = (("authorization", f"Bearer {_TOKEN}"),)


async def _one(call: Any, raw: bytes, took: list[float]) -> int:
    began = time.monotonic()
    answer = PublishResponse.FromString(await call(raw, metadata=_METADATA))
    took.append(time.monotonic() - began)
    return sum(each.last_seq - each.first_seq + 1 for each in answer.acked)


async def _calls(channel: Any, raw: bytes, until: float) -> Sent:
    """Keep some calls in flight."""
    call, took = channel.unary_unary(f"/{SERVICE}/Publish"), list[float]()

    async def worker() -> int:
        messages = 0
        while time.monotonic() < until:
            messages += await _one(call, raw, took)
        return messages

    return sum(await asyncio.gather(*(worker() for _ in range(_CALLS)))), took


async def _paced(channel: Any, raw: bytes, until: float, rate: float) -> Sent:
    """Begin calls on a schedule, whatever becomes of those before."""
    call, took, began = channel.unary_unary(f"/{SERVICE}/Publish"), list[float](), time.monotonic()
    tasks = list[asyncio.Task[int]]()
    while (now := time.monotonic()) < until:
        if (wait := began + len(tasks) / rate - now) > 0:
            await asyncio.sleep(wait)
        tasks.append(asyncio.create_task(_one(call, raw, took)))
    return sum(await asyncio.gather(*tasks)), took


async def _streams(channel: Any, raw: bytes, until: float) -> Sent:
    """Keep some streams full, one message a frame."""
    call = channel.stream_stream(f"/{SERVICE}/PublishStream")

    async def requests() -> AsyncIterator[bytes]:
        while time.monotonic() < until:
            yield raw

    async def worker() -> int:
        return sum([1 async for _ in call(requests(), metadata=_METADATA)])

    return sum(await asyncio.gather(*(worker() for _ in range(_CALLS)))), []


def report(result: Mapping[str, Any]) -> str:
    """Return the result as a table, with the goals."""
    found = {name: Measured(**each) for name, each in result["measured"].items()}
    rows = [
        [name, *map(number, (each.per_core, each.messages / each.seconds)), *map(_ms, (each.p50, each.p99))]
        for name, each in found.items()
    ]
    core, share, late = found[_BATCH].per_core, found[_FRAME].per_core / found[_ECHO_FRAME].per_core, found[_HALF].p99
    goals = (
        (f"{_GOAL_CORE:,.0f} a core", core >= _GOAL_CORE, f"{core:,.0f}"),
        (f"one a frame {_GOAL_FRAME} of the echo", share >= _GOAL_FRAME, f"{share:.2f}"),
        ("p99 50 ms at half load", late is not None and late <= _GOAL_SECONDS, _ms(late)),
    )
    said = "\n".join(f"{what}: {'kept' if kept else 'MISSED'} ({value})" for what, kept, value in goals)
    return f"{table(['server', 'a core', 'a second', 'p50 ms', 'p99 ms'], rows)}\n{said}"


def _ms(seconds: float | None) -> str:
    return "-" if not seconds else f"{seconds * 1000:.1f}"


# ------------------------------------------------------------------------------------------------- the other servers


async def _echo(port: int) -> None:
    """Serve the edge's calls with an answer that acknowledges everything, without a look."""

    def answered(raw: bytes) -> bytes:
        count = len(PublishRequest.FromString(raw).wrappers)
        response = PublishResponse()
        response.acked.add(first_seq=0, last_seq=count - 1)
        written: bytes = response.SerializeToString()
        return written

    async def publish(raw: bytes, _context: object) -> bytes:
        return answered(raw)

    async def stream(requests: AsyncIterator[bytes], _context: object) -> AsyncIterator[bytes]:
        async for raw in requests:
            yield answered(raw)

    server = grpc.aio.server()
    handlers = {
        "Publish": grpc.unary_unary_rpc_method_handler(publish),
        "PublishStream": grpc.stream_stream_rpc_method_handler(stream),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    await server.wait_for_termination()


def _produce(bootstrap: str, seconds: float) -> None:
    """Hand batches to the edge's producer as fast as it acknowledges them; print messages and CPU seconds."""
    import threading

    producer = AcknowledgedProducer(bootstrap, _TOPIC, {}, 30.0)
    room, counts = threading.Semaphore(64), [0]
    values = _wrappers(100)
    keys = [_GAME.encode()] * len(values)

    def done(batch: Delivered) -> None:
        counts[0] += len(values) if batch.error is None else 0
        room.release()

    began, spent = time.monotonic(), time.process_time()
    while time.monotonic() - began < seconds:
        room.acquire()
        producer.send(keys, values, done)
    producer.close(30.0)
    print(counts[0], time.process_time() - spent)


def main() -> None:
    """Measure, print a table, and with `--out` write it as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m bench.edge")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each load")
    parser.add_argument("--work", type=Path, help="the folder of the broker and the environment")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--echo", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--produce", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.echo is not None:
        asyncio.run(_echo(options.echo))
        return
    if options.produce is not None:
        _produce(options.produce, options.seconds)
        return
    before = machine.load_average()

    def run(folder: Path) -> dict[str, Any]:
        found = {name: asdict(each) for name, each in measure(folder, options.seconds).items()}
        return {"machine": machine.describe(), "load": before, "seconds": options.seconds, "measured": found}

    carry_out(options, run, report)


if __name__ == "__main__":
    main()
