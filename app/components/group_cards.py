"""Cards of the cluster groups, and what a planned move would do to their loads; a page says what a click does."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import streamlit as st

from app import formatting
from app.components import group_load
from app.components.group_load import Course
from app.look import parts, vega
from app.look.tokens import Tone
from app.state.control_queries import ControlState
from listeners.process_kinds import GROUP
from pipeline.health.facts.fleet import Fleet
from pipeline.health.verdicts.placement.capacity import GroupLoad, Loads

MOST_CARDS: Final = 12  # above it the table is easier to compare
_IN_A_ROW: Final = 4


@dataclass(frozen=True, slots=True)
class Click:
    """What the buttons of a card do, given the group's name."""

    open: Callable[[str], None]
    steer: Callable[[str], None]


@dataclass(frozen=True, slots=True)
class GroupCourses:
    """What the groups carried over the range on screen; `why` says why nobody knows."""

    frame: vega.Frame | None
    courses: Mapping[str, Course]
    marks: Mapping[str, Sequence[vega.ChartMark]]
    why: str = ""


def draw(steering: ControlState, landed: GroupCourses, click: Click) -> None:
    """Draw a card per group, four in a row."""
    names = steering.fleet.groups
    beside = min(_IN_A_ROW, len(names))
    for first in range(0, len(names), beside):
        for column, name in zip(st.columns(beside, gap="small"), names[first : first + beside], strict=False):
            with column, st.container(border=True, key=f"card_group_{name}", gap="xsmall"):
                _draw_card(steering, name, click, landed)


def draw_move(loads: Loads, chosen: Sequence[str], target: str | None) -> None:
    """Draw each group's load before and after the chosen games have moved; nothing moves by it."""
    assigned = {} if target is None else dict.fromkeys(chosen, target)
    after = loads.after(assigned)
    planned = any(after[name].games != group.games for name, group in loads.groups.items())
    st.html(parts.section("Load before and after" if planned else "Load", "of the cores each group may use"))
    st.html(load_bars((group, after[name]) for name, group in loads.groups.items()))
    if planned and (group := after.get(str(target))) is not None:
        st.html(parts.note(_fits(loads, assigned, group)))


def load_bars(groups: Iterable[tuple[GroupLoad, GroupLoad]]) -> str:
    """Return a bar per group: its load before and after a plan."""
    return parts.loads([_line(before, after) for before, after in groups], limit=1.0)


def _fits(loads: Loads, assigned: Mapping[str, str], target: GroupLoad) -> str:
    """Say whether the games fit into the group that would have them, and what of it is a guess."""
    moved = [each for each in loads.games if each.game_key in assigned and each.group != target.name]
    guessed = sum(not each.is_known for each in moved)
    words = [f"{'▲ does not fit' if target.is_over(loads.max_games) else '✓ fits'} in {_named(target)}"]
    words += [f"? the load of {guessed} of the games is unknown"] if guessed else []
    words += ["" if target.capacity_cores is not None else "no limit of cores is set"]
    return " · ".join(each for each in words if each)


def _draw_card(steering: ControlState, name: str, click: Click, landed: GroupCourses) -> None:
    fleet = steering.fleet
    state = fleet.state(GROUP, name)
    word = formatting.UNKNOWN_VALUE if state is None else formatting.driver_text(state.liveness.state)
    tone: Tone = "plain" if state is None else formatting.DRIVER_TONES[state.liveness.state]
    driver = fleet.driver(GROUP, name)
    beat = formatting.UNKNOWN_VALUE if driver is None else formatting.age(driver.heartbeat_age(fleet.read_at))
    st.html(parts.title(formatting.shown(f"group {name}", 46), word, tone, right=f"heartbeat {beat}"))
    st.html(parts.numbers(_numbers(fleet, steering.loads, name)))
    if state is not None and state.is_problem and state.liveness.reason:
        st.html(parts.note(formatting.shown(state.liveness.reason, 160)))
    _draw_course(steering.loads, landed, name)
    with st.container(horizontal=True, key=f"row_group_{name}", gap="xsmall"):
        st.button("Open", key=f"open_{name}", on_click=click.open, args=(name,))
        st.button("Steer…", key=f"steer_{name}", type="tertiary", on_click=click.steer, args=(name,))


def _draw_course(loads: Loads, landed: GroupCourses, name: str) -> None:
    """Draw a group's load over time against its limit, or its rows against the most it kept up with."""
    group, seen = loads.groups.get(name), landed.courses.get(name)
    if group is not None:
        unknown = sum(not each.is_known for each in loads.games if each.group == name)
        st.html(parts.note(group_load.headroom(group, seen, unknown)))
    if landed.frame is None or seen is None or not seen.is_known:
        st.html(parts.note(landed.why or "No driver reported a row in this time."))
        return
    axis = replace(landed.frame, events=landed.marks.get(name, ()))
    if group is not None and group.capacity_cores is not None:
        st.html(parts.section("Load", f"estimated, of {group.capacity_cores:g} cores"))
        chart, what = vega.load(axis, seen.shares(group.capacity_cores), 1.0), "Estimated load"
    else:
        st.html(parts.section("Rows", "landed per minute"))
        peak = None if seen.kept_up is None else (seen.kept_up.per_minute, "kept up with")
        chart, what = vega.bars(axis, [("landed", "series-2", seen.per_minute)], "/min", peak), "Rows landed per minute"
    alt = f"{what} of group {formatting.shown(name, 40)}."
    st.vega_lite_chart(chart.whole(alt), theme=None, key=f"landed_{name}", alt=alt)


def _numbers(fleet: Fleet, loads: Loads, name: str) -> list[tuple[str, str]]:
    rows = [row for row in fleet.rows if row.group == name]
    group = loads.groups.get(name)
    load = headroom = formatting.UNKNOWN_VALUE
    if group is not None:
        about = "" if all(each.is_known for each in loads.games if each.group == name) else "~"
        load = f"{about}{group.cores:.2g} cores"
        headroom = "no limit" if group.headroom is None else f"{about}{group.headroom:.2g} cores"
    return [
        ("Games", f"{formatting.count(len(rows))} of {formatting.count(loads.max_games)}"),
        ("Well", formatting.count(sum(not row.in_trouble for row in rows))),
        ("Load", load),
        ("Headroom", headroom),
    ]


def _line(before: GroupLoad, after: GroupLoad) -> parts.Fullness:
    """Return a bar; a group without a limit compares as one of `COMPARED_CORES`, and has no tick."""
    if before.capacity_cores is None:
        said = f"{before.cores:.2g} → {after.cores:.2g}" if after.games != before.games else f"{before.cores:.2g}"
        return parts.Fullness(_named(before), before.share, after.share, f"{said} cores, no limit", limited=False)
    share = f"{before.share:.0%}"
    said = share if after.games == before.games else f"{share} → {after.share:.0%}"
    return parts.Fullness(_named(before), before.share, after.share, said.replace("%", " %"))


def _named(group: GroupLoad) -> str:
    return formatting.shown(f"group {group.name}", 46)
