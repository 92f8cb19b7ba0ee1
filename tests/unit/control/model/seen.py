"""What the store of a model's fleet holds, read without any code of ours, and what of it an operation waits for."""

import json
import sqlite3
from typing import Any, NamedTuple

_PLACES = """
SELECT g.game_key, g.group_name, g.epoch, l.name, g.retired_at, s.group_name, s.updated_at, s.lane
FROM games g LEFT JOIN streams s ON s.game_key = g.game_key
LEFT JOIN leases l ON l.kind = 'group' AND l.name = g.held_by AND l.epoch = g.held_epoch AND l.expires_at > ?
"""
_DRIVING = "SELECT name, since FROM leases WHERE kind = 'group' AND expires_at > ?"


class Place(NamedTuple):
    """One game; times are those of the store's clock."""

    group: str | None
    epoch: int
    held_by: str | None  # under a lease that runs
    retired_at: float | None
    reported_group: str | None
    reported_at: float | None
    lane: str | None


class Row(NamedTuple):
    """An operation as its row is; `targets`, `parameters` and `preview` are JSON, or what a hand has made of them."""

    operation_id: str
    kind: str
    state: str
    outcome: Any
    requested_at: Any
    ended_at: Any
    version: Any
    targets: str
    parameters: str
    preview: str
    preview_hash: str


class StoreSnapshot(NamedTuple):
    """The store at one moment."""

    places: dict[str, Place]
    rows: dict[str, Row]
    done: dict[str, list[str]]  # the steps that are done, by operation
    taken: dict[str, str]  # target -> operation
    decisions: dict[str, str]  # game -> what was decided of it
    desired: dict[str, str]  # of groups
    versions: dict[str, int]  # of what is wanted of them
    driving: dict[str, float]  # group -> since when its lease is its holder's
    states: dict[str, str]  # group -> as its driver last told
    running: dict[str, float | None]  # group with a run that has not ended -> when that was asked to end
    head: str  # of the audit log


def look(store: sqlite3.Connection, now: float) -> StoreSnapshot:
    """Read all of it at one moment."""
    store.execute("BEGIN")
    try:
        done: dict[str, list[str]] = {}
        for name, step in store.execute(
            "SELECT operation_id, name FROM operation_steps WHERE state = 'done' ORDER BY number"
        ):
            done.setdefault(name, []).append(step)
        rows = (Row(*row) for row in store.execute(f"SELECT {', '.join(Row._fields)} FROM operations"))
        return StoreSnapshot(
            places={key: Place(*rest) for key, *rest in store.execute(_PLACES, (now,))},
            rows={row.operation_id: row for row in rows},
            done=done,
            taken=dict(store.execute("SELECT target, operation_id FROM operation_targets")),
            decisions=dict(store.execute("SELECT game_key, desired FROM stream_control")),
            desired=dict(store.execute("SELECT name, desired FROM groups")),
            versions=dict(store.execute("SELECT name, version FROM groups")),
            driving=dict(store.execute(_DRIVING, (now,))),
            states=dict(store.execute("SELECT name, state FROM drivers WHERE kind = 'group'")),
            running=dict(store.execute("SELECT group_name, stop_requested_at FROM group_runs WHERE ended_at IS NULL")),
            head=store.execute("SELECT hash FROM audit_head").fetchone()[0],
        )
    finally:
        store.execute("COMMIT")


def let_go(row: Row, seen: StoreSnapshot) -> bool:
    """Return whether the games of a move or a retirement are assigned anew, and no old driver holds one.

    Of one that was assigned again since nobody has to let go: it may be back in its old group.
    """
    return all(
        seen.places[key].epoch > epoch + 1
        or (seen.places[key].epoch == epoch + 1 and (source is None or seen.places[key].held_by != source))
        for key, (source, *_, epoch) in json.loads(row.preview).items()
    )


def taken_over(row: Row, seen: StoreSnapshot) -> bool:
    """Return whether the new drivers of a move hold all of its games that were not moved on since."""
    return all(
        seen.places[key].epoch > epoch + 1 or (seen.places[key].epoch, seen.places[key].held_by) == (epoch + 1, group)
        for key, (_, group, epoch) in json.loads(row.preview).items()
    )


def has_effect(row: Row, seen: StoreSnapshot) -> bool:
    """Return whether all that an operation is for can be seen in the store now."""
    if row.kind in {"start", "stop", "restart"}:
        return all(_group_is_so(row, name, seen) for name in json.loads(row.preview))
    if row.kind == "retire":
        return let_go(row, seen)
    if row.kind == "move":
        return all(
            seen.places[key].epoch > epoch + 1
            or (seen.places[key].epoch == epoch + 1 and _is_reported(row, seen.places[key], group))
            for key, (_, group, epoch) in json.loads(row.preview).items()
        )
    return all(_game_is_so(row, seen.places[key]) for key in json.loads(row.parameters)["games"])


def _game_is_so(row: Row, place: Place) -> bool:
    if row.kind == "restore" and place.retired_at is not None:
        return True  # retired again since
    lanes = {"pause": place.lane == "PAUSED", "resume": place.lane != "PAUSED", "retry": place.lane != "QUARANTINED"}
    return _is_reported(row, place, place.group) and lanes.get(row.kind, True)


def _is_reported(row: Row, place: Place, group: str | None) -> bool:
    return place.reported_group == group and place.reported_at is not None and place.reported_at > row.requested_at


def _group_is_so(row: Row, name: str, seen: StoreSnapshot) -> bool:
    if row.kind == "stop":
        return seen.desired[name] != "stopped" or (name not in seen.running and name not in seen.driving)
    if seen.desired[name] == "stopped":
        return True  # somebody wished otherwise since
    goes_on = row.kind == "start" and seen.running.get(name, 0.0) is None  # nobody has asked it to end
    is_new = seen.driving.get(name, 0.0) > row.requested_at
    return name in seen.driving and seen.states.get(name) == "running" and (is_new or goes_on)
