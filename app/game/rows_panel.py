"""Draws the last rows of a game, landed or refused, as far as they decode and the viewer may see it.

Other choices are the contract that they keep and the tables that follow from them: `contract_panel`, `derived_panel`.
"""

from collections.abc import Mapping
from typing import Final

import pyarrow as pa
import streamlit as st

from app import formatting
from app.components import links
from app.game import contract_panel, derived_panel, figures
from app.game.rows import MOST_ROWS, LastRow, LastRows, last_rows
from app.game.signals import GameSignals
from app.look import parts
from app.person import identity
from app.state.services import Environment
from pipeline.api.rows import Depth, RowKind
from pipeline.base.errors import Refused
from pipeline.base.texts import in_utc, short_moment

_CHOICES: Final = ("refused", "landed", "contract", "derived")
_CHOICE: Final = "game_rows"  # the widget's key
_DECODED: Final = 240  # characters of a row's values
_VALUES: Final = "Decoded as far as it goes"
_HIDDEN: Final[Mapping[Depth, frozenset[str]]] = {
    "values": frozenset(), "shapes": frozenset({"Bytes"}), "places": frozenset({_VALUES, "Producer", "Bytes"}),
}  # fmt: skip
_WIDE: Final = 340  # px, of decoded values
_WIDTHS: Final = {"At, UTC": 145, "Seq": 90, "Schema": 65, "Reason": 165, "Producer": 110, "Bytes": 200, "Size": 70}


def draw(environment: Environment, signals: GameSignals) -> None:
    """Draw what is chosen in the URL: `rows`, which may be the contract that they keep or the derived streams."""
    with st.container(border=True, key="card_rows", gap="xsmall"):
        with st.container(horizontal=True, vertical_alignment="center"):
            place = st.empty()
            links.take("rows", _CHOICE, _CHOICES, default="refused")
            chosen = st.segmented_control(
                "Rows",
                _CHOICES,
                format_func=str.capitalize,
                required=True,
                key=_CHOICE,
                label_visibility="collapsed",
            )
            links.keep({"rows": _CHOICE})
        if chosen == "contract":
            contract_panel.draw(environment, signals, place)
            return
        if chosen == "derived":
            derived_panel.draw(environment, signals, place)
            return
        kind: RowKind = "landed" if chosen == "landed" else "refused"
        try:
            found = last_rows(environment, signals.row.game_key, kind, MOST_ROWS, identity.person())
        except Refused as refused:
            place.html(parts.section("Rows", "newest first"))
            st.html(parts.silence("The rows cannot be read.", formatting.shown(str(refused))))
            return
        counted = _refused(signals) if kind == "refused" else ""
        place.html(parts.section("Rows", f"{_about(found)}{counted}"))
        if not found.rows:
            where = "Quarantine" if kind == "refused" else "Its table"
            none = f"{where} holds no row of this game." if found.complete else f"No {kind} row in the newest files."
            st.html(parts.silence(none, _left(found)))
            return
        numbers = {each.schema_id: each.version for each in signals.versions or ()}
        columns = ["At, UTC", "Seq", "Schema", "Reason", "Producer", _VALUES, "Bytes", "Size"]
        if kind == "landed":
            columns = [each for each in columns if each not in {"Reason", "Producer", "Bytes", "Size"}]
        hidden = _HIDDEN[found.sight.depth]
        columns = [each for each in columns if each not in hidden]
        rows = [_row(each, numbers, signals.now) for each in found.rows]
        st.dataframe(
            pa.table({name: pa.array([row[name] for row in rows], pa.string()) for name in columns}),
            hide_index=True,
            height=36 * (min(len(rows), 10) + 1),
            column_config={name: st.column_config.TextColumn(width=_WIDTHS.get(name, _WIDE)) for name in columns},
            alt=f"The last {kind} rows of this game, newest first.",
            key=f"rows_{kind}",
        )


def _refused(signals: GameSignals) -> str:
    """Say how many rows were refused in the range on screen: quarantine holds fewer once a replay landed some."""
    refused = figures.refused_rows(signals)
    if not refused:
        return ""
    span = "this time" if signals.series is None else figures.span(signals.now - signals.series.since)
    return f" · at least {formatting.count(refused)} were refused in {span}, with those that landed since"


def _about(found: LastRows) -> str:
    said = ["newest first"]
    if found.sight.why_not is not None:
        said.append(formatting.shown(found.sight.why_not, 200))
    elif found.sight.by is not None:
        said.append(f"values by {found.sight.by}; this look is in the audit log")
    if found.rows and not found.complete:
        said.append(_left(found))
    return " · ".join(said)


def _left(found: LastRows) -> str:
    return "" if found.complete else f"only the newest {found.files} files were searched"


def _row(row: LastRow, numbers: dict[int, int], now: float) -> dict[str, str]:
    payload = row.payload
    version = numbers.get(row.schema_id) if row.schema_id is not None else None
    unnumbered = formatting.UNKNOWN_VALUE if row.schema_id is None else f"id {row.schema_id}"
    reason = "" if row.reason is None else formatting.shown(row.reason, 40)
    if row.landed_since:
        reason += " · landed since"
    return {
        "At, UTC": formatting.UNKNOWN_VALUE if row.at is None else _moment(row.at, now),
        "Seq": f"{formatting.count(row.seq)} · {row.pos}",
        "Schema": str(version) if version is not None else unnumbered,
        "Reason": reason,
        "Producer": "" if payload is None or payload.producer is None else formatting.shown(payload.producer, 60),
        _VALUES: "" if payload is None else _decoded(row),
        "Bytes": "" if payload is None else payload.begin.hex(" "),
        "Size": formatting.count(row.size),
    }


def _decoded(row: LastRow) -> str:
    """Return a row's values on one line, then why no more follow."""
    if row.payload is None:
        return ""
    named = [f"{formatting.shown(name, 40)}={formatting.shown(value, 80)}" for name, value in row.payload.fields]
    values = formatting.shown(" ".join(named), _DECODED) if named else ""
    stopped = row.payload.stopped
    if stopped is None:
        return values
    why = formatting.shown(stopped, 160)
    return f"{values} … {why}" if values else f"({why})"


def _moment(at: float, now: float) -> str:
    day = "" if in_utc(at, "%Y-%m-%d") == in_utc(now, "%Y-%m-%d") else f"{short_moment(at, now).rpartition(' ')[0]} "
    return f"{day}{in_utc(at, '%H:%M:%S')}"
