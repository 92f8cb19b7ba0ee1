"""The frame of every page: its sentence, the data's age, range, refresh, and keys."""

import time
from collections.abc import Callable, Collection, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from app import formatting
from app.components import links
from app.look import parts
from app.look.sentences import Sentence, of_headline
from app.look.tokens import Tone
from app.person import identity
from app.state import alerts, judged, services
from app.state.services import Environment
from pipeline.api.incidents import Cause
from pipeline.base.errors import Refused
from pipeline.health.headlines.pages import Headline, HeadlineTone, of_operations, of_subject
from pipeline.health.headlines.standings import Situation

_MISSED_REFRESHES = 3
_CLOCK_SECONDS: Final = 60.0  # two clocks differ; what several viewers share was read some seconds ago
_PAUSED, _RANGE, _EVERY, _IN_USE = "paused", "range", "every", "every_in_use"  # keys; `range` and `every` are the URL's
_TROUBLE: Final = "trouble"  # the key of Fleet's switch
_RANGES: Final = {"15m": (900, "15 min"), "1h": (3600, "1 h"), "6h": (21_600, "6 h"), "24h": (86_400, "24 h")}
_DEFAULT_RANGE: Final = "1h"
_INTERVALS: Final = (2, 5, 15, 60)  # seconds; the setting's is offered, too
_HEADLINE_TONES: Final[Mapping[Tone, HeadlineTone]] = {
    "well": "well", "plain": "plain", "busy": "busy", "risk": "late", "late": "late", "bad": "bad", "blind": "blind"
}  # fmt: skip
_KEYS: Final = (
    ("F", "only streams in trouble, or all (Fleet)"),
    ("G", "open Groups"),
    ("S", "find a game, a group, an operation, a page or an action"),
    ("P", "pause the refresh, or go on"),
    ("H", "this list"),
    ("Tab", "to the next control; tables: the arrow keys"),
    ("Esc", "close a drawer or a menu"),
)

_SENTENCE: ContextVar[DeltaGenerator | None] = ContextVar("sentence", default=None)
"""Where this run's page says its sentence: left in the line that `lines` has drawn."""

_SITUATION: ContextVar[Situation | None] = ContextVar("situation", default=None)
"""What stands at the moment of this run; None where nobody knows."""


class Timestamped(Protocol):
    """What a page shows: read at one moment."""

    @property
    def read_at(self) -> float:
        """Unix seconds."""


Shown = TypeVar("Shown", bound=Timestamped)


def environment_or_stop() -> Environment:
    """Return the environment on screen; where there is none, say why and end the page."""
    try:
        return services.open_environment()
    except Refused as refused:
        st.title("turnout", anchor=False)
        st.warning(formatting.escaped(str(refused)), icon=":material/database_off:")
        st.stop()


def keep_drawing(draw: Callable[[Environment], None]) -> None:
    """Draw a part of a page, and again every few seconds, each time by the settings and roles of that moment."""
    environment = environment_or_stop()

    def draw_now() -> None:
        identity.rerun_where_another_acts()
        with links.written_at_once():
            draw(environment_or_stop())

    st.session_state[_IN_USE] = every_seconds(environment)
    st.fragment(draw_now, run_every=st.session_state[_IN_USE])()


def every_seconds(environment: Environment) -> float:
    """Return how often the viewer wants the page to be drawn, in seconds."""
    offered = _offered(environment)
    chosen = st.session_state.get(_EVERY) or st.query_params.get(_EVERY)
    return offered.get(str(chosen), environment.settings.dashboard.refresh_seconds)


def range_seconds() -> int:
    """Return over how much time the page's charts go: the URL's `range`, an hour where it names none."""
    chosen = st.session_state.get(_RANGE) or st.query_params.get(_RANGE)
    return _RANGES.get(str(chosen), _RANGES[_DEFAULT_RANGE])[0]


def is_paused() -> bool:
    """Return whether the viewer wants the page to stand still."""
    return bool(st.session_state.get(_PAUSED))


@dataclass(frozen=True, slots=True)
class FrameLines:
    """The frame as it was drawn."""

    age_place: DeltaGenerator
    paused: bool


def draw(
    environment: Environment,
    read: Callable[[Environment], Shown],
    name: str,
    about: str = "",
    *,
    ranged: bool = True,
) -> Shown | None:
    """Draw the frame and return what to show, as `show` does."""
    return show(environment, lines(environment, ranged=ranged), read, name, about)


def lines(environment: Environment, *, ranged: bool = True) -> FrameLines:
    """Draw the frame; `ranged`: the page has charts over time."""
    _SITUATION.set(judged.now(environment))
    with st.container(horizontal=True, vertical_alignment="center", key="context", gap="small"):
        _SENTENCE.set(st.container(key="sentence", width="stretch", gap=None))
        _draw_alerts(environment)
        age_place = st.empty()
        if ranged:
            _draw_range()
        paused = _draw_refresh(environment)
        _draw_keys()
    return FrameLines(age_place, paused)


def show(
    environment: Environment, drawn: FrameLines, read: Callable[[Environment], Shown], name: str, about: str = ""
) -> Shown | None:
    """Return what to show, read by `read` and kept under `name` in the viewer's session while it is `about` the same.

    It is held still while paused and while reading fails, and None when it could never be read.
    """
    seen, since, refused = _read(environment, read, (f"held_{name}", about), paused=drawn.paused)
    if seen is not None:
        _draw_age(drawn.age_place, seen, since, environment, drawn.paused)
    if refused is not None:
        if seen is None:
            headline("Nothing known yet", meta="the control store does not answer", tone="blind")
        kept = " The page shows the last reading." if seen is not None else ""
        st.error(formatting.escaped(str(refused)) + kept, icon=":material/database_off:")
    return seen


def headline(
    sentence: str,
    *,
    trouble: bool = False,
    meta: str = "",
    tone: Tone | None = None,
    causes: Collection[Cause] = (),
) -> None:
    """Draw the one sentence a page is about, left in the frame; it may hold raw names, which are shown as text.

    It is green only where nothing stands in the whole environment; the worst that does is named beside it. Incidents
    with `causes` are of the page's own subject.
    """
    said: Tone = tone or ("late" if trouble else "well")
    known = _SITUATION.get()
    if known is None:
        draw_sentence(Sentence(sentence, meta, "plain" if said == "well" else said))
    else:
        own = Headline(sentence, _HEADLINE_TONES[said], None, (meta,))
        draw_sentence(of_headline(of_subject(own, known, causes), known.now))


def draw_operations(opened: int, stuck: int) -> None:
    """Draw what is open, of which some need a person, and who carries it out."""
    known = _SITUATION.get()
    if known is None:
        headline("Whether a controller runs is not known", tone="blind")
    else:
        draw_sentence(of_headline(of_operations(known, opened, stuck), known.now))


def draw_sentence(said: Sentence, place: DeltaGenerator | None = None) -> None:
    """Draw a sentence as it is, left in the frame, or in another place."""
    meta = formatting.shown(said.meta) if said.meta else ""
    (place or sentence_place()).html(parts.sentence(formatting.shown(said.text), meta, said.tone))


def sentence_place() -> DeltaGenerator:
    """Return where the page says its sentence: left in the frame; below what is drawn where there is no frame."""
    place = _SENTENCE.get()
    return st.container(gap=None) if place is None else place


def _draw_alerts(environment: Environment) -> None:
    """Draw how many alerts fire, as the way to their page; nothing where no server is configured."""
    known = alerts.alerts(environment)
    if known.by is None:
        return
    if known.firing is None:
        label, icon = "alerts unknown", ":material/help:"
    else:
        count = len(known.firing)
        label = "no alerts" if not count else "1 alert" if count == 1 else f"{formatting.count(count)} alerts"
        icon = ":material/notifications_active:" if count else ":material/notifications:"
    about = alerts.briefly_unknown(known, time.time()) if known.firing is None else None
    st.page_link("views/alerts.py", label=label, icon=icon, help=about)


def _draw_range() -> None:
    chosen = st.segmented_control(
        "Range",
        tuple(_RANGES),
        default=_in_url(_RANGE, _RANGES, _DEFAULT_RANGE),
        required=True,
        format_func=lambda each: _RANGES[each][1],
        key=_RANGE,
        label_visibility="collapsed",
    )
    links.write(_RANGE, None if chosen == _DEFAULT_RANGE else chosen)


def _in_url(param: str, known: Collection[str], default: str) -> str:
    """Return what the URL says, where it says something known; a widget begins with it."""
    said = st.query_params.get(param)
    return said if said is not None and said in known else default


def _draw_refresh(environment: Environment) -> bool:
    """Draw how often the page is drawn, and whether it stands still; return the latter."""
    offered = _offered(environment)
    label = "paused" if st.session_state.get(_PAUSED) else _word(every_seconds(environment))
    with st.popover(label, type="tertiary", icon=":material/refresh:", key="refresh"):
        paused = st.toggle(
            "Pause refresh", key=_PAUSED, persist_state="session", help="Freezes the data on screen. Key: P."
        )
        usual = _name(environment.settings.dashboard.refresh_seconds)
        chosen = st.segmented_control(
            "Refresh every",
            tuple(offered),
            default=_in_url(_EVERY, offered, usual),
            required=True,
            format_func=lambda each: _word(offered.get(each, 0.0)),
            key=_EVERY,
        )
        links.write(_EVERY, None if chosen == usual else chosen)
    if every_seconds(environment) != st.session_state.get(_IN_USE, every_seconds(environment)):
        st.rerun()  # the whole page: only then its parts are drawn at the new interval
    return bool(paused)


def _offered(environment: Environment) -> dict[str, float]:
    usual = environment.settings.dashboard.refresh_seconds
    return {_name(each): each for each in sorted({*map(float, _INTERVALS), float(usual)})}


def _name(seconds: float) -> str:
    return f"{seconds:g}s"


def _word(seconds: float) -> str:
    return f"{seconds:g} s"


def _draw_keys() -> None:
    """Draw the buttons that keys press; they are seen once they have the focus."""
    with st.container(key="keys", horizontal=True, width="content", gap="xsmall"):
        if st.button("Trouble only", key="key_trouble", shortcut="F", on_click=_toggle_trouble):
            _open_trouble()
        st.button("Pause", key="key_pause", shortcut="P", on_click=_toggle_pause)
        if st.button("Groups", key="key_groups", shortcut="G"):
            st.switch_page("views/groups.py")
        if st.button("Keys", key="key_list", shortcut="H"):
            _list_keys()


def _toggle_trouble() -> None:
    """Show streams in trouble only, or all: the switch of the page Fleet, where that is on screen."""
    if _TROUBLE in st.session_state:
        st.session_state[_TROUBLE] = not st.session_state[_TROUBLE]


def _open_trouble() -> None:
    if _TROUBLE not in st.session_state:
        st.switch_page("views/fleet.py", query_params={_TROUBLE: "true"})


def _toggle_pause() -> None:
    st.session_state[_PAUSED] = not st.session_state.get(_PAUSED)


@st.dialog("Keys", width="small")
def _list_keys() -> None:
    st.html(parts.facts(_KEYS))


def _read(
    environment: Environment, read: Callable[[Environment], Shown], slot: tuple[str, str], *, paused: bool
) -> tuple[Shown | None, float, Refused | None]:
    """Return what to show, when it was first seen by this machine's clock, and why it could not be read again."""
    name, about = slot
    held_about, held, since = st.session_state.get(name, (None, None, time.time()))
    if held_about != (environment.store, about):
        held = None
    if paused and held is not None:
        return held, since, None
    try:
        seen = read(environment)
    except Refused as refused:
        return held, since, refused
    since = since if seen is held else time.time()
    st.session_state[name] = ((environment.store, about), seen, since)
    return seen, since, None


def _draw_age(place: DeltaGenerator, seen: Timestamped, since: float, environment: Environment, paused: bool) -> None:
    """Draw of when the data is; amber with its age once three refreshes were missed, or where a clock is wrong.

    What the store dates has the store's time: its distance from this machine's clock is that of the two clocks.
    """
    old, ahead = time.time() - since, since - seen.read_at
    late, is_wrong = old > _MISSED_REFRESHES * every_seconds(environment), abs(ahead) > _CLOCK_SECONDS
    words = f"data as of {formatting.clock(seen.read_at)}"
    words += f", {formatting.age(old)} old" if late else ""
    words += ", paused" if paused else ""
    where = "ahead of" if ahead > 0 else "behind"
    if is_wrong:
        words += f"; the clock of this dashboard is {formatting.age(abs(ahead))} {where} that of the control store"
    icon = ":material/warning:" if late or is_wrong else ":material/schedule:"
    place.badge(formatting.escaped(words), icon=icon, color="orange" if late or is_wrong else "gray")
