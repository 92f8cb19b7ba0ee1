"""How registries stand, on the Schemas page: trouble as a line each, all of them in a table."""

from functools import partial

import pandas as pd
import streamlit as st

from app import formatting
from app.components import confirm
from app.look import parts
from app.schemas import previews
from app.state import services
from app.state.services import Environment
from pipeline.api.schemas import Catalogue, RegistryView
from pipeline.control.acts import DirectAct

_STATES = {"ok": "● answers", "away": "▲ away", "mistrusted": "✗ mistrusted"}


def draw(environment: Environment, catalogue: Catalogue) -> None:
    """Draw every registry of the settings, and the others that ever answered."""
    if not catalogue.registries:
        return
    with st.container(border=True, key="card_schema_registries", gap="small"):
        st.html(parts.section("Registries"))
        for each in catalogue.registries:
            if each.health is not None and each.trouble:
                _draw_trouble(environment, catalogue, each)
        st.dataframe(
            pd.DataFrame(_row(catalogue, each) for each in catalogue.registries),
            hide_index=True,
            alt="Registries: how they answered last, and how many games wait for them.",
            key="schema_registries_table",
        )


def _draw_trouble(environment: Environment, catalogue: Catalogue, each: RegistryView) -> None:
    health = each.health
    assert health is not None
    again = ""
    if health.retry_at is not None:
        left = health.retry_at - catalogue.read_at
        again = (
            f" · turnout asks again in {formatting.age(left)}"
            if left > 0
            else " · the next driver that runs asks again"
        )
    games = "1 game waits" if each.waiting_games == 1 else f"{each.waiting_games} games wait"
    why = formatting.shown(health.detail or "no reason is known", 400)
    st.text(
        f"{_STATES.get(health.state, health.state)} · {formatting.shown(each.registry, 60)} · since "
        f"{formatting.moment(health.since)} · {games}: {why}{again}"
    )
    if health.state != "mistrusted":
        return
    place, needs = f"trust_{each.registry}", services.missing_role(environment, DirectAct.TRUST_REGISTRY)
    st.button(
        "Trust it again…",
        key=f"open_{place}",
        on_click=confirm.stage_preview,
        args=(place, partial(previews.preview_trust, environment, each.registry)),
        disabled=needs is not None,
        help=None if needs is None else formatting.escaped(needs),
    )
    confirm.draw_confirmation(environment, place)


def _row(catalogue: Catalogue, each: RegistryView) -> dict[str, str]:
    health = each.health
    return {
        "Registry": formatting.shown(each.registry, 60),
        "Kind": "not in the settings" if each.kind is None else each.kind,
        "State": "? never asked" if health is None else _STATES.get(health.state, formatting.shown(health.state, 20)),
        "Since": formatting.UNKNOWN_VALUE if health is None else formatting.moment(health.since),
        "Answered": formatting.UNKNOWN_VALUE
        if health is None
        else f"{formatting.age(catalogue.read_at - health.checked_at)} ago",
        "Answers kept": formatting.count(each.answers),
        "Games that wait": formatting.count(each.waiting_games),
    }
