"""The person as whom the user of a dashboard acts: themselves, or one of the people that an extension offers.

Extensions are the entry points `turnout.people`. The demo is one: nobody approves their own request, and a demo has one
user. It names whom it offers by the proof that it gives for its faults; no setting, header or URL offers anybody, and
nobody gets a role by it: where roles are set, and to people of a platform, nobody is offered.
"""

import streamlit as st

from app.gate import Person
from pipeline.base.errors import Refused
from pipeline.base.extensions import PEOPLE, registered
from pipeline.control.roles import roles_of
from pipeline.settings.tree import Paths, Roles, Settings

_CHOSEN, _KNOWN = "demo_person", "offered_people"


def chosen() -> str | None:
    """Return the person whom this tab wants to act as; None: as oneself."""
    return st.session_state.get(_CHOSEN)


def choose(name: str | None) -> None:
    """Act as a person from now on, or as oneself; each act looks whether the demo offers them."""
    if name is None:
        st.session_state.pop(_CHOSEN, None)
    else:
        st.session_state[_CHOSEN] = name


def offered(me: Person, settings: Settings, paths: Paths, roles: Roles) -> tuple[str, ...]:
    """Return whom the demo that runs this environment offered at most 5 s ago; nobody where none runs."""
    if not _may_be_offered(me, settings, roles):
        return ()
    found = _looked(str(paths.root), paths)
    if found is not None:
        st.session_state[_KNOWN] = found
        return found
    known: tuple[str, ...] = st.session_state.get(_KNOWN, ())  # the demo does a fault, and answers later
    return known


def shown_person(me: Person, settings: Settings, paths: Paths, roles: Roles) -> Person:
    """Return the acting person, as a page shows them.

    Raises:
        Refused: the demo does not offer, or not any more, whom this tab wants to act as.
    """
    return _as(chosen(), me, offered(me, settings, paths, roles) if chosen() is not None else ())


def acting_person(me: Person, settings: Settings, paths: Paths, roles: Roles) -> Person:
    """Return the acting person at this moment, by a fresh answer of the demo.

    Raises:
        Refused: it does not offer, or not any more, whom this tab wants to act as, or is busy.
    """
    found = _people(paths) if chosen() is not None and _may_be_offered(me, settings, roles) else ()
    if found is None:
        raise Refused("The demo is busy with a fault. Try again in a moment.")
    return _as(chosen(), me, found)


def _as(name: str | None, me: Person, people: tuple[str, ...]) -> Person:
    if name is None:
        return me
    if name not in people:
        raise Refused(
            f"The demo does not offer {name} any more, so nothing was done. Reload the page to act as yourself."
        )
    return Person(name, by_platform=False)


def _may_be_offered(me: Person, settings: Settings, roles: Roles) -> bool:
    return not me.by_platform and not settings.store.url and roles_of(roles, me.name) is None


@st.cache_data(ttl=5, max_entries=2, show_spinner=False)
def _looked(root: str, _paths: Paths) -> tuple[str, ...] | None:  # noqa: ARG001 - the cache's key
    return _people(_paths)


def _people(paths: Paths) -> tuple[str, ...] | None:
    """Return whom extensions offer at this moment; None: one of them is busy."""
    found = [people(paths) for people in registered(PEOPLE)]
    return None if None in found else tuple(name for names in found for name in names)
