"""`python -m bench.contracts`: what an output contract of ten rules costs a task that decodes and writes rows.

The same rows of one game are split in turn without a contract, with ten rules that warn, and with ten that quarantine;
no row breaks one. CPU time of this process counts, with all threads. Each repetition compares the variants with its own
run without a contract, and begins with another variant. See docs/performance.md.
"""

import argparse
import gc
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median, quantiles
from typing import Any, Final

import pyarrow as pa

from bench import machine, policies
from bench.command import carry_out
from bench.text import number, table
from pipeline.base.names import GameKey, game_key
from pipeline.data.contracts.formats.protobuf.messages import canonical
from pipeline.data.contracts.schemas import Schema, SchemaSet
from pipeline.data.output_contracts.rules import Action, ContractRule, OutputContract
from pipeline.data.streams.writing.job import READ, SplitJob
from pipeline.data.streams.writing.split import split
from pipeline.demo.samples.supported import payload_schema
from pipeline.lake.delta.bronze import BRONZE
from pipeline.lake.storage.places import located

_GOAL: Final = 1.1
_BASE: Final = "no contract"
_VERSION: Final = 5  # of the payloads of `policies.sample_rows`
_FAMILY: Final = "shooter"
_RULES: Final[tuple[Mapping[str, Any], ...]] = (
    {"column": "player_id", "required": True, "min_length": 1},
    {"column": "arena", "pattern": ".*"},
    {"column": "kills", "min": 0, "max": 10**9},
    {"column": "deaths", "min": 0, "type": "integer"},
    {"column": "weapon", "max_length": 1000},
    {"column": "last_position.x", "min": -1e300},
    {"column": "hits[].damage", "min": -(10**9)},
    {"column": "hits[].at.x", "max": 1e300},
    {"column": "badges", "max_length": 1000},
    {"column": "ended_at", "type": "timestamp"},
)


def contracts(action: Action, game: str) -> tuple[OutputContract, ...]:
    """Return ten rules that no row breaks."""
    rules = tuple(ContractRule(f"rule {place}", action=action, **each) for place, each in enumerate(_RULES))
    return (OutputContract("bench", games=(game,), rules=rules),)


def measure(folder: Path, rows: int, repeats: int) -> dict[str, Any]:
    """Return the CPU seconds of each variant, run by run."""
    chosen = [each for each in policies.sample_rows(3, 4 * rows) if each.family == _FAMILY][:rows]
    game, (message, definition) = chosen[0].game, payload_schema(_FAMILY, _VERSION)
    chosen = [each for each in chosen if each.game == game]
    schema = Schema(1, "protobuf", message, canonical(message, definition))
    key = game_key(game)
    batch = _bronze(chosen, key)
    plain = SchemaSet(1, {key: (1,)}, {1: schema})
    variants = {
        _BASE: plain,
        "ten rules that warn": replace(plain, contracts={key: contracts("warn", game)}),
        "ten rules that quarantine": replace(plain, contracts={key: contracts("quarantine", game)}),
    }
    seconds: dict[str, list[float]] = {name: [] for name in variants}
    order = list(variants)
    for _ in range(repeats + 1):
        order = [*order[1:], order[0]]
        for name in order:
            gc.collect()
            job = SplitJob({key: 0}, variants[name], located(folder / name))
            began = time.process_time()
            (done,) = split(iter([batch]), job)
            seconds[name].append(time.process_time() - began)
            report = json.loads(done.column("report")[0].as_py())["games"][key]
            if report.get("broken") or sum(file["rows"] for file in report["files"]) != len(chosen):
                raise ValueError(f"{name}: not every row landed: {report}")
    found = {name: each[1:] for name, each in seconds.items()}  # the first run of each compiles and caches
    return {"rows": len(chosen), "repeats": repeats, "cpu_seconds": found}


def _bronze(rows: Sequence[policies.Row], key: GameKey) -> pa.RecordBatch:
    values: dict[str, list[Any]] = {
        "game_key": [key] * len(rows), "game": [each.game for each in rows], "schema_id": [1] * len(rows),
        "seq": [1] * len(rows), "pos": list(range(len(rows))), "prev_seq": [0] * len(rows),
        "raw": [each.wrapper for each in rows],
    }  # fmt: skip
    arrays = [pa.array(values.get(name, [None] * len(rows)), BRONZE.field(name).type) for name in READ]
    return pa.RecordBatch.from_arrays(arrays, names=list(READ))


def report(result: Mapping[str, Any]) -> str:
    """Return the result as a table, with the goal."""
    found, rows = result["cpu_seconds"], result["rows"]
    base = found[_BASE]
    times = {name: [own / bare for own, bare in zip(each, base, strict=True)] for name, each in found.items()}
    lines = [
        [name, *map(number, (median(each), min(each), max(each), median(each) / rows * 1e6)), *_spread(times[name])]
        for name, each in found.items()
    ]
    worst = max(median(each) for name, each in times.items() if name != _BASE)
    said = "kept" if worst <= _GOAL else "MISSED"
    heads = ["variant", "CPU s", "least", "most", "µs a row", "times", "quartiles"]
    return (
        f"{table(heads, lines)}\n{rows:,} rows, {result['repeats']} repetitions; times and quartiles are of each "
        f"repetition's own run without a contract.\nAt most {_GOAL} times: {said} ({worst:.3f})."
    )


def _spread(times: Sequence[float]) -> list[str]:
    low, middle, high = quantiles(times, n=4)
    return [f"{middle:.3f}", f"{low:.3f} to {high:.3f}"]


def main() -> None:
    """Measure, print a table, and with `--out` write it as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m bench.contracts")
    parser.add_argument("--rows", type=int, default=80_000)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--work", type=Path, help="the folder for tables")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    before = machine.load_average()

    def run(folder: Path) -> dict[str, Any]:
        return {"machine": machine.describe(), "load": before, **measure(folder, options.rows, options.repeats)}

    carry_out(options, run, report)


if __name__ == "__main__":
    main()
