"""The drawer that steers one cluster group: what can be done with it, its settings, and the preview of either."""

from collections.abc import Callable
from functools import partial
from typing import Final

import streamlit as st

from app import formatting
from app.components import cards, confirm, group_forms, group_state
from app.look import parts
from app.person import identity
from app.state import judged, previews, services
from app.state.control_queries import ControlState
from app.state.previews import Preview
from app.state.services import Environment

_PLACE: Final = "groups_group"


def draw(
    environment: Environment, steering: ControlState, name: str, is_open: Callable[[], bool], close: Callable[[], None]
) -> None:
    """Draw the drawer of a group while `is_open` says so; `close` makes it say no.

    There is one drawer: what is offered at another place has it.
    """
    own = {_PLACE, group_forms.place_of(name)}
    if confirm.offered() not in {None, *own}:
        return

    def closed() -> None:
        group_forms.close(name)
        confirm.drop(_PLACE)
        close()

    def group() -> None:
        _draw_group(environment, steering, name)

    @st.dialog(
        f"Group {formatting.escaped(formatting.shown(name, 40))}",
        width=confirm.WIDE,
        position="right",
        on_dismiss=closed,
    )
    def drawer() -> None:
        identity.rerun_where_another_acts()
        if not is_open():
            st.rerun()  # only a run of the whole page closes the drawer
        confirm.draw_within(environment, confirm.offered() or _PLACE, group, closed)

    drawer()


def offer(environment: Environment, name: str, kind: str) -> None:
    """Plan an act on a group, and offer it in the group's drawer."""
    plan: Callable[[], Preview] = (
        partial(previews.preview_drain, environment, name)
        if kind == "drain"
        else partial(previews.preview_named, environment, kind, [name])
    )
    confirm.stage_preview(_PLACE, plan)


def offer_linked(environment: Environment, steering: ControlState, name: str, kind: str) -> None:
    """Offer what a link asks for, where the acting person may."""
    offered = cards.of_group(name, steering, partial(services.missing_role, environment))
    if any(card.can.name == kind and card.disabled_reason is None for card in offered):
        offer(environment, name, kind)


def _draw_group(environment: Environment, steering: ControlState, name: str) -> None:
    state = group_state.of(steering, judged.of_fleet(environment, steering.fleet), name)
    st.html(parts.title("Now", state.word, state.tone, state.about))
    offered = cards.of_group(name, steering, partial(services.missing_role, environment))
    cards.draw({3: "The group and its games"}, offered, on_click=offer, args=(environment, name))
    if (group := steering.groups.get(name)) is not None:  # else its driver has reported, and nobody has registered it
        group_forms.draw_change(environment, group)
