"""The acting person of a page, verified by the gate before the dashboard."""

from typing import Final

import streamlit as st

from app.gate import PERSON_HEADER, Person, read_person
from pipeline.errors import Refused

_KEPT: Final = "person"


def person() -> Person:
    """Return who acts, by the connection of this tab as it is now; where the tab was just closed, as it was.

    Raises:
        Refused: the dashboard was not started as it should be, with nothing before it that knows people.
    """
    sealed = st.context.headers.get_all(PERSON_HEADER)
    if sealed:
        st.session_state[_KEPT] = read_person(sealed)
    known: Person | None = st.session_state.get(_KEPT)
    if known is None:
        raise Refused("Nobody is signed in. Start the dashboard with `turnout dashboard`, and open the URL it prints.")
    return known
