"""The home page: the state of the fleet in one sentence, then its games, worst first."""

from collections import Counter

import streamlit as st

from app import formatting
from app.components import charts, fleet_table, header, links
from app.state import services
from app.state.services import Environment
from listeners.sample import STATUSES
from pipeline.health.judgement import DriverState
from pipeline.store.fleet import Fleet, GameRow

_NO_GROUP = "(no group)"
_MAX_ROWS = 300  # a thousand would be 450 kB at each refresh, for each viewer


def _live(environment: Environment) -> None:
    fleet = header.draw(environment, services.fleet, "fleet")
    if fleet is None:
        return
    if not fleet.rows:
        _draw_nothing_yet(fleet)
        _draw_drivers(fleet)
        return
    header.draw_judgement(fleet.judgement)
    _draw_drivers(fleet)
    _draw_counts(fleet)
    rows = _draw_filters(fleet)
    if not rows:
        st.info("No game matches these filters.", icon=":material/filter_alt_off:")
        st.button("Clear filters", on_click=_clear_filters)
        return
    _draw_grid(fleet, rows)
    shown = rows[:_MAX_ROWS]
    st.dataframe(
        fleet_table.table(fleet, shown),
        hide_index=True,
        height=min(36 * (len(shown) + 1), 720),
        column_config=fleet_table.COLUMNS,
        placeholder=formatting.UNKNOWN_VALUE,
        alt="All games that match the filters, worst first. The key links to the game's page.",
        key="games",
    )
    links.offer_games("fleet", {row.game_key: formatting.game_text(row.game_key, row.game) for row in shown})
    limited = (
        f" The worst {_MAX_ROWS} of them are in the table; filters find the others." if len(rows) > len(shown) else ""
    )
    st.caption(f"{len(rows)} of {len(fleet.rows)} games, worst first.{limited} All times are UTC.")


def _draw_nothing_yet(fleet: Fleet) -> None:
    header.draw_judgement(fleet.judgement)
    if fleet.newest_bronze_seq is not None:
        st.info("Ingest has written events, but none of a registered game. Register the games' schemas.")
    elif fleet.registered_games:
        st.info(
            f"{fleet.registered_games} games are registered, but no event has been ingested. "
            "Start ingest, or start `turnout simulate` to produce events."
        )
    else:
        st.info("No game is registered in this environment. Start `turnout simulate`, or register a game's schema.")


def _draw_drivers(fleet: Fleet) -> None:
    """Draw a tile for ingest, for the controller where one is needed or was, and for each group."""
    with st.container(horizontal=True, key="driver_strip", gap="small"):
        for number, state in enumerate(fleet.judgement.drivers):
            bad = "bad" if state.is_problem else "well"
            with st.container(border=True, width=250, gap=None, key=f"tile_{bad}_{number}"):
                _draw_driver(fleet, state)


def _draw_driver(fleet: Fleet, state: DriverState) -> None:
    title = f"group {formatting.shown(state.name, 40)}" if state.kind == "group" else state.kind
    glyph, word = formatting.driver_text(state.liveness.state).split(" ", 1)
    st.text(f"{glyph} {title}: {word}")
    driver = fleet.driver(state.kind, state.name)
    if driver is None:
        st.text(f"heartbeat {formatting.UNKNOWN_VALUE} · frontier {formatting.UNKNOWN_VALUE}")
    else:
        frontier = formatting.UNKNOWN_VALUE if driver.frontier_seq is None else formatting.count(driver.frontier_seq)
        st.text(f"heartbeat {formatting.age(driver.heartbeat_age(fleet.read_at))} ago · frontier {frontier}")
    if state.kind == "ingest" and state.liveness.is_live:
        st.text(formatting.shown(fleet.judgement.source.sentence, 200))
    if state.liveness.reason:
        st.text(formatting.shown(state.liveness.reason, 200))


def _draw_counts(fleet: Fleet) -> None:
    """Draw a button per status that occurs; pressing one shows only its games, pressing it again shows all."""
    counts = Counter(row.verdict.status for row in fleet.rows)
    chosen = st.session_state.get("status") or st.query_params.get_all("status")
    with st.container(horizontal=True, key="counts", gap="small"):
        for status in reversed(STATUSES):
            if counts[status]:
                style = formatting.STATUS_STYLES[status]
                st.button(
                    f"{style.glyph} {counts[status]} {style.word}",
                    key=f"count_{status}",
                    type="primary" if chosen == [status] else "secondary",
                    on_click=_toggle_status,
                    args=(status,),
                )


def _toggle_status(status: str) -> None:
    st.session_state["status"] = [] if st.session_state.get("status") == [status] else [status]


def _clear_filters() -> None:
    st.session_state["status"] = []
    st.session_state["group"] = []
    st.session_state["q"] = ""
    st.session_state["trouble"] = False


def _draw_filters(fleet: Fleet) -> tuple[GameRow, ...]:
    """Draw the filters, which live in the URL, and return the games that pass them."""
    groups = [*fleet.groups, _NO_GROUP]
    with st.container(horizontal=True, vertical_alignment="center", key="filters"):
        statuses = st.multiselect(
            "Status",
            STATUSES[::-1],
            label_visibility="collapsed",
            key="status",
            bind="query-params",
            placeholder="all statuses",
            select_all=False,
        )
        chosen = st.multiselect(
            "Group", groups, label_visibility="collapsed", key="group", bind="query-params", placeholder="all groups",
            select_all=False,
        )  # fmt: skip
        text = st.text_input(
            "Search name or key",
            key="q",
            bind="query-params",
            type="search",
            live=True,
            placeholder="part of a name or key",
            label_visibility="collapsed",
        )
        trouble = st.toggle(
            "Only trouble", key="trouble", bind="query-params", help="At risk or worse, unknown included."
        )
    wanted = (text or "").casefold()
    return tuple(
        row
        for row in fleet.rows
        if (not statuses or row.verdict.status in statuses)
        and (not chosen or (row.group or _NO_GROUP) in chosen)
        and (wanted in formatting.shown(row.game).casefold() or wanted in row.game_key)
        and (row.in_trouble or not trouble)
    )


def _draw_grid(fleet: Fleet, rows: tuple[GameRow, ...]) -> None:
    event = st.altair_chart(
        charts.status_grid(fleet, rows),
        key="grid",
        on_select="rerun",
        selection_mode=charts.GRID_PICK,
        alt=f"One cell per game, by cluster group. {fleet.judgement.headline}.",
    )
    picked = event["selection"].get(charts.GRID_PICK) or []
    if picked:
        st.switch_page("views/game.py", query_params={"game": picked[0]["key"]})


header.keep_drawing(_live)
