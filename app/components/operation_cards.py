"""Operations as cards: what, how it stands, by whom and why, and its steps in a line."""

import streamlit as st

from app import formatting
from app.components import confirm
from app.formatting import Tone
from app.look import parts
from app.state import control_queries
from app.state.control_queries import OneOperation, OperationList
from app.state.services import Environment
from pipeline.api.operations import Operation, words
from pipeline.base.errors import Refused

_STEPPERS = {"done": "done", "running": "running", "failed": "failed"}


def draw(environment: Environment, operation: Operation, journal: OperationList, *, with_steps: bool) -> None:
    """Draw an open operation; its steps are read where there are few such cards."""
    kind = "stuck" if operation.is_stuck else "open"
    with st.container(border=True, gap="small", key=f"operation_{kind}_{operation.operation_id}"):
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            what = sentence_case(formatting.operation_title(words(operation), journal.names))
            state, about = formatting.operation_text(operation.state), _about_card(operation, journal.read_at)
            st.html(parts.title(what, state, tone(operation.state), about), width="stretch")
            confirm.operation_link(operation.operation_id, operation.operation_id[:8])
        if with_steps:
            _draw_stepper(environment, operation)
        if operation.outcome:
            st.text(formatting.shown(operation.outcome))


def _about_card(operation: Operation, now: float) -> str:
    since = operation.requested_at if operation.stuck_since is None else operation.stuck_since
    took = formatting.age(now - since)
    how = f"{took} ago" if operation.stuck_since is None else f"for {took}"
    words = [f"by {formatting.shown(operation.actor, 40)}, {how}"]
    words += [f"“{formatting.shown(operation.reason, 200)}”"] if operation.reason else []
    return " · ".join(words)


def _draw_stepper(environment: Environment, operation: Operation) -> None:
    try:
        seen = control_queries.one_operation(environment, operation.operation_id)
    except Refused as refused:
        st.html(parts.note(formatting.shown(str(refused))))
        return
    if seen.steps:
        st.html(stepper(seen))


def stepper(seen: OneOperation) -> str:
    """Return the steps that have begun; the last is marked if the operation needs a person."""
    stuck = seen.operation.is_stuck
    last = len(seen.steps) - 1
    return parts.steps(
        [
            (
                "person" if stuck and place == last else _STEPPERS.get(step.state, "waiting"),
                formatting.shown(step.name, 40).capitalize(),
                formatting.shown(step.detail, 120)
                if step.detail
                else formatting.duration((step.ended_at or seen.read_at) - step.started_at),
            )
            for place, step in enumerate(seen.steps)
        ]
    )


def sentence_case(title: str) -> str:
    """Return a title with a capital letter; names in it stay as they are."""
    return f"{title[:1].upper()}{title[1:]}"


def tone(state: str) -> Tone:
    """Return what an operation's state means; one this version does not know means nothing."""
    return formatting.OPERATION_TONES.get(state, "plain")
