"""Grants games to the readers that onboardings want, by operations of the controller; an undo takes them back.

Who authorised a reader counts as the person who grants: the rules for people hold for rules and approvals, too.
"""

from collections.abc import Sequence
from itertools import groupby

from grants.applying import proposals
from grants.applying.proposals import AUTHORISED_BY
from grants.applying.table_registration import register_missing
from grants.catalog import Catalog
from grants.planning.entitlements import AccessIntent
from pipeline.base.errors import Refused
from pipeline.base.names import GameKey
from pipeline.control.operations.definition import ControlContext
from pipeline.control.roles import CONTROLLER
from pipeline.lake.delta.log import exists
from pipeline.store.operations import TargetsBusy, submit
from pipeline.store.wanted_readers import (
    WantedReader,
    forget,
    note_problem,
    note_submitted,
    read_taken_back,
    read_ungranted,
)


def submit_due(context: ControlContext, catalog: Catalog, *, again: bool = True) -> None:
    """Submit the operations of readers that wait, of games that have a table.

    Why one cannot be submitted is noted with the reader; those with such a note are tried `again`.

    Raises:
        CatalogUnavailable: the catalog cannot be read.
    """
    waiting = [each for each in read_ungranted(context.engine) if again or each.problem is None]
    waiting = [each for each in waiting if exists(context.paths.table(GameKey(each.game_key)))]
    if not waiting:
        return
    schema = proposals.schema_of(context.settings.access)
    register_missing(context, catalog, schema)
    known = catalog.tables(schema)
    ready = [each for each in waiting if each.game_key in known]
    for _, some in groupby(sorted(ready, key=_whose), key=_whose):
        readers = list(some)
        try:
            note_submitted(context.engine, readers, _submit(context, catalog, readers))
        except TargetsBusy:
            continue  # another operation is about the principal: the next look
        except Refused as refused:
            note_problem(context.engine, readers, str(refused))


def take_back_due(context: ControlContext, catalog: Catalog) -> None:
    """Revoke what undone onboardings gave to their readers; what the catalog had before stays.

    Raises:
        CatalogUnavailable: the catalog cannot be read.
    """
    for _, some in groupby(sorted(read_taken_back(context.engine), key=_whose), key=_whose):
        readers = list(some)
        given = [each for each in readers if each.access_operation_id]
        try:
            if given:
                _submit(context, catalog, given, read=False)
        except TargetsBusy:
            continue  # such as the one that grants: the next look
        except Refused as refused:
            note_problem(context.engine, given, str(refused))
            continue
        forget(context.engine, readers)


def _whose(reader: WantedReader) -> tuple[str, str, str]:
    return reader.principal, reader.authorised_by, reader.reason


def _submit(context: ControlContext, catalog: Catalog, readers: Sequence[WantedReader], *, read: bool = True) -> str:
    """Submit one principal's readings, or their end; return the operation, or nothing where nothing changes."""
    engine, access, first = context.engine, context.settings.access, readers[0]
    reason = first.reason if read else f"undone: {first.reason}"
    intents = [AccessIntent(each.principal, each.game_key, read=read, reason=reason) for each in readers]
    prepared = proposals.prepare(engine, catalog, access, context.paths, intents)
    intent = prepared.to_intent(CONTROLLER, reason, **{AUTHORISED_BY: first.authorised_by})
    if not intent.targets:
        return ""
    proposals.require_permitted(engine, context.settings, catalog, prepared, intent)
    return submit(engine, intent).operation_id
