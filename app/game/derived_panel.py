"""Draws the derived streams of a game in the card of its rows: how each is, how far behind, and why it stands still.

Below them are the buttons that pause, resume and repair one of them; then `gold_chart` draws a gold table over time.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

import pandas as pd
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from app import formatting
from app.components import confirm, pills
from app.game import gold_chart
from app.game.signals import GameSignals
from app.look import parts
from app.look.tokens import Tone
from app.state import services
from app.state.previews import planned
from app.state.services import Environment, cached
from pipeline.api import derived
from pipeline.api.derived import DerivedReport, DerivedStanding, OperationKind, Uncarried
from pipeline.api.gold import GoldDefinition
from pipeline.base.errors import Refused
from pipeline.base.texts import complete_through

_WORDS: Final[Mapping[DerivedStanding, tuple[str, Tone]]] = {  # the worst first
    DerivedStanding.STOPPED: ("■ stands still", "bad"),
    DerivedStanding.SILENT: ("? unknown", "blind"),
    DerivedStanding.PAUSED: ("‖ paused", "plain"),
    DerivedStanding.HELD: ("‖ silver paused", "plain"),
    DerivedStanding.BEHIND: ("» behind", "busy"),
    DerivedStanding.WAITING: ("… waiting", "plain"),
    DerivedStanding.LEVEL: ("● level", "well"),
}
_HELP: Final[Mapping[OperationKind, str]] = {
    OperationKind.PAUSE_DERIVED: "No more rows enter its table until it is resumed.",
    OperationKind.RESUME_DERIVED: "It goes on from its table's position.",
    OperationKind.REPAIR_DERIVED: "All of its rows come again in one commit.",
}
_ROW: Final = 36
_TALL: Final = 396  # more rows scroll

_MOST_NAMED: Final = 10

_PLACE: Final = "derived"

_preview: Final = planned(derived.preview)
_streams: Final = cached(derived.listed, seconds=5, most=200)
_uncarried: Final = cached(derived.uncarried, seconds=5, most=200)


def draw(environment: Environment, signals: GameSignals, place: DeltaGenerator) -> None:
    """Draw the streams; `place` is that of the card's head."""
    try:
        found, without = _streams(environment, signals.row.game), _uncarried(environment, signals.row.game)
    except Refused as refused:
        place.html(parts.section("Derived"))
        st.html(parts.silence("The derived streams cannot be read.", formatting.shown(str(refused))))
        return
    if without:
        _draw_uncarried(without)
    if not found:
        place.html(parts.section("Derived"))
        if not without:
            st.html(parts.silence("No derived stream is of this game.", "turnout derived apply FILE gives it some."))
        return
    place.html(parts.section("Derived", "tables that follow from this game's table"))
    order = {each: at for at, each in enumerate(_WORDS)}
    rows = [_row(each) for each in sorted(found, key=lambda each: order[each.verdict.standing])]
    st.dataframe(
        pd.DataFrame(rows),
        hide_index=True,
        row_height=_ROW,
        height=min(_ROW * (len(rows) + 1) + 2, _TALL),
        column_config={
            "Table": st.column_config.TextColumn(width=160),
            "State": pills.column("State", dict(_WORDS.values()), 120),
            "Rows": _number(85, "In its table, when it was reported last."),
            "Behind": _number(70, "Commits of the game's table that it has not read."),
            "Lag": _number(75, "How long it has lacked rows of the game's table."),
            "Complete through": _number(140, "The table has every record that the source had by then (UTC)."),
            "Generation": _number(85, "A new one replaces all rows in one commit."),
            "Event type": st.column_config.TextColumn(width=95),
            "Reason": st.column_config.TextColumn(width=365),
        },
        alt="Derived streams of this game, with state, rows, how far behind each is, and why it stands still.",
        key="derived_table",
    )
    _draw_steering(environment, found)
    if gold := [each.definition for each in found if isinstance(each.definition, GoldDefinition)]:
        gold_chart.draw(environment, signals, gold)


def _draw_uncarried(found: Sequence[Uncarried]) -> None:
    """Draw the event types that a rule chooses or chose, and whose table is not there or gets no more rows."""
    head = f"Event types of a rule whose rows come into no silver table: {len(found):,}"
    said = [f"{formatting.shown(each.row.type, 80)}: {formatting.shown(each.row.reason or '', 200)}" for each in found]
    more = [f"and {len(said) - _MOST_NAMED:,} more"] if len(said) > _MOST_NAMED else []
    st.html(parts.silence(head, "; ".join([*said[:_MOST_NAMED], *more])))


def _draw_steering(environment: Environment, found: Sequence[DerivedReport]) -> None:
    """Draw the choice of a stream, with the buttons that pause or resume it, and make its table again."""
    listed = {each.name: each for each in found}
    with st.container(horizontal=True, vertical_alignment="bottom"):
        name = str(st.selectbox("Derived stream", list(listed), key="derived_stream", width=300))
        is_paused = listed[name].verdict.standing is DerivedStanding.PAUSED
        if is_paused:
            _draw_button(environment, OperationKind.RESUME_DERIVED, name, ":material/play_arrow:")
        else:
            _draw_button(environment, OperationKind.PAUSE_DERIVED, name, ":material/pause:")
            _draw_button(environment, OperationKind.REPAIR_DERIVED, name, ":material/build:")
    confirm.draw_confirmation(environment, _PLACE)


def _draw_button(environment: Environment, kind: OperationKind, name: str, icon: str) -> None:
    """Draw the button that shows what an operation would do; disabled for people without its role."""
    needs = services.missing_role(environment, kind)
    st.button(
        f"{kind.removesuffix('-derived').capitalize()} stream…",
        key=f"derived_{kind}",
        icon=icon,
        on_click=confirm.stage_preview,
        args=(_PLACE, partial(_preview, environment, kind, name)),
        disabled=needs is not None,
        help=_HELP[kind] if needs is None else formatting.escaped(needs),
    )


def _number(width: int, about: str) -> Any:
    return st.column_config.TextColumn(width=width, help=about, alignment="right")


def _row(report: DerivedReport) -> dict[str, object]:
    verdict = report.verdict
    reason = "" if report.reason is None else formatting.shown(report.reason, 300)
    if report.stopped_for is not None:
        reason = f"for {formatting.age(report.stopped_for)}: {reason}"
    if verdict.standing is DerivedStanding.WAITING:
        reason = "the game's table does not exist yet"
    through = complete_through(report.through_time, report.now)
    return {
        "Table": f"{report.kind}/{formatting.shown(report.name, 60)}",
        "State": [_WORDS[verdict.standing][0]],
        "Rows": formatting.count(verdict.rows),
        "Behind": formatting.count(verdict.behind),
        "Lag": formatting.duration(verdict.lag_seconds),
        "Complete through": formatting.UNKNOWN_VALUE if through is None else f"{through[0]}, {through[1]} ago",
        "Generation": formatting.count(verdict.generation),
        "Event type": "the first one" if report.type is None else formatting.shown(report.type, 80),
        "Reason": reason,
    }
