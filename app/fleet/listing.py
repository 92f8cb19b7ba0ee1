"""Draws the status grid and the table of games with their filters: most of what the page sends is here.

They show the fleet of the sentence above them. Numbers alone may be some seconds older: a table of 300 games is large.
"""

import itertools
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import streamlit as st

from app import formatting
from app.components import fleet_table, header, links
from app.fleet import choice, readers, table
from app.fleet.blocks import blocks, summary
from app.fleet.choice import NO_GROUP, SORTS, Choice
from app.fleet.gathering import of_this_refresh, series_reading, stale_since
from app.fleet.signals import forgotten
from app.look import grid, parts, tokens
from app.look.axes import Chart
from app.look.grid import Block
from app.look.tokens import Mode
from app.state.readings import Reading, reading
from app.state.series import about
from app.state.services import Environment
from app.state.shared import once
from app.state.situations import situation
from listeners.process_kinds import GROUP
from listeners.series import Series
from listeners.status import Status
from pipeline.base.texts import join_limited
from pipeline.health.facts.fleet import Fleet, GameRow
from pipeline.health.incidents.incidents import Incident

_KEPT_SECONDS: Final = 15.0  # for which numbers stay while no state changes: what is equal is not sent again
_WIDGETS: Final = {param: f"fleet_{param}" for param in links.FILTERS}
_ROW_HEIGHT: Final = 36  # px
_MOST_HEIGHT: Final = 720
_ONLY: Final = "true"  # the value of `trouble`
_DRAWN: Final = "fleet_drawn"  # in the session: what the grid and the table show


@dataclass(frozen=True, slots=True)
class _Drawn:
    """What the grid and the table show."""

    at: float  # Unix seconds by this machine's clock: when it was new
    fleet: Fleet
    found: Reading[tuple[Incident, ...]]
    is_stale: bool


def draw(environment: Environment) -> None:
    """Draw the grid and the table, both of the games that pass the filters."""
    paused = header.is_paused()
    shown = _now(environment, paused=paused)
    if shown is None or not shown.fleet.rows:
        return
    fleet, found = shown.fleet, shown.found
    unknown = _take(fleet)
    with st.container(border=True, key="card_grid", gap="xsmall"):
        place = st.container(key="grid_place", gap="xsmall")
    hour = series_reading(environment, header.range_seconds(), paused=paused)
    rows = _draw_filters(fleet, found.value, about(hour, time.time()))
    links.draw_unknown(unknown, _WIDGETS)
    with place:
        _draw_grid(environment, fleet, rows, None if found.failed else found.value, stale=shown.is_stale)
    _draw_table(fleet, rows, found.value, hour)
    links.keep(_WIDGETS)


def _now(environment: Environment, *, paused: bool) -> _Drawn | None:
    """Return the fleet to draw: the one that was drawn last, while no state of a game or incident has changed."""
    every = header.every_seconds(environment)
    seen, found = of_this_refresh(environment, every, paused=paused)
    if seen.value is None:
        return None
    now = time.time()
    is_stale = stale_since(seen, every, now) is not None
    states = environment.store, is_stale, found.failed, once(_states, seen.value, found.value)
    before_states, before = st.session_state.get(_DRAWN, (None, None))
    if before is not None and before_states == states and 0 <= now - before.at < _KEPT_SECONDS:
        kept: _Drawn = before
        return kept
    drawn = _Drawn(now, forgotten(seen.value) if is_stale else seen.value, found, is_stale)
    st.session_state[_DRAWN] = states, drawn
    return drawn


def _states(fleet: Fleet, found: tuple[Incident, ...] | None) -> tuple[object, ...]:
    """Return what grid and table share with the sentence, the strip and the incidents: how each game is, and why."""
    known = situation(fleet, found)
    games = tuple((row.game_key, row.group, row.verdict.status, known.severity_of(row)) for row in fleet.rows)
    causes = tuple((each.incident_id, each.phase, each.finding.title, each.games) for each in known.opened)
    live = tuple(state.name for state in fleet.judgement.of(GROUP) if state.liveness.is_live)
    return games, causes, live


def _take(fleet: Fleet) -> dict[str, tuple[str, ...]]:
    """Lay what the link says into the filters; return what of it is not known."""
    return {
        "status": links.take("status", _WIDGETS["status"], tuple(map(str, Status)), many=True),
        "group": links.take("group", _WIDGETS["group"], (*fleet.groups, NO_GROUP), many=True),
        "q": links.take("q", _WIDGETS["q"], None, default=""),
        "sort": links.take("sort", _WIDGETS["sort"], tuple(SORTS), default="worst"),
        "trouble": links.take("trouble", _WIDGETS["trouble"], (_ONLY,)),
    }


def _draw_filters(fleet: Fleet, found: tuple[Incident, ...] | None, old: str) -> Sequence[GameRow]:
    """Draw the head of the table with its filters, which live in the URL; return the games that pass them."""
    held = st.session_state
    asked = Choice(
        frozenset(held[_WIDGETS["status"]] or ()),
        frozenset(held[_WIDGETS["group"]] or ()),
        held[_WIDGETS["q"]] or "",
        trouble=held[_WIDGETS["trouble"]] == _ONLY,
        sort=held[_WIDGETS["sort"]] or "worst",
    )
    rows = once(_involved_first, fleet, found) if asked == Choice() else _chosen(fleet, asked, found)
    counted = choice.counts(fleet.rows)
    offered = [str(status) for status in reversed(Status) if counted.get(status) or status in asked.statuses]
    with st.container(horizontal=True, vertical_alignment="center", key="filters", gap="small"):
        as_of = f" · numbers as of {formatting.clock(fleet.read_at)}"
        st.html(parts.section("Games", f"{_about(fleet, rows, asked)}{as_of}{old}"), width="stretch")
        st.pills(
            "Status",
            offered,
            selection_mode="multi",
            format_func=lambda status: f"{formatting.status_text(status)} {formatting.count(counted.get(status, 0))}",
            key=_WIDGETS["status"],
            label_visibility="collapsed",
        )
        st.button(
            "All games" if asked.trouble else "Trouble only",
            key="fleet_only_trouble",
            shortcut="F",
            help="At risk or worse, unknown included, and games of open incidents. Key: F.",
            on_click=_toggle_trouble,
        )
        with st.popover(SORTS[asked.sort], type="tertiary", key="fleet_order"):
            st.radio("Order", tuple(SORTS), key=_WIDGETS["sort"], format_func=lambda each: SORTS[each])
            st.multiselect(
                "Groups", (*fleet.groups, NO_GROUP), key=_WIDGETS["group"], placeholder="all groups", select_all=False
            )
        st.text_input(
            "Search name or key",
            key=_WIDGETS["q"],
            type="search",
            live=True,
            placeholder="Name or key",
            label_visibility="collapsed",
            width=200,
        )
    return rows


def _involved_first(fleet: Fleet, found: tuple[Incident, ...] | None) -> Sequence[GameRow]:
    """Return all games as people see them who filter nothing, which most do."""
    return _chosen(fleet, Choice(), found)


def _chosen(fleet: Fleet, asked: Choice, found: tuple[Incident, ...] | None) -> Sequence[GameRow]:
    involved = frozenset(key for each in found or () if each.ended_at is None for key in each.games)
    return choice.chosen(fleet.rows, asked, involved)


def _about(fleet: Fleet, rows: Sequence[GameRow], asked: Choice) -> str:
    shown, every = formatting.count(min(len(rows), table.MOST)), formatting.count(len(fleet.rows))
    found = f" · {formatting.count(len(rows))} found" if len(rows) > table.MOST and len(rows) < len(fleet.rows) else ""
    groups = f" · {join_limited(sorted(asked.groups), 2)} only" if asked.groups else ""
    return f"{shown} of {every}{found}{groups}"


def _toggle_trouble() -> None:
    st.session_state[_WIDGETS["trouble"]] = None if st.session_state.get(_WIDGETS["trouble"]) else _ONLY


def _draw_grid(
    environment: Environment, fleet: Fleet, rows: Sequence[GameRow], found: tuple[Incident, ...] | None, *, stale: bool
) -> None:
    if not rows:
        st.html(parts.section("Streams by group"))
        st.html(parts.silence("No game matches", "Clear a filter to see others."))
        return
    loads = reading("loads", environment.store, lambda: readers.loads(environment, fleet))
    mode = tokens.mode_of(st.context.theme.type)
    said = itertools.chain(*sorted((loads.value or {}).items()))
    groups, legend, chart = once(_grid, fleet, rows, found, mode, stale, *said)
    st.html(parts.section("Streams by group", "a cell is a game; click to open it", legend))
    event = st.vega_lite_chart(
        chart.whole(),
        theme=None,
        key="grid",
        on_select="rerun",
        selection_mode=grid.PICK,
        alt=summary(fleet, groups, stale=stale),
        width="stretch",
    )
    picked = event["selection"].get(grid.PICK) or []
    if picked:
        links.open_page("game", {"game": picked[0]["key"]})


def _grid(
    fleet: Fleet, rows: Sequence[GameRow], found: tuple[Incident, ...] | None, mode: Mode, stale: bool, *loads: str
) -> tuple[Sequence[Block], Sequence[tuple[str, str]], Chart]:
    """Return the grid; `loads` has groups and their loads in turn."""
    by_group = dict(zip(loads[::2], loads[1::2], strict=True))
    groups = blocks(fleet, rows, by_group, found or (), stale=stale)
    return groups, grid.legend(groups, blind=stale), grid.grid(groups, mode, blind=stale)


def _draw_table(
    fleet: Fleet, rows: Sequence[GameRow], found: tuple[Incident, ...] | None, hour: Reading[Series]
) -> None:
    labels = once(_labels, fleet)
    shown = rows[: table.MOST]
    links.remember("fleet", {label: key for key, label in labels.items()})
    mode = tokens.mode_of(st.context.theme.type)
    st.dataframe(
        once(_table, fleet, rows, labels, hour.value, found),
        hide_index=True,
        row_height=_ROW_HEIGHT,
        height=min(_ROW_HEIGHT * (len(shown) + 1) + 2, _MOST_HEIGHT),
        column_config=fleet_table.columns(mode, _span(header.range_seconds())),
        placeholder=formatting.UNKNOWN_VALUE,
        alt="All games that match the filters. The name opens the game's page.",
        key="games",
    )
    links.offer_games("fleet", {row.game_key: labels[row.game_key] for row in shown})


def _labels(fleet: Fleet) -> Mapping[str, str]:
    return choice.labels(fleet.rows)


def _table(
    fleet: Fleet,
    rows: Sequence[GameRow],
    labels: Mapping[str, str],
    series: Series | None,
    found: tuple[Incident, ...] | None,
) -> pa.Table:
    return table.table(fleet, rows[: table.MOST], labels, series, found)


def _span(seconds: int) -> str:
    hours, minutes = divmod(seconds // 60, 60)
    return f"{hours} h" if hours else f"{minutes} min"
