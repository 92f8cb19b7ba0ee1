"""Cards of the cluster groups, and what a planned move would do to their loads; a page says what a click does."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import streamlit as st

from app import formatting
from app.components import group_load, group_state
from app.components.group_load import Course
from app.look import parts, vega
from app.state.control_queries import ControlState
from app.state.situations import counted
from listeners.process_kinds import GROUP
from pipeline.health.headlines.standings import Situation
from pipeline.health.verdicts.placement.capacity import COMPARED_CORES, DRIVER_CORES, GroupLoad, Loads

ESTIMATED: Final = f"of games, estimated from rows and commits; a driver itself takes about {DRIVER_CORES:g} cores more"
"""The head of bars that compare loads as the placement does."""

MOST_CARDS: Final = 12  # above it the table is easier to compare
_COMPARED: Final = f"of its limit; of {COMPARED_CORES:g} cores if it has none"
_IN_A_ROW: Final = 4


@dataclass(frozen=True, slots=True)
class Click:
    """What the buttons of a card do, given the group's name."""

    open: Callable[[str], None]
    steer: Callable[[str], None]


@dataclass(frozen=True, slots=True)
class GroupCourses:
    """What the groups carried over the range on screen; `why` says why nobody knows, `about` why it is old."""

    frame: vega.Frame | None
    courses: Mapping[str, Course]
    marks: Mapping[str, Sequence[vega.ChartMark]]
    why: str = ""
    about: str = ""
    partial: Mapping[str, str] = field(default_factory=dict)  # by group: in which slots its rows are at least these


def draw(
    steering: ControlState, known: Situation, landed: GroupCourses, incidents: Mapping[str, str], click: Click
) -> None:
    """Draw a card per group, four in a row; `incidents` has by group what its open incident says now."""
    names = steering.fleet.groups
    beside = min(_IN_A_ROW, len(names))
    for first in range(0, len(names), beside):
        for column, name in zip(st.columns(beside, gap="small"), names[first : first + beside], strict=False):
            with column, st.container(border=True, key=f"card_group_{name}", gap="xsmall"):
                _draw_card(steering, known, name, click, landed, incidents.get(name))


def draw_move(steering: ControlState, landed: GroupCourses, chosen: Sequence[str], target: str | None) -> None:
    """Draw each group's load before and after the chosen games have moved; nothing moves by it."""
    loads = steering.loads
    unknown = {
        name
        for name, group in loads.groups.items()
        if group.games and why_load_unknown(steering, landed.courses.get(name), name)
    }
    assigned = {} if target is None else dict.fromkeys(chosen, target)
    after = loads.after(assigned)
    planned = any(after[name].games != group.games for name, group in loads.groups.items())
    st.html(parts.section("Load before and after" if planned else "Load", ESTIMATED))
    st.html(load_bars(((group, after[name]) for name, group in loads.groups.items()), unknown))
    if planned and (group := after.get(str(target))) is not None:
        st.html(parts.note(_fits(loads, assigned, group, is_unknown=group.name in unknown)))


def load_bars(groups: Iterable[tuple[GroupLoad, GroupLoad]], unknown: Collection[str] = ()) -> str:
    """Return a bar per group: its load before and after a plan; of `unknown` groups the load is not known.

    Nor is that of games whose driver is gone: what their streams read then is no estimate of now.
    """
    lines = [_line(each, after, is_unknown=each.name in unknown or _is_gone(each)) for each, after in groups]
    scale = "of its limit" if all(each.limited for each in lines) else _COMPARED
    return parts.loads(lines, limit=1.0, scale=scale)


def _fits(loads: Loads, assigned: Mapping[str, str], target: GroupLoad, *, is_unknown: bool) -> str:
    """Say whether the games fit into the group that would have them, and what of it is a guess."""
    moved = [each for each in loads.games if each.game_key in assigned and each.group != target.name]
    guessed = sum(not each.is_known for each in moved)
    fits = "▲ does not fit" if target.is_over(loads.max_games) else "✓ fits"
    words = [f"? nobody knows the load of {_named(target)}" if is_unknown else f"{fits} in {_named(target)}"]
    words += [f"? the load of {guessed} of the games is unknown"] if guessed else []
    words += ["" if target.capacity_cores is not None else "no limit of cores is set"]
    return " · ".join(each for each in words if each)


def _draw_card(
    steering: ControlState, known: Situation, name: str, click: Click, landed: GroupCourses, incident: str | None
) -> None:
    fleet, state = steering.fleet, group_state.of(steering, known, name)
    about = next((each for each in known.of_group(name) if each.is_trouble), None)
    driver = fleet.driver(GROUP, name)
    beat = formatting.UNKNOWN_VALUE if driver is None else formatting.age(driver.heartbeat_age(fleet.read_at))
    st.html(parts.title(formatting.shown(f"group {name}", 46), state.word, state.tone, right=f"heartbeat {beat}"))
    st.html(parts.numbers(_numbers(known, steering, landed.courses.get(name), name)))
    if state.about:
        st.html(parts.note(state.about))
    if incident is not None:
        st.html(parts.note(formatting.shown(incident, 240)))
    elif about is not None and not state.about:
        st.html(parts.note(about.text))
    _draw_course(steering, landed, name)
    with st.container(horizontal=True, key=f"row_group_{name}", gap="xsmall"):
        st.button("Open", key=f"open_{name}", on_click=click.open, args=(name,))
        st.button("Steer…", key=f"steer_{name}", type="tertiary", on_click=click.steer, args=(name,))


def _draw_course(steering: ControlState, landed: GroupCourses, name: str) -> None:
    """Draw a group's load over time against its limit, or its rows against the most it kept up with."""
    loads = steering.loads
    group, seen = loads.groups.get(name), landed.courses.get(name)
    if why := why_load_unknown(steering, seen, name):
        st.html(parts.note(f"{why}, so its load is not known."))
    elif group is not None:
        unknown = sum(not each.is_known for each in loads.games if each.group == name)
        st.html(parts.note(group_load.headroom(group, seen, unknown)))
    if landed.frame is None or seen is None or not seen.is_known:
        st.html(parts.note(landed.why or "No driver reported a row in this time."))
        return
    axis = replace(landed.frame, events=landed.marks.get(name, ()))
    if group is not None and group.capacity_cores is not None:
        how = "measured" if seen.is_measured else "estimated"
        st.html(parts.section("Load", f"{how}, of {group.capacity_cores:g} cores{landed.about}"))
        chart, what = vega.load(axis, seen.shares(group.capacity_cores), 1.0), f"Load, {how},"
    else:
        st.html(parts.section("Rows", f"landed per minute{landed.partial.get(name, '')}{landed.about}"))
        peak = None if seen.kept_up is None else (seen.kept_up.per_minute, "kept up with")
        chart, what = vega.bars(axis, [("landed", "series-2", seen.per_minute)], "/min", peak), "Rows landed per minute"
    alt = f"{what} of group {formatting.shown(name, 40)}."
    st.vega_lite_chart(chart.whole(), theme=None, key=f"landed_{name}", alt=alt)


def _numbers(known: Situation, steering: ControlState, seen: Course | None, name: str) -> list[tuple[str, str]]:
    rows = [row for row in steering.fleet.rows if row.group == name]
    load, headroom = load_words(steering, seen, name)
    return [
        ("Games", f"{formatting.count(len(rows))} of {formatting.count(steering.loads.max_games)}"),
        ("Well", formatting.count(counted(rows, known).well)),
        ("Load", load),
        ("Headroom", headroom),
    ]


def why_load_unknown(steering: ControlState, seen: Course | None, name: str) -> str:
    """Return why nobody knows the load of a group, as a clause; empty where it is known or estimated."""
    group, measured = steering.loads.groups.get(name), None if seen is None else seen.measured_now
    why = group_load.why_unmeasured if group is not None and not group.games else group_load.why_unknown
    return why(steering.fleet, name, measured)


def load_words(steering: ControlState, seen: Course | None, name: str, *, of_limit: bool = False) -> tuple[str, str]:
    """Return a group's load and headroom: as its driver measured it, else as estimated, which is named.

    Neither is known where it has games and its driver is gone, nor where its driver starts or has measured nothing.
    """
    if why_load_unknown(steering, seen, name):
        return formatting.UNKNOWN_VALUE, formatting.UNKNOWN_VALUE
    group = steering.loads.groups.get(name)
    measured = None if seen is None else seen.measured_now
    if group_load.why_unknown(steering.fleet, name, measured):
        measured = None
    if group is None:
        return formatting.cores(measured), formatting.UNKNOWN_VALUE
    used, limit = group.cores if measured is None else measured, group.capacity_cores
    is_guess = measured is None and group.games > 0
    about, end = ("about ", ", estimated") if is_guess else ("", "")
    unit = f" of {limit:g} cores" if of_limit and limit is not None else " cores"
    left = "no limit" if limit is None else f"{about}{formatting.cores(limit - used)}"
    return f"{about}{formatting.cores(used, unit)}{end}", left


def _line(before: GroupLoad, after: GroupLoad, *, is_unknown: bool) -> parts.Fullness:
    """Return a bar; a group without a limit compares as one of `COMPARED_CORES`, and has no tick."""
    changes, limit = before.games != after.games, before.capacity_cores
    if is_unknown:
        return parts.Fullness(_named(before), None, None, "not known", limited=limit is not None)
    was = formatting.cores(before.cores, "" if changes or limit is not None else " cores")
    said = f"{was} → {formatting.cores(after.cores, '')}" if changes else was
    if limit is None:
        said = f"{said} cores, no limit" if changes else f"{said}, no limit"
        return parts.Fullness(_named(before), before.share, after.share, said, limited=False)
    return parts.Fullness(_named(before), before.share, after.share, f"{said} of {limit:g} cores")


def _is_gone(group: GroupLoad) -> bool:
    return group.games > 0 and group.alive is False


def _named(group: GroupLoad) -> str:
    return formatting.shown(f"group {group.name}", 46)
