"""Registrations of games in the control store, with where their fields lie. Rows are added, never changed."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from sqlalchemy import Connection, Row, Select, select

from pipeline.base.names import GameKey
from pipeline.data.contracts.plans import RegistrationPlan
from pipeline.data.contracts.policies import Policies
from pipeline.data.contracts.schemas import PLAIN, FieldPlacement
from pipeline.store.database.tables import placements, registrations

REGISTERED: Final[Select[Any]] = (
    select(
        registrations.c.game_key,
        registrations.c.version,
        registrations.c.schema_id,
        registrations.c.registry,
        placements.c.names,
        placements.c.quarantined,
        placements.c.other_type,
        placements.c.continues,
        placements.c.struct,
    )
    .join(placements, isouter=True)
    .order_by(registrations.c.registration_id)
)
"""All registrations in their order."""


def read_placed(
    connection: Connection, above: int, up_to: int, before: Callable[[GameKey], dict[int, FieldPlacement]]
) -> dict[GameKey, dict[int, FieldPlacement]]:
    """Return the games with a registration in (above, up_to], each with all its schema ids and their placements.

    They are in the order of their last registration. `before` gives what a game had up to `above`.
    """
    games: dict[GameKey, dict[int, FieldPlacement]] = {}
    number = registrations.c.registration_id
    for row in connection.execute(REGISTERED.where(number > above, number <= up_to)):
        key = GameKey(row.game_key)
        if key not in games:
            games[key] = before(key)
        take_up(games[key], row)
    return games


def read_names(connection: Connection, up_to: int) -> dict[GameKey, str]:
    """Return the names of the games with a registration up to a number, by key."""
    query = select(registrations.c.game_key, registrations.c.game).where(registrations.c.registration_id <= up_to)
    return {GameKey(row.game_key): row.game for row in connection.execute(query.distinct())}


def take_up(held: dict[int, FieldPlacement], row: Row[Any]) -> None:
    """Add a registration to a game's; a repeated one replaces its earlier one, at the end."""
    before = held.pop(row.schema_id, None)
    held[row.schema_id] = placement_after(before, row)


def placement_after(before: FieldPlacement | None, row: Row[Any]) -> FieldPlacement:
    """Return the placement of a registration; `before` is that of the schema's last one before it."""
    at = _placement(row)
    has_landed = before is not None and (before.landed or (before.quarantined is None and at.quarantined is not None))
    return replace(at, landed=True) if has_landed else at


def _placement(row: Row[Any]) -> FieldPlacement:
    if row.names is None:
        return PLAIN
    names = tuple(sorted(json.loads(row.names).items()))
    return FieldPlacement(names, row.quarantined, bool(row.other_type), row.continues, row.struct)


def placement_values(plan: RegistrationPlan, policies: Policies) -> Mapping[str, str | int | None]:
    """Return the row of a plan's placement, without its number."""
    return {
        "names": json.dumps(dict(plan.placement.names)),
        "quarantined": plan.placement.quarantined,
        "other_type": int(plan.placement.other_type),
        "continues": plan.placement.continues,
        "struct": plan.placement.struct,
        "policies": json.dumps(dict(policies.chosen)),
        "plan_hash": plan.hash,
    }
