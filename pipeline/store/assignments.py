"""Who carries which game: the desired state, who holds it, what its driver last reported; and moves."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, Engine, select, update

from listeners.sample import Lane
from pipeline.base.errors import Conflict, Refused
from pipeline.base.texts import join_limited
from pipeline.store.database.tables import games, groups, leases, streams
from pipeline.store.games import holding
from pipeline.store.processes.leases import store_now


class AssignmentConflict(Conflict):
    """A game's assignment, or its group, was changed since it was read; nothing was changed by the call."""


@dataclass(frozen=True, slots=True)
class GameAssignment:
    """One game; what was reported may be old, `reported_at` gives how old. Times are Unix seconds."""

    game_key: str
    game: str
    group: str | None  # wanted; None: it waits for one, or is retired
    epoch: int  # of this assignment
    held_by: str | None  # the group whose driver holds it under a lease that runs; None: none does
    last_seq: int
    reported_group: str | None
    reported_at: float | None
    lane: str | None
    cursor_seq: int | None
    backlog_age_seconds: float | None
    retired_at: float | None = None  # None: it is not
    waits_for: str | None = None  # "waits for schema …", as its driver reported; None: its next rows lack nothing
    schema_set: int | None = None  # the oldest by which its driver writes its rows now or next; None: not known

    @property
    def is_settled(self) -> bool:
        """Whether it runs, is not to run, has nothing to catch up with, or its driver knows what its next rows lack."""
        is_still = self.lane in {Lane.RUN, Lane.PAUSED, Lane.QUARANTINED} or self.waits_for is not None
        return is_still or (self.cursor_seq or 0) >= self.last_seq


def render_waits(settled: Iterable[GameAssignment]) -> str:
    """Return which of these games wait, and for what, as a sentence; empty where none does."""
    waits = [f"{each.game_key} {each.waits_for}" for each in settled if each.waits_for is not None]
    return f"Rows wait: {join_limited(waits)}." if waits else ""


def read_assignments(engine: Engine) -> dict[str, GameAssignment]:
    """Return every game by its key."""
    columns = [
        games.c.game_key, games.c.game, games.c.group_name, games.c.epoch, leases.c.name, games.c.last_seq,
        streams.c.group_name, streams.c.updated_at, streams.c.lane, streams.c.cursor_seq, streams.c.backlog_age_seconds,
        games.c.retired_at, streams.c.waits_for, streams.c.schema_set,
    ]  # fmt: skip
    with engine.connect() as connection:
        joined = games.outerjoin(streams, streams.c.game_key == games.c.game_key).outerjoin(leases, holding())
        rows = connection.execute(select(*columns).select_from(joined))
        return {row.game_key: GameAssignment(*row) for row in rows}


def reported_cursors(engine: Engine) -> dict[str, int]:
    """Return the last seq that each game's table had, by key, as far as a driver reported one."""
    query = select(streams.c.game_key, streams.c.cursor_seq).where(streams.c.cursor_seq > 0)
    with engine.connect() as connection:
        return {row.game_key: row.cursor_seq for row in connection.execute(query)}


def require_carried(keys: Iterable[str], assignments: Mapping[str, GameAssignment]) -> None:
    """Go on only where none of these games is retired.

    Raises:
        Refused: one of them is.
    """
    retired = sorted(key for key in keys if assignments[key].retired_at is not None)
    if retired:
        who = f"{join_limited(retired, 1)} {'are' if len(retired) > 1 else 'is'} retired"
        raise Refused(f"{who}: no group carries a game until it is restored. Run `turnout games restore {retired[0]}`.")


def reassign(
    connection: Connection, moves: Mapping[str, tuple[int, str]], desired: Mapping[str, tuple[str, str]] | None = None
) -> None:
    """Assign games (key → the epoch it was seen with, and its new group), all of them or none.

    With them write groups' desired states (name → state as seen, new state). What was done before
    counts as done, so it can be repeated after a crash, also where one game was moved on since.

    Raises:
        AssignmentConflict: the assignment of one of them, or the desired state of a group, has changed since it was
            read.
    """
    query = select(games.c.game_key, games.c.epoch, games.c.group_name).where(games.c.game_key.in_(list(moves)))
    now = {row.game_key: row for row in connection.execute(query)}
    steps = {key: now[key].epoch - epoch for key, (epoch, _) in moves.items() if key in now}
    ours = [key for key, step in steps.items() if step == 1 and now[key].group_name == moves[key][1]]
    others = [key for key in sorted(moves) if steps.get(key) != 0 and key not in ours]
    never = _was_never_done(steps, ours)
    if ours and not never:
        return
    for key, (epoch, group) in sorted(moves.items()):
        as_seen = (games.c.game_key == key) & (games.c.epoch == epoch)
        if not connection.execute(update(games).where(as_seen).values(group_name=group, epoch=epoch + 1)).rowcount:
            other = now.get(others[0] if others else key)
            where = f"{others[0] if others else key} is in {other.group_name if other else 'no'} group now, "
            raise AssignmentConflict(f"{'Nothing was moved: ' if never else ''}{where}assigned by another request.")
    for name, (was, then) in sorted((desired or {}).items()):
        as_seen = (groups.c.name == name) & (groups.c.desired == was)
        if not connection.execute(
            update(groups).where(as_seen).values(desired=then, version=groups.c.version + 1)
        ).rowcount:
            now_desired = connection.scalar(select(groups.c.desired).where(groups.c.name == name))
            if now_desired != then:
                why = f"group {name} is {now_desired or 'gone'} now, set by another request"
                raise AssignmentConflict(f"Nothing was moved: {why}.")


def retire(connection: Connection, wanted: Mapping[str, int]) -> None:
    """Take games (key → the epoch it was seen with) from their groups until they are restored, all of them or none.

    What was done before counts as done, as in `reassign`.

    Raises:
        AssignmentConflict: the assignment of one of them has changed since it was read.
    """
    values = {"group_name": None, "retired_at": store_now()}
    _change_all(connection, wanted, values, games.c.retired_at.is_(None), retires=True)


def restore(connection: Connection, wanted: Mapping[str, int]) -> None:
    """Let retired games (key → the epoch it was seen with) wait for a group again, all of them or none.

    What was done before counts as done, as in `reassign`.

    Raises:
        AssignmentConflict: one of them was restored, and perhaps retired again, since it was read.
    """
    _change_all(connection, wanted, {"retired_at": None}, games.c.retired_at.is_not(None), retires=False)


def _change_all(
    connection: Connection,
    wanted: Mapping[str, int],
    values: Mapping[str, Any],
    may_change: ColumnElement[bool],
    *,
    retires: bool,
) -> None:
    query = select(games.c.game_key, games.c.epoch, games.c.retired_at).where(games.c.game_key.in_(list(wanted)))
    now = {row.game_key: row for row in connection.execute(query)}
    steps = {key: now[key].epoch - epoch for key, epoch in wanted.items() if key in now}
    ours = [key for key, step in steps.items() if step == 1 and (now[key].retired_at is not None) == retires]
    never = _was_never_done(steps, ours)
    if ours and not never:
        return
    for key, epoch in sorted(wanted.items()):
        as_seen = (games.c.game_key == key) & (games.c.epoch == epoch) & may_change
        if not connection.execute(update(games).where(as_seen).values(epoch=epoch + 1, **values)).rowcount:
            nothing = f"Nothing was {'retired' if retires else 'restored'}: " if never else ""
            raise AssignmentConflict(f"{nothing}{key} was moved, retired or restored by another request.")


def _was_never_done(steps: Mapping[str, int], ours: Sequence[str]) -> bool:
    """Return whether a change of a whole set cannot have been made before: of one game the epoch says so.

    `steps` is by how much each epoch has grown since it was seen, `ours` are those that are as this change leaves them.
    """
    return any(step == 0 or (step == 1 and key not in ours) for key, step in steps.items())
