"""Cards of the cluster groups, and what a planned move would do to their loads; a page says what a click does."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import streamlit as st

from app import formatting
from app.look import parts, vega
from app.look.tokens import Tone
from app.state.control_queries import ControlState
from pipeline.placement.capacity import GroupLoad, Loads
from pipeline.store.fleet import Fleet

MOST_CARDS: Final = 12  # above it the table is easier to compare
_IN_A_ROW: Final = 4


@dataclass(frozen=True, slots=True)
class Click:
    """What the buttons of a card do, given the group's name."""

    open: Callable[[str], None]
    steer: Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Landed:
    """Rows that landed each second, by group, over the range on screen; `why` says why nobody knows."""

    frame: vega.Frame | None
    by_group: Mapping[str, vega.Values]
    why: str = ""


def draw(steering: ControlState, landed: Landed, click: Click) -> None:
    """Draw a card per group, four in a row."""
    names = steering.fleet.groups
    beside = min(_IN_A_ROW, len(names))
    for first in range(0, len(names), beside):
        for column, name in zip(st.columns(beside, gap="small"), names[first : first + beside], strict=False):
            with column, st.container(border=True, key=f"card_group_{name}", gap="xsmall"):
                _draw_card(steering, name, click, landed)


def draw_move(loads: Loads, chosen: Sequence[str], target: str | None) -> None:
    """Draw each group's load before and after the chosen games have moved; nothing moves by it."""
    moved = {each.game_key: each for each in loads.games if each.game_key in set(chosen) and each.group != target}
    after = {
        name: group.share_with(
            sum(each.cores for each in moved.values()) * (name == target)
            - sum(each.cores for each in moved.values() if each.group == name)
        )
        for name, group in loads.groups.items()
    }
    planned = target is not None and bool(moved)
    lines = [_line(group, after[name] if planned else group.share) for name, group in loads.groups.items()]
    st.html(parts.section("Load before and after" if planned else "Load", "of the cores each group may use"))
    st.html(parts.loads(lines, limit=1.0))
    if planned and (group := loads.groups.get(str(target))) is not None:
        cores = sum(each.cores for each in moved.values())
        fits = group.has_room(cores, loads.max_games, len(moved))
        guessed = sum(not each.is_known for each in moved.values())
        words = [f"{'✓ fits' if fits else '▲ does not fit'} in group {formatting.shown(group.name, 40)}"]
        words += [f"? the load of {guessed} of the games is unknown"] if guessed else []
        st.html(parts.note(" · ".join(words)))


def _draw_card(steering: ControlState, name: str, click: Click, landed: Landed) -> None:
    fleet = steering.fleet
    state = fleet.state("group", name)
    word = formatting.UNKNOWN_VALUE if state is None else formatting.driver_text(state.liveness.state)
    tone: Tone = "plain" if state is None else formatting.DRIVER_TONES[state.liveness.state]
    driver = fleet.driver("group", name)
    beat = formatting.UNKNOWN_VALUE if driver is None else formatting.age(driver.heartbeat_age(fleet.read_at))
    st.html(parts.title(formatting.shown(f"group {name}", 46), word, tone, right=f"heartbeat {beat}"))
    st.html(parts.numbers(_numbers(fleet, steering.loads, name)))
    group = steering.loads.groups.get(name)
    if group is not None and group.capacity_cores is not None:
        st.html(parts.loads([_line(group, group.share, name="load")], limit=1.0))
    if state is not None and state.is_problem and state.liveness.reason:
        st.html(parts.note(formatting.shown(state.liveness.reason, 160)))
    _draw_landed(landed, name)
    with st.container(horizontal=True, key=f"row_group_{name}", gap="xsmall"):
        st.button("Open", key=f"open_{name}", on_click=click.open, args=(name,))
        st.button("Steer…", key=f"steer_{name}", type="tertiary", on_click=click.steer, args=(name,))


def _draw_landed(landed: Landed, name: str) -> None:
    values = landed.by_group.get(name, ())
    if landed.frame is None or not any(values):
        st.html(parts.note(landed.why or "No row landed in this time."))
        return
    st.html(parts.section("Rows", "landed per second"))
    chart = vega.bars(landed.frame, [("landed", "series-2", values)])
    alt = f"Rows that landed each second in group {formatting.shown(name, 40)}."
    st.vega_lite_chart(chart.whole(alt), theme=None, key=f"landed_{name}", alt=alt)


def _numbers(fleet: Fleet, loads: Loads, name: str) -> list[tuple[str, str]]:
    rows = [row for row in fleet.rows if row.group == name]
    group = loads.groups.get(name)
    load = headroom = formatting.UNKNOWN_VALUE
    if group is not None:
        about = "" if all(each.is_known for each in loads.games if each.group == name) else "~"
        load = f"{about}{group.cores:.1f} cores"
        headroom = "no limit" if group.headroom is None else f"{about}{group.headroom:.1f} cores"
    return [
        ("Games", formatting.count(len(rows))),
        ("Well", formatting.count(sum(not row.in_trouble for row in rows))),
        ("Load", load),
        ("Headroom", headroom),
    ]


def _line(group: GroupLoad, after: float, name: str | None = None) -> parts.Load:
    """Return a bar; a group without a limit compares as one of `COMPARED_CORES`, and has no tick."""
    said = formatting.shown(f"group {group.name}", 46) if name is None else name
    if group.capacity_cores is None:
        return parts.Load(said, group.share, after, f"{group.cores:.2f} cores, no limit", limited=False)
    before = f"{group.share:.0%}".replace("%", " %")
    changed = abs(after - group.share) >= 0.005
    return parts.Load(said, group.share, after, f"{before} → {after:.0%}".replace("%", " %") if changed else before)
