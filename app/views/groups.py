"""The cluster groups: what is wanted of each, how it is, and plans that move games between them."""

from collections import Counter
from functools import partial

import pandas as pd
import streamlit as st

from app import asking, confirm, header, looks, words
from app.looks import Steering
from app.services import Environment
from listeners.sample import STATUSES
from pipeline.store.fleet import Driver, Fleet

_PLACE = "groups_move"
_GAMES, _TO = "move_games", "move_to"
_COLUMNS = {
    "group": st.column_config.TextColumn("Group", width=110),
    "driver": st.column_config.TextColumn("Driver", width=120),
    "heartbeat": st.column_config.TextColumn("Heartbeat", width=100),
    "games": st.column_config.TextColumn("Games", width=70),
    "how": st.column_config.TextColumn("Worst", width=330),
    "desired": st.column_config.TextColumn("Wanted", width=90),
    "backend": st.column_config.TextColumn("Started by", width=110),
    "capacity": st.column_config.TextColumn("Capacity", width=90, help="Cores; a dash where it is not limited."),
    "priority": st.column_config.TextColumn("For games of priority", width=150),
    "error": st.column_config.TextColumn("Error", width=240),
}


def _page() -> None:
    environment = header.environment_or_stop()
    st.fragment(_live, run_every=environment.settings.dashboard.refresh_seconds)(environment)


def _live(environment: Environment) -> None:
    steering = header.draw(environment, looks.steering, "steering")
    if steering is None:
        return
    fleet = steering.fleet
    if not fleet.groups:
        header.headline("No cluster group yet", trouble=False)
        st.info("Start one: `turnout groups run NAME`. It registers itself, and new games go to the emptiest group.")
        return
    silent = [name for name in fleet.groups if _silence(fleet, name) is not None]
    header.headline(_sentence(fleet, silent), trouble=bool(silent))
    _draw_table(steering)
    _draw_move(environment, steering)


def _sentence(fleet: Fleet, silent: list[str]) -> str:
    count = len(fleet.groups)
    if not silent:
        return "The only group's driver is alive" if count == 1 else f"All {count} groups' drivers are alive"
    names = ", ".join(words.shown(name, 40) for name in silent[:3])
    more = f" and {len(silent) - 3} more" if len(silent) > 3 else ""
    return f"{len(silent)} of {count} groups without a living driver: {names}{more}"


def _silence(fleet: Fleet, name: str) -> str | None:
    driver = fleet.driver("group", name)
    return driver.silence(fleet.read_at) if driver is not None else "it was never started"


def _draw_table(steering: Steering) -> None:
    rows = [_row(steering, name) for name in steering.fleet.groups]
    st.dataframe(
        pd.DataFrame(rows),
        hide_index=True,
        height=min(36 * (len(rows) + 1), 620),
        column_config=_COLUMNS,
        alt="All cluster groups: their drivers, their games, and what is wanted of them.",
        key="groups_table",
    )
    waiting = sum(row.group is None for row in steering.fleet.rows)
    if waiting:
        st.caption(f"{waiting} games wait for a group.")


def _row(steering: Steering, name: str) -> dict[str, str]:
    fleet, wish = steering.fleet, steering.wishes.get(name)
    driver = fleet.driver("group", name)
    capacity = wish.capacity_cores if wish is not None else None
    return {
        "group": words.shown(name, 40),
        "driver": _state(fleet, driver),
        "heartbeat": f"{words.age(fleet.read_at - driver.heartbeat_at)} ago"
        if driver is not None
        else words.UNKNOWN_VALUE,
        "games": words.count(sum(row.group == name for row in fleet.rows)),
        "how": _worst(fleet, name),
        "desired": words.shown(wish.desired, 20) if wish is not None else words.UNKNOWN_VALUE,
        "backend": _STARTED_BY.get(wish.backend, words.shown(wish.backend, 20))
        if wish is not None
        else words.UNKNOWN_VALUE,
        "capacity": f"{capacity:g} cores" if capacity is not None else words.UNKNOWN_VALUE,
        "priority": words.shown(wish.priority, 20) if wish is not None else words.UNKNOWN_VALUE,
        "error": words.shown(driver.error, 120) if driver is not None and driver.error else words.UNKNOWN_VALUE,
    }


_STARTED_BY = {"none": "somebody else", "local": "the controller"}


def _state(fleet: Fleet, driver: Driver | None) -> str:
    if driver is None:
        return "○ never started"
    if driver.silence(fleet.read_at) is None:
        return f"● {words.shown(driver.state, 20)}"
    return f"✕ {driver.state if driver.state in ('failed', 'stopped') else 'silent'}"


def _worst(fleet: Fleet, name: str) -> str:
    """Count a group's games in trouble by status, worst first."""
    counts = Counter(row.verdict.status for row in fleet.rows if row.group == name)
    bad = Counter(row.verdict.status for row in fleet.rows if row.group == name and row.in_trouble)
    if not counts:
        return words.UNKNOWN_VALUE
    if not bad:
        return "● all well"
    return ", ".join(
        f"{words.LOOKS[each].glyph} {bad[each]} {words.LOOKS[each].word}" for each in reversed(STATUSES) if bad[each]
    )


def _draw_move(environment: Environment, steering: Steering) -> None:
    """Draw the plan of a move: games by their names, never by a place in a table."""
    names = {key: words.game_text(key, seat.game) for key, seat in sorted(steering.seats.items())}
    with st.container(border=True, key="plan_move", gap="small"):
        st.markdown("**Move games to another group**")
        with st.container(horizontal=True, vertical_alignment="bottom"):
            st.multiselect(
                "Games",
                list(names),
                key=_GAMES,
                format_func=lambda key: names.get(key, key),
                placeholder="by name or key",
            )
            st.selectbox(
                "To group",
                steering.fleet.groups,
                key=_TO,
                format_func=words.shown,
                index=None,
                placeholder="choose",
                width=220,
            )
            st.button("Preview the move", key="preview_move", on_click=_offer, args=(environment,))
        confirm.panel(environment, _PLACE)


def _offer(environment: Environment) -> None:
    games = [str(key) for key in st.session_state.get(_GAMES) or []]
    group = st.session_state.get(_TO)
    confirm.offer(_PLACE, partial(asking.preview_move, environment, games, None if group is None else str(group)))


_page()
