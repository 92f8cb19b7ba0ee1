"""Checks decoded rows against their games' output contracts, before they are written: part of an executor's work. Pure.

Which contracts a game has is part of the schema set that the pass pinned, so a replayed pass decides alike (law L5).
"""

from typing import Final

import numpy as np
import pyarrow as pa

from pipeline.base.names import GameKey
from pipeline.data.contracts.decoded import Refusal, Rows
from pipeline.data.contracts.promised import fields_of, promised
from pipeline.data.contracts.schemas import FieldPlacement, Schema, SchemaSet
from pipeline.data.output_contracts.masks import judge
from pipeline.data.output_contracts.rules import REASON, OutputContract
from pipeline.data.streams.writing.columns import OWN_COLUMNS
from pipeline.data.streams.writing.placed_rows import PlacedRows
from pipeline.data.streams.writing.reports import Games
from pipeline.lake.delta.bronze import whole

_NONE: Final[tuple[OutputContract, ...]] = ()


def keep_promised(
    placed: PlacedRows, rows: Rows, schemas: SchemaSet, schema: Schema, placement: FieldPlacement, found: Games
) -> tuple[PlacedRows, list[Refusal]]:
    """Return the rows that may land, and each other one with its reason; count the rows that break a rule.

    The first row of each game that stops its stream is reported, too: nothing from its seq on counts then.

    Args:
        placed: rows of one schema.
        rows: the number of each, for what is returned.
        schemas: the set with the contracts.
        schema: theirs.
        placement: its columns in the tables of these games.
        found: the report of each game.
    """
    keys = whole(placed.keys).dictionary_encode()
    games = keys.indices.to_numpy()
    by_contracts: dict[tuple[OutputContract, ...], list[int]] = {}
    for game, key in enumerate(keys.dictionary.to_pylist()):
        if of_game := schemas.contracts.get(GameKey(key), _NONE):
            by_contracts.setdefault(of_game, []).append(game)
    refused: list[Refusal] = []
    dropped = np.zeros(len(games), dtype=np.bool_)
    for of_games, members in by_contracts.items():
        contracts = promised(of_games, schema, placement)
        if not any(each.rules for each in contracts):
            continue
        chosen = None if len(members) == len(keys.dictionary) else np.flatnonzero(np.isin(games, members))
        table = placed.rows if chosen is None else placed.rows.take(pa.array(chosen))
        verdict = judge(table, contracts, placement.struct)
        places = np.arange(len(games)) if chosen is None else chosen
        for name, mask in verdict.broken.items():
            _count(found, keys.dictionary, games[places[mask]], name)
        for name, column in verdict.stopping.items():
            _stop(found, keys.dictionary.take(keys.indices), placed.rows, places[verdict.broken[name]], (name, column))
        details = verdict.details()
        fields = fields_of(contracts, placement, OWN_COLUMNS.names) if details else {}
        for index, detail in details:
            dropped[places[index]] = True
            refused.append(Refusal(int(rows[places[index]]), REASON, detail, fields[verdict.rules_of(index)[0]]))
    if not refused:
        return placed, refused
    kept = pa.array(~dropped)
    return PlacedRows(placed.keys.filter(kept), placed.rows.filter(kept)), refused


def _stop(found: Games, keys: pa.Array, rows: pa.Table, breaking: np.ndarray, rule: tuple[str, str]) -> None:
    """Report the first of these rows of each game, and the rule that it breaks, if none before it is reported."""
    chosen = pa.array(breaking)
    columns = (keys.take(chosen), rows.column("_seq").take(chosen), rows.column("_pos").take(chosen))
    for key, seq, pos in zip(*(each.to_pylist() for each in columns), strict=True):
        stop = [seq, pos, *rule]
        found[key]["stop"] = min(stop, found[key].get("stop") or stop)


def _count(found: Games, keys: pa.Array, games: np.ndarray, name: str) -> None:
    numbers, counts = np.unique(games, return_counts=True)
    for number, rows in zip(numbers.tolist(), counts.tolist(), strict=True):
        broken = found[keys[number].as_py()].setdefault("broken", {})
        broken[name] = broken.get(name, 0) + rows  # a slice may have several portions
