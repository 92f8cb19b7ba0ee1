"""Whether a game's table is as fresh as output contracts promise. Pure; what is unknown is never fresh."""

from collections.abc import Iterator
from dataclasses import dataclass

from pipeline.base.texts import age, moment


@dataclass(frozen=True, slots=True)
class FreshnessPromise:
    """What one output contract promises of one game; None: it promises no such thing."""

    contract: str
    within: float | None  # most seconds since the time through which the table is complete
    newest_within: float | None  # most seconds since its source got the game's newest record
    readers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FreshnessPart:
    """One part of a promise beside what is known."""

    text: str  # a clause for people
    is_kept: bool
    is_known: bool  # False with `is_kept`: the game is too new for either


@dataclass(frozen=True, slots=True)
class FreshnessVerdict:
    """A promise beside what is known; times are Unix seconds by the control store's clock."""

    promise: FreshnessPromise
    game_key: str
    game: str  # its exact name
    known_since: float  # when its first record came
    through_at: float | None  # the table has every record that the source had by then; None: unknown
    record_after: float | None  # its source got the newest record after that; None: unknown
    now: float

    @property
    def is_stale(self) -> bool:
        """Whether the promise is broken, or nobody knows that it is kept."""
        return any(not each.is_kept for each in self.parts)

    @property
    def parts(self) -> tuple[FreshnessPart, ...]:
        """How each part of the promise is kept."""
        return tuple(self._parts())

    def _parts(self) -> Iterator[FreshnessPart]:
        promise = self.promise
        if promise.within is not None:
            known = "complete through no known time"
            if self.through_at is not None:
                known = f"complete through {moment(self.through_at)}, {age(self.now - self.through_at)} ago"
            yield self._part(f"{known}; at most {age(promise.within)} are promised", self.through_at, promise.within)
        if promise.newest_within is not None:
            known = "when its newest record came is not known"
            if self.record_after is not None:
                known = f"its newest record came within the last {age(self.now - self.record_after)}"
            said = f"{known}; at most {age(promise.newest_within)} are promised"
            yield self._part(said, self.record_after, promise.newest_within)

    def _part(self, text: str, at: float | None, limit: float) -> FreshnessPart:
        since = self.known_since if at is None else max(at, self.known_since)  # before that there was nothing to have
        return FreshnessPart(text, self.now - since <= limit, at is not None)
