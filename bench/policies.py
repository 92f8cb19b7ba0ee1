"""`python -m bench.policies`: what quarantine's checks and schema policies cost a pass in which nothing is bad.

Every variant is an environment of its own with the same payloads, byte for byte; their passes take turns in one Spark
session. The product cannot be told to skip its checks: the variant without them replaces them in the workers, here.
"""

import argparse
import math
import os
import statistics
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple
from unittest.mock import patch

import numpy as np
import pyarrow as pa
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorSet
from pyspark.sql import SparkSession

from bench import cpu, machine
from bench.command import carry_out
from bench.load import GROUP, prove, write_settings
from bench.numbers import Spread
from bench.text import number, table
from listeners.sample import PassResult
from pipeline.base.names import bronze_app_id, game_key
from pipeline.data.contracts.formats.protobuf import decoder
from pipeline.data.contracts.formats.protobuf.parsing import Parser
from pipeline.data.contracts.policies import parse_policies
from pipeline.data.contracts.registry import LocalRegistry, Registration
from pipeline.data.streams.group import Group
from pipeline.data.streams.passes import Passes
from pipeline.data.streams.writing.job import SplitJob
from pipeline.data.streams.writing.split import split
from pipeline.demo.samples.sample import FAMILIES
from pipeline.demo.samples.supported import payload_schema
from pipeline.demo.simulator import SimulationPlan, Simulator, family, game_names
from pipeline.health.facts.placing import placing
from pipeline.lake.delta.bronze import BRONZE
from pipeline.lake.delta.data_files import write_file
from pipeline.lake.delta.table import CursorTable
from pipeline.platforms.session.spark import spark_session
from pipeline.settings.tree import Paths, Settings
from pipeline.store.database.engine import open_store
from pipeline.store.games import record_seen, register_group
from protos.turnout.v1.wrapper_pb2 import Wrapper

_ALLOWED: Final = 1.05
_SAMPLE_VERSION: Final = 5  # of the simulator's payloads
_VERSIONS: Final = 4  # registered of each game where there are several
_POLICIES: Final = parse_policies(["incompatible=side-column"])
_SKEW: Final = 0.8  # gentler than the simulator's, so that every game has rows in every pass


class Kind(NamedTuple):
    """What a variant's games have."""

    name: str
    versions: int
    changed: bool  # do the versions rename, retype and widen, or only add a value to an enum
    checked: bool


VARIANTS: Final = (
    Kind("unchecked", 1, changed=False, checked=False),
    Kind("plain", 1, changed=False, checked=True),
    Kind("versions", _VERSIONS, changed=False, checked=True),
    Kind("policies", _VERSIONS, changed=True, checked=True),
)
COMPARED: Final = {  # the second is what the first costs more than
    "quarantine's checks": ("plain", "unchecked"),
    "several versions with policies": ("policies", "plain"),
    "of that, the policies": ("policies", "versions"),
    "all of it": ("policies", "unchecked"),
}
JUDGED: Final = ("quarantine's checks", "several versions with policies")


class Row(NamedTuple):
    """One event of a pass."""

    game: str
    family: str
    version: int  # from 1, where a game has several
    wrapper: bytes


@dataclass(frozen=True, slots=True)
class Took:
    """What one pass took; the writing of the bronze commit and Spark's start of a query are not in it."""

    seconds: float
    cpu_seconds: float  # of driver, JVM and workers
    phases: Mapping[str, float]


def main() -> None:
    """Run, print and keep the result; the exit code says whether the costs are allowed."""
    options = _options()
    result = carry_out(options, lambda folder: _run(options, folder), _report)
    sys.exit(0 if result["held"] else 1)


def schema(family_name: str, version: int, *, changed: bool) -> tuple[str, bytes]:
    """Return a version of a sample payload that reads the very same bytes.

    From version 2 on each has an enum value of its own. Where `changed`, version 2 renames a field, 3 makes a text
    bytes, which is incompatible, and 4 widens an int32.
    """
    name, definition = payload_schema(family_name, _SAMPLE_VERSION)
    files = FileDescriptorSet.FromString(definition)
    message = next(each for each in files.file[-1].message_type if name.endswith(f".{each.name}"))
    if version > 1:
        message.enum_type[0].value.add(name=f"FOR_VERSION_{version}", number=1_000 + version)
    if changed and version == 2:
        _first(message, FieldDescriptorProto.TYPE_STRING).name += "_renamed"
    if changed and version == 3:
        _first(message, FieldDescriptorProto.TYPE_STRING, after=1).type = FieldDescriptorProto.TYPE_BYTES
    if changed and version == 4:
        small = (FieldDescriptorProto.TYPE_INT32, FieldDescriptorProto.TYPE_UINT32)
        field = _first(message, *small)
        unsigned = field.type == FieldDescriptorProto.TYPE_UINT32
        field.type = FieldDescriptorProto.TYPE_UINT64 if unsigned else FieldDescriptorProto.TYPE_INT64
    return name, files.SerializeToString(deterministic=True)


def median_interval(values: Sequence[float]) -> Spread:
    """Return the median with about its 95 % confidence interval, from the order of the values alone."""
    ordered = sorted(values)
    margin = 0.98 * math.sqrt(len(ordered))
    low = max(0, math.floor(len(ordered) / 2 - margin))
    high = min(len(ordered) - 1, math.ceil(len(ordered) / 2 + margin) - 1)
    return Spread(statistics.median(ordered), ordered[low], ordered[max(low, high)])


def values_of(took: Mapping[str, Sequence[Took]], measure: str) -> dict[str, list[float]]:
    """Return one measure of every pass, by variant."""
    return {name: [getattr(each, measure) for each in found] for name, found in took.items()}


def ratios(values: Mapping[str, Sequence[float]]) -> dict[str, list[float]]:
    """Return for each comparison the ratio of the two variants' passes of the same round."""
    return {
        name: [a / b for a, b in zip(values[dearer], values[cheaper], strict=True)]
        for name, (dearer, cheaper) in COMPARED.items()
    }


def order(count: int, round_number: int) -> list[int]:
    """Return who goes when: every second round goes the way back, and every two rounds begin with another one."""
    turned = [(round_number // 2 + at) % count for at in range(count)]
    return turned if round_number % 2 == 0 else turned[::-1]


def unchecked_split(batches: Iterator[pa.RecordBatch], job: SplitJob) -> Iterator[pa.RecordBatch]:
    """Split as a task does, but look for nothing bad; runs in the workers, which are used by all variants."""
    with ExitStack() as stack:
        for owner, check, answer in (
            (Parser, "_inspect_suspects", lambda _parser, _messages: ({}, {})),
            (decoder, "unreal_times", lambda _batch, _timed: {}),
        ):
            stack.enter_context(patch.object(owner, check, answer))
        stack.enter_context(
            patch("pipeline.data.streams.writing.split._Split._refusal_of", lambda _split, _name, _schema_id: None)
        )
        yield from split(batches, job)


class Variant:
    """One environment and its group; `land` writes a bronze commit, `go` runs the pass over it."""

    def __init__(self, kind: Kind, spark: SparkSession, settings: Settings, paths: Paths, rows: Sequence[Row]) -> None:
        """Register the schemas, make the games, and give every game its table."""
        self.kind, self.paths, self._files = kind, paths, settings.ingest.bronze_files
        engine = open_store(settings, paths)
        register_group(engine, GROUP, placing())
        self._names = {str(game_key(name)): name for name in sorted({row.game for row in rows})}
        self._ids = self._register(LocalRegistry(engine))
        self._rows = self._bronze_rows(rows)
        self._bronze = CursorTable.create(paths.bronze, BRONZE, bronze_app_id(settings.environment))
        self._seq = 0
        self._published: list[PassResult] = []
        self._see: Callable[[int], None] = lambda seq: record_seen(engine, self._names, seq, placing())
        self.land()
        self._group = Group(spark, settings, paths, engine, GROUP, self._published.append)
        self._group.start(once=True).awaitTermination()
        self._group.finish()

    def land(self) -> None:
        """Write the next bronze commit as ingest does: a game's rows lie in one file."""
        seq = self._seq + 1
        count = self._rows.num_rows
        rows = self._rows.set_column(3, BRONZE.field("seq"), pa.array(np.full(count, seq)))
        rows = rows.set_column(5, BRONZE.field("prev_seq"), pa.array(np.full(count, seq - 1)))
        now = pa.repeat(pa.scalar(int(time.time() * 1e6), pa.timestamp("us", "UTC")), count)
        rows = rows.set_column(BRONZE.get_field_index("source_time"), BRONZE.field("source_time"), now)
        buckets = np.array([zlib.crc32(key.encode()) % self._files for key in rows.column("game_key").to_pylist()])
        files = [
            write_file(rows.filter(pa.array(buckets == bucket)), self.paths.bronze, ["seq", "game_key"], "zstd")
            for bucket in range(self._files)
        ]
        self._bronze.commit(files, self._seq or None, seq)
        self._see(seq)
        self._seq = seq

    def go(self) -> Took:
        """Run one pass of all games over the newest bronze commit."""
        self._published.clear()
        spent: list[tuple[float, float]] = []
        apply = Passes.apply

        def measured(*arguments: Any, **named: Any) -> Any:
            used, started = _cpu_seconds(), time.perf_counter()
            outcome = apply(*arguments, **named)
            spent.append((time.perf_counter() - started, _cpu_seconds() - used))
            return outcome

        with ExitStack() as stack:
            stack.enter_context(patch.object(Passes, "apply", measured))
            if not self.kind.checked:
                stack.enter_context(patch("pipeline.data.streams.writing.rows.split", unchecked_split))
            self._group.start(once=True).awaitTermination()
        ((seconds, cpu_seconds),) = spent
        (result,) = self._published
        landed = {game.game_key: game.rows for game in result.games if game.lane == "RUN" and not game.rejects}
        if landed.keys() != self._names.keys() or sum(landed.values()) != self._rows.num_rows:
            raise RuntimeError(f"{self.kind.name}: {len(landed)} of {len(self._names)} games landed, not all rows did")
        return Took(seconds, cpu_seconds, dict(result.phases_seconds))

    def close(self) -> None:
        """End the group's threads."""
        self._group.stop()

    def _register(self, registry: LocalRegistry) -> dict[tuple[str, int], int]:
        """Register all versions of all games; return the schema id of each family and version."""
        versions = range(1, self.kind.versions + 1)
        made = {
            (name, version): schema(name, version, changed=self.kind.changed)
            for name in FAMILIES
            for version in versions
        }
        registrations = [(game, (family(game), version)) for version in versions for game in self._names.values()]
        done = registry.register_many(Registration(game, *made[which], _POLICIES) for game, which in registrations)
        placed = registry.snapshot().placements
        if bool(placed) != self.kind.changed:
            raise RuntimeError(f"{self.kind.name}: {len(placed)} games have placements")
        return {which: each.schema_id for (_, which), each in zip(registrations, done, strict=True)}

    def _bronze_rows(self, rows: Sequence[Row]) -> pa.Table:
        """Return the rows of every commit, in the order of bronze's files, with this variant's schema ids."""
        columns: dict[str, list[Any]] = {name: [] for name in ("game_key", "game", "schema_id", "raw")}
        for row in sorted(rows, key=lambda each: game_key(each.game)):
            wrapper = Wrapper.FromString(row.wrapper)
            wrapper.schema_id = self._ids[row.family, min(row.version, self.kind.versions)]
            found = (str(game_key(row.game)), row.game, wrapper.schema_id, wrapper.SerializeToString())
            for name, value in zip(columns, found, strict=True):
                columns[name].append(value)
        given = {name: pa.array(values) for name, values in columns.items()}
        given["pos"] = pa.array(np.arange(len(rows), dtype=np.int32))
        arrays = [given.get(each.name, pa.nulls(len(rows))).cast(each.type) for each in BRONZE]
        return pa.table(arrays, schema=BRONZE)


def sample_rows(games: int, count: int) -> list[Row]:
    """Return `count` good events of one payload version, spread over the games as the simulator does.

    Raises:
        ValueError: some games have none.
    """
    names = game_names(games, SimulationPlan().seed)
    ids = {(name, version): version for name in names for version in range(1, _SAMPLE_VERSION + 1)}
    rows: list[Row] = []
    turn = dict.fromkeys(names, 0)
    for (event,) in Simulator(SimulationPlan(games, _SAMPLE_VERSION, skew=_SKEW), ids).batches(1):
        if Wrapper.FromString(event.value).schema_id == _SAMPLE_VERSION:
            rows.append(Row(event.game, family(event.game), 1 + turn[event.game] % _VERSIONS, event.value))
            turn[event.game] += 1
        if len(rows) == count:
            break
    if quiet := [name for name, rows_of in turn.items() if not rows_of]:
        raise ValueError(f"{len(quiet)} of {games} games have none of {count} rows: give more --rows")
    return rows


def _first(message: DescriptorProto, *types: int, after: int = 0) -> FieldDescriptorProto:
    """Return the first plain field of these types, beyond those with numbers up to `after`."""
    return next(
        each
        for each in sorted(message.field, key=lambda each: each.number)
        if each.type in types
        and each.number > after
        and each.label != FieldDescriptorProto.LABEL_REPEATED
        and not each.HasField("oneof_index")
    )


def _cpu_seconds() -> float:
    """Return the CPU seconds of this process, its JVM and its workers so far."""
    return cpu.total(cpu.tree(cpu.read_all(), os.getpid())).cpu_seconds


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.policies", description=__doc__.splitlines()[0])
    parser.add_argument("--games", type=int, default=300)
    parser.add_argument("--rows", type=int, default=16_000, help="events of a pass")
    parser.add_argument("--warm", type=int, default=5, help="passes of each variant before the first that counts")
    parser.add_argument("--rounds", type=int, default=25, help="measured passes of each variant")
    parser.add_argument("--driver-memory", default="2g")
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--work", type=Path, help="folder for the run's tables, deleted at the end")
    parser.add_argument("--out", type=Path, help="JSON file for the result")
    return parser.parse_args()


def _run(options: argparse.Namespace, root: Path) -> dict[str, Any]:
    rows = sample_rows(options.games, options.rows)
    tables = {"spark": {"driver_memory": options.driver_memory, "master": options.master}}
    environments = [write_settings(root / kind.name, tables) for kind in VARIANTS]
    spark = spark_session(*environments[0], "turnout-bench-policies")
    took: dict[str, list[Took]] = {kind.name: [] for kind in VARIANTS}
    variants = []
    for kind, (settings, paths) in zip(VARIANTS, environments, strict=True):
        _say(f"making {kind.name}")
        variants.append(Variant(kind, spark, settings, paths, rows))
    before, began = cpu.read_all(), time.time()
    for round_number in range(options.warm + options.rounds):
        for at in order(len(variants), round_number):
            variants[at].land()
            once = variants[at].go()
            if round_number >= options.warm:
                took[VARIANTS[at].name].append(once)
        _say(f"round {round_number + 1} of {options.warm + options.rounds}")
    others = machine.others(before, cpu.read_all(), time.time() - began, os.getpid())
    for variant in variants:
        variant.close()
    spark.stop()
    proofs = {each.kind.name: prove(each.paths, "--complete").returncode == 0 for each in variants}
    compared = {
        measure: {name: asdict(median_interval(found)) for name, found in ratios(values_of(took, measure)).items()}
        for measure in ("seconds", "cpu_seconds")
    }
    return {
        "machine": machine.describe(),
        "options": {name: str(value) for name, value in vars(options).items() if name not in {"work", "out"}},
        "held": all(compared["seconds"][name]["median"] <= _ALLOWED for name in JUDGED) and all(proofs.values()),
        "compared": compared,
        "passes": {name: [asdict(each) for each in found] for name, found in took.items()},
        "other_cores": others,
        "completeness": proofs,
    }


def _report(result: Mapping[str, Any]) -> str:
    lines = [f"{name}: {value}" for part in ("machine", "options") for name, value in result[part].items()]
    lines.append(f"others on the machine, cores: {result['other_cores'] or 'nobody'}\n")
    phases = sorted({name for passes in result["passes"].values() for each in passes for name in each["phases"]})
    rows = [
        [
            name,
            *(number(statistics.median(each[what] for each in passes)) for what in ("seconds", "cpu_seconds")),
            *(number(statistics.median(each["phases"].get(phase, 0.0) for each in passes)) for phase in phases),
        ]
        for name, passes in result["passes"].items()
    ]
    lines += [table(["medians", "pass s", "CPU-s", *(f"{phase} s" for phase in phases)], rows), ""]
    rows = [
        [name, *("{median:.3f} ({low:.3f}–{high:.3f})".format(**found[name]) for found in result["compared"].values())]
        for name in COMPARED
    ]
    lines += [table(["median ratio of a round (95 %)", "pass time", "CPU"], rows), ""]
    broken = [name for name, fine in result["completeness"].items() if not fine]
    lines.append(f"completeness: {'NOT complete of ' + ', '.join(broken) if broken else 'complete'}")
    lines.append(f"{'HELD' if result['held'] else 'NOT held'}: at most {_ALLOWED:g}, {' and '.join(JUDGED)} each")
    return "\n".join(lines)


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
