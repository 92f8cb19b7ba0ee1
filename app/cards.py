"""Action cards: what can be done with a game now, and where it cannot, why not and what instead."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import streamlit as st

from app import words
from app.looks import Steering
from pipeline.store.decisions import Decision
from pipeline.store.fleet import GameRow


class Action(Protocol):
    """What is known of one action on one game, whoever has found it out."""

    @property
    def name(self) -> str:
        """What it is called."""

    @property
    def possible(self) -> bool:
        """Whether it can be asked for now."""

    @property
    def why_not(self) -> str | None:
        """One sentence; None where it is possible."""

    @property
    def alternative(self) -> str | None:
        """What to do instead, or to know before."""

    @property
    def touches(self) -> str:
        """What it is about."""

    @property
    def seconds(self) -> float | None:
        """How long it takes by experience; None is unknown."""


@dataclass(frozen=True, slots=True)
class Card:
    """An action that this page knows."""

    name: str  # pause | resume | retry | move
    possible: bool
    why_not: str | None
    alternative: str | None
    touches: str
    seconds: float | None


def cards(row: GameRow, steering: Steering) -> tuple[Card, ...]:
    """Return what can be done with a game, that which disturbs least first."""
    made = steering.decisions.get(row.game_key, Decision())
    other = steering.busy.get(f"game:{row.game_key}")
    driver = steering.fleet.driver("group", row.group or "")
    silence = driver.silence(steering.read_at) if driver is not None else "its driver was never started"
    later = f"Now {silence}: it is decided at once, and done when the driver runs." if silence else None
    targets = [name for name in steering.fleet.groups if name != row.group]
    why = {
        "pause": "It is paused already." if made.desired == "paused" else None,
        "resume": "It is not paused." if made.desired != "paused" else None,
        "retry": None
        if made.parked_at is not None or made.failures
        else "It is not parked and does not wait after a failure.",
        "move": None if targets else "There is no other group.",
    }
    instead = {
        "pause": "Resume it.",
        "resume": "Pause it, if nothing more shall land.",
        "retry": "Nothing of it waits. See its last error, and what changed.",
        "move": "Start another: `turnout groups run NAME`.",
    }
    if other is not None:
        why = dict.fromkeys(
            why, f"Operation {other.operation_id[:8]}, a {words.shown(other.kind, 20)}, is about it now."
        )
        instead = dict.fromkeys(why, "Wait for it, or open it under Operations.")
    return tuple(
        Card(
            name=name,
            possible=why[name] is None,
            why_not=why[name],
            alternative=instead[name] if why[name] is not None else later,
            touches="this game only",
            seconds=seconds,
        )
        for name, seconds in _SECONDS.items()
    )


_SECONDS = {"pause": 10.0, "resume": 10.0, "retry": 10.0, "move": 60.0}  # a pass, its word, and for a move a catch-up


def action_card(
    action: Action,
    *,
    key: str,
    on_click: Callable[..., None],
    args: tuple[Any, ...] = (),
    before: Callable[[], object] | None = None,
) -> None:
    """Draw one action: what it touches and takes, its button, and where it cannot be, why not and what instead.

    All its texts may hold foreign words. `before` draws what must be chosen first; the button only calls `on_click`.
    """
    title = words.shown(action.name, 30).capitalize()
    state = "can" if action.possible else "cannot"
    with st.container(border=True, key=f"card_{state}_{key}", gap="xsmall", height="stretch"):
        st.markdown(f"**{words.escaped(title)}**")
        st.text(f"Touches {words.shown(action.touches)}, takes about {words.age(action.seconds)}.")
        if not action.possible:
            st.text(f"✕ {words.shown(action.why_not or 'Nobody can say why not.')}")
        if action.alternative:
            st.text(f"{'△' if action.possible else '→'} {words.shown(action.alternative)}")
        if before is not None and action.possible:
            before()
        label = f"{words.escaped(title)}…"
        st.button(label, key=f"act_{key}", disabled=not action.possible, on_click=on_click, args=args)
