"""The bar of every page, right in the header: find, the inbox, the acting person. A fragment of its own."""

from collections.abc import Mapping
from typing import Final

import streamlit as st

from app import formatting
from app.bar import inbox, palette
from app.person import act_as, identity
from app.state import services
from app.state.services import Environment
from pipeline.base.errors import Refused

_EACH_SECONDS: Final = 10.0
_MYSELF: Final = ""  # of the people to act as


def draw(pages: Mapping[str, str]) -> None:
    """Draw the bar, and again every few seconds; `pages` are titles by page. Without an environment it is empty."""
    st.fragment(_draw, run_every=_EACH_SECONDS)(pages)


def _draw(pages: Mapping[str, str]) -> None:
    identity.rerun_where_another_acts()
    try:
        environment = services.open_environment()
    except Refused:
        return  # the page says why
    with st.container(key="bar", horizontal=True, vertical_alignment="center", gap="small", width="content"):
        palette.draw(environment, pages)
        inbox.draw(environment)
        _draw_who(environment)


def _draw_who(environment: Environment) -> None:
    """Draw the acting person; in a demo that offers people, also the others to choose."""
    people = services.offered_people(environment)
    if not people:
        act_as.choose(None)
        with st.container(key="whoami", width="content"):
            st.text(_who(environment))
        return
    if act_as.chosen() not in {None, *people}:
        act_as.choose(None)
    acting = act_as.chosen()
    with st.container(key="whoami_demo", width="content"):
        name = identity.person().name if acting is None else f"{acting} (admin)"
        with st.popover(
            formatting.escaped(f"{formatting.shown(environment.settings.environment, 30)} · you are: {name}"),
            type="tertiary",
            icon=":material/group:",
            key="act_as",
        ):
            names = {_MYSELF: f"{formatting.shown(identity.person().name, 40)} (who started the demo)"}
            names |= {each: f"{formatting.shown(each, 40)} (admin)" for each in people}
            said = st.radio(
                "Act as",
                list(names),
                index=list(names).index(acting or _MYSELF),
                format_func=lambda each: formatting.escaped(names.get(str(each), str(each))),
                key="act_as_person",
                help="Only a demo offers this: one may ask, another may approve. The audit log has the name.",
            )
    if said is not None and said != (acting or _MYSELF):
        act_as.choose(said or None)
        st.rerun()  # the whole page: each part of it acts as this person


def _who(environment: Environment) -> str:
    """Return the environment, the person, and their roles where the environment has any."""
    name, bracket, roles = formatting.shown(services.who(environment), 80).partition(" (")
    said = [formatting.shown(environment.settings.environment, 30), name]
    return " · ".join([*said, roles.removesuffix(")")] if bracket else said)
