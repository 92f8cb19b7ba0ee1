"""How a derived stream is, by what people decided and its driver said last. Pure; an old report says nothing of now."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from pipeline.store.rows import DerivedState, DerivedStream

SILENT_SECONDS: Final = 180.0  # a driver reports each of its streams at least once a minute


class DerivedStanding(StrEnum):
    """How a derived stream is."""

    LEVEL = "level"  # its table has all rows of its game's table
    BEHIND = "behind"
    WAITING = "waiting"  # its game has no table yet
    HELD = "held"  # its silver table is paused
    PAUSED = "paused"  # by a person, whether or not a driver runs
    STOPPED = "stopped"  # it fails, and is tried again
    SILENT = "silent"  # no driver says how it is


_UNMEASURED: Final = {DerivedStanding.SILENT, DerivedStanding.WAITING, DerivedStanding.HELD}


@dataclass(frozen=True, slots=True)
class DerivedVerdict:
    """How a derived stream is; None is unknown."""

    standing: DerivedStanding
    behind: int | None  # commits of its game's table that it has not read
    lag_seconds: float | None  # the time for which it has lacked rows of its game's table; 0: it lacks none
    rows: int | None  # in its table, when a driver reported it last, as the next one
    generation: int | None


def judge(stream: DerivedStream, now: float) -> DerivedVerdict:
    """Judge a derived stream in force; `now` is Unix seconds by the store's clock."""
    state, standing = stream.state, _standing(stream, now)
    if state is None:
        return DerivedVerdict(standing, None, None, None, None)
    in_table = (state.rows, state.generation) if state.generation else (None, None)
    if standing in _UNMEASURED or _is_silent(state, now):
        return DerivedVerdict(standing, None, None, *in_table)
    lag = 0.0 if state.generation and _has_all(state) else None
    if lag is None and state.level_at is not None:
        lag = max(0.0, now - state.level_at)
    # The head of one that stands still is an old one.
    behind = state.head - state.version if standing in {DerivedStanding.LEVEL, DerivedStanding.BEHIND} else None
    return DerivedVerdict(standing, behind, lag, *in_table)


def left_out(stream: DerivedStream | None, now: float) -> int | None:
    """Return the second rows that a silver table has left out; None: unknown, as 0 is while it does not read on."""
    if stream is None or stream.state is None:
        return None
    reads_on = _standing(stream, now) in {DerivedStanding.LEVEL, DerivedStanding.BEHIND}
    return stream.state.duplicates if stream.state.duplicates or reads_on else None


def _standing(stream: DerivedStream, now: float) -> DerivedStanding:
    state = stream.state
    if stream.control.is_paused:
        return DerivedStanding.PAUSED
    if state is None or _is_silent(state, now):
        return DerivedStanding.SILENT
    if state.error is not None:
        return DerivedStanding.STOPPED
    if stream.source is not None and stream.source.is_paused:
        return DerivedStanding.HELD
    if not state.generation:
        return DerivedStanding.WAITING
    return DerivedStanding.LEVEL if _has_all(state) else DerivedStanding.BEHIND


def _is_silent(state: DerivedState, now: float) -> bool:
    return now - state.reported_at > SILENT_SECONDS


def _has_all(state: DerivedState) -> bool:
    return state.error is None and state.head <= state.version
