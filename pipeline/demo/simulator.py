"""Makes the events of many games from a seed: the same plan gives the same bytes, whatever the batch size.

Called by the command line, the bench and tests; a producer carries the events to a source. Besides good events it
makes every kind of bad one that ingest and streams must refuse. Reads no clock and does no I/O.
"""

import hashlib
import importlib
import itertools
import random
from bisect import bisect
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from google.protobuf.descriptor import FieldDescriptor, FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from pipeline.errors import Refused
from pipeline.names import MALFORMED, MAX_NAME_BYTES
from protos.turnout.v1.wrapper_pb2 import Wrapper

FAMILIES: Final = ("puzzle", "shooter", "racing")
VERSIONS: Final = 6
"""Versions of each family's payload schema, numbered from 1; each adds fields to the one before."""

GOOD: Final = "good"
BAD_KINDS: Final = (
    "malformed_wrapper",
    "invalid_name",
    "unknown_game",
    "unknown_schema",
    "empty_payload",
    "malformed_payload",
)
"""The kinds of bad events; each is the reason code under which turnout refuses it."""

_MESSAGES: Final = {"puzzle": "LevelPlayed", "shooter": "MatchPlayed", "racing": "LapDriven"}
_TITLES: Final = (  # the first three are of three families, so that the smallest run has them all
    "Block Party", "Gem Garden", "Chess", "Night Drift", "Harbour Tycoon", "Neon Strikers", "Pocket Farm",
    "Dragon Keep", "Solar Outpost", "Turbo Kart Cup", "Word Weaver", "Iron Vanguard", "Rally Legends", "Tiny Trains",
    "Sky Raiders", "Starfall Arena", "Käsekästchen", "数独",
)  # fmt: skip
_HOSTILE: Final = (
    "Block Party",  # these three are of three families, so that the smallest run has them all
    "Gem Garden",
    "../x",
    "Käsekästchen",
    "L" + "o" * 198 + "ng",
    "chess",
    "Chess",
    "O'Brien'; DROP TABLE games;--",
    "v1.2.final",
    "🎮🏁",
    "سباق المدينة",
    "数独",
    "CHESS",
    'back\\slash `tick` "quote"',
    "café",
    "cafe\u0301",
    " blanks around ",
    "two\nlines\tand a tab",
    MALFORMED,
    "_delta_log",
    "100%_{x}${HOME}",
    "b" * MAX_NAME_BYTES,
)
_FIRST: Final = ("Amber", "Brave", "Cosmic", "Drifting", "Electric", "Frozen", "Golden", "Hidden", "Iron", "Jolly")
_SECOND: Final = ("Castle", "Drift", "Empire", "Fleet", "Garden", "Harbour", "Islands", "Kingdom", "League", "Quest")
_UNKNOWN_GAMES: Final = ("Nobody Registered This", "neznámá hra", "../../unknown")
_INVALID_NAMES: Final = ("", "n" * (MAX_NAME_BYTES + 1), "nul\0inside")
_WORDS: Final = ("amber", "birch", "cobalt", "dune", "ember", "fjord", "grove", "harbour")
_COUNTRIES: Final = ("BR", "DE", "IN", "JP", "KE", "US")
_PAYLOADS: Final = 32  # prepared payloads of each family and version
_BLOCK: Final = 4096  # events whose random numbers are drawn together, for speed only
_MICROSECONDS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class SimulationPlan:
    """What to simulate.

    The bad share is spread evenly over the kinds of bad events; `bad_shares` sets single kinds apart from that.
    """

    games: int = 20
    versions: int = 3  # each game uses its versions 1 to this, mixed
    events: int | None = None  # None means endless
    seed: int = 1
    bad_share: float = 0.0  # of all events, 0 to 1
    bad_shares: Mapping[str, float] = field(default_factory=dict)  # of all events, by kind
    hostile: bool = False  # games have names that break paths, SQL, labels and case-blind file systems
    skew: float = 1.1  # Zipf exponent over the order of `game_names`; 0 gives each game the same share
    weights: tuple[float, ...] = ()  # each game's part in the order of `game_names`, in any unit; empty: by `skew`
    start_sequence: Mapping[str, int] = field(default_factory=dict)  # a game's first sequence number; 1 if absent
    start_time: float = 1_767_225_600.0  # event time of the first event, Unix seconds
    step_seconds: float = 0.001  # event time between two events

    def shares(self) -> dict[str, float]:
        """Return the share of each kind, the good one first.

        Raises:
            Refused: a kind is unknown, or the shares do not fit between 0 and 1.
        """
        if unknown := self.bad_shares.keys() - set(BAD_KINDS):
            raise Refused(f"Unknown kind of bad event: {', '.join(sorted(unknown))}. Use {', '.join(BAD_KINDS)}.")
        even = self.bad_share / len(BAD_KINDS)
        shares = {kind: self.bad_shares.get(kind, even) for kind in BAD_KINDS}
        total = sum(shares.values())
        if not 0 <= min(shares.values()) <= total <= 1 + 1e-9:
            raise Refused(f"The shares of bad events are {shares}. Choose each from 0 up, together at most 1.")
        return {GOOD: max(0.0, 1.0 - total), **shares}


class Event(NamedTuple):
    """One message for a source, and what is known about it.

    `game` is the name the wrapper carries; where none can be read from it, it is `names.MALFORMED`.
    """

    key: bytes | None
    value: bytes
    game: str
    sequence: int
    kind: str


def game_names(games: int, seed: int, *, hostile: bool = False) -> list[str]:
    """Return the names of so many games, all different; more games only append."""
    names = list((_HOSTILE if hostile else _TITLES)[:games])
    draw = random.Random(f"names {seed}")
    plain = [f"{first} {second}" for first in _FIRST for second in _SECOND]
    draw.shuffle(plain)
    for number in range(max(0, games - len(names))):
        lap, index = divmod(number, len(plain))
        names.append(plain[index] if lap == 0 else f"{plain[index]} {lap + 1}")
    return names


def family(game: str) -> str:
    """Return the family of a game, one of FAMILIES: the name alone decides."""
    return FAMILIES[hashlib.sha256(game.encode()).digest()[0] % len(FAMILIES)]


def payload_schema(family_name: str, version: int) -> tuple[str, bytes]:
    """Return a payload schema: the message's full name and a FileDescriptorSet with all it depends on, serialised.

    Raises:
        Refused: there is no such family or version.
    """
    message = _message_class(family_name, version)
    wanted: dict[str, FileDescriptor] = {}
    _collect_files(message.DESCRIPTOR.file, wanted)
    files = FileDescriptorSet()
    for item in wanted.values():
        item.CopyToProto(files.file.add())
    return message.DESCRIPTOR.full_name, files.SerializeToString(deterministic=True)


class Simulator:
    """The events of one plan, made on demand; not shared between threads.

    `counts` tells how many events of each (game, kind) were handed out so far, `next_sequence` what to give to a
    plan that continues this one.
    """

    def __init__(self, plan: SimulationPlan, schema_ids: Mapping[tuple[str, int], int]) -> None:
        """Prepare the payloads; `schema_ids` gives the registered id of each (game, version) of the plan.

        Raises:
            Refused: the plan is impossible or an id is missing.
        """
        if plan.games < 1 or not 1 <= plan.versions <= VERSIONS:
            raise Refused(
                f"{plan.games} games of {plan.versions} versions: use 1 game or more, 1 to {VERSIONS} versions."
            )
        if plan.weights and (len(plan.weights) != plan.games or min(plan.weights) < 0 or not sum(plan.weights) > 0):
            raise Refused(
                f"{plan.games} games have {len(plan.weights)} weights: give each game one, from 0 up, not all 0."
            )
        self.games = tuple(game_names(plan.games, plan.seed, hostile=plan.hostile))
        wanted = itertools.product(self.games, range(1, plan.versions + 1))
        if missing := [pair for pair in wanted if pair not in schema_ids]:
            raise Refused(f"{len(missing)} schemas have no id, first {missing[0]!r}. Register the games first.")
        self.plan = plan
        self.counts: Counter[tuple[str, str]] = Counter()
        self.next_sequence: dict[str, int] = dict(plan.start_sequence)
        self._schema_ids = schema_ids
        everyone = (*self.games, *_UNKNOWN_GAMES, *_INVALID_NAMES, MALFORMED)
        self._families = {game: family(game) for game in everyone}
        self._tags = {game: hashlib.sha256(game.encode()).hexdigest()[:12] for game in everyone}
        self._unregistered = _unregistered_ids(self.games, schema_ids)
        self._payloads = {
            (name, version): _prepared(name, version, plan.seed)
            for name in FAMILIES
            for version in range(1, plan.versions + 1)
        }
        self._kinds = tuple(plan.shares())
        self._stream = self._events()

    def batches(self, size: int) -> Iterator[list[Event]]:
        """Yield the next events in lists of `size`, the last one shorter; a second call goes on after the first."""
        while batch := list(itertools.islice(self._stream, size)):
            self.counts.update((event.game, event.kind) for event in batch)
            yield batch

    def counts_by_kind(self) -> dict[str, int]:
        """Return how many events of each kind were handed out so far; kinds that did not occur are 0."""
        totals = dict.fromkeys(self._kinds, 0)
        for (_, kind), count in self.counts.items():
            totals[kind] += count
        return totals

    def _events(self) -> Iterator[Event]:
        plan = self.plan
        draw = random.Random(f"events {plan.seed}")
        kinds = list(itertools.accumulate(plan.shares().values()))
        parts = plan.weights or tuple(1 / rank**plan.skew for rank in range(1, len(self.games) + 1))
        weights = list(itertools.accumulate(parts))
        last_kind, last_game = len(kinds) - 1, len(weights) - 1
        start = round(plan.start_time * _MICROSECONDS)
        step = plan.step_seconds * _MICROSECONDS
        indexes = itertools.count() if plan.events is None else iter(range(plan.events))
        while block := list(itertools.islice(indexes, _BLOCK)):
            numbers = [draw.random() for _ in range(3 * len(block))]
            for offset, index in enumerate(block):
                kind = self._kinds[min(bisect(kinds, numbers[3 * offset]), last_kind)]
                game = self.games[min(bisect(weights, numbers[3 * offset + 1] * weights[-1]), last_game)]
                yield self._event(kind, game, int(numbers[3 * offset + 2] * 2**53), start + int(index * step))

    def _event(self, kind: str, game: str, chance: int, time: int) -> Event:
        """Make one event; `chance` is 53 random bits, `time` its event time in microseconds."""
        if kind == "unknown_game":
            game = _UNKNOWN_GAMES[chance % len(_UNKNOWN_GAMES)]
        elif kind == "invalid_name":
            game = _INVALID_NAMES[chance % len(_INVALID_NAMES)]
        elif kind == "malformed_wrapper":
            game = MALFORMED
        sequence = self.next_sequence.get(game, 1)
        self.next_sequence[game] = sequence + 1
        version = 1 + (chance >> 8) % self.plan.versions
        payload = self._payload(game, version, sequence, chance >> 16, time)
        schema_id = self._schema_ids.get((game, version), 1)
        if kind == "unknown_schema":
            schema_id = self._unregistered[game][chance % len(self._unregistered[game])]
        elif kind == "empty_payload":
            payload = b""
        elif kind == "malformed_payload":
            payload = _broken_payload(payload, chance)
        elif kind == "malformed_wrapper":
            return Event(None, _broken_wrapper(payload, sequence, chance), game, sequence, kind)
        value = self._wrapped(game, schema_id, payload, sequence, time)
        return Event(game.encode() or None, value, game, sequence, kind)

    def _payload(self, game: str, version: int, sequence: int, chance: int, time: int) -> bytes:
        prepared = self._payloads[self._families[game], version]
        message = prepared[chance % len(prepared)]
        message.round = sequence
        message.ended_at.seconds, micros = divmod(time, _MICROSECONDS)
        message.ended_at.nanos = micros * 1000
        payload: bytes = message.SerializeToString(deterministic=True)
        return payload

    def _wrapped(self, game: str, schema_id: int, payload: bytes, sequence: int, time: int) -> bytes:
        wrapper = Wrapper(
            game=game,
            schema_id=schema_id,
            payload=payload,
            event_id=f"{self._tags[game]}-{sequence}",
            producer_id=f"simulator-{self.plan.seed}",
            sequence=sequence,
        )
        wrapper.event_time.seconds, micros = divmod(time, _MICROSECONDS)
        wrapper.event_time.nanos = micros * 1000
        return wrapper.SerializeToString()


def _unregistered_ids(games: Sequence[str], ids: Mapping[tuple[str, int], int]) -> dict[str, list[int]]:
    """Return for each game ids it has not registered: none set, one of another game, one of nobody, the largest."""
    by_game: dict[str, set[int]] = {game: set() for game in games}
    for (game, _), schema_id in ids.items():
        by_game.setdefault(game, set()).add(schema_id)
    everything = set(ids.values())
    unregistered = {}
    for game in games:
        foreign = sorted(everything - by_game[game])[:1]
        unregistered[game] = [0, *foreign, max(everything) + 1_000_000, 2**32 - 1]
    return unregistered


def _broken_payload(payload: bytes, chance: int) -> bytes:
    """Return bytes no protobuf parser accepts: the payload without its last byte, or noise."""
    # The last byte of a message always belongs to its last field, so leaving it out breaks that field.
    return payload[:-1] if chance % 2 else _noise(chance)


def _broken_wrapper(payload: bytes, sequence: int, chance: int) -> bytes:
    """Return a wrapper no protobuf parser accepts: cut within its payload, noise, JSON, or a name that is not UTF-8."""
    match chance % 4:
        case 0:
            cut = 1 + (chance >> 4) % (len(payload) - 1)
            return Wrapper(game="Block Party", schema_id=1, payload=payload).SerializeToString()[:-cut]
        case 1:
            return _noise(chance)
        case 2:
            return b'{"game": "Block Party", "sequence": %d}' % sequence
        case _:
            return b"\x0a\x04\xff\xfe\xfd\xfc" + Wrapper(schema_id=1, payload=payload).SerializeToString()


def _noise(chance: int) -> bytes:
    """Return 9 to 40 bytes that begin with wire type 7, which does not exist."""
    digest = hashlib.sha256(chance.to_bytes(8, "big")).digest()
    return b"\x0f" + digest[: 8 + chance % 32]


def _message_class(family_name: str, version: int) -> type[Any]:
    if family_name not in FAMILIES or not 1 <= version <= VERSIONS:
        raise Refused(f"No schema {family_name!r} version {version}: use {', '.join(FAMILIES)} and 1 to {VERSIONS}.")
    module = importlib.import_module(f"protos.samples.{family_name}.v{version}_pb2")
    message: type[Any] = getattr(module, _MESSAGES[family_name])
    return message


def _collect_files(item: FileDescriptor, into: dict[str, FileDescriptor]) -> None:
    """Add a file after everything it imports: the order in which a descriptor pool takes them."""
    for dependency in item.dependencies:
        _collect_files(dependency, into)
    into.setdefault(item.name, item)


def _prepared(family_name: str, version: int, seed: int) -> list[Any]:
    """Return filled payloads, of which each event changes a few fields."""
    message = _message_class(family_name, version)
    draw = random.Random(f"payloads {seed} {family_name} {version}")
    payloads = [message() for _ in range(_PAYLOADS)]
    for payload in payloads:
        _fill(payload, draw)
    return payloads


def _fill(message: Any, draw: random.Random) -> None:
    """Set every field of a message, and of each oneof the member that chance picks."""
    chosen = {oneof.name: draw.choice(oneof.fields).name for oneof in message.DESCRIPTOR.oneofs}
    for item in message.DESCRIPTOR.fields:
        if item.containing_oneof is not None and chosen[item.containing_oneof.name] != item.name:
            continue
        if item.message_type is not None and item.message_type.GetOptions().map_entry:
            _fill_map(getattr(message, item.name), item.message_type, draw)
        elif item.is_repeated:
            for _ in range(draw.randint(1, 3)):
                if item.message_type is not None:
                    _fill(getattr(message, item.name).add(), draw)
                else:
                    getattr(message, item.name).append(_scalar(item, draw))
        elif item.message_type is not None:
            _fill(getattr(message, item.name), draw)
        else:
            setattr(message, item.name, _scalar(item, draw))


def _fill_map(entries: Any, entry: Any, draw: random.Random) -> None:
    key, value = entry.fields_by_name["key"], entry.fields_by_name["value"]
    for _ in range(draw.randint(1, 2)):
        name = _scalar(key, draw)
        if value.message_type is not None:
            _fill(entries[name], draw)
        else:
            entries[name] = _scalar(value, draw)


def _scalar(item: Any, draw: random.Random) -> Any:
    if item.enum_type is not None:
        return draw.choice(item.enum_type.values).number
    match item.cpp_type:
        case FieldDescriptor.CPPTYPE_STRING if item.type == FieldDescriptor.TYPE_BYTES:
            return draw.randbytes(16)
        case FieldDescriptor.CPPTYPE_STRING if item.name.endswith("_id"):
            return f"{draw.getrandbits(64):016x}"
        case FieldDescriptor.CPPTYPE_STRING:
            return draw.choice(_COUNTRIES if item.name == "country" else _WORDS)
        case FieldDescriptor.CPPTYPE_BOOL:
            return draw.choice((False, True))
        case FieldDescriptor.CPPTYPE_DOUBLE | FieldDescriptor.CPPTYPE_FLOAT:
            return round(draw.uniform(0, 100), 2)
        case _ if item.full_name == "google.protobuf.Timestamp.seconds":
            return 1_767_225_600
        case _:
            return draw.randint(1, 500)
