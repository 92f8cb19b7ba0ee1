"""Draws the end of a driver's log behind a closed expander: a reading begins once it is open."""

from collections.abc import Sequence
from typing import Final

import streamlit as st

from app import formatting
from app.components import links
from app.look import parts
from app.person import identity
from app.state import driver_logs
from app.state.services import Environment
from listeners.process_kinds import GROUP, ONLY, described
from pipeline.base.errors import Refused
from pipeline.health.facts.fleet import Fleet
from pipeline.health.kinds.registry import registered

_HEIGHT: Final = 380  # px, of the earlier lines, which scroll
_NEWEST: Final = 25  # lines that are seen without scrolling
_CHOICE: Final = "log_of"  # the widget's key


def draw(environment: Environment, fleet: Fleet, groups: Sequence[str]) -> None:
    """Draw the choice of a driver, of one of the groups or of no group, and the end of its log; the URL has `log`."""
    others = {each.name: (each.name, ONLY) for each in registered() if each.is_one}
    known = {**{f"group:{name}": (GROUP, name) for name in groups}, **others}
    is_named = "log" in st.query_params
    box = st.expander("Logs of drivers", icon=":material/article:", key="logs", expanded=is_named, on_change="rerun")
    with box:
        if not box.open:
            links.write("log", None)
            return
        unknown = links.take("log", _CHOICE, known)
        if st.session_state[_CHOICE] not in known:
            st.session_state[_CHOICE] = next(iter(known))  # and so it stands in the URL: a reload opens it again
        if unknown:
            st.html(parts.note(f"The link names a driver that is not here: {formatting.shown(unknown[0], 60)}"))
        chosen = st.selectbox(
            "Driver", list(known), key=_CHOICE, format_func=lambda each: _label(known[each]), width=320,
            label_visibility="collapsed",
        )  # fmt: skip
        links.keep({"log": _CHOICE})
        if chosen is not None:
            _draw_tail(environment, fleet, *known[chosen])


def _label(driver: tuple[str, str]) -> str:
    kind, name = driver
    return described(kind, formatting.shown(name, 40))


def _draw_tail(environment: Environment, fleet: Fleet, kind: str, name: str) -> None:
    driver = fleet.driver(kind, name)
    try:
        found = driver_logs.tail(environment, kind, name, identity.person())
    except Refused as refused:
        where = "" if driver is None else f" The last one reported from {formatting.shown(driver.host, 60)}."
        st.html(parts.silence("No log to show", f"{formatting.shown(str(refused))}{where}"))
        return
    said = [f"the last {len(found.lines)} lines" if not found.is_whole else "all of it", found.file]
    said.append(f"last written {formatting.moment(found.written_at)}")
    st.html(parts.section(f"Log of {_label((kind, name))}", " · ".join(said)))
    doubt = driver_logs.doubt(found, driver, environment.settings.metrics.heartbeat_seconds)
    if doubt is not None:
        st.html(parts.note(f"△ {doubt[0].upper()}{doubt[1:]}."))
    if not found.lines:
        st.html(parts.note("The file is empty."))
        return
    earlier, newest = found.lines[:-_NEWEST], found.lines[-_NEWEST:]
    if earlier and st.toggle(f"{len(earlier)} earlier lines", key="log_earlier"):
        st.code("\n".join(earlier), language=None, height=_HEIGHT, wrap_lines=True)
    st.code("\n".join(newest), language=None, wrap_lines=True)
