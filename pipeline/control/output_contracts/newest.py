"""How many of a game's newest rows break the rules of output contracts, read from its table."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from pipeline.base.names import GameKey
from pipeline.data.contracts.event_types import event_type
from pipeline.data.contracts.promised import of_landed
from pipeline.data.contracts.schemas import SchemaSet
from pipeline.data.output_contracts.masks import has_column, judge
from pipeline.data.output_contracts.rules import Action, OutputContract, label
from pipeline.lake.delta import parquet
from pipeline.lake.delta.errors import DeltaError, TableNotFoundError
from pipeline.lake.delta.files import newest_files, without_views
from pipeline.lake.delta.opening import open_table
from pipeline.lake.storage.location import Location

MOST_ROWS: Final = 10_000
"""Rows of a game that are looked at, at least, where it has them; the last file's group of rows is read whole."""

_MOST_FILES: Final = 50


@dataclass(slots=True)
class Breaks:
    """What the newest rows of one game say."""

    rows: int = 0
    broken: Counter[str] = field(default_factory=Counter)  # rows by rule
    refused: int = 0  # rows that break a rule with which they would not land
    stopping: bool = False  # one of them breaks a rule that stops the stream
    by_type: Counter[str] = field(default_factory=Counter)  # rows that a rule was tried on, by rule
    present: set[str] = field(default_factory=set)  # rules whose column the rows have
    actions: dict[str, Action] = field(default_factory=dict)  # of the rules that were tried
    problem: str | None = None  # why they were not read


def count_breaks(folder: Location, key: GameKey, schemas: SchemaSet, contracts: Sequence[OutputContract]) -> Breaks:
    """Count the newest rows of a game's table that break each rule."""
    found = Breaks()
    structs = {event_type(schema.message): at.struct for schema, at in schemas.placed(key)}
    try:
        for rows in _newest(folder):
            found.rows += rows.num_rows
            for name, of_schema, own in of_landed(rows, schemas, key, contracts):
                _add(found, of_schema, own, structs.get(name))
    except TableNotFoundError:
        return found
    except (DeltaError, OSError, pa.ArrowException) as error:
        found.problem = str(error).partition("\n")[0]
    return found


def _newest(folder: Location) -> Iterator[pa.Table]:
    read = 0
    table = open_table(folder)
    for path, _ in newest_files(table, folder, "_seq", "The table")[:_MOST_FILES]:
        file = parquet.open_file(path)
        for group in reversed(range(file.metadata.num_row_groups)):
            rows = without_views(file.read_row_group(group, use_threads=False))
            read += rows.num_rows
            yield rows
            if read >= MOST_ROWS:
                return


def _add(found: Breaks, rows: pa.Table, contracts: Sequence[OutputContract], struct: str | None) -> None:
    verdict = judge(rows, contracts, struct)
    found.refused += 0 if verdict.refused is None else int(verdict.refused.sum())
    found.stopping |= bool(verdict.stopping)
    found.broken.update({rule: int(mask.sum()) for rule, mask in verdict.broken.items()})
    for rule, named in ((rule, label(each, rule)) for each in contracts for rule in each.rules):
        found.by_type[named] += rows.num_rows
        found.actions[named] = rule.action
        if has_column(rows, rule, struct):
            found.present.add(named)
