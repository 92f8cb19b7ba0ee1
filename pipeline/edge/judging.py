"""Judges the events of a request: refuses only what a pass with the edge's schema set would quarantine for good.

What may still land passes on: a schema that is not registered yet, one whose rows wait for a person's decision, one
that this process cannot use. Called by the service; pure but for caches.
"""

import logging
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
from google.protobuf.message import DecodeError

from pipeline.base.errors import Refused
from pipeline.base.names import game_key, is_game_name
from pipeline.data.contracts.decoded import MAX_DETAIL, PAYLOAD, one_line
from pipeline.data.contracts.envelopes.envelope import MALFORMED, NO_NAME
from pipeline.data.contracts.formats.supported import decoder, quick_look
from pipeline.data.contracts.schemas import Schema
from pipeline.data.output_contracts.rules import REASON as CONTRACT
from pipeline.data.streams.writing.portions import portions
from pipeline.edge.known import Known
from pipeline.edge.promises import EdgeRules
from pipeline.store.edge_producers import EdgeProducer
from protos.turnout.v1.wrapper_pb2 import Wrapper

NOT_ALLOWED: Final = "not_allowed"
"""The reason of an event of a game that its producer may not send. A pass knows no producers."""

TOO_LARGE: Final = "too_large"
"""The reason of an event that is larger than a record of the topic may be."""

OTHER_GAME: Final = "other"
"""Stands for a game's key in metrics where no schema is registered for the name, so that names cannot flood them."""

_MOST_NAMES: Final = 10_000  # whose schemas are kept at hand
_MOST_DECODED: Final = 64 * 1024 * 1024  # bytes of columns at once
_MOST_ID: Final = 200  # characters of an event id that an answer repeats

_log: Final = logging.getLogger("turnout")
_Look: TypeAlias = Callable[[bytes], bool] | None


class EdgeRefusal(NamedTuple):
    """Why one event is refused."""

    row: int  # in the request
    reason: str
    detail: str
    field: str
    event_id: str
    game: str  # its key, as metrics have it
    rules: tuple[str, ...] = ()  # of output contracts that it breaks


@dataclass(slots=True)
class Judged:
    """The outcome of a request's events."""

    refused: list[EdgeRefusal]
    rows: list[int]  # of the others, in order
    keys: list[bytes]  # of the records of those
    games: list[str]  # keys of their games, as metrics have them


class _Name(NamedTuple):
    """What the edge knows of one name."""

    record_key: bytes
    label: str
    schemas: dict[int, tuple[Schema, _Look, EdgeRules | None]]
    is_unknown: bool  # as the edge refuses it


class _Suspect(NamedTuple):
    row: int
    raw: bytes
    wrapper: Wrapper
    name: _Name
    rules: EdgeRules | None


class _Finding(NamedTuple):
    """Why a pass would refuse one of some suspects."""

    place: int  # among them
    reason: str
    detail: str
    field: str
    rules: tuple[str, ...] = ()


class Judge:
    """Judges events by one look at the control store."""

    def __init__(self, known: Known, record_bytes: int) -> None:
        """Judge by what is known; records may have this many bytes."""
        self._known, self._record_bytes = known, record_bytes
        self._names: dict[str, _Name | None] = {}  # None: it cannot name a game

    def glance(
        self, wrappers: Sequence[bytes], producer: EdgeProducer
    ) -> "tuple[Judged, dict[Schema, list[_Suspect]]]":
        """Judge what some microseconds decide; return the rest by schema, for `settle`."""
        judged = Judged([], [], [], [])
        suspects: dict[Schema, list[_Suspect]] = defaultdict(list)
        allowed: dict[str, bool] = {}
        for row, raw in enumerate(wrappers):
            outcome = self._one(row, raw, producer, allowed, suspects)
            if isinstance(outcome, EdgeRefusal):
                judged.refused.append(outcome)
            else:
                judged.rows.append(row)
                judged.keys.append(outcome.record_key)
                judged.games.append(outcome.label)
        return judged, suspects

    @staticmethod
    def settle(judged: Judged, suspects: "dict[Schema, list[_Suspect]]") -> None:
        """Let the decoders judge suspects, one call for each schema: slow, for another thread than the event loop's."""
        refused: dict[int, EdgeRefusal] = {}
        for schema, those in suspects.items():
            for found in _findings(schema, those):
                row, _, wrapper, name, _ = those[found.place]
                refused[row] = _refusal(row, *found[1:4], wrapper, name.label, found.rules)
        if refused:
            kept = [place for place, row in enumerate(judged.rows) if row not in refused]
            for column in ("rows", "keys", "games"):
                setattr(judged, column, [getattr(judged, column)[place] for place in kept])
            judged.refused = sorted([*judged.refused, *refused.values()])

    def _one(
        self,
        row: int,
        raw: bytes,
        producer: EdgeProducer,
        allowed: dict[str, bool],
        suspects: "dict[Schema, list[_Suspect]]",
    ) -> EdgeRefusal | _Name:
        if len(raw) > self._record_bytes:
            detail = f"{len(raw):,} bytes, and the topic takes records of {self._record_bytes:,}"
            return EdgeRefusal(row, TOO_LARGE, detail, "", "", OTHER_GAME)
        if not raw:
            return EdgeRefusal(row, MALFORMED, "the wrapper is empty", "", "", OTHER_GAME)
        try:
            wrapper = Wrapper.FromString(raw)
        except DecodeError as error:
            return EdgeRefusal(row, MALFORMED, one_line(str(error)), "", "", OTHER_GAME)
        game = wrapper.game
        name = self._name(game)
        if name is None:
            return _refusal(row, *NO_NAME, "game", wrapper, OTHER_GAME)
        if (may := allowed.get(game)) is None:
            may = allowed[game] = producer.may_send(game)
        if not may:
            detail = f"the producer {producer.name} may not send events of this game"
            return _refusal(row, NOT_ALLOWED, detail, "game", wrapper, name.label)
        if name.is_unknown:
            detail = "the name is no game, and no onboarding rule covers it"
            return _refusal(row, "unknown_game", detail, "game", wrapper, name.label)
        number = wrapper.schema_id
        if number == 0:
            return _refusal(row, "unknown_schema", "schema ids start at 1", "schema_id", wrapper, name.label)
        found = name.schemas.get(number)
        if found is not None:
            schema, look, rules = found
            if look is None or not look(wrapper.payload):
                suspects[schema].append(_Suspect(row, raw, wrapper, name, rules))
        return name

    def _name(self, game: str) -> _Name | None:
        if game in self._names:
            return self._names[game]
        if len(self._names) >= _MOST_NAMES:
            self._names.clear()
        made = self._names[game] = self._made(game) if is_game_name(game) else None
        return made

    def _made(self, game: str) -> _Name:
        key, set_ = game_key(game), self._known.schemas
        schemas: dict[int, tuple[Schema, _Look, EdgeRules | None]] = {}
        for schema, placement in set_.placed(key):
            if placement.quarantined is not None:  # its rows wait for a person, who can have them replayed
                continue
            try:
                rules = EdgeRules.of(set_, key, schema, placement)
                schemas[schema.schema_id] = schema, None if rules else quick_look(schema), rules
            except Refused:
                continue
        label = key if key in set_.games else OTHER_GAME
        return _Name(game.encode(), label, schemas, self._known.is_no_game(game))


def _findings(schema: Schema, those: Sequence[_Suspect]) -> Iterator[_Finding]:
    """Yield the events of a schema that a pass refuses; in portions, as small payloads may become large columns."""
    payloads: list[bytes | None] = [each.wrapper.payload or None for each in those]
    sizes = np.array([len(each or b"") for each in payloads], np.int64)
    try:
        for portion in portions(np.arange(len(payloads)), sizes, schema, _MOST_DECODED):
            decoded = decoder(schema).decode(pa.array([payloads[each] for each in portion.tolist()], pa.binary()))
            for each in decoded.refused:
                yield _Finding(int(portion[each.row]), each.reason, each.detail, each.field or PAYLOAD)
            yield from _broken(decoded.batch, portion[decoded.rows].tolist(), those)
    except Refused:  # a pass fails on the schema, too: a person must see to it
        return


def _broken(batch: pa.RecordBatch, places: Sequence[int], those: Sequence[_Suspect]) -> Iterator[_Finding]:
    """Yield the events of decoded payloads that break a rule of their game, one judgement for each game."""
    by_rules: dict[EdgeRules, list[int]] = defaultdict(list)
    for member, place in enumerate(places):
        if (rules := those[place].rules) is not None:
            by_rules[rules].append(member)
    for rules, members in by_rules.items():
        rows = batch if len(members) == batch.num_rows else batch.take(pa.array(members))
        try:
            found = [*rules.broken(rows, [those[places[member]].raw for member in members])]
        except Exception as error:  # noqa: BLE001 -- law L6: the game waits in a pass, which fails on the same rule
            _log.debug("rules for schema %d cannot be judged: %s", rules.schema.schema_id, error)
            found = []
        for each in found:
            yield _Finding(places[members[each.row]], CONTRACT, each.detail, each.field, each.rules)


def _refusal(
    row: int, reason: str, detail: str, field: str, wrapper: Wrapper, label: str, rules: tuple[str, ...] = ()
) -> EdgeRefusal:
    return EdgeRefusal(row, reason, detail[:MAX_DETAIL], field, wrapper.event_id[:_MOST_ID], label, rules)
