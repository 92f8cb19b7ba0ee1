"""Whether a source is still the one ingest has been reading, and what of it is gone before it was read.

Pure values and comparisons: `topic`, `landing_log` and `checkpoint` bring what is there, `source_checks` and `adopt`
act on the verdict. Each verdict is one sentence with exact ranges, and where reading could go on if that loss is
accepted.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pipeline.errors import Refused
from pipeline.moments import in_utc
from pipeline.store.sources import AcceptedGap


@dataclass(frozen=True, slots=True)
class Offsets:
    """Where reading a topic goes on: the next offset by partition. A partition that is not here begins at 0."""

    next: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Commits:
    """Where reading a landing table goes on: with this commit, but for the files of it that are in bronze already."""

    version: int | None  # None: with the table as it is, because its log does not go back to the beginning
    skip: frozenset[str] = frozenset()  # file names


Position = Offsets | Commits


@dataclass(frozen=True, slots=True)
class TopicSeen:
    """A topic as its broker describes it: by partition, the first offset that is there and the one after the last.

    Not every offset between the two holds a record: transactions write markers, and compaction leaves holes.
    """

    name: str
    id: str
    earliest: Mapping[int, int]
    latest: Mapping[int, int]
    readable: Mapping[int, int] | None = None  # where an open transaction ends what may be read; None: nowhere
    clock: str | None = None  # whose time records have, as the topic is configured: broker or producer; None: unknown


@dataclass(frozen=True, slots=True)
class LandingSeen:
    """A landing table as its log describes it, from the commit on that is to be read next."""

    path: str
    id: str
    first: int  # the oldest commit that is still in the log
    last: int
    changed: Mapping[int, str] = field(default_factory=dict)  # commit that took rows away or changed them → what it did
    missing: Mapping[int, str] = field(default_factory=dict)  # commit → the first of its files that is gone
    replaced: str | None = None  # a file that is in bronze and was to be left out, but is no longer in the table


Seen = TopicSeen | LandingSeen


@dataclass(frozen=True, slots=True)
class Known:
    """What was recorded of a source when it was last read; None is what could not be known then."""

    source_id: str | None = None
    partitions: int | None = None  # of a topic


@dataclass(frozen=True, slots=True)
class Gap:
    """What is gone unread: offsets of a partition, or commits of the landing table."""

    partition: int | None  # None for the landing table
    first: int
    last: int | None  # None: nobody can know how far it went


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why a source cannot simply be read on."""

    reason: str
    sentence: str
    gaps: tuple[Gap, ...]
    onward: Position  # where reading goes on if the gaps are accepted


def judge(known: Known, position: Position, seen: Seen) -> Trouble | None:
    """Compare what was recorded, and where reading goes on, with what is there; None when all of it can be read."""
    if isinstance(seen, TopicSeen) and isinstance(position, Offsets):
        return _judge_topic(known, position, seen)
    if isinstance(seen, LandingSeen) and isinstance(position, Commits):
        return _judge_landing(known, position, seen)
    raise TypeError(f"a position {position} does not belong to a source {seen}")


def first_offsets(setting: str, seen: TopicSeen) -> Offsets:
    """Return the offsets a first start on a topic begins at: `earliest`, `latest` or Spark's JSON of offsets.

    Raises:
        Refused: the setting is something else, or does not name each partition.
    """
    if setting in {"earliest", "latest"}:
        return Offsets(dict(seen.earliest if setting == "earliest" else seen.readable or seen.latest))
    try:
        asked = {int(number): int(offset) for number, offset in json.loads(setting)[seen.name].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Refused(
            f"source.starting_offsets is {setting!r}: expected earliest, latest, or JSON such as "
            f'{{"{seen.name}": {{"0": 17}}}}.'
        ) from error
    if wrong := sorted(asked.keys() ^ seen.earliest.keys()):
        raise Refused(
            f"source.starting_offsets must name each of the {len(seen.earliest)} partitions of {seen.name!r} "
            f"and no other: correct {_listed('partition', wrong)}."
        )
    special = {-2: seen.earliest, -1: seen.readable or seen.latest}
    return Offsets({number: special.get(offset, asked)[number] for number, offset in asked.items()})


def open_transactions(position: Offsets, seen: TopicSeen) -> str | None:
    """Return what was read already but lies in or behind an open transaction, so that reading cannot go on yet.

    That comes of reading with `read_uncommitted` before: a consumer that reads what was committed stops in front of an
    open transaction.
    """
    limits = seen.readable or {}
    behind = [
        Gap(part, limits[part], at - 1) for part, at in sorted(position.next.items()) if at > limits.get(part, at)
    ]
    return _ranges(behind) if behind else None


def offsets_json(topic: str, position: Offsets, seen: TopicSeen | None) -> str:
    """Return a position as Spark's `startingOffsets`, which must name each partition there is."""
    numbers = sorted(position.next.keys() | (seen.earliest.keys() if seen else set()))
    return json.dumps({topic: {str(number): position.next.get(number, 0) for number in numbers}})


def render_position(position: Position) -> str:
    """Return a position as the text that `parse` reads."""
    if isinstance(position, Offsets):
        return json.dumps({"offsets": {str(number): offset for number, offset in sorted(position.next.items())}})
    return json.dumps({"version": position.version, "skip": sorted(position.skip)})


def parse(text: str) -> Position:
    """Return the position that `render` wrote."""
    kept: dict[str, Any] = json.loads(text)
    if "offsets" in kept:
        return Offsets({int(number): offset for number, offset in kept["offsets"].items()})
    return Commits(kept["version"], frozenset(kept["skip"]))


def _judge_topic(known: Known, position: Offsets, seen: TopicSeen) -> Trouble | None:
    topic = f"The Kafka topic {seen.name!r}"
    begun_late = tuple(Gap(number, 0, first - 1) for number, first in sorted(seen.earliest.items()) if first > 0)
    fresh = Offsets(dict(seen.earliest))
    if known.source_id is not None and known.source_id != seen.id:
        unread = tuple(Gap(number, offset, None) for number, offset in sorted(position.next.items()))
        return Trouble(
            "recreated",
            f"{topic} was deleted and recreated: its id is {seen.id}, ingest has read {known.source_id}. Whatever "
            f"ingest had not read of the old one is gone: {_ranges(unread)}.",
            (*unread, *begun_late),
            fresh,
        )
    had = max([known.partitions or 0, *(number + 1 for number in position.next)])
    if vanished := sorted(set(range(had)) - seen.earliest.keys()):
        unread = tuple(Gap(number, position.next.get(number, 0), None) for number in vanished)
        kept = {number: offset for number, offset in position.next.items() if number in seen.earliest}
        return Trouble(
            "partitions",
            f"{topic} had {had} partitions and now has {len(seen.earliest)}: {_listed('partition', vanished)} "
            f"vanished with what was unread, {_ranges(unread)}.",
            unread,
            Offsets(kept),
        )
    return _judge_offsets(topic, position, seen)


def _judge_offsets(topic: str, position: Offsets, seen: TopicSeen) -> Trouble | None:
    """Judge each partition's next offset: what lies before the first one there is gone, after the last never was."""
    wanted = {number: position.next.get(number, 0) for number in sorted(seen.earliest)}
    within = {number: min(max(at, seen.earliest[number]), seen.latest[number]) for number, at in wanted.items()}
    back = tuple(Gap(number, seen.latest[number], at - 1) for number, at in wanted.items() if at > seen.latest[number])
    if back:
        return Trouble(
            "truncated",
            f"{topic} has lost records that were there: ingest has read {_ranges(back)}, which it no longer has, and "
            "other records may take their place.",
            back,
            Offsets(within),
        )
    gone = tuple(Gap(number, at, within[number] - 1) for number, at in wanted.items() if at < within[number])
    if gone:
        return Trouble(
            "retention",
            f"{topic} no longer has records that were not read yet: retention has removed {_ranges(gone)}.",
            gone,
            Offsets(within),
        )
    return None


def _judge_landing(known: Known, position: Commits, seen: LandingSeen) -> Trouble | None:
    table = f"The landing table {seen.path}"
    at = position.version
    if known.source_id is not None and known.source_id != seen.id:
        unread = Gap(None, at or 0, None)
        return Trouble(
            "recreated",
            f"{table} was deleted and recreated: its id is {seen.id}, ingest has read {known.source_id}. Whatever "
            f"ingest had not read of the old one is gone: {_ranges([unread])}.",
            (unread,),
            Commits(0 if seen.first == 0 else None),
        )
    if at is None:
        return _judge_snapshot(table, seen)
    if at > seen.last + 1:
        back = Gap(None, seen.last + 1, at - 1)
        return Trouble(
            "truncated",
            f"{table} was set back: it ends at commit {seen.last}, but ingest has read {_ranges([back])}.",
            (back,),
            Commits(seen.last + 1),
        )
    if at < seen.first:
        gone = Gap(None, at, seen.first - 1)
        return Trouble(
            "retention",
            f"{table} no longer has the log of commits that were not read yet: {_ranges([gone])}.",
            (gone,),
            Commits(seen.first),
        )
    return _judge_commits(table, at, seen)


def _judge_snapshot(table: str, seen: LandingSeen) -> Trouble | None:
    """Judge a table that is to be read as it is but for some files: they must not have been merged with others."""
    if seen.replaced is None:
        return None
    gap = Gap(None, 0, seen.last)
    return Trouble(
        "rewritten",
        f"{table} was rewritten, so it is not known what is already in bronze: {seen.replaced} is no longer "
        f"in it. To leave out: {_ranges([gap])}.",
        (gap,),
        Commits(seen.last + 1),
    )


def _judge_commits(table: str, at: int, seen: LandingSeen) -> Trouble | None:
    """Judge the unread commits: each must only have added rows, and its files must be there."""
    for reason, found, text in (
        ("rewritten", seen.changed, "was changed, and ingest reads only what is appended: commit {} {}"),
        ("retention", seen.missing, "no longer has a file that was not read yet: commit {} added {}"),
    ):
        if found:
            version = min(found)
            gap = Gap(None, at, max(found))
            sentence = f"{table} {text.format(version, found[version])}. To leave out: {_ranges([gap])}."
            return Trouble(reason, sentence, (gap,), Commits(max(found) + 1))
    return None


def _ranges(gaps: Iterable[Gap]) -> str:
    return "; ".join(describe_gap(gap.partition, gap.first, gap.last) for gap in gaps) or "nothing"


def describe_gap(partition: int | None, first: int, last: int | None) -> str:
    """Return a gap in words, with both ends."""
    what = "commit" if partition is None else f"partition {partition} offset"
    if last is None:
        return f"{what}s from {first} on"
    return f"{what} {first}" if first == last else f"{what}s {first} to {last}"


def describe_accepted(gap: AcceptedGap) -> str:
    """Return a gap that a person has accepted as one line."""
    what = describe_gap(gap.partition, gap.first, gap.last)
    at = in_utc(gap.accepted_at, "%Y-%m-%d %H:%M:%S UTC")
    return f"{at}  {gap.source}: {what} ({gap.reason}), accepted by {gap.actor}"


def _listed(what: str, numbers: Iterable[int]) -> str:
    return f"{what} " + ", ".join(str(number) for number in numbers)
