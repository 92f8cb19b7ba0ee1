"""A week of a source, as ingest measures it every five seconds: days of steady rows, nights, lulls and pauses."""

from collections.abc import Iterable, Sequence
from random import Random
from typing import Final, NamedTuple

from pipeline.health.verdicts.quiet import Quiet, usual_gap
from pipeline.store.rows import SourceGap
from pipeline.store.source_gaps import KEPT_SECONDS, joined, slot_of

BEGIN: Final = 1_800_000_000.0 // 86_400 * 86_400
DAY, HOUR, MINUTE = 86_400.0, 3_600.0, 60.0
BEAT: Final = 5.0


class Silent(NamedTuple):
    """A silence that readers saw."""

    began_at: float  # when the last row had come
    after: float  # seconds
    basis: str
    is_longest: bool  # of all gaps so far


class Measured:
    """The gaps that ingest keeps, without a store; `silences` are those that readers saw."""

    def __init__(self) -> None:
        self.slots = dict[int, SourceGap]()
        self.silences: list[Silent] = []

    def gap(self, began_at: float, seconds: float, *, ingest_is_down: bool = False) -> None:
        """Let a time without a row pass; the next row ends it. A stopped ingest measures nothing, then rows wait."""
        offset = began_at % BEAT
        seen = 0.0 if ingest_is_down else max(0.0, (seconds + offset) // BEAT * BEAT - offset)
        if seen > 10.0:
            self._judge(began_at, offset, seen)
        slot = slot_of(began_at)
        self.slots[slot] = joined(self.slots.get(slot), began_at, seen)
        oldest = slot_of(began_at + seconds - KEPT_SECONDS)
        if len(self.slots) > 1_200:
            self.slots = {at: gap for at, gap in self.slots.items() if at >= oldest}

    def _judge(self, began_at: float, offset: float, seen: float) -> None:
        usual = usual_gap([*self.slots.values()], began_at, BEAT)
        if usual is None or not Quiet(seen, usual).is_silent:
            return
        first = ((usual.limit + offset) // BEAT + 1) * BEAT - offset  # the first measurement beyond the limit
        is_longest = seen > max(each.seconds for each in self.slots.values())
        self.silences.append(Silent(began_at, first, usual.basis, is_longest))


class Pause(NamedTuple):
    """A time in which nothing comes, or ingest does not run."""

    at: float  # seconds since the begin of the week
    seconds: float
    is_ingest: bool = False


class Day(NamedTuple):
    """When rows begin, get rare, are many again, and end; Unix seconds."""

    wakes: float
    slackens: float
    resumes: float
    sleeps: float


def replay(random: Random, pauses: Iterable[Pause], measured: Measured, days: int = 7) -> None:
    """Replay a week: rows from about 6:00 to 23:00, one a minute or two from about 12:30 to 13:30, and pauses."""

    def about(day: int, hour: float) -> float:
        return BEGIN + day * DAY + hour * HOUR + random.uniform(-10, 10) * MINUTE

    plan = [Day(about(day, 6), about(day, 12.5), about(day, 13.5), about(day, 23)) for day in range(days + 1)]
    planned, at = sorted(pauses), plan[0].wakes
    while at < plan[days].wakes:
        day = plan[int((at - BEGIN) // DAY)]
        if planned and at >= BEGIN + planned[0].at:
            pause = planned.pop(0)
            seconds = pause.seconds
            measured.gap(at, seconds, ingest_is_down=pause.is_ingest)
        else:
            seconds = _gap(random, at, day, plan)
            measured.gap(at, seconds)
        at += seconds


def _gap(random: Random, at: float, day: Day, plan: Sequence[Day]) -> float:
    if day.wakes <= at < day.sleeps:
        return random.uniform(50.0, 120.0) if day.slackens <= at < day.resumes else random.uniform(1.0, 6.0)
    morning = next(each.wakes for each in plan if each.wakes > at)
    stray = at + random.uniform(HOUR, 4 * HOUR)  # a few rows come at night
    return min(stray, morning) - at if random.random() < 0.5 else morning - at
