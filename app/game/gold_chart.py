"""Draws a gold table of a game over time: one number of each window that has closed, no deeper than the viewer may see.

`sight.py` decides that before anything is read, as for the game's rows: a window's numbers are made of their values.
"""

import re
from collections.abc import Sequence
from typing import Final

import streamlit as st

from app import formatting
from app.components import links
from app.game.sight import note_look, sight
from app.game.signals import GameSignals
from app.look import parts, tokens, vega
from app.look.axes import Frame
from app.person import identity
from app.state.services import Environment, cached
from pipeline.api import gold
from pipeline.api.gold import GoldDefinition, GoldSeries
from pipeline.base.errors import Refused
from pipeline.base.texts import short_moment

_TABLE: Final = "gold_table"  # the widgets' keys
_COLUMN: Final = "gold_column"
_HEIGHT: Final = 150
_WIDTH: Final = 240
_ZERO: Final = re.compile(r" 0 \w+$")  # of `1 h 0 min`

_series: Final = cached(gold.read, seconds=10, most=100, by={GoldDefinition: lambda each: (each.name, each.digest)})


def draw(environment: Environment, signals: GameSignals, tables: Sequence[GoldDefinition]) -> None:
    """Draw the gold table that is chosen in the URL: `gold`, and its column `column`."""
    by_name = {each.name: each for each in tables}
    with st.container(horizontal=True, vertical_alignment="center", key="gold_head"):
        head = st.empty()
        definition = by_name[
            _chosen("gold", _TABLE, "Gold table", list(by_name)) if len(by_name) > 1 else tables[0].name
        ]
        choice = st.container(width=_WIDTH)
    about = [f"windows of {_ZERO.sub('', formatting.duration(definition.window))}"]
    if definition.by:
        about.append(f"over all {formatting.shown(', '.join(definition.by), 60)}")

    def silence(what: str, why: str) -> None:
        head.html(parts.section(f"gold/{formatting.shown(definition.name, 60)}", " · ".join(about)))
        st.html(parts.silence(what, why))

    viewer, key = identity.person(), signals.row.game_key
    try:
        seen = sight(environment, key, "landed", viewer)
        if seen.depth != "values":
            silence("Its numbers are hidden.", formatting.shown(seen.why_not or "", 300))
            return
        note_look(environment, key, f"gold {definition.name}", viewer, seen)
        found = _series(environment, definition)
    except Refused as refused:
        silence("The gold table cannot be read.", formatting.shown(str(refused), 300))
        return
    if found is None:
        late = _ZERO.sub("", formatting.duration(definition.lateness))
        silence("No window has closed yet.", f"One closes {late} after its end, once source and silver are complete.")
        return
    about.append(f"computed through {short_moment(found.until, signals.now)}")
    if found.since >= found.until:
        silence("No closed window has rows.", "A number is drawn for each window with rows.")
        return
    if not found.whole:
        about.append("the newest only")
    if seen.by is not None:
        about.append(f"values by {seen.by}; this look is in the audit log")
    with choice:
        column = _chosen("column", f"{_COLUMN}_{definition.name}", "Column", list(found.values), definition)
    head.html(parts.section(f"gold/{formatting.shown(definition.name, 60)}", " · ".join(about)))
    _draw_chart(definition, found, column, signals.now)


def _draw_chart(definition: GoldDefinition, found: GoldSeries, column: str, now: float) -> None:
    values = found.values[column]
    if all(each is None for each in values):
        st.html(
            parts.silence("No window on screen has a value.", f"{_label(definition, column)} is of none of its rows.")
        )
        return
    mode = tokens.mode_of(st.context.theme.type)
    frame = Frame(found.since, definition.window, max(now, found.until), mode, (), _HEIGHT)
    chart = vega.bars(frame, [(_label(definition, column), "series-1", values)], unit="")
    about = "A number of each closed window of the gold table, over time."
    st.vega_lite_chart(chart.whole(), theme=None, key="chart_gold", alt=about)


def _chosen(param: str, widget: str, label: str, known: list[str], definition: GoldDefinition | None = None) -> str:
    """Draw a choice that stands in the URL, and return it."""
    if st.session_state.get(widget, known[0]) not in known:
        del st.session_state[widget]  # another definition has other ones
    links.take(param, widget, known, default=known[0])
    found: str = st.selectbox(
        label,
        known,
        key=widget,
        format_func=lambda each: formatting.shown(each, 60) if definition is None else _label(definition, each),
        label_visibility="collapsed",
        width=_WIDTH,
    )
    links.keep({param: widget})
    return found


def _label(definition: GoldDefinition, column: str) -> str:
    """Return a column in words: `turnover: sum of price_amount`."""
    each = next((each for each in definition.aggregates if each.name == column), None)
    if each is None:
        return "rows"
    of = "" if each.column is None else f" of {formatting.shown(each.column, 40)}"
    at = "" if each.at is None else f" {each.at / 100:g} %"
    return f"{formatting.shown(each.name, 40)}: {each.function}{at}{of}"
