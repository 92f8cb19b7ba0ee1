"""One follower: what it has, and what it gets next. It reads, in a thread of its edge, and never waits.

A refused row is sent once its game's table has passed it, or bronze where ingest refused it, unless the table holds it;
then through-offsets follow. So behind an offset that was sent no refusal comes, but by a rebuild.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.base.names import game_key
from pipeline.data.contracts.decoded import PAYLOAD
from pipeline.data.ingest.bronze_progress import FOREIGN
from pipeline.data.repair.places import PLACES, within, without
from pipeline.edge.following.landed import LandedView, Offsets
from pipeline.edge.following.positions import FollowPosition, FollowStart
from pipeline.edge.following.read_topics import ReadTopics
from pipeline.edge.following.refusals import OfGame, Quarantine, QuarantineCommit, RowsByGame, TooOld
from pipeline.edge.statuses import exhausted, out_of_range
from pipeline.store.edge_producers import EdgeProducer
from protos.turnout.v1.edge_pb2 import FollowResponse, LogPosition

MOST_ROWS: Final = 500
"""Most rows of one message."""

_MOST_HELD: Final = 10_000
_FIELDS: Final = {
    "unknown_game": "game", "unknown_schema": "schema_id", "quarantined_schema": "schema_id", "other_type": "schema_id",
}  # fmt: skip
"""The wrapper's field that is wrong, by reason, where quarantine names none; of others it is the payload."""


@dataclass(frozen=True, slots=True)
class FollowView:
    """What an edge knows at one moment, in the order in which it was read."""

    landed: LandedView
    version: int  # of quarantine, read after: it has every refusal of what is landed; -1: there is none yet
    mark: bytes  # of that table
    games: Mapping[str, str]  # key by exact name
    topics: ReadTopics  # read after `landed`: what it skips is told no later than offsets behind it


@dataclass(slots=True)
class _Held:
    """Rows of a game in one commit, or one file of it, that are not all decided yet."""

    of: QuarantineCommit
    game: OfGame
    version: int | None  # None: from before the follower began
    last: int  # seq
    decided: int = -1  # the seq up to which they were sent, or were not to be


class Follower:
    """The games of one caller, from one position on."""

    def __init__(self, quarantine: Quarantine, start: FollowStart, view: FollowView, producer: EdgeProducer) -> None:
        """Begin at a token's position, or at offsets.

        Raises:
            EdgeStatus: the position is too old, or of another quarantine.
        """
        self.producer = producer
        self._quarantine, self._since = quarantine, start.since
        self._earlier: list[QuarantineCommit] = []  # the newest first
        self._held: list[_Held] = []
        self._gone: dict[str, list[pa.Table]] = {}  # places that left quarantine while rows of the game were held
        self._sent: dict[str, tuple[str, Offsets]] = {}  # by game the topic's id, and offsets of it
        self._skips = 0  # of the ranges that ingest has skipped, those that were told
        self._begins = True
        self._mark, self._version = view.mark, view.version
        if start.position is not None:
            self._version = start.position.version
            if self._version > view.version or (self._version >= 0 and start.position.table != view.mark):
                raise out_of_range("the token is of another quarantine, or of a later state of this one")
        elif start.since:
            ends = view.landed.ends
            before = (seq for seq, of in ends if all(of.get(each, 0) <= at for each, at in start.since.items()))
            self._earlier = [*quarantine.since(max(before, default=0), view.version)][::-1]

    def step(self, view: FollowView) -> Iterator[FollowResponse]:
        """Yield what is new; the last message has a token, unless rows from before the beginning are undecided.

        Raises:
            EdgeStatus: the log no longer has what comes next.
            DeltaError, OSError: something cannot be read.
        """
        if self._version > view.version or (self._version >= 0 and self._mark != view.mark):
            raise out_of_range("quarantine was put back from a copy, or made again")
        self._mark, says = view.mark, self._begins
        try:
            for message in self._rows_of(view):
                says = True
                yield message
        except TooOld as error:
            raise out_of_range("maintenance has deleted what comes next") from error
        last = self._through(view)
        if says or last.landed or last.skipped:
            self._begins = False
            versions = [each.version for each in self._held]
            if None not in versions:
                low = min((each for each in versions if each is not None), default=self._version + 1)
                last.token = FollowPosition(view.mark, low - 1).token
            yield last

    def _rows_of(self, view: FollowView) -> Iterator[FollowResponse]:
        while self._earlier:
            self._hold(self._earlier.pop(), None)
            yield from self._decided(view)
        while self._version < view.version:
            version = self._version + 1
            commit = self._quarantine.commit(version)
            if commit.removed:
                yield from self._replayed(self._quarantine.gone(commit))
                self._hold(commit, version)
            else:
                for file in commit.added:
                    self._hold(QuarantineCommit((file,)), version)
            self._version = version
            yield from self._decided(view)
        yield from self._decided(view)

    def _hold(self, commit: QuarantineCommit, version: int | None) -> None:
        """Note the caller's rows that a commit added."""
        rows = self._quarantine.added(commit)
        self._held += [
            _Held(commit, game, version, rows.last_seq(game))
            for game in rows.games
            if self.producer.may_send(game.name)
        ]
        if len(self._held) > _MOST_HELD:
            raise exhausted("TOO_MANY_UNDECIDED", "too many refused rows wait for their games' tables", 30.0)

    def _decided(self, view: FollowView) -> Iterator[FollowResponse]:
        """Yield held rows up to the cursor of their game's table, or bronze's end, and forget them."""
        left: list[_Held] = []
        for held in self._held:
            through = (
                view.landed.head if held.game.is_ingests else view.landed.cursors.get(game_key(held.game.name), -1)
            )
            if through > held.decided:
                rows = self._quarantine.added(held.of)
                chosen = self._quarantine.refused(rows, held.game, held.decided, min(through, held.last))
                for places in self._gone.get(held.game.name, ()):
                    chosen = without(chosen, places)
                yield from _refused(held.game.name, chosen if held.version is not None else self._wanted(chosen))
                held.decided = through
            if held.last > held.decided:
                left.append(held)
        self._held = left
        names = {each.game.name for each in left}
        self._gone = {name: places for name, places in self._gone.items() if name in names}

    def _wanted(self, rows: pa.Table) -> pa.Table:
        """Return the rows at or behind the offsets at which the caller begins; all of those of a landing table."""
        parts = [
            rows.filter((pc.field("partition") == partition) & (pc.field("offset") >= offset))
            for partition, offset in self._since.items()
        ]
        return pa.concat_tables([*parts, rows.filter(pc.field("partition").is_null())])

    def _replayed(self, gone: RowsByGame) -> Iterator[FollowResponse]:
        """Yield rows that have left quarantine, where their game's table holds them."""
        held = {each.game.name for each in self._held}
        for game in gone.games:
            if not self.producer.may_send(game.name):
                continue
            rows = gone.of(game)
            if game.name in held:
                self._gone.setdefault(game.name, []).append(rows.select(PLACES.names))
            for part in _parts(within(rows, self._quarantine.landed(game.name, rows))):
                message = FollowResponse()
                for row in part:
                    message.replayed.add(**_named(game.name, row))
                yield message

    def _through(self, view: FollowView) -> FollowResponse:
        """Return the offsets through which games are landed, where they have grown."""
        message, by_seq = FollowResponse(), dict[int, list[str]]()
        for skipped in view.topics.skipped[self._skips :]:
            message.skipped.add(**skipped._asdict())
        self._skips = len(view.topics.skipped)
        for name, key in view.games.items():
            if (seq := view.landed.landed.get(key)) is not None and self.producer.may_send(name):
                by_seq.setdefault(seq, []).append(name)
        for seq, names in by_seq.items():
            end, offsets = view.landed.end(seq)
            topic_id, former = view.topics.at(end)
            grown = [name for name in names if _exceeds(topic_id, offsets, *self._sent.get(name, (topic_id, {})))]
            if grown:
                self._sent.update(dict.fromkeys(grown, (topic_id, offsets)))
                through = [LogPosition(partition=each, offset=at) for each, at in sorted(offsets.items())]
                message.landed.add(games=sorted(grown), through=through, topic_id=topic_id, former_topic_ids=former)
        return message


def _exceeds(topic_id: str, offsets: Offsets, sent_topic_id: str, sent: Offsets) -> bool:
    if topic_id != sent_topic_id:
        return bool(offsets)
    return offsets is not sent and any(at > sent.get(partition, 0) for partition, at in offsets.items())


def _refused(game: str, rows: pa.Table) -> Iterator[FollowResponse]:
    for part in _parts(rows):
        message = FollowResponse()
        for row in part:
            reason = row["reason"] or ""
            field = row["field"] or _FIELDS.get(reason, PAYLOAD)
            message.refused.add(**_named(game, row), reason=reason, detail=row["detail"] or "", field=field)
        yield message


def _parts(rows: pa.Table) -> Iterator[list[dict[str, Any]]]:
    for start in range(0, rows.num_rows, MOST_ROWS):
        yield rows.slice(start, MOST_ROWS).to_pylist()


def _named(game: str, row: dict[str, Any]) -> dict[str, Any]:
    """Return how a row is named: rows of a landing table have a file and no partition."""
    place: dict[str, Any] = {"game": game, "event_id": row["event_id"] or "", "offset": row["offset"] or 0}
    if row["partition"] is None:
        topic = row["topic"] or ""
        return {**place, "file": topic.removeprefix(FOREIGN).partition("/")[2] if topic.startswith(FOREIGN) else topic}
    return {**place, "partition": row["partition"]}
