"""Accepts that the control store has lost schemas of a game for good, as a person decides: first what follows.

Such as after a restore of an older copy, where nobody has their definitions. Called by `turnout schemas accept-loss`.
"""

from dataclasses import dataclass, replace

from sqlalchemy import Connection, Engine

from pipeline.base.errors import Refused, first_line
from pipeline.base.names import game_key, shown
from pipeline.base.texts import join_limited
from pipeline.control import gate
from pipeline.control.acts import DirectAct
from pipeline.data.contracts.given_ids import GivenIds, NewIds, with_ids
from pipeline.data.contracts.kept_registrations import NOTHING, Kept, lost_of, stored_registrations
from pipeline.lake.storage.location import Location
from pipeline.settings.tree import Settings
from pipeline.store.audit import Act


@dataclass(frozen=True, slots=True)
class LostSchemas:
    """What a person is shown before they accept the loss of a game's schemas."""

    game: str
    lost: tuple[Kept, ...]
    lines: tuple[str, ...]  # for people; raw texts are in them


def propose(engine: Engine, bronze: Location, game: str) -> LostSchemas:
    """Return which schemas of a game the control store has lost.

    Raises:
        Refused: none, or the place beside bronze does not serve.
    """
    given, key = GivenIds(bronze), game_key(game)
    try:
        given.refresh()
    except OSError as error:
        raise _no_place(given, error) from error
    with engine.connect() as connection:
        held = {each.schema_id: each.placement for each in stored_registrations(connection) if each.game_key == key}
    if not (lost := lost_of(given.kept.by_game.get(key, NOTHING), held)):
        raise Refused(f"The control store has lost no schema of the game {shown(game)} whose loss is not accepted yet.")
    named = join_limited([f"{each.schema_id} ({shown(each.message)})" for each in lost])
    lines = (
        f"Schemas of {shown(game)} that the control store has lost: {named}.",
        "Further schemas of the game are registered without them: a field may continue or replace one of theirs.",
        "Their rows stay in quarantine. If one is registered again, it gets the columns that it had.",
    )
    return LostSchemas(game, tuple(lost), lines)


def accept_loss(
    settings: Settings, engine: Engine, bronze: Location, proposal: LostSchemas, actor: str, reason: str
) -> str:
    """Let further schemas of the game be registered without the lost ones; audited with their ids.

    Raises:
        Refused: the actor has not the role, or gives no reason; or the place beside bronze does not serve. Then nothing
            is written.
    """
    given, key = GivenIds(bronze), game_key(proposal.game)
    detail = {"reason": reason, "game": proposal.game, "schemas": [each.schema_id for each in proposal.lost]}
    act = Act(actor, str(DirectAct.ACCEPT_LOSS), (f"game:{key}",), None, detail)

    def keep(_: Connection, ids: NewIds) -> None:
        for each in proposal.lost:
            ids.keep(replace(each, given_up=True))

    with gate.acting(settings, engine, DirectAct.ACCEPT_LOSS, act):
        try:
            with_ids(engine, given, lambda _: True, keep)
        except OSError as error:
            raise _no_place(given, error) from error
    return f"Lost schemas of {shown(proposal.game)} that no other one waits for: {len(proposal.lost)}."


def _no_place(given: GivenIds, error: OSError) -> Refused:
    return Refused(f"{given.folder} does not serve ({first_line(error)}). Make it reachable, then repeat.")
