"""Choices about variations and their columns: previews planned as by `turnout schemas pin-variations` and `merge`.

They are operations, which the controller carries out. Previews raise `Refused` where the control store cannot be read.
"""

import time

from pipeline.api.acts import Preview
from pipeline.api.environment import OpenEnvironment
from pipeline.control.operations.merged_columns import propose_merge
from pipeline.control.operations.variations import propose_choice
from pipeline.store.database.engine import reading
from pipeline.store.database.states import OperationKind

__all__ = ["OperationKind", "preview_choice", "preview_merge"]


@reading()
def preview_choice(
    environment: OpenEnvironment,
    actor: str,
    kind: OperationKind,
    game: str,
    event_type: str,
    variation: str | None = None,
) -> Preview:
    """Plan to pin or unpin an event type, or to refuse or allow one of its variations.

    Raises:
        Refused: there is no such game, type or variation, or it has that state already.
    """
    planned = propose_choice(kind, environment.engine, game, event_type, actor, variation=variation)
    lines = tuple(line.strip() for line in planned.lines)
    return Preview(planned.intent, lines, 1, time.time(), label=str(kind).replace("-", " ").capitalize())


@reading()
def preview_merge(environment: OpenEnvironment, actor: str, game: str, event_type: str, column: str) -> Preview:
    """Plan to join a column of an event type with its side columns.

    Raises:
        Refused: there is no such game, type or column, or it has no side column.
    """
    planned = propose_merge(environment.engine, environment.paths, game, column, event_type, actor)
    lines = tuple(line.strip() for line in planned.lines)
    return Preview(planned.intent, lines, 1, time.time(), label="Merge columns")
