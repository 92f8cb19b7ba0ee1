"""What became of an act, in its drawer: the operation's steps with their times, then the way back or what comes next.

It is drawn again each second, whatever the page below does: a drawer never shows an older state than the operation's.
"""

from collections.abc import Callable, Mapping
from typing import Final

import streamlit as st

from app import formatting
from app.look import parts
from app.look.parts import Fullness
from app.state import control_queries, services
from app.state.control_queries import OneOperation
from app.state.services import Environment
from pipeline.api.acts import Follows
from pipeline.api.operations import Operation, Step
from pipeline.base.errors import Refused
from pipeline.base.names import GAME_KEY
from pipeline.control.operations import registry

POLL_SECONDS: Final = 1.0

_STATES: Final = {"done": "done", "running": "running", "failed": "failed"}
_BY_THE_SECOND: Final = 300.0
_ALMOST: Final = 0.95  # the most that a bar shows of what is not done


def journal(seen: OneOperation) -> list[tuple[str, str, str, str]]:
    """Return the steps for `parts.journal`: those that have begun with their times, then those that are to come."""
    operation, begun = seen.operation, [step for step in seen.steps if not _is_first_try(step)]
    known, names = registry.find(operation.kind), {step.name for step in begun}
    to_come = [step.name for step in known.steps if step.name not in names] if known and operation.is_open else []
    return [
        *(_begun(seen, step, is_last=step is begun[-1]) for step in begun),
        *(("waiting", formatting.shown(name, 40).capitalize(), "", "") for name in to_come),
    ]


def bar(seen: OneOperation) -> Fullness | None:
    """Return how far an operation is by the time that the last one of its kind took; None where nobody knows."""
    if is_over(seen.operation) or not seen.usual_seconds:
        return None
    so_far = max(0.0, seen.read_at - seen.operation.requested_at)
    words = f"{_length(so_far)}, the last one took {_length(seen.usual_seconds)}"
    return Fullness("so far", 0.0, min(_ALMOST, so_far / seen.usual_seconds), words, limited=False)


def is_over(operation: Operation) -> bool:
    """Return whether nothing more comes of it by itself."""
    return not operation.is_open or operation.is_stuck


def draw(seen: OneOperation) -> None:
    """Draw how an operation stands, and its steps."""
    operation = seen.operation
    took = _length((operation.ended_at or seen.read_at) - operation.requested_at)
    st.text(f"{formatting.operation_text(operation.state)}{_outcome(seen)}")
    if (share := bar(seen)) is not None:
        st.html(parts.loads([share], None, "of the time of the last one"))
    if steps := journal(seen):
        st.html(parts.section("Steps", f"{took} in all, times in UTC"))
        st.html(parts.journal(steps))


def draw_next(environment: Environment, follows: Follows, offer: Callable[[], None]) -> None:
    """Draw the act that is of use now, with the number of rows; nothing where it would take none."""
    try:
        waiting = control_queries.waiting_rows(environment, follows)
    except Refused as refused:
        st.caption(formatting.escaped(formatting.shown(f"Rows in quarantine are not counted: {refused}", 300)))
        return
    if not waiting.rows:
        st.caption("No row waits in quarantine.")
        return
    why = services.missing_role(environment, follows.kind) or waiting.why_not_yet
    rows = f"{formatting.count(waiting.rows)} row{'' if waiting.rows == 1 else 's'}"
    label = f"{follows.kind.capitalize()} {rows}…"
    st.button(label, key="drawer_next", type="primary", disabled=why is not None, on_click=offer)
    if why is not None:
        st.caption(formatting.escaped(why))


def draw_undo(environment: Environment, seen: OneOperation, offer: Callable[[], None]) -> None:
    """Draw the way back, where there is one and the acting person may ask for it."""
    needs = services.missing_role(environment, registry.inverse_of(seen.operation.kind))
    if seen.why_no_undo is None and needs is None:
        st.button("Undo…", key="drawer_undo", on_click=offer)


def _is_first_try(step: Step) -> bool:
    """Return whether a line says only that work began, as it does once; a second try is news."""
    return step.name == "try 1" and step.state != "failed"


def _begun(seen: OneOperation, step: Step, *, is_last: bool) -> tuple[str, str, str, str]:
    state = "person" if is_last and seen.operation.is_stuck else _STATES.get(step.state, "waiting")
    times = f"{formatting.clock(step.started_at)} · {_length((step.ended_at or seen.read_at) - step.started_at)}"
    detail = formatting.shown(_named(step.detail, seen.names), 300) if step.detail else ""
    return state, formatting.shown(step.name, 40).capitalize(), times, detail


def _named(text: str, names: Mapping[str, str]) -> str:
    """Return a text of a step with the games' names for their keys."""
    return GAME_KEY.sub(lambda key: formatting.shown(names.get(key.group(), key.group()), 40), text)


def _length(seconds: float) -> str:
    """Return a time in which one waits: by the second for some minutes, so that it is seen to go on."""
    return f"{seconds:.0f} s" if seconds < _BY_THE_SECOND else formatting.duration(seconds)


def _outcome(seen: OneOperation) -> str:
    outcome = seen.operation.outcome
    return f": {formatting.shown(_named(outcome, seen.names))}" if outcome else ""
