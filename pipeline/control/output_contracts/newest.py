"""How many of a game's newest rows break the rules of output contracts, read from its table."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.base.names import GameKey
from pipeline.data.contracts.event_types import event_type
from pipeline.data.contracts.schemas import SchemaSet
from pipeline.data.output_contracts.masks import has_column, judge
from pipeline.data.output_contracts.rules import OutputContract, label
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
    problem: str | None = None  # why they were not read


def count_breaks(folder: Location, key: GameKey, schemas: SchemaSet, contracts: Sequence[OutputContract]) -> Breaks:
    """Count the newest rows of a game's table that break each rule."""
    found = Breaks()
    structs = {event_type(schema.message): at.struct for schema, at in schemas.placed(key)}
    try:
        for rows in _newest(folder):
            _add(found, rows, structs, contracts)
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


def _add(found: Breaks, rows: pa.Table, structs: dict[str, str | None], contracts: Sequence[OutputContract]) -> None:
    found.rows += rows.num_rows
    for name in pc.unique(rows.column("_type")).to_pylist():
        own = [each for each in contracts if name is not None and each.covers(name)]
        if not own:
            continue
        of_type = rows.filter(pc.equal(rows.column("_type"), name)).combine_chunks()
        verdict = judge(of_type, own, structs.get(name))
        found.refused += 0 if verdict.refused is None else int(verdict.refused.sum())
        found.stopping |= bool(verdict.stopping)
        found.broken.update({rule: int(mask.sum()) for rule, mask in verdict.broken.items()})
        for rule, named in ((rule, label(each, rule)) for each in own for rule in each.rules):
            found.by_type[named] += of_type.num_rows
            if has_column(of_type, rule, structs.get(name)):
                found.present.add(named)
