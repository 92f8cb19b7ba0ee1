"""Who carries which game: what is wanted, who holds it, what its driver last told. Steering looks here, and moves."""

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import Connection, Engine, select, update

from pipeline.store.games import holding
from pipeline.store.tables import drivers, games, groups, leases, streams


class Moved(Exception):
    """A game is not where it was when somebody looked; nothing was changed by the call."""


@dataclass(frozen=True, slots=True)
class Seat:
    """One game; what was told may be old, `told_at` says how old. Times are Unix seconds."""

    game_key: str
    game: str
    group: str | None  # wanted; None: it waits for one
    epoch: int  # of this assignment
    held_by: str | None  # the group whose driver holds it under a lease that runs; None: none does
    last_seq: int
    told_group: str | None
    told_at: float | None
    lane: str | None
    cursor_seq: int | None
    backlog_age_seconds: float | None


@dataclass(frozen=True, slots=True)
class GroupSeat:
    """One group's driver; times are Unix seconds by the clock of its machine."""

    name: str
    state: str | None  # as it last told; None: it never did
    heartbeat_at: float | None


def seats(engine: Engine) -> dict[str, Seat]:
    """Return every game by its key."""
    joined = games.outerjoin(streams, streams.c.game_key == games.c.game_key).outerjoin(leases, holding())
    query = select(
        games.c.game_key, games.c.game, games.c.group_name, games.c.epoch, leases.c.name, games.c.last_seq,
        streams.c.group_name, streams.c.updated_at, streams.c.lane, streams.c.cursor_seq, streams.c.backlog_age_seconds,
    ).select_from(joined)  # fmt: skip
    with engine.connect() as connection:
        return {row[0]: Seat(*row) for row in connection.execute(query)}


def group_seats(engine: Engine) -> dict[str, GroupSeat]:
    """Return every group by its name."""
    theirs = (drivers.c.kind == "group") & (drivers.c.name == groups.c.name)
    query = select(groups.c.name, drivers.c.state, drivers.c.heartbeat_at).select_from(
        groups.outerjoin(drivers, theirs)
    )
    with engine.connect() as connection:
        return {row[0]: GroupSeat(*row) for row in connection.execute(query)}


def reassign(connection: Connection, moves: Mapping[str, tuple[int, str]]) -> None:
    """Assign games (key → the epoch it was seen with, and its new group), all of them or none.

    What was done before counts as done, so it can be repeated after a crash, also where one was moved on since.

    Raises:
        Moved: the assignment of one of them has changed since it was looked at.
    """
    query = select(games.c.game_key, games.c.epoch, games.c.group_name).where(games.c.game_key.in_(list(moves)))
    now = {row.game_key: row for row in connection.execute(query)}
    steps = {key: now[key].epoch - epoch for key, (epoch, _) in moves.items() if key in now}
    ours = [key for key, step in steps.items() if step == 1 and now[key].group_name == moves[key][1]]
    others = [key for key in sorted(moves) if steps.get(key) != 0 and key not in ours]
    never = any(step == 0 or (step == 1 and key not in ours) for key, step in steps.items())
    if ours and not never:
        return
    for key, (epoch, group) in sorted(moves.items()):
        as_seen = (games.c.game_key == key) & (games.c.epoch == epoch)
        if not connection.execute(update(games).where(as_seen).values(group_name=group, epoch=epoch + 1)).rowcount:
            other = now.get(others[0] if others else key)
            said = f"{others[0] if others else key} is in {other.group_name if other else 'no'} group now, "
            raise Moved(f"{'Nothing was moved: ' if never else ''}{said}assigned by somebody else.")
