"""Turnout's alerts: which fire, wait, are silenced or explained by another; since when, of what, with runbooks."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

import streamlit as st

from app import formatting
from app.alerts import listing
from app.alerts.listing import AlertLine
from app.components import header, links, long_table, pills
from app.look import parts
from app.state import alerts, services
from app.state.alerts import Alerts, ReportedAlert
from app.state.services import Environment
from pipeline.base.errors import Refused
from pipeline.base.texts import short_moment

_MOST_LINES: Final = 30  # as containers; the table has all
_MOST_ROWS: Final = 300
_ACTIONS_WIDTH: Final = 232  # px, as on Fleet
_PILLS: Final = dict(listing.STATES.values())
_COLUMNS = {
    "alert": st.column_config.TextColumn("Alert", width=200),
    "what": st.column_config.TextColumn("Affected", width=170),
    "severity": st.column_config.TextColumn("Severity", width=75),
    "since": st.column_config.TextColumn("Since, UTC", width=95),
    "lasts": st.column_config.TextColumn("For", width=80),
    "summary": st.column_config.TextColumn("Summary", width=270),
    "silence": st.column_config.TextColumn("Silence", width=225),
}
_LONG: Final = {"alert": 200, "what": 170, "summary": 270, "silence": 225}  # columns that may need several lines
_ORDER = ("state", "alert", "what", "severity", "since", "lasts", "summary", "silence")


def _live(environment: Environment) -> None:
    seen = header.draw(environment, alerts.alerts, "alerts", ranged=False)
    if seen is None:
        return
    text, tone = listing.sentence(seen)
    header.headline(text, meta=listing.meta(seen, seen.read_at), tone=tone)
    names = _names(environment)
    if seen.firing is None:
        _draw_unknown(seen, names)
        return
    _draw_lines("Firing", seen.firing, names, seen.read_at)
    _draw_pending(seen, names)
    if seen.silenced is None:
        st.html(
            parts.note("Silences are not known: only Alertmanager has them, and alerts.alertmanager_url is not set.")
        )
    _draw_lines("Silenced", seen.silenced or (), names, seen.read_at)
    _draw_lines("Explained by another alert", seen.explained or (), names, seen.read_at)
    every = [*seen.firing, *(seen.pending or ()), *(seen.silenced or ()), *(seen.explained or ())]
    if every:
        _draw_table(every, names, seen.read_at)


def _names(environment: Environment) -> Mapping[str, str]:
    """Return the games' names by key; none while the control store does not answer: alerts are read without it."""
    try:
        return {row.game_key: row.game for row in services.fleet(environment).rows}
    except Refused:
        return {}


def _draw_unknown(seen: Alerts, names: Mapping[str, str]) -> None:
    """Say what was known last, and where turnout's own judgement is, which needs no server of alerts."""
    if seen.by is None:
        st.info(
            "`turnout alerts write` writes the rules. Set `alerts.alertmanager_url`, or `alerts.prometheus_url` "
            "where no Alertmanager runs."
        )
    st.page_link("views/fleet.py", label="Fleet: turnout's own judgement, without these servers")
    last = seen.last
    if last is None or last.firing is None:
        return
    if last.firing:
        _draw_lines(
            f"Fired at {short_moment(last.read_at, seen.read_at)}", last.firing, names, seen.read_at, is_old=True
        )
    else:
        st.html(parts.note(f"At {short_moment(last.read_at, seen.read_at)} no alert fired."))


def _draw_pending(seen: Alerts, names: Mapping[str, str]) -> None:
    if seen.pending is None:
        why = listing.away(seen.why_no_pending, seen.pending_away_since, seen.read_at)
        st.html(parts.note(f"Pending alerts are not known: {why}"))
        return
    _draw_lines("Pending", seen.pending, names, seen.read_at)


def _draw_lines(
    title: str, found: Sequence[ReportedAlert], names: Mapping[str, str], now: float, *, is_old: bool = False
) -> None:
    if not found:
        return
    made = listing.lines(found, names, now)
    about = "as the last answer said; nobody knows what fires now" if is_old else ""
    st.html(parts.section(title, about or f"{formatting.count(len(found))}, alike ones in one line"))
    for place, line in enumerate(made[:_MOST_LINES]):
        _draw_line(line, f"{line.state}_{place}", now, is_old=is_old)
    if len(made) > _MOST_LINES:
        st.html(parts.section("", f"{len(made) - _MOST_LINES} more, in the table below"))


def _draw_line(line: AlertLine, mark: str, now: float, *, is_old: bool) -> None:
    since = f"since {short_moment(line.since, now)} · {formatting.age(now - line.since)}"
    tone = "blind" if is_old else line.tone
    with st.container(
        horizontal=True, vertical_alignment="center", border=True, key=f"inc_{tone}_alert_{mark}", gap="small"
    ):
        glyph = "?" if is_old else listing.STATES[line.state][0].partition(" ")[0]
        st.html(parts.incident(glyph, line.title, line.about, since, tone), width="stretch")
        with st.container(
            horizontal=True, vertical_alignment="center", width=_ACTIONS_WIDTH, gap="small", key=f"row_alert_{mark}"
        ):
            if line.action is not None:
                st.button(
                    line.action.label,
                    key=f"go_alert_{mark}",
                    on_click=partial(links.open_page, line.action.page, line.action.query),
                )
            if line.runbook is not None:
                links.draw_runbook(line.runbook, line.subject)


def _draw_table(every: Sequence[ReportedAlert], names: Mapping[str, str], now: float) -> None:
    shown = every[:_MOST_ROWS]
    of = "" if len(shown) == len(every) else f" of {formatting.count(len(every))}"
    st.html(parts.section("All of them", f"{formatting.count(len(shown))}{of}, a row per game, group or process"))
    rows = [_row(each, names, now) for each in shown]
    long_table.draw(
        rows,
        _LONG,
        620,
        column_order=_ORDER,
        column_config={"state": pills.column("State", _PILLS, 105), **_COLUMNS},
        alt="Alerts: firing ones first, then pending, silenced and explained ones.",
        key="alerts_table",
    )
    games = dict.fromkeys(key for each in shown if (key := each.labels.get("game")) in names)
    if games:
        links.offer_games("alerts", {key: formatting.game_text(key, names[key]) for key in games if key is not None})


def _row(alert: ReportedAlert, names: Mapping[str, str], now: float) -> dict[str, str | list[str]]:
    return {
        "state": [listing.STATES[alert.state][0]],
        "alert": formatting.shown(alert.name, 60),
        "what": listing.affected(alert, names),
        "severity": formatting.shown(alert.severity, 20),
        "since": short_moment(alert.since, now),
        "lasts": formatting.age(now - alert.since),
        "summary": listing.summary(alert, names),
        "silence": listing.silenced(alert, now),
    }


header.keep_drawing(_live)
