"""What can be done with a game or a group now, by how much it touches; what cannot be, with why not and what instead.

`of_game` and `of_group` are pure; `draw` draws. All texts of a card may hold foreign words.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import streamlit as st

from app import formatting
from app.state.control_queries import ControlState
from pipeline.control.capabilities import Capability, Facts, capabilities
from pipeline.control.disruption import Level
from pipeline.control.operations import drains, groups
from pipeline.errors import Refused
from pipeline.store.fleet import GameRow

Barred = Callable[[str], str | None]
"""Says which role who acts would need for a kind of operation; None where they may."""


@dataclass(frozen=True, slots=True)
class Card:
    """One thing that may be done."""

    name: str  # of an operation, such as pause, move or rebuild
    radius: Level  # 1: a game, gently; 2: a game; 3: a group
    why_not: str | None  # one sentence; None: it is possible
    instead: str | None  # what to do where it is not possible
    about_it: str | None = field(default=None, kw_only=True)  # what that would touch
    touches: str  # one sentence
    seconds: float | None = None  # its last one took so long; None: unknown
    before: str | None = None  # what to know before, where it is possible
    barred: str | None = None  # the role that who acts would need

    @property
    def possible(self) -> bool:
        """Whether it can be submitted now, by a person who may."""
        return self.why_not is None


_KINDS: Final[Mapping[str, str]] = {"drain": "move"}  # what an operation is called where not as its card
_INSTEAD_OF_BUSY: Final = "Wait for it, or open it under Operations."


def of_game(row: GameRow, steering: ControlState, facts: Facts, barred: Barred) -> tuple[Card, ...]:
    """Return what can be done with a game, that which disturbs least first."""
    can = {each.name: _of_capability(each) for each in capabilities(facts)}
    took = facts.took_seconds
    why, instead = _obstacles(row, steering, facts)
    silence = facts.silence if facts.group is not None else None
    later = f"Now {silence}: it is decided at once, and done when the driver runs." if silence else None
    own = {
        name: Card(name, radius, why.get(name), instead.get(name), touches, took.get(name), later if waits else None)
        for name, (radius, touches, waits) in _OWN.items()
    }
    cards = (
        *(own["pause"], own["resume"], can["retry"], can["replay"], own["restore"]),
        *(own["move"], can["dedupe"], can["rebuild"], own["retire"], can["restart"]),
    )
    return tuple(_for_actor(each, barred) for each in cards)


_OWN: Final[Mapping[str, tuple[Level, str, bool]]] = {
    "pause": (1, "Nothing more lands in its table until it is resumed.", True),
    "resume": (1, "It catches up from its table's cursor.", True),
    "restore": (1, "It gets a group, and catches up from its table's cursor.", False),
    "move": (2, "Another group's driver goes on from its cursor; no other stream restarts.", False),
    "retire": (2, "No group carries it until it is restored; its rows stay in bronze.", False),
}
"""What touches one game and is no repair: how much, what it does, and whether its driver must run for it."""


def _obstacles(row: GameRow, steering: ControlState, facts: Facts) -> tuple[dict[str, str], dict[str, str]]:
    """Return why each of `_OWN` cannot be, and what is instead."""
    other = steering.busy.get(f"game:{row.game_key}")
    if other is not None:
        busy = f"Operation {other.operation_id[:8]}, a {formatting.shown(other.kind, 20)}, is about it now."
        return dict.fromkeys(_OWN, busy), dict.fromkeys(_OWN, _INSTEAD_OF_BUSY)
    if facts.retired:
        others = [name for name in _OWN if name != "restore"]
        return dict.fromkeys(others, "It is retired: no group carries it."), dict.fromkeys(others, "Restore it first.")
    why = {"restore": "It is not retired."}
    instead: dict[str, str] = {}
    if facts.decision.desired == "paused":
        why["pause"], instead["pause"] = "It is paused already.", "Resume it."
    else:
        why["resume"], instead["resume"] = "It is not paused.", "Pause it to stop new rows from landing."
    if not [name for name in steering.fleet.groups if name != row.group]:
        why["move"] = "There is no other group."
        instead["move"] = "Make one under Groups."
    return why, instead


def _of_capability(each: Capability) -> Card:
    levels: Mapping[str, Level] = {"retry": 1, "replay": 1, "dedupe": 2, "rebuild": 2, "restart": 3}
    radius = levels[each.name]
    other = each.alternative
    instead, about_it = (None, None) if other is None else (f"{other.name.capitalize()} instead.", other.sentence)
    return Card(each.name, radius, each.why_not, instead, each.touches, each.seconds, about_it=about_it)


def of_group(name: str, steering: ControlState, barred: Barred) -> tuple[Card, ...]:
    """Return what can be done with a cluster group, that which disturbs least first."""
    games = sum(seat.group == name for seat in steering.assignments.values())
    them = "Its only game stands" if games == 1 else f"Its {games} games stand"
    touches = {
        "drain": f"Moves its {games} games to groups that have room, and gives it no more. No stream restarts.",
        "start": f"The controller starts its driver; its {games} games go on from their cursors.",
        "stop": f"{them} still until it is started again.",
        "restart": f"{them} still while its driver starts; no row is lost or doubled.",
    }
    cards = []
    for kind, sentence in touches.items():
        why, instead = _obstacle(kind, name, steering)
        cards.append(_for_actor(Card(kind, 3, why, instead, sentence), barred))
    return tuple(cards)


def _obstacle(kind: str, name: str, steering: ControlState) -> tuple[str | None, str | None]:
    """Return why something cannot be done with a group, and what is instead."""
    own_targets = (
        {f"game:{key}" for key, seat in steering.assignments.items() if seat.group == name}
        if kind == "drain"
        else set()
    )
    targets = (f"group:{name}", *sorted(own_targets))
    other = next((steering.busy[each] for each in targets if each in steering.busy), None)
    if other is not None:
        about = "it" if f"group:{name}" in other.targets else "games of it"
        why = f"Operation {other.operation_id[:8]}, a {formatting.shown(other.kind, 20)}, is about {about} now."
        return why, _INSTEAD_OF_BUSY
    if name not in steering.groups:
        return "Nobody has registered this group.", "Make it known, with this name, under “Make a group”."
    if kind != "drain" and steering.groups[name].backend == "none":
        return f"turnout does not start group {name}, which has no backend.", (
            "Do it there, or let the controller start it: Change… below."
        )
    try:
        if kind == "drain":
            plan = drains.drain(name, steering.assignments, steering.fleet.judgement.conditions.groups, steering.loads)
            nothing = not plan.moves and not plan.desired
        else:
            nothing = not groups.plan(kind, [name], steering.groups)
    except Refused as refused:
        return str(refused), None
    return _ALREADY[kind] if nothing else (None, None)


_ALREADY: Final = {
    "drain": ("It takes no games, and has none.", "Stop it, if its driver is not needed."),
    "start": ("It is wanted to run already.", "Restart it, if its driver does not do what it should."),
    "stop": ("It is stopped already.", "Start it."),
    "restart": ("It is stopped.", "Start it."),
}


def _for_actor(card: Card, barred: Barred) -> Card:
    return replace(card, barred=barred(_KINDS.get(card.name, card.name)))


# -------------------------------------------------------------------------------------------------------------- drawing

_CONFIRMED_BY: Final[Mapping[Level, str]] = {1: "a click", 2: "a reason", 3: "a reason, and words to type"}


def draw(
    titles: Mapping[Level, str],
    cards: Sequence[Card],
    on_click: Callable[..., None],
    args: tuple[Any, ...] = (),
    before: Mapping[str, Callable[[], object]] | None = None,
) -> None:
    """Draw a box for each reach: first what can be done, a button each, then in a line each what cannot.

    A button calls `on_click(*args, name)`; `before` draws, by name, what must be chosen first.
    """
    with st.container(horizontal=True, gap="small", key="actions"):
        for radius, title in titles.items():
            reached = [card for card in cards if card.radius == radius]
            with st.container(border=True, key=f"reach_{radius}", gap="small"):
                st.markdown(f"**{formatting.escaped(title)}** · :gray[{_CONFIRMED_BY[radius]}]")
                for card in reached:
                    if card.possible:
                        _draw_possible(card, on_click, args, (before or {}).get(card.name))
                with st.container(gap=None, key=f"card_cannot_{radius}"):
                    _draw_impossible([card for card in reached if not card.possible])


def _draw_possible(
    card: Card, on_click: Callable[..., None], args: tuple[Any, ...], before: Callable[[], object] | None
) -> None:
    with st.container(horizontal=True, gap="small", key=f"card_can_{card.name}"):
        st.button(
            f"{card.name.capitalize()}…",
            key=f"act_{card.name}",
            disabled=card.barred is not None,
            on_click=on_click,
            args=(*args, card.name),
            width=110,
        )
        with st.container(gap=None):
            took = "" if card.seconds is None else f" The last took {formatting.age(card.seconds)}."
            st.text(f"{formatting.shown(card.touches)}{took}")
            if card.before is not None:
                st.text(f"△ {formatting.shown(card.before)}")
            if card.barred is not None:
                st.text(f"✕ {formatting.shown(card.barred)}")
            elif before is not None:
                before()


def _draw_impossible(cards: Sequence[Card]) -> None:
    """Draw in a line each what cannot be done; what has the same reason stands in one."""
    alike: dict[Card, list[str]] = {}
    for card in cards:
        alike.setdefault(replace(card, name="", touches="", seconds=None), []).append(card.name)
    for card, names in alike.items():
        instead = "" if card.instead is None else f" → {formatting.shown(card.instead)}"
        needs = "" if card.barred is None else f" {formatting.shown(card.barred)}"
        about = None if card.about_it is None else formatting.escaped(card.about_it)
        why = formatting.shown(card.why_not or "Nobody can say why not.")
        st.text(f"✕ {', '.join(names).capitalize()}: {why}{instead}{needs}", help=about)
