"""Readings of a page that fail one by one: each keeps its last good value in the viewer's session.

A panel whose reading fails says what did not answer and since when, and the others go on.
"""

import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

import streamlit as st

from pipeline.base.errors import Refused
from pipeline.base.texts import short_moment, visible

_T = TypeVar("_T")
_LONGEST: Final = 120  # characters of why something could not be read


@dataclass(frozen=True, slots=True)
class Reading(Generic[_T]):
    """The last good value (None: there never was one), and why there is no newer one (None: it is new)."""

    value: _T | None = None
    good_at: float | None = None  # Unix seconds by this machine's clock, as the next
    why: str | None = None
    failing_since: float | None = None
    tried_at: float | None = None  # the newest attempt

    @property
    def failed(self) -> bool:
        """Whether the newest attempt failed."""
        return self.why is not None


def outdated(seen: Reading[Any], now: float) -> str:
    """Return until when a panel's values go, and why there are no newer ones, to stand in its head; empty where new."""
    if not seen.failed or seen.good_at is None:
        return ""
    return f" · until {short_moment(seen.good_at, now)}: {visible(seen.why or '', _LONGEST)}"


def held(name: str, about: Hashable) -> Reading[Any]:
    """Return what `reading` returned last under this name; it reads nothing."""
    held_about, kept = st.session_state.get(f"reading_{name}", (None, None))
    return kept if kept is not None and held_about == about else Reading()


def reading(name: str, about: Hashable, read: Callable[[], _T], *, paused: bool = False) -> Reading[_T]:
    """Read, or keep what was read: while paused, and where reading fails; `about` is whose value it is."""
    before: Reading[_T] = held(name, about)
    if paused and before.value is not None and not before.failed:
        return before
    now = time.time()
    try:
        made = Reading(read(), now, tried_at=now)
    except Refused as refused:
        since = before.failing_since if before.failed else now
        made = Reading(before.value, before.good_at, str(refused), since, now)
    st.session_state[f"reading_{name}"] = (about, made)
    return made


def read_since(
    name: str, about: Hashable, read: Callable[[], _T], seconds: float, *, paused: bool = False
) -> Reading[_T]:
    """Return what another part of the page has read in the last `seconds`; where none has, `reading`.

    So the parts of a page cannot contradict each other, also where one of them is drawn alone.
    """
    last: Reading[_T] = held(name, about)
    if last.tried_at is not None and 0 <= time.time() - last.tried_at < seconds:
        return last
    return reading(name, about, read, paused=paused)
