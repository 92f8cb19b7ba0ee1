"""How a derived stream is, by what its driver said last. Pure; an old report says nothing of the present."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from pipeline.store.rows import DerivedState

SILENT_SECONDS: Final = 180.0  # a driver reports each of its streams at least once a minute


class DerivedStanding(StrEnum):
    """How a derived stream is."""

    LEVEL = "level"  # its table has all rows of its game's table
    BEHIND = "behind"
    WAITING = "waiting"  # its game has no table yet
    STOPPED = "stopped"  # it fails, and is tried again
    SILENT = "silent"  # no driver says how it is


@dataclass(frozen=True, slots=True)
class DerivedVerdict:
    """How a derived stream is; None is unknown."""

    standing: DerivedStanding
    behind: int | None  # commits of its game's table that it has not read
    lag_seconds: float | None  # the time for which it has lacked rows of its game's table; 0: it lacks none
    rows: int | None  # in its table, when a driver reported it last, as the next one
    generation: int | None


def judge(state: DerivedState | None, now: float) -> DerivedVerdict:
    """Judge a derived stream by its driver's last report; `now` is Unix seconds by the store's clock."""
    if state is None:
        return DerivedVerdict(DerivedStanding.SILENT, None, None, None, None)
    standing = _standing(state, now)
    in_table = (state.rows, state.generation) if state.generation else (None, None)
    if standing in {DerivedStanding.SILENT, DerivedStanding.WAITING}:
        return DerivedVerdict(standing, None, None, *in_table)
    lag = 0.0 if standing is DerivedStanding.LEVEL else None
    if lag is None and state.level_at is not None:
        lag = max(0.0, now - state.level_at)
    behind = None if standing is DerivedStanding.STOPPED else state.head - state.version  # its head is an old one
    return DerivedVerdict(standing, behind, lag, *in_table)


def _standing(state: DerivedState, now: float) -> DerivedStanding:
    if now - state.reported_at > SILENT_SECONDS:
        return DerivedStanding.SILENT
    if state.error is not None:
        return DerivedStanding.STOPPED
    if not state.generation:
        return DerivedStanding.WAITING
    return DerivedStanding.BEHIND if state.head > state.version else DerivedStanding.LEVEL
