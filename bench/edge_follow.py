"""`python -m bench.edge_follow`: what 200 followers of 1,000 games cost an edge, and how soon they are informed.

Tables grow as ingest and groups let them grow, without Spark: each second refused rows in quarantine, a commit of
bronze, and one of each game that had rows. The edge is pinned to the first core; the writer and the followers share the
others. See docs/edge.md.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import Any, Final

import grpc
import pyarrow as pa

from bench import cpu, machine
from bench.command import carry_out
from bench.text import table
from pipeline.base.names import GameKey, bronze_app_id, game_key, stream_app_id
from pipeline.data.ingest.bronze_progress import PLAN
from pipeline.data.streams.writing.columns import OWN_COLUMNS
from pipeline.demo.object_storage import served
from pipeline.demo.server_process import free_ports
from pipeline.edge.client import EdgeClient
from pipeline.edge.service import SERVICE
from pipeline.health.facts.placing import placing_by
from pipeline.lake.delta.bronze import BRONZE
from pipeline.lake.delta.data_files import write_file
from pipeline.lake.delta.quarantine import QUARANTINE
from pipeline.lake.delta.table import CursorTable
from pipeline.platforms.local.child_processes import turnout
from pipeline.settings.tree import load
from pipeline.store.database.engine import open_store
from pipeline.store.edge_producers import EdgeProducer, apply, sha256_of
from pipeline.store.games import record_seen
from protos.turnout.v1.edge_pb2 import FollowRequest, FollowResponse

_PRODUCERS: Final = 10
_ROWS: Final = 10  # of a game in a commit; the last one is refused for each tenth game
_ROW_BYTES: Final = 200
_GAME_COMMITS: Final = 50  # between two checkpoints of a game's table
_GOAL_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class Round:
    """One kind of followers for some seconds."""

    cores: float  # CPU seconds of the edge for each second
    rss_mib: float
    informed: tuple[float, ...]  # seconds from a commit of the first game until each follower knew of it
    refused: int  # rows, of all followers
    step_seconds: float  # of the writer


class World:
    """Bronze, quarantine and the tables of many games, which grow by steps."""

    def __init__(self, env: Path, games: int, active: int) -> None:
        """Make an environment with a table for each game; `active` of them get rows in each step."""
        self.settings, self.paths = load(env, dict(os.environ))
        self.names, self._active = [f"Game {number:04}" for number in range(games)], active
        engine = open_store(self.settings, self.paths)
        record_seen(engine, {str(game_key(each)): each for each in self.names}, 0, placing_by(self.settings))
        share = max(1, games // _PRODUCERS)
        own = [
            EdgeProducer(f"own{each}", sha256_of(f"own{each}"), games=(
                self.names[0], *self.names[max(1, share * each) : share * (each + 1)],
            ))
            for each in range(_PRODUCERS)
        ]  # fmt: skip
        every = [EdgeProducer(f"all{each}", sha256_of(f"all{each}"), prefixes=("",)) for each in range(_PRODUCERS)]
        apply(engine, [*own, *every], 0, "bench", "bench", action="apply edge producers", target="producers")
        engine.dispose()
        environment = self.settings.environment
        self._bronze = CursorTable.create(self.paths.bronze, BRONZE, bronze_app_id(environment), _GAME_COMMITS)
        self._quarantine = CursorTable.create(self.paths.quarantine, QUARANTINE, "bench")
        self._tables = {
            key: CursorTable.create(
                self.paths.table(key), OWN_COLUMNS, stream_app_id(environment, key, 1), _GAME_COMMITS
            )
            for key in map(game_key, self.names)
        }
        self.seq = 0

    def step(self) -> float:
        """Let a batch land, and the games of it; return when the first game had, which is the last to land."""
        self.seq += 1
        places = range(1 + self.seq * (self._active - 1), 1 + (self.seq + 1) * (self._active - 1))
        chosen = [*(self.names[1 + place % (len(self.names) - 1)] for place in places), self.names[0]]
        rows = [self._row(name, number * _ROWS + place) for number, name in enumerate(chosen) for place in range(_ROWS)]
        refused = [{**row, "reason": "malformed_payload", "detail": "bench"} for row in rows[_ROWS - 1 :: 10 * _ROWS]]
        self._quarantine.append([write_file(pa.Table.from_pylist(refused, QUARANTINE), self.paths.quarantine)])
        plan = {PLAN: f"v1\n{{}}\n{json.dumps({'topic': {'0': (self.seq + 1) * 1_000_000}})}"}
        landed = write_file(pa.Table.from_pylist(rows, BRONZE), self.paths.bronze, ["seq", "game_key"])
        self._bronze.commit([landed], self._bronze.cursor, self.seq, plan)
        for number, name in enumerate(chosen):
            self._land(game_key(name), _ROWS - (number % 10 == 0), number * _ROWS)
        return time.monotonic()

    def _row(self, name: str, pos: int) -> dict[str, Any]:
        return {
            "game_key": str(game_key(name)), "game": name, "seq": self.seq, "pos": pos, "topic": "topic",
            "partition": 0, "offset": self.seq * 1_000_000 + pos, "raw": b"x" * _ROW_BYTES, "event_id": f"{pos}",
        }  # fmt: skip

    def _land(self, key: GameKey, rows: int, first: int) -> None:
        own = self._tables[key]
        made = [{"_seq": self.seq, "_pos": first + each} for each in range(rows)]
        own.commit([write_file(pa.Table.from_pylist(made, OWN_COLUMNS), own.path, ["_seq"])], own.cursor, self.seq)


def measure(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Return the rounds: without followers, with followers of a hundred games each, and with followers of all."""
    first, *rest = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, set(rest) or {first})
    with ExitStack() as stack:
        if options.storage == "s3":
            stack.enter_context(served(folder))
        world = World(folder / "env", options.games, options.active)
        (port,) = free_ports(None)
        address = f"127.0.0.1:{port}"
        run = turnout("edge", "run", "--env-dir", str(folder / "env"), "--source", "delta", "--name", "bench")
        command = ["taskset", "-c", str(first), *run, "--listen-token", address]
        edge = stack.enter_context(_running(command, folder / "edge.log"))
        with EdgeClient(address, "own0") as client:
            client.wait_until_ready(60)
        rounds = {}
        for kind in ("none", "own", "all"):
            rounds[kind] = asdict(_round(world, edge.pid, address, kind, options))
        return {"rounds": rounds}


@contextmanager
def _running(command: Sequence[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("ab") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(60)


def _round(world: World, pid: int, address: str, kind: str, options: argparse.Namespace) -> Round:
    """Let the tables grow for some seconds while followers of one kind are there."""
    world.step()  # so that there is something to tell at the beginning
    command = [sys.executable, "-m", "bench.edge_follow", "--follow", address, "--kind", kind]
    command += ["--followers", str(options.followers if kind != "none" else 0), "--game", world.names[0]]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        process.stdout.readline()  # all are informed of the last step
        spent, began, steps = _spent(pid), time.monotonic(), list[tuple[int, float, float]]()
        while (now := time.monotonic()) < began + options.seconds:
            if (wait := began + len(steps) - now) > 0:
                time.sleep(wait)  # a step is due each second
            started = time.monotonic()
            ended = world.step()
            steps.append((world.seq, ended, ended - started))
        share = (_spent(pid) - spent) / (time.monotonic() - began)
        time.sleep(_GOAL_SECONDS)  # for the followers to hear of the last step
        found = json.loads(process.communicate("end\n", timeout=60)[0])
    finally:
        process.kill()
        process.wait(30)
    informed = [
        next((at for through, at in each if through >= (seq + 1) * 1_000_000), float("inf")) - ended
        for each in found["informed"]
        for seq, ended, _ in steps
    ]
    rss = int(Path(f"/proc/{pid}/statm").read_text("utf-8").split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
    return Round(share, rss, tuple(informed), found["refused"], median(each for _, _, each in steps))


def _spent(pid: int) -> float:
    return cpu.total([cpu.parse_stat(Path(f"/proc/{pid}/stat").read_text("utf-8"))]).cpu_seconds


async def _follow(address: str, kind: str, followers: int, game: str) -> None:
    """Follow until a line comes; print how far the game was landed, and when, for each follower."""
    informed: list[list[tuple[int, float]]] = [[] for _ in range(followers)]
    ready, refused = asyncio.Event(), 0

    async def one(number: int) -> None:
        nonlocal refused
        call: Any = channels[number % len(channels)].unary_stream(f"/{SERVICE}/Follow")
        token = f"{kind}{number % _PRODUCERS}"
        async for raw in call(FollowRequest().SerializeToString(), metadata=(("authorization", f"Bearer {token}"),)):
            now, message = time.monotonic(), FollowResponse.FromString(raw)
            refused += len(message.refused)
            for each in message.landed:
                if game in each.games:
                    informed[number].append((each.through[0].offset, now))
            if all(informed):
                ready.set()

    channels = [grpc.aio.insecure_channel(address, [("grpc.use_local_subchannel_pool", 1)]) for _ in range(10)]
    tasks = [asyncio.create_task(one(number)) for number in range(followers)]
    if followers:
        await asyncio.wait({*tasks, asyncio.create_task(ready.wait())}, return_when=asyncio.FIRST_COMPLETED)
    for each in tasks:
        if each.done():
            each.result()  # a follower that has ended says why
    print("open", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    print(json.dumps({"informed": informed, "refused": refused}))
    for each in tasks:
        each.cancel()


def report(result: Mapping[str, Any]) -> str:
    """Return the result as a table, with the goal."""
    rows, said = [], list[str]()
    for kind, each in result["rounds"].items():
        informed = sorted(each["informed"])
        cuts = quantiles(informed, n=100) if len(informed) > 1 else []
        times = [f"{cuts[49]:.2f}", f"{cuts[98]:.2f}", f"{informed[-1]:.2f}"] if cuts else ["-"] * 3
        rows.append([
            kind, f"{each['cores']:.2f}", *times, f"{each['rss_mib']:.0f}", str(each["refused"]),
            f"{each['step_seconds']:.2f}",
        ])  # fmt: skip
        if cuts:
            said.append(
                f"{kind}: informed within {_GOAL_SECONDS:g} s: {'kept' if informed[-1] <= _GOAL_SECONDS else 'MISSED'}"
            )
    heads = ["followers", "cores of the edge", "informed p50 s", "p99 s", "most s", "MiB", "refused rows", "step s"]
    return "\n".join([table(heads, rows), *said])


def main() -> None:
    """Measure, print a table, and with `--out` write it as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m bench.edge_follow")
    parser.add_argument("--games", type=int, default=1_000)
    parser.add_argument("--active", type=int, default=100, help="games with rows in each commit of bronze")
    parser.add_argument("--followers", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=20.0, help="of each round")
    parser.add_argument("--storage", choices=["folder", "s3"], default="folder")
    parser.add_argument("--work", type=Path, help="the folder of the environment")
    parser.add_argument("--out", type=Path)
    for hidden in ("--follow", "--kind", "--game"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.follow is not None:
        asyncio.run(_follow(options.follow, options.kind, options.followers, options.game))
        return
    before = machine.load_average()

    def run(folder: Path) -> dict[str, Any]:
        about = {"games": options.games, "active": options.active, "followers": options.followers}
        about |= {"seconds": options.seconds, "storage": options.storage}
        return {"machine": machine.describe(), "load": before, **about, **measure(folder, options)}

    carry_out(options, run, report)


if __name__ == "__main__":
    main()
