"""`python -m bench.edge_streams`: what 10,000 streams of hostile producers do to the calls of another one.

The edge is pinned to the first core; broker and clients share the others. Rounds with and without streams alternate.
See docs/edge.md.
"""

import argparse
import asyncio
import os
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import Any, Final

import grpc

from bench import cpu, machine
from bench.command import carry_out
from bench.text import table
from pipeline.data.contracts.registry import LocalRegistry
from pipeline.demo.broker import Broker
from pipeline.demo.samples.supported import payload_schema, sample
from pipeline.demo.server_process import free_ports
from pipeline.edge.client import EdgeClient
from pipeline.edge.service import SERVICE
from pipeline.lake.kafka.producer import ensure_topic
from pipeline.platforms.local.child_processes import turnout
from pipeline.settings.tree import load
from pipeline.store.database.engine import open_store
from pipeline.store.edge_producers import EdgeProducer, apply, sha256_of
from protos.turnout.v1.edge_pb2 import PublishRequest
from protos.turnout.v1.wrapper_pb2 import Wrapper

_GAME, _TOPIC = "Chess", "bench-edge-streams"
_PRODUCERS: Final = 100
_STREAMS: Final = 10_000
_OF_CONNECTION: Final = 100
_SILENT: Final = 200  # TCP connections that send nothing
_RATE: Final = 100.0  # calls a second of the other producer, 100 events each: about a tenth of a core
_GOAL: Final = 1.10
_ROUNDS: Final = 3


@dataclass(frozen=True, slots=True)
class Round:
    """The calls of the other producer for some seconds."""

    p50: float  # seconds
    p99: float
    cpu: float  # seconds of the edge for each second
    rss_mib: float
    failed: int


def measure(folder: Path, seconds: float) -> dict[str, Any]:
    """Return the rounds without and with the streams, and what became of these."""
    first, *rest = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, set(rest) or {first})
    with Broker.start(folder / "broker") as broker:
        environ = {
            "TURNOUT_SOURCE__KIND": "kafka", "TURNOUT_SOURCE__TOPIC": _TOPIC,
            "TURNOUT_SOURCE__BOOTSTRAP_SERVERS": broker.address,
        }  # fmt: skip
        ensure_topic(broker.address, _TOPIC, 4)
        raw = _prepared(folder / "env", environ)
        (port,) = free_ports(None)
        address = f"127.0.0.1:{port}"
        command = turnout("edge", "run", "--env-dir", str(folder / "env"), "--listen-token", address, "--name", "bench")
        with _running(["taskset", "-c", str(first), *command], folder / "edge.log", environ) as edge:
            with EdgeClient(address, "t0") as client:
                client.wait_until_ready(60)
            rounds: dict[str, list[Round]] = {"alone": [], "idle": [], "insistent": []}
            outcomes = dict[str, str]()
            for _ in range(_ROUNDS):
                rounds["alone"].append(_round(edge.pid, address, raw, seconds))
                for kind in ("idle", "insistent"):
                    with _hostile(address, kind) as said:
                        rounds[kind].append(_round(edge.pid, address, raw, seconds))
                        outcomes[kind] = said
            return {
                "rounds": {kind: [asdict(each) for each in those] for kind, those in rounds.items()},
                "outcomes": outcomes,
            }


def _prepared(env: Path, environ: Mapping[str, str]) -> bytes:
    """Prepare an environment with one game and many producers; return a request of 100 events."""
    settings, paths = load(env, environ)
    engine = open_store(settings, paths)
    LocalRegistry(engine, paths.bronze).register(_GAME, *payload_schema("puzzle", 5))
    producers = [EdgeProducer(f"p{each}", sha256_of(f"t{each}"), games=(_GAME,)) for each in range(_PRODUCERS + 1)]
    apply(engine, producers, 0, "bench", "bench", action="apply edge producers", target="producers")
    engine.dispose()
    made = sample("protobuf", "puzzle", 5, 1)
    payloads = [made.encode(made.event(each, each, 1_700_000_000_000_000)) for each in range(100)]
    wrappers = [Wrapper(game=_GAME, schema_id=1, payload=each).SerializeToString() for each in payloads]
    return PublishRequest(wrappers=wrappers).SerializeToString()


@contextmanager
def _running(command: Sequence[str], log: Path, environ: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        process = subprocess.Popen(command, env={**os.environ, **environ}, stdout=output, stderr=output)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(30)


@contextmanager
def _hostile(address: str, kind: str) -> Iterator[str]:
    """Run the streams in a process of their own; yield what became of the first attempt of each."""
    command = [sys.executable, "-m", "bench.edge_streams", "--hold", address, "--kind", kind]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.kill()
        process.wait(30)


def _round(pid: int, address: str, raw: bytes, seconds: float) -> Round:
    """Begin calls on a schedule, whatever becomes of those before."""
    took, failed = list[float](), 0

    async def one(call: Any) -> None:
        nonlocal failed
        began = time.monotonic()
        try:
            await call(raw, metadata=(("authorization", "Bearer t0"),), timeout=20.0)
        except grpc.aio.AioRpcError:
            failed += 1
        took.append(time.monotonic() - began)

    async def run() -> float:
        async with grpc.aio.insecure_channel(address) as channel:
            call: Any = channel.unary_unary(f"/{SERVICE}/Publish")
            for _ in range(50):
                await one(call)
            took.clear()
            tasks, began, before = list[asyncio.Task[None]](), time.monotonic(), _spent(pid)
            while (now := time.monotonic()) < began + seconds:
                if (wait := began + len(tasks) / _RATE - now) > 0:
                    await asyncio.sleep(wait)
                tasks.append(asyncio.create_task(one(call)))
            await asyncio.gather(*tasks)
            return (_spent(pid) - before) / (time.monotonic() - began)

    share = asyncio.run(run())
    cuts = quantiles(took, n=100)
    rss = int(Path(f"/proc/{pid}/statm").read_text("utf-8").split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
    return Round(cuts[49], cuts[98], share, rss, failed)


def _spent(pid: int) -> float:
    return cpu.total([cpu.parse_stat(Path(f"/proc/{pid}/stat").read_text("utf-8"))]).cpu_seconds


async def _hold(address: str, kind: str) -> None:
    """Open all streams and hold what is open; the insistent try again each second where they were refused."""
    host, _, port = address.rpartition(":")
    silent = [socket.create_connection((host, int(port))) for _ in range(_SILENT)]
    channels = [
        grpc.aio.insecure_channel(address, [("grpc.use_local_subchannel_pool", 1)])
        for _ in range(_STREAMS // _OF_CONNECTION)
    ]
    outcomes: Counter[str] = Counter()

    async def held(number: int) -> None:
        call: Any = channels[number % len(channels)].stream_stream(f"/{SERVICE}/PublishStream")
        while True:
            stream = call(metadata=(("authorization", f"Bearer t{1 + number % _PRODUCERS}"),))
            try:
                await stream.read()
            except grpc.aio.AioRpcError as error:
                outcomes[error.details() or error.code().name] += 1
            else:
                outcomes["ended in order"] += 1
            if kind == "idle":
                return
            await asyncio.sleep(1.0)

    tasks = [asyncio.create_task(held(number)) for number in range(_STREAMS)]
    await asyncio.sleep(10.0)  # a time to open them in, of a bench
    still = sum(not each.done() for each in tasks) if kind == "idle" else -1
    print(f"{still} open; {dict(outcomes)}; {len(silent)} silent", flush=True)
    await asyncio.gather(*tasks)
    await asyncio.Event().wait()


def report(result: Mapping[str, Any]) -> str:
    """Return the result as a table, with the goal."""
    found = {kind: [Round(**each) for each in those] for kind, those in result["rounds"].items()}
    rows = [
        [
            kind, *(f"{median(getattr(each, name) for each in those) * 1_000:.1f}" for name in ("p50", "p99")),
            f"{median(each.cpu for each in those):.2f}", f"{max(each.rss_mib for each in those):.0f}",
            str(sum(each.failed for each in those)),
        ]
        for kind, those in found.items()
    ]  # fmt: skip
    alone = median(each.p50 for each in found["alone"])
    said = [
        f"{kind}: p50 {share:.2f} of alone, {'kept' if share <= _GOAL else 'MISSED'}; {result['outcomes'][kind]}"
        for kind in ("idle", "insistent")
        if (share := median(each.p50 for each in found[kind]) / alone)
    ]
    heads = ["streams", "p50 ms", "p99 ms", "cores of the edge", "MiB", "failed"]
    return "\n".join([table(heads, rows), *said])


def main() -> None:
    """Measure, print a table, and with `--out` write it as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m bench.edge_streams")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each round")
    parser.add_argument("--work", type=Path, help="the folder of the broker and the environment")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--hold", help=argparse.SUPPRESS)
    parser.add_argument("--kind", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.hold is not None:
        asyncio.run(_hold(options.hold, options.kind))
        return
    before = machine.load_average()

    def run(folder: Path) -> dict[str, Any]:
        return {
            "machine": machine.describe(),
            "load": before,
            "seconds": options.seconds,
            **measure(folder, options.seconds),
        }

    carry_out(options, run, report)


if __name__ == "__main__":
    main()
