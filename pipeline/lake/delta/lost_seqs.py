"""Seqs that bronze lost when an older copy of it was restored, and what they mean for a game's cursor.

Bronze itself keeps them, as transaction versions, so they are as durable as its rows. `ingest/adopt` records them; the
group drivers check them, as they must not add rows to a table that holds rows of such a seq. Pure.
"""

import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from pipeline.base.names import lost_seqs_app_id


@dataclass(frozen=True, slots=True, order=True)
class LostSeqs:
    """The seqs above `after` and below `before`: bronze has no rows of them and never will."""

    after: int  # the last seq of the older copy
    before: int  # of the commit that recorded the loss

    def __contains__(self, seq: int) -> bool:
        return self.after < seq < self.before


def read(version_of: Callable[[str], int | None], environment: str) -> tuple[LostSeqs, ...]:
    """Return all losses that bronze records, oldest first; `version_of` gives a transaction version of bronze."""
    lost = []
    for number in itertools.count(1):
        after = version_of(lost_seqs_app_id(environment, number, "after"))
        before = version_of(lost_seqs_app_id(environment, number, "before"))
        if after is None or before is None:
            break
        lost.append(LostSeqs(after, before))
    return tuple(lost)


def transactions(environment: str, number: int, lost: LostSeqs) -> Mapping[str, int]:
    """Return the transactions with which a commit to bronze records the `number`-th loss, counted from 1."""
    return {
        lost_seqs_app_id(environment, number, "after"): lost.after,
        lost_seqs_app_id(environment, number, "before"): lost.before,
    }


def problem(key: str, cursor: int, head: int, losses: Iterable[LostSeqs]) -> str | None:
    """Return why no rows may be added to a game's table, with the way out; None when they may be added.

    Args:
        key: the game's key.
        cursor: the table's cursor.
        head: bronze's last seq, read after the cursor.
        losses: the losses that bronze records.
    """
    if cursor > head:
        return (
            f"its table has rows up to seq {cursor}, but bronze ends at seq {head}: bronze was restored from an older "
            "copy. Restore the newest copy, or run `turnout ingest adopt` and rebuild the games that it names."
        )
    for lost in losses:
        if cursor in lost:
            return (
                f"its table has rows of seqs {lost.after + 1} to {cursor}, which bronze lost when an older copy was "
                f"restored and ingest has read again. Run `turnout repair rebuild {key}`."
            )
    return None
