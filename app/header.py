"""The line on top of every page: which environment, how old the data is, and the switch that holds it still."""

import time

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from app import services, words
from app.services import Environment
from pipeline.errors import Refused
from pipeline.store.fleet import Fleet

_MISSED_REFRESHES = 3
_HELD = "held_fleet"
_PAUSED = "paused"

_STYLE = """<style>
[data-testid="stMainBlockContainer"] {padding: 1rem 2rem 3rem}
[data-testid="stHeader"] {background: none; pointer-events: none}
[data-testid="stHeader"] button {pointer-events: auto}
.st-key-header {padding-right: 2.5rem}
.st-key-header [data-testid="stText"] {font-size: 0.875rem; opacity: 0.75}
[class*="st-key-headline"] {padding-left: 0.75rem; border-left: 6px solid #88888855}
.st-key-headline_trouble {border-left-color: #D55E00}
[class*="st-key-headline"] [data-testid="stText"] {font-size: 1.6rem; font-weight: 650; line-height: 1.25}
[class*="st-key-headline"] [data-testid="stText"] * {white-space: pre-wrap; overflow-wrap: anywhere}
.st-key-verdict [data-testid="stText"] {font-size: 1.1rem; font-weight: 600}
.st-key-verdict [data-testid="stText"] * {white-space: pre-wrap}
[class*="st-key-tile_"] {padding: 0.4rem 0.75rem}
[class*="st-key-tile_"] [data-testid="stText"] {font-size: 0.875rem; line-height: 1.35}
[class*="st-key-tile_bad"] {border-color: #D55E00; border-width: 2px}
[data-testid="stMainBlockContainer"] h3 {font-size: 1.05rem; padding: 0.75rem 0 0}
.st-key-evidence [data-testid="stText"] {font-variant-numeric: tabular-nums}
</style>"""


def environment_or_stop() -> Environment:
    """Return the environment on screen; where there is none, say why and end the page."""
    try:
        return services.open_environment()
    except Refused as refused:
        st.title("turnout", anchor=False)
        st.warning(words.escaped(str(refused)), icon=":material/database_off:")
        st.stop()


def draw(environment: Environment, *, link_home: bool = False) -> Fleet | None:
    """Draw the line, with a link back to Fleet when asked, and return the fleet to show.

    It is held still while paused and while reading fails, and None when it could never be read.
    """
    st.html(_STYLE)
    with st.container(horizontal=True, vertical_alignment="center", key="header"):
        if link_home:
            st.page_link("views/fleet.py", label="Fleet", icon=":material/arrow_back:")
        st.text(f"turnout · environment {environment.settings.environment}", width="stretch")
        age_place = st.empty()
        paused = st.toggle(
            "Pause refresh", key=_PAUSED, persist_state="session", help="Holds the data on screen still."
        )
    fleet, refused = _read(environment, paused)
    if fleet is not None:
        _draw_age(age_place, fleet, environment, paused)
    if refused is not None:
        kept = " What is shown below is the last that could be read." if fleet is not None else ""
        st.error(words.escaped(str(refused)) + kept, icon=":material/database_off:")
    return fleet


def _read(environment: Environment, paused: bool) -> tuple[Fleet | None, Refused | None]:
    held_store, held = st.session_state.get(_HELD, (None, None))
    if held_store != environment.store:
        held = None
    if paused and held is not None:
        return held, None
    try:
        fleet = services.fleet(environment)
    except Refused as refused:
        return held, refused
    st.session_state[_HELD] = (environment.store, fleet)
    return fleet, None


def _draw_age(place: DeltaGenerator, fleet: Fleet, environment: Environment, paused: bool) -> None:
    """Draw how old the data is; amber once three refreshes were missed, for whatever reason."""
    old = time.time() - fleet.read_at
    late = old > _MISSED_REFRESHES * environment.settings.dashboard.refresh_seconds
    text = f"data as of {words.clock(fleet.read_at)} ({words.age(old)} ago{', paused' if paused else ''})"
    icon = ":material/warning:" if late else ":material/schedule:"
    place.badge(words.escaped(text), icon=icon, color="orange" if late else "gray")


def headline(sentence: str, *, trouble: bool) -> None:
    """Draw the one sentence a page is about; it may hold a raw name, so it is text and never Markdown."""
    with st.container(key="headline_trouble" if trouble else "headline_well"):
        st.text(sentence)
