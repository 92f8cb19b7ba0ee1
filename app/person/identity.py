"""The acting person of a page, verified by the gate before the dashboard.

A tab belongs to the person who opened it. Where its connection comes back as another one, all that was chosen, typed
and previewed in it goes, and it does nothing until a reload: one person's reason never stands under
another's act.
"""

from collections.abc import Sequence
from typing import Final

import streamlit as st

from app.gate import PERSON_HEADER, Person, read_person
from pipeline.base.errors import Refused

_KEPT: Final = "person"
_ENDED: Final = "tab_ended"  # why the tab does nothing any more


def person() -> Person:
    """Return the acting person, by this tab's connection as it is now; if the tab was just closed, as it was.

    Raises:
        Refused: the connection is another person's than before, or the dashboard was not started as it should be, with
            nothing before it that knows people.
    """
    sealed = _sealed()
    if _ENDED not in st.session_state and sealed:
        now, before = read_person(sealed), st.session_state.get(_KEPT)
        if now is not None and before is not None and now != before:
            _end(before, now)
        else:
            st.session_state[_KEPT] = now
    if _ENDED in st.session_state:
        raise Refused(st.session_state[_ENDED])
    known: Person | None = st.session_state.get(_KEPT)
    if known is None:
        raise Refused("Nobody is signed in. Start the dashboard with `turnout dashboard`, and open the URL it prints.")
    return known


def rerun_where_another_acts() -> None:
    """Draw the whole page again, which then says why, where this tab's person may see a part of it no longer."""
    try:
        person()
    except Refused:
        st.rerun()


def _end(before: Person, now: Person) -> None:
    """Forget all of this tab: what the browser still shows of it reaches nothing."""
    for name in list(st.session_state):
        del st.session_state[name]
    st.session_state[_ENDED] = (
        f"{before.name} opened this tab, and its connection is {now.name}'s now. Nothing more was submitted. "
        f"Reload the page to act as {now.name}."
    )


def _sealed() -> Sequence[str]:
    return st.context.headers.get_all(PERSON_HEADER)
