"""Draws what is read at a glance: sentence, health strip, figures, incidents, and the two charts over time."""

import hashlib
from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
import streamlit as st

from app import formatting
from app.components import header, links
from app.fleet import figures, headline, incidents, strip, timeline
from app.fleet.gathering import Gathered, first_of_all, gather
from app.fleet.incidents import IncidentRow
from app.fleet.signals import Signals
from app.look import parts, tokens, vega
from app.look.axes import Chart, Frame
from app.look.lines import partial_text
from app.look.sentences import Sentence
from app.look.tokens import Mode
from app.runbooks.page_links import subject_query
from app.state import services
from app.state.control_queries import OperationList
from app.state.first_events import awaited
from app.state.readings import Reading
from app.state.series import about
from app.state.services import Environment
from app.state.shared import once
from listeners.series import Series
from pipeline.api.figures import WITHOUT_CAUGHT_UP, minute
from pipeline.api.fleet import RegisteredSchema
from pipeline.api.games import GameProposal, Pending, Waiting
from pipeline.api.runs import Run
from pipeline.base.errors import Refused
from pipeline.base.texts import join_limited, short_moment
from pipeline.health.facts.fleet import Fleet

_STORE_RUNBOOK: Final = "turnoutfleetunhealthy"
_ACTIONS_WIDTH: Final = 232  # px; the same in every row, so that what stands before it is aligned
_LONGEST: Final = 160  # characters of an error
_MOST_NAMED: Final = 3  # names without a game
_ENDED: Final = {
    "ended": st.column_config.TextColumn("Ended, UTC", width=110),
    "lasted": st.column_config.TextColumn("Lasted", width=90),
    "cause": st.column_config.TextColumn("Cause", width=150),
    "what": st.column_config.TextColumn("What", width=430),
    "where": st.column_config.TextColumn("Games", width=330),
}


def draw(environment: Environment) -> None:
    """Draw everything above the grid: first what the control store says, then what is read elsewhere."""
    paused, seconds = header.is_paused(), header.range_seconds()
    # The fleet is read before anything is drawn: else the frame would stand there without its data's age.
    first = first_of_all(environment, seconds, header.every_seconds(environment), paused=paused)
    drawn = header.lines(environment)
    seen = header.show(environment, drawn, lambda _: _value(first.fleet), "fleet")
    if seen is None or first.signals is None:
        return
    place = header.sentence_place()
    if is_new := first.series == Reading():  # nothing is on screen, so its place may be empty for a moment
        place = place.empty()
    said = _sentence(first, first.signals)
    header.draw_sentence(said, place)
    if not seen.rows:
        _draw_nothing_yet(seen)
    card = st.container(border=True, key="strip", gap="xsmall")
    with st.container(key="incidents", gap="xsmall"):
        _draw_incidents(first, first.signals)
        _draw_names(first)
        _draw_ended(first.signals)
    left, right = st.columns(2, gap="small")
    known = gather(environment, first, seconds, paused=paused)
    assert known.signals is not None
    if is_new and (now_said := _sentence(known, known.signals)) != said:
        header.draw_sentence(now_said, place)
    with card:
        _draw_strip(known, known.signals)
    with left, st.container(border=True, key="card_throughput", gap="xxsmall"):
        _draw_throughput(known, known.signals)
    with right, st.container(border=True, key="card_latency", gap="xxsmall"):
        _draw_latency(known, known.signals)


def _value(seen: Reading[Fleet]) -> Fleet:
    if seen.value is None:
        raise Refused(seen.why or "The control store was not read.")
    return seen.value


def _sentence(known: Gathered, signals: Signals) -> Sentence:
    if known.stale_since is None:
        return once(headline.headline, signals)
    return headline.stale_headline(signals.fleet, known.at, "the control store does not answer")


def _draw_nothing_yet(fleet: Fleet) -> None:
    if fleet.newest_bronze_seq is not None:
        st.info("Ingest has written events, but none of a registered game. Register the games' schemas.")
    else:
        st.info(formatting.escaped(nothing_yet(fleet)))


def nothing_yet(fleet: Fleet) -> str:
    """Say what is missing before the first event has been ingested: nobody need start a process that runs or starts."""
    if not fleet.registered_games:
        return "No game is registered in this environment. Start turnout simulate, or register a game's schema."
    games = "1 game is" if fleet.registered_games == 1 else f"{formatting.count(fleet.registered_games)} games are"
    if (why := awaited(fleet)) is not None:
        return f"{games} registered. {why}"
    return f"{games} registered, and ingest runs. No event has arrived: start a producer, or turnout simulate."


def _draw_strip(known: Gathered, signals: Signals) -> None:
    if signals.series is None:
        st.html(parts.silence("No history", formatting.shown(signals.whys.get("series", "not read"), _LONGEST)))
    else:
        st.html(once(_strip, signals, known.stale_since, _now(known, signals)))
        if old := _until(known):
            st.html(parts.note(f"History{old}"))
    st.html(once(_figures, signals, known.stale_since is not None))
    if of := minute(signals.recent):
        st.html(parts.note(f"Rates and p99 are of {of}; p99 is {WITHOUT_CAUGHT_UP}."))


def _strip(signals: Signals, stale_since: float | None, now: float) -> str:
    assert signals.series is not None
    made = strip.slots(signals.series, signals.fleet, signals.fleet.read_at, stale_since, signals.incidents)
    return parts.strip(made, *strip.edges(made, now), strip.label(made))


def _figures(signals: Signals, faded: bool) -> str:
    return parts.figures(figures.figures(signals), faded=faded)


def _now(known: Gathered, signals: Signals) -> float:
    """Return the moment that the page is about: when the store answered, or now, where it does not answer."""
    return signals.fleet.read_at if known.stale_since is None else known.at


def _draw_incidents(known: Gathered, signals: Signals) -> None:
    rows = once(incidents.rows, signals) if known.stale_since is None else []
    if known.fleet.failed:
        rows = [_store_row(known.fleet), *rows]
    if not rows:
        st.html(parts.calm(incidents.calm_text(signals)))
        return
    if len(rows) > 1 or not known.fleet.failed:
        st.html(parts.section("Incidents", incidents.about_rows(rows, signals)))
    for row in rows[: incidents.MOST]:
        _draw_row(row, known.at)
    if len(rows) > incidents.MOST:
        st.html(parts.section("", f"{len(rows) - incidents.MOST} more, in the table below"))


def _draw_names(known: Gathered) -> None:
    """Draw one line where games are proposed or ingest refuses rows of names, with the way to decide about them."""
    seen = known.names
    if seen.value is None and seen.failed:
        st.html(parts.note(f"Names without a game are not known: {formatting.shown(seen.why or '', _LONGEST)}"))
    if seen.value is None or not (seen.value.proposals or seen.value.pending.names):
        return
    about = [*_proposed(seen.value.proposals), *_nameless(seen.value.pending)]
    until = f" · until {short_moment(seen.good_at, known.at)}" if seen.failed and seen.good_at is not None else ""
    with st.container(horizontal=True, vertical_alignment="center", key="row_names", gap="small"):
        st.html(parts.note(f"{' · '.join(about)}{until}"), width="stretch")
        if st.button("Review names", key="open_names", type="tertiary"):
            links.open_page("games", {})


def _proposed(proposals: Sequence[GameProposal]) -> list[str]:
    """Say which games are proposed; nothing where none is."""
    if not proposals:
        return []
    many = "1 proposed game waits" if len(proposals) == 1 else f"{formatting.count(len(proposals))} proposed games wait"
    return [f"{many} for a decision: {_first_names(proposals)}"]


def _nameless(pending: Pending) -> list[str]:
    """Say which names have rows that ingest refuses; nothing where none has."""
    names, count = pending.names, len(pending.names) + pending.beyond
    if not names:
        return []
    about = "about " if pending.beyond else ""
    many = "1 name is" if count == 1 else f"{about}{formatting.count(count)} names are"
    most = "up to " if any(each.error for each in names) else ""  # of a name that was crowded out for a while
    rows = f"{most}{formatting.count(sum(each.rows for each in names))}"
    return [f"{many} no game, so ingest refuses their rows, {rows} so far: {_first_names(names)}"]


def _first_names(named: Sequence[GameProposal | Waiting]) -> str:
    return join_limited(named, _MOST_NAMED, lambda each: formatting.shown(each.game, 40))


def _draw_ended(signals: Signals) -> None:
    """Draw, closed, the incidents that ended within a day: they say what the last shift had, and what may return."""
    lines = incidents.ended(signals)
    if not lines:
        return
    shown = lines[: incidents.MOST_ENDED]
    left = f", the newest {len(shown)} below" if len(lines) > len(shown) else ""
    many = "incident" if len(lines) == 1 else "incidents"
    with st.expander(f"{len(lines)} {many} ended in the last 24 h{left}", key="incidents_ended"):
        st.dataframe(
            pa.table({name: [line[name] for line in shown] for name in _ENDED}),
            hide_index=True,
            row_height=36,
            height=min(36 * (len(shown) + 1) + 2, 400),
            column_config=_ENDED,
            alt="Incidents that ended in the last 24 hours, the newest end first.",
            key="ended",
        )


def _store_row(seen: Reading[Fleet]) -> IncidentRow:
    """Return the row that says that nothing new is known of any game."""
    return IncidentRow(
        "store",
        "?",
        "The control store does not answer",
        "streams go on without it; nobody can move or repair now · what is below is the last that could be read · "
        f"{formatting.shown(seen.why or '', _LONGEST)}",
        seen.good_at,
        "late",
        None,
        _STORE_RUNBOOK,
    )


def _draw_row(row: IncidentRow, now: float) -> None:
    mark = hashlib.sha256(row.row_id.encode()).hexdigest()[:12]  # keys go into class names
    since = "" if row.since is None else f"since {short_moment(row.since, now)} · {formatting.age(now - row.since)}"
    with st.container(
        horizontal=True, vertical_alignment="center", border=True, key=f"inc_{row.tone}_{mark}", gap="small"
    ):
        st.html(parts.incident(row.glyph, row.title, row.about, since, row.tone), width="stretch")
        with st.container(
            horizontal=True, vertical_alignment="center", width=_ACTIONS_WIDTH, gap="small", key=f"row_{mark}"
        ):
            if row.row_id == "store":
                st.button("Try now", key="try_store", on_click=services.fleet.clear)
            elif row.action is not None and st.button(formatting.escaped(row.action.label), key=f"go_{mark}"):
                links.open_page(row.action.page, row.action.query)
            if row.runbook is not None:
                links.draw_runbook(
                    row.runbook, subject_query(row.row_id, {} if row.action is None else row.action.query)
                )


def _draw_throughput(known: Gathered, signals: Signals) -> None:
    series = signals.series
    legend = [] if series is None else once(_legend, series)
    about = "" if series is None else partial_text(series)
    st.html(parts.section("Throughput", f"rows landed per second, by group{about}{_until(known)}", legend))
    if series is None or not timeline.has_rows(series):
        _draw_silence(known, "series_throughput")
        return
    chart = once(_throughput, signals, *_around(known, signals))
    _draw_chart(chart, "throughput", "Rows landed per second, by group.")


def _draw_latency(known: Gathered, signals: Signals) -> None:
    st.html(
        parts.section(
            "Latency", f"source to table commit, all games, {WITHOUT_CAUGHT_UP}{_until(known)}", vega.QUANTILES
        )
    )
    series = signals.series
    if series is None or not series.counts.any():
        _draw_silence(known, "series_latency")
        return
    chart = once(_latency, signals, *_around(known, signals))
    _draw_chart(chart, "latency", "Latency from the source to the table's commit: p50, p95 and p99 of all games.")


def _until(known: Gathered) -> str:
    """Return until when the charts go and why, where the history cannot be read any more or was made again."""
    return about(known.series, known.at)


def _around(known: Gathered, signals: Signals) -> tuple[object, ...]:
    """Return what `_frame` needs besides the signals."""
    mode = tokens.mode_of(st.context.theme.type)
    return known.operations.value, known.schemas.value, known.runs.value, _now(known, signals), mode


def _frame(
    signals: Signals,
    operations: OperationList | None,
    schemas: tuple[RegisteredSchema, ...] | None,
    runs: tuple[Run, ...] | None,
    now: float,
    mode: Mode,
) -> Frame:
    assert signals.series is not None
    done = () if operations is None else operations.operations
    since, found = signals.series.since, signals.incidents or ()
    marks = timeline.events(signals.fleet, done, schemas or (), since, runs or (), found)
    return timeline.frame(signals.series, now, mode, marks)


def _legend(series: Series) -> list[tuple[str, str]]:
    return vega.legend(once(timeline.by_group, series))


def _throughput(signals: Signals, *around: Any) -> Chart:
    assert signals.series is not None
    return vega.throughput(_frame(signals, *around), once(timeline.by_group, signals.series))


def _latency(signals: Signals, *around: Any) -> Chart:
    assert signals.series is not None
    return timeline.latency(signals.series, _frame(signals, *around), signals.objective_seconds)


def _draw_chart(chart: Chart, key: str, alt: str) -> None:
    st.vega_lite_chart(chart.whole(), theme=None, key=key, alt=alt, width="stretch")


def _draw_silence(known: Gathered, key: str) -> None:
    """Say why a chart is empty: nothing landed, or nobody could read it."""
    reading = known.series
    if not reading.failed:
        assert known.signals is not None
        if reading.value is not None and reading.value.known.any():
            st.html(parts.silence("No rows in this time", _last_row(known.signals.fleet)))
        else:
            st.html(parts.silence("No reports in this time", "A minute is shown about half a minute after its end."))
        return
    since = formatting.age(known.at - reading.failing_since) if reading.failing_since is not None else ""
    st.html(parts.silence("No reading of the history", f"{formatting.shown(reading.why or '', _LONGEST)} For {since}."))
    with st.container(horizontal=True, horizontal_alignment="center", key=f"again_{key}"):
        st.button("Try again", key=f"try_{key}")


def _last_row(fleet: Fleet) -> str:
    commits = [row.reported.last_commit_at for row in fleet.rows if row.reported is not None]
    known = [at for at in commits if at is not None and at <= fleet.read_at]
    return f"Last row {formatting.age(fleet.read_at - max(known))} ago." if known else "No row has landed yet."
