"""Draws the parts of one game's page: head, cause card, strip with figures, charts, what is around it.

Each part draws from `GameSignals` and is drawn also where its reading failed: then it says what did not answer.
"""

import html
from collections.abc import Callable
from typing import Any, Final

import pandas as pd
import pyarrow as pa
import streamlit as st

from app import formatting
from app.alerts.listing import summary
from app.components import links
from app.game import figures, marks, versions
from app.game.cause import CauseCard
from app.game.signals import GameSignals, pill, state_text, until_text
from app.look import parts, tokens, vega
from app.look.axes import Chart, Frame
from app.look.lines import partial_text
from app.look.tokens import Tone
from app.state.readings import Reading
from app.state.services import Environment
from app.state.situations import counted
from pipeline.api.figures import WITHOUT_CAUGHT_UP, minute
from pipeline.api.versions import GameVersions
from pipeline.base.names import GameKey
from pipeline.base.texts import short_moment

_ROWS_HEIGHT: Final = 140
_LOWER_HEIGHT: Final = 110
_MOST_OPERATIONS: Final = 8
_MOST_CHANGES: Final = 20


def head(signals: GameSignals) -> str:
    """Return the head of the page: where the game is, its name, its status as a pill, since when."""
    row = signals.row
    state = parts.pill(*pill(signals))
    return (
        f'<div class="t-sentence" role="heading" aria-level="1"><b>{_text(formatting.shown(row.game, 120))}</b>{state}'
        f"<span>{_text(state_text(signals))}</span></div>"
    )


def draw_crumb(signals: GameSignals) -> None:
    """Draw the way to the game: the fleet, its group, its key, which tells apart names that look alike."""
    row = signals.row
    st.page_link("views/fleet.py", label="Fleet", query_params=links.filters())
    if row.group is not None:
        st.text("/", width="content")
        label = formatting.escaped(formatting.shown(f"group {row.group}", 60))
        st.page_link("views/groups.py", label=label, query_params={"steer": row.group})
    st.text(f"/ key {row.game_key}", width="content")


def draw_cause(signals: GameSignals, card: CauseCard, buttons: Callable[[], None]) -> None:
    """Draw what is wrong; `buttons` draws what to do next at its right."""
    kind = "bad" if card.tone == "bad" else "late" if card.tone == "late" else "busy"
    with st.container(horizontal=True, border=True, key=f"inc_{kind}_cause", vertical_alignment="top"):
        lines = parts.facts(card.lines)
        st.html(f"{parts.incident(card.glyph, card.title, '', card.since, card.tone)}{lines}", width="stretch")
        with st.container(width=190, gap="xsmall", key="cause_next"):
            buttons()
            if card.runbook is not None:
                of = {} if signals.incident is None else {"incident": signals.incident.incident_id}
                links.draw_runbook(card.runbook, {"game": signals.row.game_key, **of})


def draw_alerts(signals: GameSignals) -> None:
    """Draw the alerts that fire for the game; where nobody can tell, that."""
    if signals.alerts is None and "alerts" in signals.whys:
        st.html(parts.note(f"Nobody knows which alerts fire for this game: {_why(signals, 'alerts')}"))
    for number, alert in enumerate(signals.alerts or ()):
        tone: Tone = "bad" if alert.severity == "page" else "late"
        with st.container(horizontal=True, border=True, key=f"inc_{tone}_alert_{number}", vertical_alignment="center"):
            title = f"Alert {formatting.shown(alert.name, 60)} fires"
            since = f"since {short_moment(alert.since, signals.now)}"
            about = summary(alert, {signals.row.game_key: signals.row.game})
            st.html(parts.incident("▲", title, about, since, tone), width="stretch")
            if alert.runbook is not None:
                links.draw_runbook(alert.runbook, {"game": signals.row.game_key})


def draw_strip(signals: GameSignals) -> None:
    """Draw the health strip, and the six figures below it."""
    made = figures.slots(signals)
    with st.container(border=True, key="strip_game", gap="xxsmall"):
        st.html(parts.strip(made, *figures.edges(made, signals.now), figures.label(made)))
        if signals.series_about:
            st.html(parts.note(f"History{signals.series_about}"))
        st.html(parts.figures(figures.figures(signals)))
        if of := minute(signals.recent):
            st.html(parts.note(f"Rates are of {of}."))


def draw_charts(signals: GameSignals) -> None:
    """Draw rows, backlog and latency on one axis, with what was done and what changed marked above."""
    series = signals.series
    with st.container(border=True, key="card_charts", gap="xxsmall", height="stretch"):
        legend = (("series-1", "landed"), ("late", "refused"))
        partial = "" if series is None else partial_text(series, set(series.groups))
        about = f"per second, landed and refused{partial}{signals.series_about}"
        st.html(parts.section("Rows", about, legend))
        if series is None or not series.games:
            none = "No history to draw." if series is None else "No driver reported this game in this time."
            st.html(parts.silence(none, _why(signals, "series") if series is None else _last_row(signals)))
            return
        mode = tokens.mode_of(st.context.theme.type)
        events = tuple(marks.events(signals))
        marked = Frame(series.since, series.slot_seconds, signals.now, mode, events, _ROWS_HEIGHT)
        landed, refused = figures.per_second(series, "rows"), figures.per_second(series, "refused")
        rows = vega.bars(marked, [("landed", "series-1", landed), ("refused", "late", refused)])
        _draw(rows, "chart_rows", "Rows landed and refused")
        plain = Frame(series.since, series.slot_seconds, signals.now, mode, (), _LOWER_HEIGHT)
        st.html(parts.section("Backlog", f"age of the oldest event that waits{signals.series_about}"))
        _draw(vega.backlog(plain, figures.backlog(series), signals.objective_seconds), "chart_backlog", "Backlog")
        clock = f"from {signals.fleet.latency_start}, {WITHOUT_CAUGHT_UP}{signals.series_about}"
        st.html(parts.section("Latency", clock, vega.QUANTILES))
        quantiles = figures.quantiles(series)
        _draw(vega.latency(plain, quantiles, signals.objective_seconds), "chart_latency", "Latency p50, p95, p99")
        if signals.trend is not None and signals.trend.failed_passes:
            passes = formatting.count(signals.trend.failed_passes)
            st.caption(f"{passes} passes in this time committed nothing because of an error.")


def draw_versions(environment: Environment, signals: GameSignals) -> None:
    """Draw the newest schema versions in words."""
    found = signals.versions
    count = "" if found is None else f"{len(found)} {'version' if len(found) == 1 else 'versions'}"
    st.html(parts.section("Schemas", f"{count}{until_text(signals, 'versions')}"))
    if found is None:
        st.html(parts.silence("Not known.", _why(signals, "versions")))
        return
    if not found:
        st.text("No schema is registered for this game: ingest refuses its rows as unknown_game until one is.")
        return
    game = GameVersions(GameKey(signals.row.game_key), signals.row.game, tuple(found))
    st.html(parts.facts(versions.lines(environment, game, signals.now)))
    st.page_link(
        "views/schemas.py",
        label="Compare its versions",
        icon=":material/difference:",
        query_params={"game": signals.row.game_key},
    )


def draw_operations(signals: GameSignals) -> None:
    """Draw the last operations about the game, or its group of then; one opens its page."""
    with st.container(border=True, key="card_operations", gap="xsmall"):
        about = f"of this game and its group of then, newest first{until_text(signals, 'operations')}"
        st.html(parts.section("Operations", about))
        found = signals.operations
        if found is None:
            st.html(parts.silence("Not known.", _why(signals, "operations")))
            return
        if not found:
            st.text("None yet.")
            return
        st.dataframe(
            pa.table(
                {
                    "state": [formatting.operation_text(each.state) for each in found[:_MOST_OPERATIONS]],
                    "what": [marks.operation_words(each) for each in found[:_MOST_OPERATIONS]],
                    "by": [formatting.shown(each.actor, 40) for each in found[:_MOST_OPERATIONS]],
                    "requested, UTC": [
                        short_moment(each.requested_at, signals.now) for each in found[:_MOST_OPERATIONS]
                    ],
                    "page": [links.short(each.operation_id) for each in found[:_MOST_OPERATIONS]],
                }
            ),
            hide_index=True,
            column_config={"page": links.operation_column("id (opens its page)", "game_operations", 150)},
            alt="The last operations about this game or its group, newest first.",
            key="game_operations",
        )
        game_key = signals.row.game_key
        st.page_link("views/operations.py", label="History of its events", query_params={"history": game_key})


def draw_changes(signals: GameSignals, seen: Reading[pa.Table]) -> None:
    """Draw the changes of status of the last day; the last ones known where they cannot be read."""
    with st.container(border=True, key="card_changes", gap="xsmall"):
        why = formatting.shown(seen.why or "", 120)
        until = (
            f" · until {short_moment(seen.good_at, signals.now)}: {why}"
            if seen.failed and seen.good_at is not None
            else ""
        )
        st.html(parts.section("Changes of status", f"last 24 h, newest first{until}"))
        table = seen.value
        if table is None:
            st.html(parts.silence("Not known.", formatting.shown(seen.why or "")))
            return
        if table.num_rows == 0:
            st.text("No change of status in the last 24 h.")
            return
        st.dataframe(
            pd.DataFrame(
                {
                    "at, UTC": short_moment(change["at"].timestamp(), signals.now),
                    "from": _word(change["from_status"]),
                    "to": _word(change["to_status"]),
                    "detail": formatting.shown(change["detail"], 200) if change["detail"] else formatting.UNKNOWN_VALUE,
                }
                for change in table.slice(0, _MOST_CHANGES).to_pylist()
            ),
            hide_index=True,
            alt="Changes of status of this game, newest first.",
            key="game_changes",
        )


def draw_neighbours(signals: GameSignals) -> None:
    """Draw the other games of the group, worst first; one opens its page."""
    row, others = signals.row, signals.neighbours
    with st.container(border=True, key="card_neighbours", gap="xsmall"):
        group = "" if row.group is None else f"group {formatting.shown(row.group, 60)}: "
        how = f"{counted(others, signals.situation).words}, worst first" if others else ""
        st.html(parts.section("Neighbours", f"{group}{how}"))
        if not others:
            st.text("No other game is in its group." if row.group else "No cluster group carries this game.")
            return
        st.dataframe(
            pd.DataFrame(
                {
                    "status": formatting.status_text(other.verdict.status),
                    "game": formatting.shown(other.game, 60),
                    "page": other.game_key,
                    "lag": formatting.duration(other.lag_seconds),
                }
                for other in others
            ),
            hide_index=True,
            height=min(36 * (len(others) + 1), 320),
            column_config={
                "status": st.column_config.TextColumn(width=105),
                "game": st.column_config.TextColumn(width=175),
                "page": links.game_column("key (opens its page)", "neighbours", 175),
                "lag": st.column_config.TextColumn(width=70),
            },
            alt="The other games of this group, worst first.",
        )
        links.offer_games(
            "neighbours", {each.game_key: formatting.game_text(each.game_key, each.game) for each in others}
        )


def _draw(chart: Chart, key: str, what: str) -> None:
    about = f"{what} over time."
    st.vega_lite_chart(chart.whole(), theme=None, key=key, alt=about)


def _last_row(signals: GameSignals) -> str:
    reported = signals.row.reported
    if reported is None or reported.last_commit_at is None:
        return "No commit is known."
    return f"Last commit {formatting.age(signals.now - reported.last_commit_at)} ago."


def _why(signals: GameSignals, name: str) -> str:
    return formatting.shown(signals.whys.get(name, "Nothing was reported."), 300)


def _word(status: Any) -> str:
    if status is None:
        return formatting.UNKNOWN_VALUE
    return formatting.status_text(status) if status in formatting.STATUS_STYLES else formatting.shown(status, 20)


def _text(raw: str) -> str:
    return html.escape(raw, quote=True)
