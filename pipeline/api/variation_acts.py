"""Choices about variations and columns, and declarations: previews planned as by the commands of the same names.

They are operations, which the controller carries out. Previews raise `Refused` where the control store cannot be read.
"""

import time

from pipeline.api.acts import Preview
from pipeline.api.environment import OpenEnvironment
from pipeline.control.operations.declarations import propose_declaration
from pipeline.control.operations.definition import OperationProposal
from pipeline.control.operations.merged_columns import propose_merge
from pipeline.control.operations.variations import propose_choice
from pipeline.data.contracts.registry import LocalRegistry
from pipeline.store.database.engine import reading
from pipeline.store.database.states import OperationKind

__all__ = ["OperationKind", "preview_choice", "preview_declaration", "preview_merge"]


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
    return _preview(planned)


@reading()
def preview_declaration(
    environment: OpenEnvironment, actor: str, kind: OperationKind, game: str, event_type: str
) -> Preview:
    """Plan to declare an event type as its documents came, or to withdraw that.

    Raises:
        Refused: there is no such game or type, it has that state already, or it cannot be declared.
    """
    registry = LocalRegistry(environment.engine, environment.paths.bronze)
    return _preview(propose_declaration(kind, registry, environment.engine, game, event_type, actor))


def _preview(planned: OperationProposal) -> Preview:
    lines = tuple(line.strip() for line in planned.lines)
    kind = planned.intent.kind
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
