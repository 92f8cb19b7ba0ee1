"""The cluster groups: settings, condition, and plans that move games between them."""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import pandas as pd
import streamlit as st

from app import formatting
from app.components import (
    confirm,
    group_cards,
    group_drawer,
    group_forms,
    group_load,
    group_state,
    header,
    links,
    log_panel,
    pills,
)
from app.components.group_load import Course
from app.fleet import readers, timeline
from app.look import parts, tokens
from app.look.lines import partial_text
from app.look.rows import height_of_all, table_height
from app.look.sentences import of_headline
from app.state import control_queries, judged, previews, services
from app.state.control_queries import ControlState
from app.state.readings import reading
from app.state.series import about, series
from app.state.services import Environment
from listeners.process_kinds import GROUP
from listeners.status import Status
from pipeline.api.operations import Operation, OperationKind
from pipeline.api.runs import Run
from pipeline.health.facts.fleet import Fleet
from pipeline.health.headlines import pages as headlines
from pipeline.health.headlines.standings import Situation
from pipeline.health.verdicts.processes import DriverState

_PLACE, _PLACE_EVEN = "groups_move", "groups_propose"
_GAMES, _TO, _GROUP, _OPEN = "move_games", "move_to", "steered_group", "opened_fleet"
_LINKED = {"steer": _GROUP, "games": _GAMES, "to": _TO}  # the URL's parameters, and whose they are
_LOW, _NARROW = 112, 210  # px, of the plot of a chart in a card
_WRAPPED = {"how": 160, "deaths": 135, "error": 125}  # px, of columns with texts that may be long
_COLUMNS = {
    "group": st.column_config.TextColumn("Group", width=150),
    "heartbeat": st.column_config.TextColumn("Heartbeat", width=80),
    "games": st.column_config.TextColumn("Games", width=60),
    "how": st.column_config.TextColumn("Worst", width=_WRAPPED["how"]),
    "load": st.column_config.TextColumn(
        "Load",
        width=155,
        help="Cores that its driver measured of its processes; else an estimate of what its games take.",
    ),
    "share": st.column_config.TextColumn("Full", width=55, help="A dash where it is not limited."),
    "headroom": st.column_config.TextColumn("Headroom", width=95, help="Cores that are left."),
    "rows": st.column_config.AreaChartColumn("Rows per minute", width=88, y_min=0, color="blue"),
    "deaths": st.column_config.TextColumn(
        "Died, last hour", width=_WRAPPED["deaths"], help="Counts only drivers that the controller started."
    ),
    "error": st.column_config.TextColumn("Error", width=_WRAPPED["error"]),
}


def _live(environment: Environment) -> None:
    steering = header.draw(environment, control_queries.steering, "steering")
    if steering is None:
        return
    fleet = steering.fleet
    _draw_controller(steering)
    known = judged.of_fleet(environment, fleet)
    said = headlines.of_groups(known)
    if not fleet.groups:
        header.draw_sentence(of_headline(said, known.now))
        st.info("Make one here, or start one with `turnout groups run NAME`, which registers itself.")
        group_forms.draw_make(environment)
        return
    header.draw_sentence(of_headline(said, known.now, _scope(fleet)))
    _take_link(steering)
    landed = _landed(environment, steering)
    if len(fleet.groups) <= group_cards.MOST_CARDS:
        group_cards.draw(steering, known, landed, _incidents(known), group_cards.Click(_open, _steer))
    _draw_move(environment, steering, landed)
    with st.container(horizontal=True, vertical_alignment="center", key="row_groups"):
        st.html(parts.section("All groups", "state, load and deaths"), width="stretch")
        _draw_steering(environment, steering)
    links.keep(_LINKED)
    _draw_table(steering, known, landed)
    group_forms.draw_make(environment)
    log_panel.draw(environment, fleet, fleet.groups)
    if (opened := st.session_state.pop(_OPEN, None)) is not None:
        links.open_page("fleet", {"group": opened})


def _landed(environment: Environment, steering: ControlState) -> group_cards.GroupCourses:
    """Return what each group carried over the range on screen; without it the page goes on."""
    fleet, objective, now = steering.fleet, environment.settings.metrics.latency_objective_seconds, time.time()
    range_seconds = header.range_seconds()
    hour = reading("series", (environment.store, range_seconds), lambda: series(environment, range_seconds))
    seen = hour.value
    if seen is None:
        return group_cards.GroupCourses(None, {}, {}, formatting.shown(hour.why or "not read", 160))
    marked = reading("group_marks", (environment.store, range_seconds), lambda: _journal(environment, range_seconds))
    runs, operations = marked.value or ((), ())
    mode = tokens.mode_of(st.context.theme.type)
    axis = replace(timeline.frame(seen, now, mode, ()), height=_LOW, width=_NARROW)
    return group_cards.GroupCourses(
        axis,
        group_load.courses(seen, fleet, objective, is_old=hour.failed),
        {name: group_load.marks(fleet, runs, operations, name, axis.since) for name in fleet.groups},
        about=about(hour, now),
        partial={name: partial_text(seen, {name}) for name in fleet.groups},
    )


def _journal(environment: Environment, range_seconds: int) -> tuple[Sequence[Run], Sequence[Operation]]:
    return readers.runs(environment, range_seconds), control_queries.journal(environment).operations


def _incidents(known: Situation) -> Mapping[str, str]:
    """Return what each group's open incident says: what is wrong, and who is at it, or when it is level.

    Where causes are not known there is none; Fleet says why.
    """
    said = {}
    for each in known.opened:
        if each.finding.scope.startswith("group "):
            progress = each.progress(known.now)
            glyph, now = ("▲", each.finding.advice) if progress is None else ("»", progress)
            said[each.finding.scope.removeprefix("group ")] = f"{glyph} {each.finding.title}{f': {now}' if now else ''}"
    return said


def _open(group: str) -> None:
    st.session_state[_OPEN] = group


def _steer(group: str) -> None:
    links.choose("steer", _GROUP, (group,))


def _scope(fleet: Fleet) -> str:
    waiting = sum(row.group is None for row in fleet.rows)
    words = [f"{len(fleet.groups)} groups, {formatting.count(len(fleet.rows))} games"]
    return " · ".join([*words, *([f"{waiting} games wait for a group"] if waiting else [])])


def _take_link(steering: ControlState) -> None:
    """Choose what the link names, and report what is not here."""
    unknown = {
        "steer": links.take("steer", _GROUP, steering.fleet.groups),
        "games": links.take("games", _GAMES, steering.assignments, many=True),
        "to": links.take("to", _TO, steering.fleet.groups),
    }
    links.draw_unknown(unknown, _LINKED)


def _draw_controller(steering: ControlState) -> None:
    """Draw what alarms the controller, or that none runs: then no operation is carried out."""
    for alarm in steering.alarms:
        st.warning(formatting.escaped(alarm), icon=":material/crisis_alert:")
    if steering.no_controller is not None:
        confirm.draw_absence(steering.no_controller, "operations wait, and drivers that die are not restarted")


def _draw_table(steering: ControlState, known: Situation, landed: group_cards.GroupCourses) -> None:
    states = {name: group_state.of(steering, known, name) for name in steering.fleet.groups}
    rows = [_row(steering, known, landed, name, states[name].word) for name in steering.fleet.groups]
    said = ([str(row[column]) for row in rows] for column in _WRAPPED)
    high = height_of_all([(steering.fleet.groups, 150), *zip(said, _WRAPPED.values(), strict=True)])
    st.dataframe(
        pd.DataFrame(rows),
        hide_index=True,
        row_height=high,
        height=table_height(len(rows), high, 620),
        column_config={**_COLUMNS, "driver": pills.column("State", group_state.tones(states.values()), 125)},
        alt="All cluster groups: their states, games, load and deaths.",
        key="groups_table",
    )


def _row(
    steering: ControlState, known: Situation, landed: group_cards.GroupCourses, name: str, state: str
) -> dict[str, str | list[str] | list[int]]:
    fleet = steering.fleet
    driver = fleet.driver(GROUP, name)
    return {
        "group": formatting.shown(name, 40),
        "driver": [state],
        "heartbeat": f"{formatting.age(driver.heartbeat_age(fleet.read_at))} ago"
        if driver is not None
        else formatting.UNKNOWN_VALUE,
        "games": formatting.count(sum(row.group == name for row in fleet.rows)),
        "how": _worst(known, fleet, name),
        **_load(steering, landed.courses.get(name), name),
        "rows": [] if (seen := landed.courses.get(name)) is None else seen.trend,
        "deaths": _deaths(steering, name),
        "error": formatting.shown(error, 120)
        if (error := _error(fleet.state(GROUP, name)))
        else formatting.UNKNOWN_VALUE,
    }


def _error(state: DriverState | None) -> str | None:
    return state.liveness.reason if state is not None and state.is_problem else None


def _load(steering: ControlState, seen: Course | None, name: str) -> dict[str, str]:
    """Say how full a group is, as its card does; what is not limited has no share."""
    load, headroom = group_cards.load_words(steering, seen, name, of_limit=True)
    group = steering.loads.groups.get(name)
    limit = None if group is None else group.capacity_cores
    share = formatting.UNKNOWN_VALUE
    if group is not None and limit is not None and not group_cards.why_load_unknown(steering, seen, name):
        measured = None if seen is None else seen.measured_now
        share = f"{group.share if measured is None else measured / limit:.0%}".replace("%", " %")
    return {"load": load, "share": share, "headroom": headroom}


def _deaths(steering: ControlState, name: str) -> str:
    """Count how often a group's driver died; those of a group that another tool starts are not counted."""
    condition = steering.fleet.judgement.conditions.groups.get(name)
    if condition is None or not condition.deaths:
        return formatting.UNKNOWN_VALUE if condition is None or not condition.is_supervised else "0"
    return f"{len(condition.deaths)}: {formatting.shown(condition.deaths[0].message or 'nobody knows how', 80)}"


def _worst(known: Situation, fleet: Fleet, name: str) -> str:
    """Count a group's games that are not well by status, worst first, by the same judgement as its card.

    One that runs, and is not well, is of an open incident.
    """
    members = [row for row in fleet.rows if row.group == name]
    if not members:
        return formatting.UNKNOWN_VALUE
    found = Counter(row.verdict.status for row in members if known.severity_of(row) is not None)
    styles = {each: formatting.STATUS_STYLES[each] for each in reversed(Status) if found[each]}
    said = [
        f"! {found[each]} in an incident" if each.is_well else f"{style.glyph} {found[each]} {style.word}"
        for each, style in styles.items()
    ]
    return ", ".join(said) or "● all healthy"


def _draw_steering(environment: Environment, steering: ControlState) -> None:
    """Draw the list from which a group is steered, and the drawer of the chosen one."""
    names = steering.fleet.groups
    st.selectbox(
        "Group",
        names,
        key=_GROUP,
        format_func=formatting.shown,
        index=None,
        placeholder="steer a group",
        label_visibility="collapsed",
        width=240,
    )
    chosen = st.session_state.get(_GROUP)
    if chosen not in names:
        return
    linked = links.choice_of_link()
    if linked.get("steer") == chosen and linked.get("do"):
        group_drawer.offer_linked(environment, steering, str(chosen), str(linked["do"]))
    group_drawer.draw(environment, steering, str(chosen), lambda: st.session_state.get(_GROUP) == chosen, _let_go)


def _let_go() -> None:
    st.session_state[_GROUP] = None


def _draw_move(environment: Environment, steering: ControlState, landed: group_cards.GroupCourses) -> None:
    """Draw the plan of a move: games by their names, never by a place in a table."""
    names = {
        key: formatting.game_text(key, assignment.game) for key, assignment in sorted(steering.assignments.items())
    }
    disabled_reason = services.missing_role(environment, OperationKind.MOVE)
    with st.container(border=True, key="card_plan_move", gap="small"):
        with st.container(horizontal=True, vertical_alignment="center", key="row_move"):
            about = "the target's driver goes on from each cursor; no other stream restarts"
            st.html(parts.section("Plan a move", about), width="stretch")
            st.button(
                "Propose…",
                key="preview_even",
                on_click=confirm.stage_preview,
                args=(_PLACE_EVEN, partial(previews.preview_proposed, environment)),
                disabled=disabled_reason is not None,
                help="Games that must leave their group first, then the moves that reduce the highest load most.",
            )
        left, right = st.columns(2, gap="large")
        with left:
            st.multiselect(
                "Games",
                list(names),
                key=_GAMES,
                format_func=lambda key: names.get(key, key),
                placeholder="by name or key",
                select_all=False,
            )
            st.selectbox(
                "To group",
                steering.fleet.groups,
                key=_TO,
                format_func=formatting.shown,
                index=None,
                placeholder="choose",
            )
            st.button(
                "Preview the move",
                key="preview_move",
                type="primary",
                on_click=_offer,
                args=(environment,),
                disabled=disabled_reason is not None,
            )
        with right:
            chosen, target = st.session_state.get(_GAMES) or [], st.session_state.get(_TO) or None
            group_cards.draw_move(steering, landed, chosen, target)
        _draw_disabled_reason(disabled_reason)
        confirm.draw_confirmation(environment, _PLACE)
        confirm.draw_confirmation(environment, _PLACE_EVEN)


def _offer(environment: Environment) -> None:
    games = [str(key) for key in st.session_state.get(_GAMES) or []]
    group = st.session_state.get(_TO)
    confirm.stage_preview(
        _PLACE, partial(previews.preview_move, environment, games, None if group is None else str(group))
    )


def _draw_disabled_reason(disabled_reason: str | None) -> None:
    if disabled_reason is not None:
        st.caption(formatting.escaped(disabled_reason))


header.keep_drawing(_live)
