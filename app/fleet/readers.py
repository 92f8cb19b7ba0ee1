"""Reads for the Fleet page, besides the fleet itself: incidents, loads of groups, registered schemas.

Cached for all viewers. Each is read by itself: a reading that fails leaves the others on screen.
"""

import time
from collections.abc import Mapping
from typing import Final

import streamlit as st
from sqlalchemy import select

from app import formatting
from app.fleet.timeline import RegisteredSchema
from app.state.services import BY_STORE, Environment, engine, fleet, reading
from pipeline.base.errors import Refused
from pipeline.health.facts.incidents import read_incidents
from pipeline.health.facts.loads import read_loads
from pipeline.health.incidents import away
from pipeline.health.incidents.incidents import Incident, order
from pipeline.store.database.tables import registrations
from pipeline.store.incidents import read_last_look

_MOST_SCHEMAS: Final = 5_000  # the newest of a range


@st.cache_resource(ttl=2, max_entries=2, show_spinner=False, hash_funcs=BY_STORE)
def incidents(environment: Environment) -> tuple[Incident, ...]:
    """Read the open incidents and those that ended within a day, at most 2 s old.

    While the control store takes no writes nobody can keep that cause: it is computed here, of what is read.

    Raises:
        Refused: the control store cannot be read, or nobody has judged causes lately: what was judged then is no news.
    """
    store, seen = engine(environment), fleet(environment)
    own = away.computed(seen.judgement, seen.read_at)
    look = read_last_look(store)
    if own is not None:
        is_old = look is None or look.is_stale
        kept = [each for each in read_incidents(store) if not is_old or each.ended_at is not None]
        return order([own, *kept])
    if look is None:
        raise Refused("Causes were never judged: neither a controller nor ingest has run.")
    if look.is_stale:
        ago = formatting.age(look.age_seconds)
        raise Refused(f"Causes were judged {ago} ago: neither a controller nor ingest judges them now.")
    return read_incidents(store)


@st.cache_data(ttl=15, max_entries=2, show_spinner=False, hash_funcs=BY_STORE)
def loads(environment: Environment) -> Mapping[str, str]:
    """Read the load of each group as a text, at most 15 s old; a group of which no game's load is known is left out.

    Raises:
        Refused: the control store cannot be read.
    """
    with reading():
        read = read_loads(
            engine(environment),
            max_games=environment.settings.placement.max_games_per_group,
            heartbeat_seconds=environment.settings.metrics.heartbeat_seconds,
        )
    known = {game.group for game in read.games if game.is_known}
    return {
        name: f"load {formatting.rate(group.cores)} cores"
        if group.capacity_cores is None
        else f"load {100 * group.share:.0f} %"
        for name, group in read.groups.items()
        if name in known
    }


@st.cache_resource(ttl=30, max_entries=8, show_spinner=False, hash_funcs=BY_STORE)
def registered(environment: Environment, seconds: float) -> tuple[RegisteredSchema, ...]:
    """Read which schemas were registered in the last `seconds`, newest first, at most 30 s old.

    Raises:
        Refused: the control store cannot be read.
    """
    columns = registrations.c
    query = (
        select(columns.game_key, columns.version, columns.created_at)
        .where(columns.created_at >= time.time() - seconds)
        .order_by(columns.created_at.desc())
        .limit(_MOST_SCHEMAS)
    )
    with reading(), engine(environment).connect() as connection:
        return tuple(RegisteredSchema(key, version, at) for key, version, at in connection.execute(query))
