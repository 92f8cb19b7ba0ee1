"""Declares an undeclared event type: by a schema whose columns are those that the table has."""

from sqlalchemy import Engine

from pipeline.base.errors import Refused
from pipeline.base.names import shown
from pipeline.base.texts import join_limited
from pipeline.control.registering.proposals import SchemaProposal, propose
from pipeline.data.contracts.formats.json.declaring import definition_of
from pipeline.data.contracts.formats.json.undeclared_format import superset_of
from pipeline.data.contracts.registrations import Registration
from pipeline.data.contracts.registry import LocalRegistry
from pipeline.data.contracts.schemas import Schema
from pipeline.data.contracts.shape import placed_columns
from pipeline.data.variations.registering import newest_supersets
from pipeline.lake.storage.location import Location
from pipeline.settings.tree import Settings
from pipeline.store.games import find, known_names


def propose_declaration(
    settings: Settings, engine: Engine, bronze: Location, game: str, event_type: str
) -> SchemaProposal:
    """Plan to declare an undeclared event type of a game (name or key).

    Raises:
        Refused: there is no such game or type, its type waits to be accepted, its name or a key cannot be declared, or
            the schema would have other columns.
    """
    found = find(game, known_names(engine))
    known = LocalRegistry(engine, bronze).snapshot()
    newest = newest_supersets(known, found.key)
    if (own := newest.get(event_type)) is None:
        listed = join_limited(sorted(map(shown, newest)), 10) or "none"
        raise Refused(f"{shown(event_type)} is no undeclared event type of {shown(found.name)}. Such are: {listed}.")
    at = known.placement(found.key, own.schema_id)
    if at.other_type:
        raise Refused(
            f"{shown(event_type)} is not accepted as an event type of {shown(found.name)}. "
            f"Run `turnout schemas accept-type` first."
        )
    definition = definition_of(own.message, superset_of(own))
    proposal = propose(settings, engine, bronze, Registration(found.name, own.message, definition, format="json"))
    held = placed_columns(own, at)
    declared = placed_columns(Schema(0, "json", own.message, definition), proposal.plan.placement)
    if moved := [each.name for each in declared if each not in list(held)]:
        raise Refused(
            f"A declared schema would have other columns than the table: {join_limited(moved, 10)}. "
            f"Leave {shown(event_type)} undeclared, or write a schema yourself."
        )
    return proposal
