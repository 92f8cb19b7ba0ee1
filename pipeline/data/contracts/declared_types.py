"""Which schemas of a game apply to a document that names none: those of its event type, the first that decodes it.

Pure. What one schema decodes, a later one never takes over, so a row's columns do not depend on when it is read.
`docs/decisions/0047-json-documents-as-envelopes.md` says why, and decision 48 what becomes of undeclared documents.
"""

from collections.abc import Iterable
from typing import Final

from pipeline.data.contracts.event_types import event_type
from pipeline.data.contracts.formats.json.names import UNDECLARED
from pipeline.data.contracts.formats.json.stored_supersets import version_of
from pipeline.data.contracts.schemas import FieldPlacement, Schema
from pipeline.data.contracts.shape_needs import UNNAMED

FORMAT: Final = "json"
"""Only documents are tried by several schemas: bytes of protobuf or Avro may fit a wrong one."""

MOST_TYPES: Final = 1000
"""Event types of a game beyond which a further one is not registered by itself."""

Placed = tuple[tuple[Schema, FieldPlacement], ...]


class SchemasByType:
    """A game's schemas by event type, sorted once for many names."""

    def __init__(self, placed: Iterable[tuple[Schema, FieldPlacement]]) -> None:
        """Sort the game's schemas, given in the order of their registration."""
        self._own: dict[str, list[tuple[Schema, FieldPlacement]]] = {}
        self._first: list[tuple[Schema, FieldPlacement]] = []  # of the type whose fields are columns of the table
        self._types = set[str]()
        for schema, at in placed:
            name = event_type(schema.message)
            self._types.add(name)
            if schema.format in {FORMAT, UNDECLARED}:
                self._own.setdefault(name, []).append((schema, at))
                if _is_first(at):
                    self._first.append((schema, at))

    def candidates(self, name: str) -> tuple[int, ...]:
        """Return the ids of the schemas that apply to documents of an event type, in the order of their trial.

        Those whose rows land come first, then those whose rows wait; each as they were registered. A superset comes
        before any schema of its type that was declared; of supersets only the newest counts.

        Args:
            name: the event type; empty where documents name none, which means the type of the table's own columns.
        """
        of_type = self._of_type(name)
        landing = [schema.schema_id for schema, at in of_type if at.quarantined is None]
        return (*landing, *(schema.schema_id for schema, at in of_type if at.quarantined is not None))

    def known_version(self, name: str) -> int | None:
        """Return the version of the superset by which documents of an event type are read; 0 for none.

        None where no superset may follow: a schema of the type is declared, or the game has too many types. A
        schema that was withdrawn, or never landed, does not count beside a superset.
        """
        of_type = self._of_type(name)
        if any(schema.format == FORMAT for schema, _ in of_type):
            return None
        if of_type:
            return version_of(of_type[0][0].definition)
        return None if len(self._types) >= MOST_TYPES else 0

    def _of_type(self, name: str) -> list[tuple[Schema, FieldPlacement]]:
        own = self._own.get(event_type(name), []) if name else self._first
        chain = [each for each in own if each[0].format == UNDECLARED]
        newest = sorted(chain, key=lambda each: version_of(each[0].definition))[-1:]
        declared = [each for each in own if each[0].format == FORMAT]
        if newest and all(at.quarantined is not None for _, at in declared):
            return newest  # a declaration was withdrawn, so the type goes by its superset again
        return [*newest, *declared]


def versions_of(placed: Iterable[tuple[Schema, FieldPlacement]], newest: Schema) -> dict[int, int]:
    """Return the ids of a game's supersets of one event type, by their versions."""
    own = event_type(newest.message)
    chain = [each for each, _ in placed if each.format == UNDECLARED and event_type(each.message) == own]
    return {version_of(each.definition): each.schema_id for each in chain}


def without_older(placed: Iterable[tuple[Schema, FieldPlacement]]) -> Placed:
    """Return a game's schemas without the supersets whose columns a later one of the same event type has, too."""
    every = tuple(placed)
    newest: dict[tuple[str, bool], int] = {}
    for schema, at in every:
        if schema.format == UNDECLARED:
            own = schema.message, at.has_columns
            newest[own] = max(newest.get(own, 0), version_of(schema.definition))
    return tuple(
        (schema, at)
        for schema, at in every
        if schema.format != UNDECLARED or version_of(schema.definition) == newest[schema.message, at.has_columns]
    )


def type_named(placed: Iterable[tuple[Schema, FieldPlacement]], name: str) -> str:
    """Return the event type of documents that give a name.

    Documents that name none are of the game's first type, the one whose fields are columns of the table.
    """
    if name:
        return event_type(name)
    return next((event_type(schema.message) for schema, at in placed if _is_first(at)), UNNAMED)


def _is_first(at: FieldPlacement) -> bool:
    return at.struct is None and not at.other_type
