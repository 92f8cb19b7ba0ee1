"""What can be done with a game or a group now, by how much it touches; what cannot be, with why not and what instead.

`of_game` and `of_group` are pure; `draw` draws. All texts of a card may hold foreign words.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import streamlit as st

from app import formatting
from app.state.control_queries import ControlState
from pipeline.api.operations import Intent
from pipeline.control import capabilities
from pipeline.control.capabilities import Alternative, Capability
from pipeline.control.operations import registry
from pipeline.control.operations.definition import Level
from pipeline.control.operations.facts import GameFacts, GroupFacts

DisabledReason = Callable[[str], str | None]
"""Returns the role that the acting person lacks for a kind of operation; None where they may."""


@dataclass(frozen=True, slots=True)
class Card:
    """One thing that may be done."""

    can: Capability
    radius: Level  # 1: a game, gently; 2: a game; 3: a group
    before: str | None = None  # what to know before, where it is possible
    disabled_reason: str | None = None  # the role that the signed-in person lacks


def of_game(facts: GameFacts, disabled_reason: DisabledReason) -> tuple[Card, ...]:
    """Return what can be done with a game, that which disturbs least first."""
    silence = facts.silence if facts.group is not None else None
    later = f"Now {silence}: it is decided at once, and done when the driver runs." if silence else None
    cards = []
    for each in capabilities.of_game(facts):
        definition, offer = registry.offers_of_game()[each.name]
        radius = definition.weigh(Intent(definition.kind, (f"game:{facts.game_key}",), ""))
        cards.append(Card(each, radius, later if offer.needs_driver else None, disabled_reason(definition.kind)))
    return tuple(cards)


def of_group(name: str, steering: ControlState, disabled_reason: DisabledReason) -> tuple[Card, ...]:
    """Return what can be done with a cluster group, that which disturbs least first."""
    facts = GroupFacts(
        name,
        steering.groups,
        steering.assignments,
        steering.fleet.judgement.conditions.groups,
        steering.loads,
        steering.busy,
    )
    offers = registry.offers_of_group()
    return tuple(
        Card(each, 3, disabled_reason=disabled_reason(offers[each.name][0].kind))
        for each in capabilities.of_group(facts)
    )


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
                    if card.can.possible:
                        _draw_possible(card, on_click, args, (before or {}).get(card.can.name))
                with st.container(gap=None, key=f"card_cannot_{radius}"):
                    _draw_impossible([card for card in reached if not card.can.possible])


def draw_list(
    cards: Sequence[Card],
    on_click: Callable[..., None],
    args: tuple[Any, ...] = (),
    before: Mapping[str, Callable[[], object]] | None = None,
) -> None:
    """Draw what can be done, the least disturbing first, with its effect and how it is confirmed; fold what cannot.

    A button calls `on_click(*args, name)`; `before` draws, by name, what must be chosen first.
    """
    possible = [card for card in cards if card.can.possible]
    impossible = [card for card in cards if not card.can.possible]
    for card in possible:
        _draw_possible(card, on_click, args, (before or {}).get(card.can.name), _CONFIRMED_BY[card.radius])
    if not possible:
        st.text("Nothing can be done now.")
    if impossible:
        with st.expander(f"{len(impossible)} cannot be done now", key="card_cannot"):
            _draw_impossible(impossible)


def _draw_possible(
    card: Card,
    on_click: Callable[..., None],
    args: tuple[Any, ...],
    before: Callable[[], object] | None,
    confirmed_by: str | None = None,
) -> None:
    can = card.can
    with st.container(horizontal=True, gap="small", key=f"card_can_{can.name}"):
        st.button(
            f"{can.name.capitalize()}…",
            key=f"act_{can.name}",
            disabled=card.disabled_reason is not None,
            on_click=on_click,
            args=(*args, can.name),
            width=110,
        )
        with st.container(gap=None):
            took = "" if can.seconds is None else f" The last took {formatting.age(can.seconds)}."
            st.text(f"{formatting.shown(can.touches)}{took}")
            if confirmed_by is not None:
                st.caption(f"confirmed by {confirmed_by}")
            if card.before is not None:
                st.text(f"△ {formatting.shown(card.before)}")
            if card.disabled_reason is not None:
                st.text(f"✗ {formatting.shown(card.disabled_reason)}")
            elif before is not None:
                before()


def _draw_impossible(cards: Sequence[Card]) -> None:
    """Draw in a line each what cannot be done; what has the same reason stands in one."""
    alike: dict[tuple[str | None, Alternative | None, str | None], list[str]] = {}
    for card in cards:
        alike.setdefault((card.can.why_not, card.can.alternative, card.disabled_reason), []).append(card.can.name)
    for (why_not, other, disabled_reason), names in alike.items():
        instead = "" if other is None else f" → {other.name.capitalize()} instead."
        needs = "" if disabled_reason is None else f" {formatting.shown(disabled_reason)}"
        about = None if other is None else formatting.escaped(other.sentence)
        why = formatting.shown(why_not or "Nobody can say why not.")
        st.text(f"✗ {', '.join(names).capitalize()}: {why}{instead}{needs}", help=about)
