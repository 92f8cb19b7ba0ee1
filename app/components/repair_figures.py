"""The figures of the Repairs page: what is parked, what tries again, which rows were refused, which repairs are open.

Pure. What could not be read is a dash with its reason, never 0.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Final

import numpy as np

from app import formatting
from app.look.lines import gapped
from app.look.parts import Figure
from app.look.tokens import Tone
from app.state.control_queries import ControlState
from app.state.readings import Reading
from listeners.series import Series
from pipeline.api.operations import OperationKind
from pipeline.api.steering import StreamControl
from pipeline.base.texts import in_utc, join_limited

_REPAIRS: Final = frozenset({OperationKind.RETRY, OperationKind.REPLAY, OperationKind.DEDUPE, OperationKind.REBUILD})
_LONGEST: Final = 40  # characters of a note
_MOST_MINUTES: Final = 2  # named of those of which a report may be missing, the newest first
_FLOOR: Final = 180.0  # refused rows a minute; below it a sparkline stays low


def figures(steering: ControlState, hour: Reading[Series]) -> list[Figure]:
    """Return the figures in the order of the page."""
    return [_parked(steering), _waiting(steering), _refused(steering, hour), _open(steering)]


def _parked(steering: ControlState) -> Figure:
    parked = _of_fleet(steering, [key for key, each in steering.decisions.items() if each.parked_at is not None])
    note = _named(steering, parked) if parked else "no stream gave up"
    return Figure("Parked", formatting.count(len(parked)), "", note, [], "bad" if parked else "plain")


def _waiting(steering: ControlState) -> Figure:
    waits = {key: each for key, each in steering.decisions.items() if each.parked_at is None and each.failures > 0}
    keys = _of_fleet(steering, list(waits))
    tone: Tone = "late" if keys else "plain"
    return Figure("Waiting after a failure", formatting.count(len(keys)), "", _next(steering, waits, keys), [], tone)


def _next(steering: ControlState, waits: dict[str, StreamControl], keys: Sequence[str]) -> str:
    if not keys:
        return "no stream waits"
    soonest = min(waits[key].retry_at for key in keys) - steering.read_at
    return f"next attempt in {formatting.age(soonest)}" if soonest > 0 else "next attempt at its next pass"


def _refused(steering: ControlState, hour: Reading[Series]) -> Figure:
    """Count the rows of games that were refused; those of names without a game can only be replayed once they are.

    The series ends with the last closed minute. What drivers counted in the last five minutes is newer, so of each game
    the larger number counts, which is the least that was refused.
    """
    series = hour.value
    if series is None:
        why = formatting.shown(hour.why or "not read", _LONGEST)
        return Figure("Rows refused, 1 h", formatting.UNKNOWN_VALUE, "", why, [], "blind")
    points = gapped(series.total("refused"))
    lately = {row.game_key: sum(row.live.refused.values()) for row in steering.fleet.rows if row.live is not None}
    if all(each is None for each in points) and not any(lately.values()):
        return Figure("Rows refused, 1 h", formatting.UNKNOWN_VALUE, "", "no driver reported", points, "blind")
    closed = dict(zip(series.games, series.refused.sum(axis=1).tolist(), strict=True))
    sums = {key: max(closed.get(key, 0), lately.get(key, 0)) for key in {*closed, *lately}}
    amount = sum(sums.values())
    until = in_utc(series.since + float(series.seconds.sum()), "%H:%M UTC")
    missing = series.since + series.slot_seconds * np.flatnonzero(series.is_partial())
    lost = join_limited(missing[::-1].tolist(), _MOST_MINUTES, lambda at: in_utc(at, "%H:%M"))
    ends = f"until {until}; reports of {lost} may be missing" if lost else f"complete until {until}"
    note = f"none seen {ends}" if lost else f"none until {until}"
    if amount:
        worst = max(sums, key=lambda key: (sums[key], key))
        row = steering.fleet.row(worst)
        name = worst if row is None else row.game
        note = f"{formatting.shown(name, 24)}: {100 * sums[worst] / amount:.0f} % of them; {ends}"
    if hour.failed:
        note = formatting.shown(f"until {formatting.clock(hour.good_at)}: {hour.why}", _LONGEST)
    value = f"≥ {formatting.count(amount)}" if amount or lost else "0"
    return Figure("Rows refused, 1 h", value, "", note, points, "late" if amount else "plain", floor=_FLOOR)


def _open(steering: ControlState) -> Figure:
    opened = {each.operation_id: each for each in steering.busy.values() if each.kind in _REPAIRS}
    stuck = sum(each.is_stuck for each in opened.values())
    kinds = Counter(str(each.kind) for each in opened.values())
    note = ", ".join(f"{amount} {formatting.shown(kind, 20)}" for kind, amount in kinds.most_common(2)) or "none"
    if stuck:
        note = f"{stuck} {'needs' if stuck == 1 else 'need'} a person"
    return Figure("Repairs open", formatting.count(len(opened)), "", note, [], "late" if stuck else "plain")


def _of_fleet(steering: ControlState, keys: Sequence[str]) -> list[str]:
    """Return the keys of games that there are, by name."""
    found = [(row.game.casefold(), key) for key in keys if (row := steering.fleet.row(key)) is not None]
    return [key for _, key in sorted(found)]


def _named(steering: ControlState, keys: Sequence[str]) -> str:
    row = steering.fleet.row(keys[0])
    name = formatting.shown(keys[0] if row is None else row.game, 24)
    return name if len(keys) == 1 else f"{name} and {len(keys) - 1} more"
