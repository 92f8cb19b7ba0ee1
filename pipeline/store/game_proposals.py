"""Games that people propose before they have sent anything, until someone approves or rejects them."""

import json
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from sqlalchemy import Connection, Engine, Row, delete, insert, select

from pipeline.base.errors import Refused
from pipeline.store import audit
from pipeline.store.database.states import Priority
from pipeline.store.database.tables import game_proposals, onboardings
from pipeline.store.processes.leases import store_now

_MOST: Final = 1_000  # so that nobody fills the store
_IS_OPEN: Final = game_proposals.c.game_key.not_in(select(onboardings.c.game_key))


@dataclass(frozen=True, slots=True)
class GameProposal:
    """One proposed game; what is None is left to its rule and to placement."""

    game_key: str
    game: str
    proposed_by: str
    reason: str
    events_per_second: float | None = None
    group: str | None = None
    priority: Priority | None = None
    readers: tuple[str, ...] = ()
    format: str | None = None  # of its schema; None with the next two: none is given
    message: str | None = None
    definition: bytes | None = field(default=None, repr=False)
    proposed_at: float = 0.0  # Unix seconds by the store's clock


def propose(engine: Engine, proposal: GameProposal) -> None:
    """Write a proposal with its audit entry, in place of an earlier one for the name.

    Raises:
        Refused: there are too many.
    """
    detail = {name: value for name, value in asdict(proposal).items() if name not in {"definition", "proposed_at"}}
    act = audit.Act(proposal.proposed_by, "propose a game", (f"game:{proposal.game_key}",), None, detail)
    values = {**asdict(proposal), "readers": json.dumps(proposal.readers), "group_name": proposal.group}
    del values["group"], values["proposed_at"]
    with engine.begin() as connection:
        audit.lock_log(connection)
        discard_within(connection, proposal.game_key)
        if len(connection.execute(select(game_proposals.c.game_key).where(_IS_OPEN)).all()) >= _MOST:
            raise Refused(f"{_MOST:,} proposals wait. Approve or reject some: `turnout games pending` lists them.")
        audit.begin(connection, act)
        connection.execute(insert(game_proposals).values(proposed_at=store_now(), **values))
        audit.end(connection, act, "succeeded")


def discard_within(connection: Connection, key: str) -> None:
    """Remove the proposal of a game that is decided, in the caller's transaction."""
    connection.execute(delete(game_proposals).where(game_proposals.c.game_key == key))


def discard(engine: Engine, key: str) -> None:
    """Remove the proposal of a game that is decided."""
    with engine.begin() as connection:
        discard_within(connection, key)


def read_proposals(engine: Engine) -> dict[str, GameProposal]:
    """Return every proposal by its key, the oldest first."""
    with engine.connect() as connection:
        rows = connection.execute(select(game_proposals).order_by(game_proposals.c.proposed_at))
        return {row.game_key: _read(row) for row in rows}


def open_proposals(engine: Engine) -> dict[str, GameProposal]:
    """Return the proposals of names that are no games yet by their keys, without their definitions; the oldest first.

    A name may have become a game without its proposal, as by a registered schema.
    """
    table = game_proposals
    columns = [each for each in table.c if each is not table.c.definition]
    with engine.connect() as connection:
        rows = connection.execute(select(*columns).where(_IS_OPEN).order_by(table.c.proposed_at))
        return {row.game_key: _read(row) for row in rows}


def _read(row: Row[Any]) -> GameProposal:
    values = {**row._asdict(), "group": row.group_name, "readers": tuple(json.loads(row.readers))}
    del values["group_name"]
    return GameProposal(**values)
