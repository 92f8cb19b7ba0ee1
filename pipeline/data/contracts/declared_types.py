"""Which schemas of a game apply to a document that names none: those of its event type, the first that decodes it.

Pure. What one schema decodes, a later one never takes over, so a row's columns do not depend on when it is read.
`docs/decisions/0047-json-documents-as-envelopes.md` says why.
"""

from collections.abc import Iterable

from pipeline.data.contracts.event_types import event_type
from pipeline.data.contracts.schemas import FieldPlacement, Schema
from pipeline.data.contracts.shape_needs import UNNAMED

FORMAT = "json"
"""Only documents are tried by several schemas: bytes of protobuf or Avro may fit a wrong one."""


def candidates(placed: Iterable[tuple[Schema, FieldPlacement]], name: str) -> tuple[int, ...]:
    """Return the ids of the JSON Schemas that apply to documents of an event type, in the order of their trial.

    Those whose rows land, as they were registered, then those whose rows wait.

    Args:
        placed: the game's schemas in the order of their registration.
        name: the event type; empty where documents name none, which means the type of the table's own columns.
    """
    of_type = [
        (schema.schema_id, at)
        for schema, at in placed
        if schema.format == FORMAT and (_is_first(at) if not name else event_type(schema.message) == event_type(name))
    ]
    landing = [schema_id for schema_id, at in of_type if at.quarantined is None]
    return (*landing, *(schema_id for schema_id, at in of_type if at.quarantined is not None))


def type_named(placed: Iterable[tuple[Schema, FieldPlacement]], name: str) -> str:
    """Return the event type of documents that give a name.

    Documents that name none are of the game's first type, the one whose fields are columns of the table.
    """
    if name:
        return event_type(name)
    return next((event_type(schema.message) for schema, at in placed if _is_first(at)), UNNAMED)


def _is_first(at: FieldPlacement) -> bool:
    return at.struct is None and not at.other_type
