"""`python -m bench.derived`: what silver costs beside the commits of its game, and what a look of gold costs.

Games' tables grow by the writers of production: bronze's rows are decoded into files, and committed. After each few
commits of a game its silver table is carried on, as a driver does each 10 s. CPU time of this process counts, with all
threads, apart for each of the two. Spark's share of a pass is not in the game's cost, so the ratio is the worst there
is. Before each measurement a game may have ids within W, by which its rows are compared. See docs/performance.md.
"""

import argparse
import gc
import json
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

import pyarrow as pa

from bench import machine, policies
from bench.command import carry_out
from bench.text import number, table
from pipeline.base.names import GameKey, bronze_app_id, game_key, stream_app_id
from pipeline.data.contracts.formats.protobuf.messages import canonical
from pipeline.data.contracts.schemas import Schema, SchemaSet
from pipeline.data.derived.definitions import LATENESS, Aggregate, GoldDefinition, SilverDefinition
from pipeline.data.derived.held_ids import IdRoom
from pipeline.data.derived.kinds import Surroundings, carrier
from pipeline.data.streams.writing.columns import landing_schema
from pipeline.data.streams.writing.job import READ, SplitJob
from pipeline.data.streams.writing.split import split
from pipeline.demo.samples.supported import payload_schema
from pipeline.lake.delta.bronze import BRONZE
from pipeline.lake.delta.data_files import DataFile
from pipeline.lake.delta.table import CursorTable
from pipeline.lake.delta.through import ThroughPair, ThroughTable
from pipeline.settings.tree import Paths, Settings
from protos.turnout.v1.wrapper_pb2 import Wrapper

_GOAL: Final = 1.5
_VERSION: Final = 5  # of the payloads of `policies.sample_rows`
_FAMILY: Final = "shooter"
_BEGIN: Final = 1_700_006_400_000_000  # Unix microseconds
_HOUR: Final = 3600
_FILL_ROWS: Final = 50_000  # of one commit of ids that are there before


@dataclass(frozen=True, slots=True)
class Case:
    """One size that is measured."""

    name: str
    games: int
    rows: tuple[int, int]  # of a commit of a game: of the first game, and of the last one
    commits: int  # of a game for one of its silver table
    within: int | None  # seconds within which ids are compared
    held: int = 0  # ids within them before


CASES: Final = (
    Case("1 game, 30 rows a commit", 1, (30, 30), 10, None),
    Case("1 game, 30 rows, 10^4 ids in 1 h", 1, (30, 30), 10, _HOUR, 10**4),
    Case("1 game, 30 rows, 10^5 ids in 1 h", 1, (30, 30), 10, _HOUR, 10**5),
    Case("1 game, 30 rows, 10^6 ids in 1 h", 1, (30, 30), 10, _HOUR, 10**6),
    Case("100 games, 30-300 rows", 100, (30, 300), 10, None),
    Case("100 games, 30-300 rows, 10^4 ids in 1 h each", 100, (30, 300), 10, _HOUR, 10**4),
    Case("100 games, 30-300 rows, a silver commit each", 100, (30, 300), 1, None),
)


class World:
    """Some games' tables, and what carries their silver tables."""

    def __init__(self, folder: Path, case: Case) -> None:
        """Make it without a row."""
        self.settings, self.paths, self.case = Settings(), Paths(folder), case
        chosen = [each for each in policies.sample_rows(3, 3000) if each.family == _FAMILY]
        self._wrappers = [Wrapper.FromString(each.wrapper) for each in chosen if each.game == chosen[0].game][:300]
        self.names = [f"Game {number:03}" for number in range(case.games)]
        message, definition = payload_schema(_FAMILY, _VERSION)
        schema = Schema(1, "protobuf", message, canonical(message, definition))
        keys = [game_key(name) for name in self.names]
        self.schemas = SchemaSet(1, dict.fromkeys(keys, (1,)), {1: schema})
        self._seqs, self._at = dict.fromkeys(keys, 0), _BEGIN
        self._within = Surroundings(self.settings, self.paths, lambda: self.schemas, lambda: self._at / 1e6, IdRoom())
        self.silvers = [
            SilverDefinition(f"s{place}", name, within=case.within) for place, name in enumerate(self.names)
        ]
        self.carriers = [carrier(each, self._within, lambda: True) for each in self.silvers]
        self._tables: dict[GameKey, CursorTable] = {}

    def rows_of(self, place: int) -> int:
        """Return how many rows a commit of a game has."""
        first, last = self.case.rows
        return first + (last - first) * place // max(self.case.games - 1, 1)

    def batch(self, name: str, rows: int, micros: int) -> pa.RecordBatch:
        """Return new rows of a game, of a time that goes on by as much."""
        key = game_key(name)
        self._seqs[key] += 1
        self._at += micros
        times = pa.array([self._at + place for place in range(rows)], pa.int64()).cast(pa.timestamp("us", "UTC"))
        given = {
            "game_key": pa.array([key] * rows), "game": pa.array([name] * rows), "schema_id": pa.array([1] * rows),
            "seq": pa.array([self._seqs[key]] * rows, pa.int64()), "pos": pa.array(range(rows), pa.int32()),
            "prev_seq": pa.array([self._seqs[key] - 1] * rows, pa.int64()),
            "raw": pa.array(list(self._wrapped(rows)), pa.binary()),
            **dict.fromkeys(("event_time", "source_time", "ingest_time"), times),
        }  # fmt: skip
        fields = [BRONZE.field(each) for each in READ]
        columns = [
            given[each.name].cast(each.type) if each.name in given else pa.nulls(rows, each.type) for each in fields
        ]
        return pa.RecordBatch.from_arrays(columns, names=list(READ))

    def _wrapped(self, rows: int) -> Iterator[bytes]:
        for place in range(rows):
            wrapper = self._wrappers[place % len(self._wrappers)]
            wrapper.event_id = str(uuid.uuid4())
            yield wrapper.SerializeToString()

    def land(self, batch: pa.RecordBatch) -> None:
        """Decode rows of one game and commit them, as a task and the driver do."""
        key = GameKey(batch.column("game_key")[0].as_py())
        before = batch.column("prev_seq")[0].as_py()
        (done,) = split(iter([batch]), SplitJob({key: before}, self.schemas, self.paths.tables))
        report = json.loads(done.column("report")[0].as_py())["games"][key]
        files = [DataFile(**each) for each in report["files"]]
        if sum(each.rows for each in files) != batch.num_rows:
            raise ValueError(f"not every row landed: {report}")
        if key not in self._tables:
            target, app = landing_schema(self.schemas, key), stream_app_id(self.settings.environment, key, 1)
            interval = self.settings.demux.checkpoint_interval
            self._tables[key] = CursorTable.create(self.paths.table(key), target, app, interval)
            self._tables[key].add_missing_columns(target)
        own = self._tables[key]
        own.commit(files, own.cursor, before + 1)

    def carry(self, place: int) -> None:
        """Carry a silver table on to its game's table."""
        while (position := self.carriers[place].step()) is not None and not position.is_level:
            pass

    def fill(self) -> None:
        """Let each game have the ids that it has before, in an hour up to now, and its silver table a generation."""
        for place, name in enumerate(self.names):
            left = max(self.case.held, 1)
            parts = -(-left // _FILL_ROWS)
            for part in range(parts):
                rows = left // parts + (part < left % parts)
                self.land(self.batch(name, rows, 1))
            self.carry(place)

    def pass_by(self, seconds: float) -> None:
        """Let time go on."""
        self._at += int(seconds * 1e6)

    def gold(self) -> tuple[GoldDefinition, Any]:
        """Return a gold table of the first game, and what carries it."""
        definition = GoldDefinition("g", self.silvers[0], 60, (Aggregate("n", "count"),))
        return definition, carrier(definition, self._within, lambda: True)


def measure(folder: Path, case: Case, rounds: int) -> dict[str, Any]:
    """Return the CPU seconds of each round, of the games' commits and of silver's."""
    world = World(folder, case)
    world.fill()
    game_seconds: list[float] = []
    silver_seconds: list[float] = []
    rows = 0
    for _ in range(rounds + 1):
        game = silver = 0.0
        rows = 0
        for place, name in enumerate(world.names):
            batches = [world.batch(name, world.rows_of(place), 1_000_000) for _ in range(case.commits)]
            rows += sum(each.num_rows for each in batches)
            gc.collect()
            began = time.process_time()
            for each in batches:
                world.land(each)
            middle = time.process_time()
            world.carry(place)
            game, silver = game + middle - began, silver + time.process_time() - middle
        game_seconds.append(game)
        silver_seconds.append(silver)
    return {
        "case": case.name, "games": case.games, "commits": case.commits, "rows": rows,
        "game_seconds": game_seconds[1:], "silver_seconds": silver_seconds[1:],
    }  # fmt: skip


def measure_gold(folder: Path, looks: int) -> dict[str, float]:
    """Return the CPU seconds of looks of a gold table after a commit of silver, where no window is due."""
    world = World(folder, CASES[0])
    world.fill()
    _, gold = world.gold()
    bronze = CursorTable.create(world.paths.bronze, BRONZE, bronze_app_id(world.settings.environment))
    bronze.commit([], None, 1)
    through = ThroughTable(world.paths.through)
    through.read()
    through.write((ThroughPair(1, _BEGIN / 1e6 + 2 * LATENESS, "{}"),))
    world.pass_by(2 * LATENESS)
    position = gold.step()
    seconds = []
    for _ in range(looks):
        world.land(world.batch(world.names[0], 30, 1_000_000))
        world.carry(0)
        gc.collect()
        began = time.process_time()
        if gold.has_next(position.version):
            position = gold.step()
        seconds.append(time.process_time() - began)
    return {"median": median(seconds), "most": max(seconds)}


def report(result: Mapping[str, Any]) -> str:
    """Return the result as a table, with the goal."""
    lines = []
    worst = 0.0
    for each in result["cases"]:
        game, silver = median(each["game_seconds"]), median(each["silver_seconds"])
        ratios = [own / bare for own, bare in zip(each["silver_seconds"], each["game_seconds"], strict=True)]
        worst = max(worst, median(ratios))
        commits = each["games"] * each["commits"]
        lines.append([
            each["case"], f"{each['rows'] / commits:,.0f}", str(each["commits"]), number(1000 * game / commits),
            number(1000 * silver / each["games"]), number(1e6 * game / each["rows"]),
            number(1e6 * silver / each["rows"]), f"{median(ratios):.2f}",
        ])  # fmt: skip
    heads = [
        "case", "rows a commit", "commits a silver commit", "game ms a commit", "silver ms a commit",
        "game ms / 1,000 rows", "silver ms / 1,000 rows", "times",
    ]  # fmt: skip
    said = "kept" if worst <= _GOAL else "MISSED"
    gold = result["gold"]
    return (
        f"{table(heads, lines)}\nCPU; {result['rounds']} rounds, medians; times: silver for the rows of a round, by "
        f"the game's cost of the same rows.\nAt most {_GOAL} times: {said} ({worst:.2f}).\n"
        f"A look of gold with nothing due: {number(1000 * gold['median'])} ms, most {number(1000 * gold['most'])} ms."
    )


def chosen(parts: Sequence[str]) -> list[Case]:
    """Return the cases whose names have one of some parts."""
    return [each for each in CASES if not parts or any(part in each.name for part in parts)]


def main() -> None:
    """Measure, print a table, and with `--out` write it as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m bench.derived")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--case", action="append", default=[], help="part of a case's name; again for another one")
    parser.add_argument("--work", type=Path, help="the folder for tables")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    before = machine.load_average()

    def run(folder: Path) -> dict[str, Any]:
        found = [measure(folder / str(at), each, options.rounds) for at, each in enumerate(chosen(options.case))]
        gold = measure_gold(folder / "gold", 15)
        return {
            "machine": machine.describe(), "load": before, "rounds": options.rounds, "cases": found, "gold": gold,
        }  # fmt: skip

    carry_out(options, run, report)


if __name__ == "__main__":
    main()
