"""Counts the rows of each event type of a game, in its table and in quarantine. Reads only."""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from pipeline.base.errors import Refused, first_line
from pipeline.data.contracts.further_types import GameType
from pipeline.data.repair.quarantined import Selection, opened
from pipeline.lake.delta.errors import DeltaError, TableNotFoundError
from pipeline.lake.delta.opening import open_table
from pipeline.lake.delta.usage import SchemaRows, Usage, usage
from pipeline.settings.tree import Paths
from pipeline.store.games import Game


@dataclass(frozen=True, slots=True)
class TypeUse:
    """The rows of one event type; times are the source's, in Unix seconds, None where no row has one."""

    rows: int  # in the game's table; by a sample where not complete
    first_at: float | None
    last_at: float | None
    refused: int  # in quarantine
    complete: bool  # every file of the table was counted; else rows are an estimate, and the first came perhaps earlier


def count_types(paths: Paths, game: Game, types: Sequence[GameType]) -> list[TypeUse]:
    """Count the rows of a game's event types.

    Raises:
        Refused: its table or quarantine cannot be read.
    """
    folder = paths.table(game.key)
    try:
        used = usage(open_table(folder), folder, f"The table of {game.key}")
    except TableNotFoundError:
        used = Usage({}, 0)
    except (DeltaError, pa.ArrowException, OSError) as error:
        why = first_line(error)
        raise Refused(f"The table of {game.key} cannot be read: {why}. Streams are not affected.") from error
    with opened(paths, {str(game.key): game.name}, Selection(game)) as quarantined:
        refused = quarantined.by_schema()
    return [_count(each, used, refused) for each in types]


def _count(of: GameType, used: Usage, refused: Sequence[tuple[int | None, str | None, int]]) -> TypeUse:
    ids, messages = {schema.schema_id for schema, _ in of.schemas}, {schema.message for schema, _ in of.schemas}
    held = [used.schemas.get(each, SchemaRows(0, None, None)) for each in ids]
    firsts = [each.first_at for each in held if each.first_at is not None]
    lasts = [each.last_at for each in held if each.last_at is not None]
    # A row with a registry's id names no schema of ours; the refusal of another type begins with its message.
    own = [named in messages if named is not None else number in ids for number, named, _ in refused]
    waiting = sum(rows for is_own, (_, _, rows) in zip(own, refused, strict=True) if is_own)
    return TypeUse(used.rows_of(ids), min(firsts, default=None), max(lasts, default=None), waiting, used.is_complete)
