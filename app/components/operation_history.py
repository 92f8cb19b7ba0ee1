"""What became of each target of an operation, and the history of events: of one of them, or of a game.

A history is what Temporal calls an event history: each event with its number, its time and how long after the first.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import streamlit as st

from app import formatting
from app.components import links, long_table
from app.look import parts
from app.state.control_queries import OneOperation
from pipeline.api.histories import GameHistory, HistoryEvent, TargetEvent, events_of
from pipeline.api.operations import words
from pipeline.base.texts import in_utc
from pipeline.control.operations.registry import find

_ALL: Final = "all"
_SHOWN: Final = "history_of"  # the key of the choice, and of its parameter `of`
_COLUMNS = {
    "number": st.column_config.NumberColumn("#", width=50),
    "at": st.column_config.TextColumn("At, UTC", width=140),
    "after": st.column_config.TextColumn("After", width=75),
    "what": st.column_config.TextColumn("Event", width=170),
    "target": st.column_config.TextColumn("Of", width=190),
    "detail": st.column_config.TextColumn("Detail", width=580),
}
_LONG: Final = {"target": 190, "detail": 580}  # columns that may need several lines


def draw_targets(seen: OneOperation) -> None:
    """Draw a row per target of a bulk operation: how far each came, and when."""
    operation, names = seen.operation, seen.names
    if len(operation.targets) < 2:
        return
    by_target: dict[str, dict[str, TargetEvent]] = {target: {} for target in operation.targets}
    for event in seen.events:
        by_target.setdefault(event.target, {})[event.name] = event
    columns = _step_names(seen)
    st.html(parts.section("Each of them", _counted(by_target, columns)))
    rows = [_target_row(target, events, columns, seen) for target, events in by_target.items()]
    long_table.draw(
        rows,
        {"target": 220, "fact": 400},
        440,
        column_config={
            "target": st.column_config.TextColumn("Of", width=220),
            "now": st.column_config.TextColumn("Now", width=120),
            **{name: st.column_config.TextColumn(name.capitalize(), width=75) for name in columns},
            "between": st.column_config.TextColumn("Between drivers", width=115),
            "fact": st.column_config.TextColumn("Last seen", width=400),
        },
        column_order=[
            "target",
            "now",
            *columns,
            *(["between"] if {"release", "acquire"} <= {*columns} else []),
            "fact",
        ],
        alt="Each target of the operation: how far it came, and how long after the request.",
        key="targets_table",
    )
    games = {key: formatting.game_text(key, names[key]) for key in _game_keys(operation.targets) if key in names}
    if games:
        links.offer_games("operation_targets", games)


def draw_history(seen: OneOperation) -> None:
    """Draw the events of an operation, of all its targets or of a chosen target; the URL has `of`."""
    targets = seen.operation.targets
    unknown = links.take("of", _SHOWN, targets)
    st.html(parts.section("History", "each event with its time, and how long after the request"))
    if len(targets) > 1:
        st.selectbox(
            "Of",
            targets,
            index=None,
            key=_SHOWN,
            format_func=lambda target: formatting.target_text(target, seen.names),
            placeholder="all targets, or choose one",
            width=360,
            label_visibility="collapsed",
        )
        links.keep({"of": _SHOWN})
    if unknown:
        st.html(parts.note(f"The link names a target that is not here: {formatting.shown(unknown[0], 60)}"))
    chosen = st.session_state.get(_SHOWN)
    _draw_events(events_of(seen.operation, seen.steps, seen.events, chosen), seen.names, "history_table")


def draw_game(history: GameHistory) -> None:
    """Draw what operations did to one game, the newest operation first."""
    for operation, events in history.operations:
        title = formatting.operation_title(words(operation), history.names)
        state = formatting.operation_text(operation.state)
        st.html(parts.title(f"{title[:1].upper()}{title[1:]}", state, formatting.OPERATION_TONES[operation.state]))
        label = f"Operation {links.short(operation.operation_id)}"
        st.page_link("views/operations.py", label=label, query_params={"operation": operation.operation_id})
        _draw_events(events, history.names, f"history_{operation.operation_id}")


def _draw_events(events: Sequence[HistoryEvent], names: Mapping[str, str], key: str) -> None:
    first = events[0].at
    rows = [
        {
            "number": number,
            "at": in_utc(each.at),
            "after": _elapsed(max(0.0, each.at - first)),
            "what": formatting.shown(each.name, 60),
            "target": formatting.UNKNOWN_VALUE if each.target is None else formatting.target_text(each.target, names),
            "detail": formatting.shown(each.detail) if each.detail else formatting.UNKNOWN_VALUE,
        }
        for number, each in enumerate(events, 1)
    ]
    long_table.draw(rows, _LONG, 440, column_config=_COLUMNS, alt="Events in their order.", key=key)


def _step_names(seen: OneOperation) -> list[str]:
    """Return the steps that targets are through with one by one, in their order."""
    noted = {each.name for each in seen.events}
    known = find(seen.operation.kind)
    ordered = [] if known is None else [step.name for step in known.steps if step.name in noted]
    return [*ordered, *sorted(noted - {*ordered})]


def _counted(by_target: Mapping[str, Mapping[str, TargetEvent]], columns: Sequence[str]) -> str:
    """Return how many targets are through with the last step that any of them is through with."""
    many = f"{formatting.count(len(by_target))} targets"
    if not columns:
        return f"{many}; nothing was noted of single ones"
    through = sum(columns[-1] in events for events in by_target.values())
    return f"{many}, {formatting.count(through)} through with {columns[-1]}"


def _target_row(
    target: str, events: Mapping[str, TargetEvent], columns: Sequence[str], seen: OneOperation
) -> dict[str, str]:
    last = next((events[name] for name in reversed(columns) if name in events), None)
    let_go, taken = _after("release", events, seen), _after("acquire", events, seen)
    between = None if let_go is None or taken is None else max(0.0, taken - let_go)
    return {
        "target": formatting.target_text(target, seen.names),
        "now": _now(last, events, seen),
        **{name: _elapsed(_after(name, events, seen)) for name in columns},
        "between": formatting.duration(between),
        "fact": formatting.UNKNOWN_VALUE if last is None else formatting.shown(last.detail, 160),
    }


def _now(last: TargetEvent | None, events: Mapping[str, TargetEvent], seen: OneOperation) -> str:
    """Return the step that an open operation waits for with this target; else how far the target came."""
    running = next((each.name for each in reversed(seen.steps) if each.state == "running"), None)
    if seen.operation.is_open and running is not None and running not in events:
        return f"… {formatting.shown(running, 40)}"
    return formatting.UNKNOWN_VALUE if last is None else f"✓ {formatting.shown(last.name, 40)}"


def _after(name: str, events: Mapping[str, TargetEvent], seen: OneOperation) -> float | None:
    """Return how many seconds after the request a target was through with a step; None: it is not."""
    at = events[name].at if name in events else None
    return None if at is None else max(0.0, at - seen.operation.requested_at)


def _elapsed(seconds: float | None) -> str:
    return formatting.UNKNOWN_VALUE if seconds is None else f"+{formatting.duration(seconds)}"


def _game_keys(targets: Sequence[str]) -> list[str]:
    return [key for kind, _, key in (target.partition(":") for target in targets) if kind == "game"]
