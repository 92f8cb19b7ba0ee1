"""The oracle itself, on tables made by hand: each kind of damage is counted as what it is, and as nothing else."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake.writer import write_deltalake

from pipeline.demo.simulator import GOOD, Event
from tests.faults import figures, oracle
from tests.faults.oracle import ProducerLog, RowVerdict, judge

CLEAN = RowVerdict(
    events=6,
    lost=0,
    duplicated=0,
    misrouted=0,
    corrupted=0,
    unexplained=0,
    values_compared=5,
    value_mismatches=0,
)
PROVEN = {"events": 6, "unexplained": 0, "values_compared": 5, "value_mismatches": 0}
Row = dict[str, Any]
Damage = Callable[[list[Row], dict[str, list[Row]]], object]


def sent() -> list[Event]:
    """Six events of two games, one of which is not good."""
    names = ["Chess"] * 4 + ["naïve\n🎮"] * 2
    kinds = [GOOD] * 5 + ["malformed_payload"]
    return [
        Event(None, f"{name} {number}".encode(), name, number, kind)
        for number, (name, kind) in enumerate(zip(names, kinds, strict=True), 1)
    ]


def environment(root: Path, damage: Damage | None) -> ProducerLog:
    """Write bronze, tables and quarantine as they should be, but for the damage; return the producer's log."""
    events = sent()
    log = ProducerLog(root / "log.jsonl")
    log.note(events)
    bronze: list[Row] = [
        {"seq": 1 + at // 3, "pos": at, "game": event.game, "raw": event.value} for at, event in enumerate(events)
    ]
    tables: dict[str, list[Row]] = {"chess": [], "naive": []}
    for event, row in zip(events, bronze, strict=True):
        if event.kind == GOOD:
            landed = {"_seq": row["seq"], "_pos": row["pos"], "_event_id": f"a-b-{event.sequence}"}
            tables["chess" if event.game == "Chess" else "naive"].append({**landed, "round": event.sequence})
    if damage is not None:
        damage(bronze, tables)
    write_deltalake(root / "bronze", pa.Table.from_pylist(bronze))
    for name, rows in tables.items():
        write_deltalake(root / "tables" / name, pa.Table.from_pylist(rows))
    write_deltalake(root / "quarantine", pa.table({"seq": [2], "pos": [5]}))
    return log


def doubled_by_a_late_commit(_: list[Row], tables: dict[str, list[Row]]) -> None:
    tables["chess"].append(tables["chess"][0])


def doubled_on_arrival(bronze: list[Row], tables: dict[str, list[Row]]) -> None:
    bronze.append({**bronze[0], "seq": 3, "pos": 6})
    tables["chess"].append({**tables["chess"][0], "_seq": 3, "_pos": 6})


def never_arrived(bronze: list[Row], tables: dict[str, list[Row]]) -> None:
    del bronze[0], tables["chess"][0]


def changed_on_arrival(bronze: list[Row], _: dict[str, list[Row]]) -> None:
    bronze[0]["raw"] = b"other bytes"


def changed_in_its_table(_: list[Row], tables: dict[str, list[Row]]) -> None:
    tables["chess"][0]["_event_id"] = "a-b-99"


def in_another_games_table(_: list[Row], tables: dict[str, list[Row]]) -> None:
    tables["naive"].append(tables["chess"].pop())


def from_nowhere(_: list[Row], tables: dict[str, list[Row]]) -> None:
    tables["chess"].append({"_seq": 9, "_pos": 9, "_event_id": "a-b-9", "round": 9})


DAMAGES: dict[Damage | None, dict[str, int]] = {
    None: {},
    doubled_by_a_late_commit: {"duplicated": 1},
    doubled_on_arrival: {"duplicated": 2},  # once in bronze, once in its table
    never_arrived: {"lost": 1},
    changed_on_arrival: {"lost": 1, "corrupted": 1},
    changed_in_its_table: {"corrupted": 1},
    in_another_games_table: {"misrouted": 1},
    from_nowhere: {"misrouted": 1},
}


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda each: each.__name__ if each else "none")
@pytest.mark.proves("G165")
def test_each_kind_of_damage_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: Damage | None) -> None:
    """An oracle that cannot fail proves nothing: lost, doubled, misrouted and changed rows are told apart."""
    log = environment(tmp_path, damage)
    monkeypatch.setattr(oracle, "read_completeness", lambda _: PROVEN)  # `turnout verify` has tests of its own
    verdict = judge(tmp_path, log)
    figures.discard()
    assert replace(CLEAN, **DAMAGES[damage]) == verdict
    assert (damage is None) == verdict.clean


@pytest.mark.parametrize(("compared", "mismatches"), [(0, 0), (5, 1)])
@pytest.mark.proves("G165")
def test_values_must_be_compared_and_equal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compared: int, mismatches: int
) -> None:
    """Places alone are no proof: a run whose values were not compared, or differ, is not clean."""
    log = environment(tmp_path, None)
    found = {**PROVEN, "values_compared": compared, "value_mismatches": mismatches}
    monkeypatch.setattr(oracle, "read_completeness", lambda _: found)
    verdict = judge(tmp_path, log)
    figures.discard()
    assert not verdict.clean
