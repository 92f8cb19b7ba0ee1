"""The event types of one game as a table, on its page and on Schemas: state and rate, and counts on demand."""

from collections.abc import Sequence
from typing import Final

import pandas as pd
import streamlit as st

from app import formatting
from app.components import pills
from app.look import parts
from app.look.tokens import Tone
from app.state.readings import Reading, reading
from app.state.services import Environment, cached
from listeners.sample import StreamState
from pipeline.api import event_types
from pipeline.api.event_types import GameType, TypeUse
from pipeline.base.errors import Refused

STATES: Final = {"first": "● first", "accepted": "● accepted", "waits": "△ waits", "withdrawn": "○ withdrawn"}
_TONES: Final[dict[str, Tone]] = {
    STATES["first"]: "well", STATES["accepted"]: "well", STATES["waits"]: "risk", STATES["withdrawn"]: "plain",
}  # fmt: skip
_ABOUT: Final = "First: its fields are columns of the table. Accepted: it has a struct column. Others go to quarantine."
_ROW: Final = 36
_TALL: Final = 320  # more rows scroll
_COUNTED: Final = ("In the table", "In quarantine", "First row, UTC", "Last row")

_types: Final = cached(event_types.of_game, seconds=10, most=200, by_acts=True)
_counts: Final = cached(event_types.counts, seconds=60, most=100)


def draw_card(environment: Environment, key: str, live: StreamState | None, now: float) -> None:
    """Draw a card of the event types of a game that has several; nothing for other games."""
    try:
        if len(_types(environment, key)) < 2:
            return
    except Refused:
        pass  # the card says so
    with st.container(border=True, key="card_event_types", gap="xsmall"):
        draw(environment, key, live, now)


def draw(environment: Environment, key: str, live: StreamState | None, now: float) -> None:
    """Draw a game's event types; `live` is its driver's report, if it describes the present, `now` the page's time.

    A control store that is away leaves a sentence in their place.
    """
    try:
        types = _types(environment, key)
    except Refused as refused:
        st.html(parts.section("Event types"))
        st.html(parts.silence("Not known.", formatting.shown(str(refused), 300)))
        return
    waiting = sum(each.state == "waits" for each in types)
    about = f"{len(types)} types" if len(types) > 1 else "1 type"
    st.html(parts.section("Event types", f"{about}, {waiting} waiting to be accepted" if waiting else about))
    counted: Reading[Sequence[TypeUse]] | None = None
    if st.toggle("Count rows", key=f"count_types_{key}", help="Reads the game's table and quarantine, once a minute."):
        counted = reading("type_counts", (environment.store, key), lambda: _counts(environment, key))
    _draw_table(types, live, counted, now)
    if words := _remarks(types, live, counted):
        st.html(parts.note(words))


def _draw_table(
    types: Sequence[GameType],
    live: StreamState | None,
    counted: "Reading[Sequence[TypeUse]] | None",
    now: float,
) -> None:
    st.dataframe(
        pd.DataFrame(_row(types, place, live, counted, now) for place in range(len(types))),
        hide_index=True,
        row_height=_ROW,
        height=min(_ROW * (len(types) + 1) + 2, _TALL),
        column_config={
            "State": pills.column("State", _TONES, 110, _ABOUT),
            "Rows/s": st.column_config.TextColumn(
                width=65, alignment="right", help="Landed, the mean of the last five minutes."
            ),
            "Refused, 5 min": st.column_config.TextColumn(width=100, alignment="right"),
            "In the table": st.column_config.TextColumn(alignment="right"),
            "In quarantine": st.column_config.TextColumn(alignment="right", help="Rows that were refused, now."),
        },
        placeholder=formatting.UNKNOWN_VALUE,
        alt="Event types of this game with their state, rate and rows.",
        key="event_types_table",
    )


def _row(
    types: Sequence[GameType],
    place: int,
    live: StreamState | None,
    counted: "Reading[Sequence[TypeUse]] | None",
    now: float,
) -> dict[str, object]:
    each = types[place]
    recent = event_types.recent(each, live)
    row: dict[str, object] = {
        "Type": formatting.shown(each.name, 100),
        "State": [STATES[each.state]],
        "Rows/s": formatting.rate(None if recent is None else recent.rows_per_second),
        "Refused, 5 min": formatting.UNKNOWN_VALUE if recent is None else formatting.count(recent.refused),
    }
    if counted is not None:
        held = counted.value
        # Types may have come since they were counted.
        found = held[place] if held is not None and len(held) == len(types) else None
        row |= dict.fromkeys(_COUNTED, formatting.UNKNOWN_VALUE) if found is None else _counted(found, now)
    row["Column"] = formatting.UNKNOWN_VALUE if each.struct is None else formatting.shown(each.struct, 80)
    return row


def _counted(found: TypeUse, now: float) -> dict[str, str]:
    about, by = ("", "") if found.complete else ("≈ ", "by ")
    first, last = found.first_at, found.last_at
    values = (
        f"{about}{formatting.count(found.rows)}",
        formatting.count(found.refused),
        formatting.UNKNOWN_VALUE if first is None else f"{by}{formatting.moment(first)[:16]}",
        formatting.UNKNOWN_VALUE if last is None or last > now + 1 else f"{formatting.age(now - last)} ago",
    )
    return dict(zip(_COUNTED, values, strict=True))


def _remarks(types: Sequence[GameType], live: StreamState | None, counted: "Reading[Sequence[TypeUse]] | None") -> str:
    """Say what is not known, or is an estimate."""
    words = []
    if live is None:
        words.append("No driver reports rates now.")
    elif event_types.OTHER in live.types:
        words.append("A driver reports the rates of the 20 largest types.")
    if counted is not None and counted.value is not None and not all(each.complete for each in counted.value):
        words.append("≈ is an estimate: not every file with several types was read. The first row may be older.")
    if counted is not None and counted.failed:
        until = "not known" if counted.good_at is None else f"of {formatting.clock(counted.good_at)}"
        words.append(f"Counts are {until}: {formatting.shown(counted.why or '', 200)}")
    if any(each.state == "waits" for each in types):
        words.append("Accept a type that waits: turnout schemas accept-type GAME TYPE.")
    return " ".join(words)
