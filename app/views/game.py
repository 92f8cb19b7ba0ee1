"""One game (`?game=<game_key>`): a verdict, the evidence for it, what happened lately, and who its neighbours are."""

from collections.abc import Callable
from functools import partial

import pandas as pd
import pyarrow as pa
import streamlit as st

from app import formatting
from app.components import cards, charts, confirm, header, links
from app.state import control_queries, previews, services
from app.state.control_queries import ControlState
from app.state.services import Environment
from app.state.trends import Trend
from pipeline.control.operations import registry
from pipeline.control.operations.definition import Level
from pipeline.errors import Refused
from pipeline.store.database.states import OperationKind
from pipeline.store.fleet import Fleet, GameRow

_BLUE, _ORANGE, _GREEN = "#0072B2", "#E69F00", "#009E73"
_DAY = 86_400.0


def _live(environment: Environment) -> None:
    steering = header.draw(environment, control_queries.steering, "steering")
    if steering is None:
        return
    fleet = steering.fleet
    game_key = st.query_params.get("game", "")
    row = fleet.row(game_key)
    if row is None:
        _draw_unknown(environment, game_key)
        return
    header.headline(formatting.shown(row.game), trouble=row.in_trouble)
    with st.container(key="verdict", gap=None):
        st.text(f"{formatting.STATUS_STYLES[row.verdict.status].glyph} {formatting.verdict_sentence(row, fleet)}")
        st.text(f"key {row.game_key}")
    error = row.reported.last_error if row.reported is not None else None
    if error:
        st.caption("Last error")
        st.code(formatting.shown(error, 2000), language=None, wrap_lines=True)
    _draw_actions(environment, steering, row)
    evidence = st.container(gap="small")
    trend = _read_trend(environment, row.game_key)
    with evidence:
        _draw_evidence(fleet, row, trend if isinstance(trend, Trend) else None)
    _draw_charts(environment, trend)
    left, right = st.columns(2)
    with left:
        _draw_transitions(environment, row.game_key)
        _draw_schemas(environment, row.game_key)
    with right:
        _draw_neighbours(fleet, row)


def _draw_actions(environment: Environment, steering: ControlState, row: GameRow) -> None:
    """Draw what can be done with the game, and below it the preview that was opened."""
    key = row.game_key
    try:
        facts = control_queries.facts(environment, [key]).get(key)
    except Refused as refused:
        st.warning(formatting.escaped(str(refused)), icon=":material/database_off:")
        return
    if facts is None:
        return
    cards.draw(
        _REACHES,
        cards.of_game(facts, partial(services.missing_role, environment)),
        on_click=_offer,
        args=(environment, key, row.group),
        before={"move": partial(_choose_group, steering, row)},
    )
    confirm.draw_confirmation(environment, f"game_{key}")


_REACHES: dict[Level, str] = {1: "Reversible actions", 2: "This game", 3: "Its whole group"}


def _choose_group(steering: ControlState, row: GameRow) -> None:
    groups = [name for name in steering.fleet.groups if name != row.group]
    st.selectbox(
        "To group",
        groups,
        key=f"to_{row.game_key}",
        index=None,
        format_func=formatting.shown,
        placeholder="to group",
        label_visibility="collapsed",
    )


def _offer(environment: Environment, key: str, group: str | None, kind: str) -> None:
    make: Callable[[], previews.Preview]
    if kind == OperationKind.MOVE:
        target = st.session_state.get(f"to_{key}")
        make = partial(previews.preview_move, environment, [key], None if target is None else str(target))
    elif kind == OperationKind.RESTART:
        make = partial(previews.preview_named, environment, kind, [] if group is None else [group])
    elif registry.offers_of_game()[kind][1].repairs:
        make = partial(previews.preview_repair, environment, kind, [key])
    else:
        make = partial(previews.preview_named, environment, kind, [key])
    confirm.stage_preview(f"game_{key}", make)


def _draw_unknown(environment: Environment, game_key: str) -> None:
    if not game_key:
        st.info("No game is chosen. Open one from the Fleet page.")
        return
    header.headline("No such game", trouble=False)
    try:
        registered = services.schemas(environment, game_key)
    except Refused as refused:
        st.error(formatting.escaped(str(refused)))
        return
    if registered:
        st.info("This game is registered, but no event of it has arrived yet. Check that its producer is running.")
        st.text(f"{formatting.shown(registered[-1].game)} (key {game_key})")
    else:
        st.warning("There is no game with this key. Check the link, or look for it on the Fleet page.")
        st.code(formatting.shown(game_key, 100), language=None)


def _read_trend(environment: Environment, game_key: str) -> Trend | Refused:
    try:
        return services.game_trend(environment, game_key, float(header.range_seconds()))
    except Refused as refused:
        return refused


def _draw_evidence(fleet: Fleet, row: GameRow, trend: Trend | None) -> None:
    """Draw the numbers behind the verdict; what the driver can no longer vouch for is a dash."""
    live, reported = row.live, row.reported
    driver = fleet.driver("group", row.group or "")
    committed = reported.last_commit_at if reported is not None else None
    p50, p95, p99 = trend.latency_seconds if trend is not None else (None, None, None)
    facts = {
        "Status": formatting.status_text(row.verdict.status),
        "Since": formatting.clock(row.verdict.since),
        "Group": formatting.shown(row.group) if row.group is not None else formatting.UNKNOWN_VALUE,
        "Lane": live.lane if live is not None else formatting.UNKNOWN_VALUE,
        "Lag": formatting.duration(row.lag_seconds),
        "Rows/s": formatting.rate(live.rows_per_second if live is not None else None),
        "Latency p50": formatting.duration(p50),
        "Latency p95": formatting.duration(p95),
        "Latency p99": formatting.duration(p99),
        "Cursor (seq)": formatting.count(reported.cursor_seq if reported is not None else None),
        "Last seq in bronze": formatting.count(row.last_seq),
        "Group's frontier": formatting.count(driver.frontier_seq if driver is not None else None),
        "Last commit": f"{formatting.age(fleet.read_at - committed)} ago"
        if committed is not None
        else formatting.UNKNOWN_VALUE,
        "Rows": formatting.count(reported.rows_total if reported is not None else None),
        "Rejects": formatting.count(reported.rejects_total if reported is not None else None),
        "Generation": str(row.generation),
        "Last report": f"{formatting.age(fleet.read_at - reported.updated_at)} ago"
        if reported is not None
        else formatting.UNKNOWN_VALUE,
    }
    with st.container(horizontal=True, key="evidence", gap="small"):
        for name, value in facts.items():
            with st.container(width=118, gap=None):
                st.caption(name)
                st.text(value)
    st.caption(
        "Rows and rejects count since the driver started; latency in the chosen time ends with the table's commit and "
        f"is measured from {fleet.latency_start}. All times are UTC."
    )


def _draw_charts(environment: Environment, trend: Trend | Refused) -> None:
    if isinstance(trend, Refused):
        st.info(formatting.escaped(str(trend)), icon=":material/history_toggle_off:")
        return
    if trend.failed_passes:
        st.warning(
            f"{formatting.count(trend.failed_passes)} passes in this time committed nothing because of an error."
        )
    if not trend.points:
        st.info(
            "Nothing was committed for this game in this time. Choose a longer time.", icon=":material/hourglass_empty:"
        )
        return
    objective = environment.settings.metrics.latency_objective_seconds
    drawn = [
        ("Rows landed", charts.over_time(trend, "rows", "rows", _BLUE)),
        ("Latency p95", charts.over_time(trend, "latency_p95_seconds", "seconds", _BLUE, objective)),
        ("Rejects", charts.over_time(trend, "rejects", "rows", _ORANGE)),
        ("Slowest commit", charts.over_time(trend, "commit_seconds", "seconds", _GREEN)),
    ]
    for column, (title, chart) in zip(st.columns(4), drawn, strict=True):
        with column:
            st.caption(f"{title}, per {formatting.age(trend.slice_seconds)}")
            st.altair_chart(
                chart, alt=f"{title} over time, {formatting.clock(trend.since)} to {formatting.clock(trend.until)}."
            )
    if trend.rejects:
        reasons = ", ".join(
            f"{formatting.shown(reason, 40)} {formatting.count(number)}" for reason, number in trend.rejects.items()
        )
        st.text(f"Rejects by reason in this time: {reasons}")


def _draw_transitions(environment: Environment, game_key: str) -> None:
    st.subheader("What changed, last 24 h", anchor=False)
    try:
        table = services.game_transitions(environment, game_key, _DAY)
    except Refused as refused:
        st.info(formatting.escaped(str(refused)), icon=":material/history_toggle_off:")
        return
    if table.num_rows == 0:
        st.info("No change of status in the last 24 h.")
        return
    st.dataframe(_transitions(table), hide_index=True, alt="Changes of status of this game, newest first.")


def _transitions(table: pa.Table) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "at": formatting.moment(change["at"].timestamp()),
            "from": _word(change["from_status"]),
            "to": _word(change["to_status"]),
            "detail": formatting.shown(change["detail"], 200) if change["detail"] else formatting.UNKNOWN_VALUE,
        }
        for change in table.to_pylist()
    )


def _word(status: str | None) -> str:
    if status is None:
        return formatting.UNKNOWN_VALUE
    return formatting.status_text(status) if status in formatting.STATUS_STYLES else formatting.shown(status, 20)


def _draw_schemas(environment: Environment, game_key: str) -> None:
    st.subheader("Registered schemas", anchor=False)
    try:
        versions = services.schemas(environment, game_key)
    except Refused as refused:
        st.error(formatting.escaped(str(refused)))
        return
    if not versions:
        st.info("No schema is registered for this game: ingest refuses its rows as unknown_game until one is.")
        return
    st.page_link(
        "views/schemas.py", label="Compare its versions", icon=":material/difference:", query_params={"game": game_key}
    )
    st.dataframe(
        pd.DataFrame(
            {
                "version": version.version,
                "schema id": version.schema_id,
                "format": version.format,
                "message": formatting.shown(version.message, 120),
                "registered": formatting.moment(version.created_at),
            }
            for version in reversed(versions)
        ),
        hide_index=True,
        alt="Schema versions registered for this game, newest first.",
    )


def _draw_neighbours(fleet: Fleet, row: GameRow) -> None:
    st.subheader(f"Neighbours in group {formatting.escaped(row.group)}" if row.group else "Neighbours", anchor=False)
    others = [other for other in fleet.rows if other.group == row.group and other.game_key != row.game_key]
    if row.group is None or not others:
        st.info("No other game is in its group." if row.group else "No cluster group carries this game.")
        return
    bad = sum(other.in_trouble for other in others)
    st.caption(f"{len(others) - bad} of {len(others)} are well. Worst first.")
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
        height=min(36 * (len(others) + 1), 380),
        column_config={"page": links.game_column("key (opens its page)", "neighbours", 205)},
        alt="The other games of this group, worst first.",
    )
    links.offer_games("neighbours", {each.game_key: formatting.game_text(each.game_key, each.game) for each in others})


header.keep_drawing(_live)
