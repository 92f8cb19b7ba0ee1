"""The header of every page: navigation, the signed-in person, the data's age, operations that need a person."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from app import formatting
from app.state import control_queries, services
from app.state.services import Environment
from pipeline.errors import Refused
from pipeline.health.judgement import Judgement

_MISSED_REFRESHES = 3
_PAUSED = "paused"
_PAGES: Final = {
    "Fleet": "fleet",
    "Groups": "groups",
    "Schemas": "schemas",
    "Repairs": "repairs",
    "Access": "access",
    "Operations": "operations",
    "Audit": "audit",
}


class Timestamped(Protocol):
    """What a page shows: read at one moment."""

    @property
    def read_at(self) -> float:
        """Unix seconds."""


Shown = TypeVar("Shown", bound=Timestamped)

_STYLE = """<style>
[data-testid="stMainBlockContainer"] {padding: 1rem 2rem 3rem}
[data-testid="stHeader"] {background: none; pointer-events: none}
[data-testid="stHeader"] button {pointer-events: auto}
.st-key-header {padding-right: 2.5rem}
.st-key-pages {margin-top: -0.75rem}
[class*="st-key-operation_stuck"], .st-key-resume_box {border-color: #E69F00; border-width: 2px}
[class*="st-key-card_"] [data-testid="stText"], [class*="st-key-confirm_"] [data-testid="stText"],
[class*="st-key-operation_"] [data-testid="stText"] {font-size: 0.875rem; line-height: 1.4}
[class*="st-key-confirm_"] [data-testid="stText"] * {white-space: pre-wrap; overflow-wrap: anywhere}
[class*="st-key-card_"] [data-testid="stText"] *, [class*="st-key-operation_"] [data-testid="stText"] *
{white-space: pre-wrap; overflow-wrap: anywhere}
[class*="st-key-card_cannot"] {opacity: 0.7}
.st-key-actions > div {flex: 1 1 22rem; min-width: min(20rem, 100%)}
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
        st.warning(formatting.escaped(str(refused)), icon=":material/database_off:")
        st.stop()


def keep_drawing(draw: Callable[[Environment], None]) -> None:
    """Draw a page, and again every few seconds, each time by the settings and roles of that moment."""
    environment = environment_or_stop()

    def draw_now() -> None:
        draw(environment_or_stop())

    st.fragment(draw_now, run_every=environment.settings.dashboard.refresh_seconds)()


@dataclass(frozen=True, slots=True)
class Lines:
    """The lines as they were drawn."""

    age_place: DeltaGenerator
    paused: bool


def draw(environment: Environment, read: Callable[[Environment], Shown], name: str, about: str = "") -> Shown | None:
    """Draw the lines and return what to show, as `show` does."""
    return show(environment, lines(environment), read, name, about)


def lines(environment: Environment) -> Lines:
    """Draw the lines: the pages, the environment, the person, what waits for one, and the place of the data's age."""
    st.html(_STYLE)
    counted, unread = _count(environment)
    with st.container(horizontal=True, vertical_alignment="center", key="header"):
        who = formatting.shown(services.who(environment), 80)
        st.text(f"turnout · environment {environment.settings.environment} · you are {who}", width="stretch")
        if counted is not None and counted.need_a_person:
            one = counted.need_a_person == 1
            needs = f"{counted.need_a_person} {'needs' if one else 'need'} a person"
            st.badge(needs, icon=":material/person_alert:", color="orange")
        age_place = st.empty()
        paused = st.toggle("Pause refresh", key=_PAUSED, persist_state="session", help="Freezes the data on screen.")
    with st.container(horizontal=True, key="pages", gap="small"):
        for title, page in _PAGES.items():
            uncounted = formatting.escaped(str(unread)) if unread is not None and title == "Operations" else None
            st.page_link(f"views/{page}.py", label=_label(title, counted), help=uncounted)
    return Lines(age_place, paused)


def show(
    environment: Environment, drawn: Lines, read: Callable[[Environment], Shown], name: str, about: str = ""
) -> Shown | None:
    """Return what to show, read by `read` and kept under `name` in the viewer's session while it is `about` the same.

    It is held still while paused and while reading fails, and None when it could never be read.
    """
    seen, refused = _read(environment, read, (f"held_{name}", about), paused=drawn.paused)
    if seen is not None:
        _draw_age(drawn.age_place, seen, environment, drawn.paused)
    if refused is not None:
        kept = " The page shows the last reading." if seen is not None else ""
        st.error(formatting.escaped(str(refused)) + kept, icon=":material/database_off:")
    return seen


def _count(environment: Environment) -> tuple[control_queries.OpenCounts | None, Refused | None]:
    """Return how many operations are open, or why nobody knows."""
    try:
        return control_queries.waiting(environment), None
    except Refused as refused:
        return None, refused


def _label(title: str, counted: control_queries.OpenCounts | None) -> str:
    if title != "Operations":
        return title
    return f"{title} ({formatting.UNKNOWN_VALUE if counted is None else counted.open})"


def _read(
    environment: Environment, read: Callable[[Environment], Shown], slot: tuple[str, str], *, paused: bool
) -> tuple[Shown | None, Refused | None]:
    name, about = slot
    held_about, held = st.session_state.get(name, (None, None))
    if held_about != (environment.store, about):
        held = None
    if paused and held is not None:
        return held, None
    try:
        seen = read(environment)
    except Refused as refused:
        return held, refused
    st.session_state[name] = ((environment.store, about), seen)
    return seen, None


def _draw_age(place: DeltaGenerator, seen: Timestamped, environment: Environment, paused: bool) -> None:
    """Draw how old the data is; amber once three refreshes were missed, for whatever reason."""
    old = time.time() - seen.read_at
    late = old > _MISSED_REFRESHES * environment.settings.dashboard.refresh_seconds
    text = f"data as of {formatting.clock(seen.read_at)} ({formatting.age(old)} ago{', paused' if paused else ''})"
    icon = ":material/warning:" if late else ":material/schedule:"
    place.badge(formatting.escaped(text), icon=icon, color="orange" if late else "gray")


def draw_judgement(judgement: Judgement) -> None:
    """Draw how the fleet is."""
    sentence, trouble = judgement_line(judgement)
    headline(sentence, trouble=trouble)


def judgement_line(judgement: Judgement) -> tuple[str, bool]:
    """Return the sentence about the whole fleet, and whether a person should look."""
    return judgement.headline, not judgement.healthy


def headline(sentence: str, *, trouble: bool) -> None:
    """Draw the one sentence a page is about; it may hold a raw name, so it is text and never Markdown."""
    with st.container(key="headline_trouble" if trouble else "headline_well"):
        st.text(sentence)
