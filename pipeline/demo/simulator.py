"""Makes the events of many games from a seed: the same plan gives the same bytes, whatever the batch size.

Called by the command line, the bench and tests; a producer carries the events to a source. Besides good events it
makes every kind of bad one that ingest and streams must refuse. Reads no clock and does no I/O.
"""

import hashlib
import itertools
import random
from bisect import bisect
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from pipeline.base.errors import Refused
from pipeline.base.names import MALFORMED, MAX_NAME_BYTES
from pipeline.demo.framings.by_type import BY_TYPE, document, require_json
from pipeline.demo.framings.framing import Framed, Framing
from pipeline.demo.framings.supported import WRAPPER, check_framings
from pipeline.demo.framings.wrapper import WrapperFraming
from pipeline.demo.samples.protobuf import noise
from pipeline.demo.samples.sample import FAMILIES, VERSIONS
from pipeline.demo.samples.supported import check_formats, sample, version_of_type
from protos.turnout.v1.wrapper_pb2 import Wrapper

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
    formats: tuple[str, ...] = ("protobuf",)  # dealt to the games in turn, like framings
    framings: tuple[str, ...] = (WRAPPER,)
    event_types: int = 1  # of each game, mixed
    version_every: int | None = None  # events from one version's first to the next one's; None: all from a game's start
    appear_after: int | None = None  # events before the first one of the last game; None: it sends from the start
    start_time: float = 1_767_225_600.0  # event time of the first event, Unix seconds
    step_seconds: float = 0.001  # event time between two events
    skipped: int = 0  # names of `game_names` before the first game: another simulator has them

    def versions_of_types(self) -> list[int]:
        """Return the numbers of all versions of all event types, the first type's first."""
        types = range(1, self.event_types + 1)
        return [version_of_type(version, each) for each in types for version in range(1, self.versions + 1)]

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
    """Return the names of `games` games, all different; more games only append."""
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


class Writing(NamedTuple):
    """How a game's payloads are written."""

    format: str
    framing: str


def game_writings(plan: SimulationPlan) -> dict[str, Writing]:
    """Return the plan's games in order, and how each writes: every format meets every framing, in turn.

    Raises:
        Refused: a format or framing is unknown or named twice, or the framings do not go together.
    """
    check_formats(plan.formats)
    check_framings(plan.framings)
    if BY_TYPE in plan.framings:
        require_json(plan.formats)
    names = game_names(plan.skipped + plan.games, plan.seed, hostile=plan.hostile)[plan.skipped :]
    pairs = [Writing(each, framing) for framing in plan.framings for each in plan.formats]
    return dict(zip(names, itertools.cycle(pairs)))


class Simulator:
    """The events of one plan, made on demand; not shared between threads.

    `counts` tells how many events of each (game, kind) were handed out so far, `next_sequence` what to give to a
    plan that continues this one.
    """

    def __init__(
        self, plan: SimulationPlan, schema_ids: Mapping[tuple[str, int], int], foreign: Framing | None = None
    ) -> None:
        """Prepare the payloads.

        `schema_ids` gives the registered id of each (game, version) whose framing is the wrapper's; `foreign` is the
        framing of all other games.

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
        writings = game_writings(plan)
        self.games = tuple(writings)
        own = [game for game, writing in writings.items() if writing.framing == WRAPPER]
        if plan.appear_after is not None and (plan.games == 1 or self.games[-1] in own):
            raise Refused(
                "A game that appears later needs others beside it and no schema of turnout's own. Use 2 games or more "
                f"and another framing than {WRAPPER}."
            )
        wanted = itertools.product(own, plan.versions_of_types())
        if missing := [pair for pair in wanted if pair not in schema_ids]:
            raise Refused(f"{len(missing)} schemas have no id, first {missing[0]!r}. Register the games first.")
        self.plan = plan
        self.counts: Counter[tuple[str, str]] = Counter()
        self.next_sequence: dict[str, int] = dict(plan.start_sequence)
        outsiders = (*_UNKNOWN_GAMES, *_INVALID_NAMES, MALFORMED)
        self._families = {game: family(game) for game in (*self.games, *outsiders)}
        self._tags = {game: hashlib.sha256(game.encode()).hexdigest()[:12] for game in self._families}
        self._formats = {game: writing.format for game, writing in writings.items()}
        local = WrapperFraming(self.games, schema_ids, frames=foreign is not None)
        self._are_documents = BY_TYPE in plan.framings
        others = foreign if self._are_documents and foreign is not None else local
        self._framings: dict[str, Framing] = dict.fromkeys(self._families, others)
        self._reached: dict[tuple[str, int], int] = {}  # the highest version of each game and type that has frames
        for game in self.games:
            if writings[game].framing != WRAPPER:
                if foreign is None:
                    raise Refused(f"The game {game!r} has the framing {writings[game].framing}, which is not prepared.")
                self._framings[game] = foreign
                self._reached |= dict.fromkeys(itertools.product([game], range(1, plan.event_types + 1)), 0)
        self._samples = {
            (each, name, version): sample(each, name, version, plan.seed)
            for each in dict.fromkeys(plan.formats)
            for name in FAMILIES
            for version in plan.versions_of_types()
        }
        # Versions by framing, format, family and event type.
        self._introduced: Counter[tuple[Framing, str, str, int]] = Counter()
        self._kinds = tuple(plan.shares())
        self._start = round(plan.start_time * _MICROSECONDS)
        self._step = plan.step_seconds * _MICROSECONDS
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
        indexes = itertools.count() if plan.events is None else iter(range(plan.events))
        while block := list(itertools.islice(indexes, _BLOCK)):
            numbers = [draw.random() for _ in range(3 * len(block))]
            for offset, index in enumerate(block):
                kind = self._kinds[min(bisect(kinds, numbers[3 * offset]), last_kind)]
                game = self.games[min(bisect(weights, numbers[3 * offset + 1] * weights[-1]), last_game)]
                if game == self.games[-1] and index < (plan.appear_after or 0):
                    game = self.games[0]
                yield self._event(kind, game, int(numbers[3 * offset + 2] * 2**53), index)

    def _event(self, kind: str, game: str, chance: int, index: int) -> Event:
        """Make one event; `chance` is 53 random bits, `index` its place among the plan's events."""
        if kind == "unknown_game":
            game = _UNKNOWN_GAMES[chance % len(_UNKNOWN_GAMES)]
        elif kind == "invalid_name":
            game = _INVALID_NAMES[chance % len(_INVALID_NAMES)]
        elif kind == "malformed_wrapper":
            game = MALFORMED
        time = self._start + int(index * self._step)
        sequence = self.next_sequence.get(game, 1)
        self.next_sequence[game] = sequence + 1
        number = 1 + (chance >> 24) % self.plan.event_types
        version = self._version(kind, (game, number), 1 + (chance >> 8) % self._versions_at(game, index))
        framed = self._framed(kind, game, (version, number), chance, sequence, time)
        if kind == "malformed_wrapper":
            return Event(None, _broken_wrapper(framed.body, sequence, chance), game, sequence, kind)
        payload = b"" if kind == "empty_payload" else self._framings[game].joined(framed)
        if self._are_documents:
            value = document(game, framed.head.decode(), payload, f"{self._tags[game]}-{sequence}", time)
        else:
            value = self._wrapped(game, framed.schema_id, payload, sequence, time)
        return Event(game.encode() or None, value, game, sequence, kind)

    def _framed(self, kind: str, game: str, of: tuple[int, int], chance: int, sequence: int, time: int) -> Framed:
        """Return the payload of an event of a version of an event type, spoilt as its kind wants it."""
        framing, name, kin = self._framings[game], self._formats.get(game, self.plan.formats[0]), self._families[game]
        wanted, number = of
        while (known := self._introduced[framing, name, kin, number]) < wanted:
            framing.introduce(known + 1, self._samples[name, kin, version_of_type(known + 1, number)])
            self._introduced[framing, name, kin, number] += 1
        version = version_of_type(wanted, number)
        payloads = self._samples[name, kin, version]
        framed = framing.framed(game, version, payloads, payloads.event(chance >> 16, sequence, time))
        match kind:
            case "unknown_schema":
                return framing.unknown(game, framed, chance)
            case "malformed_payload":
                return framed._replace(body=payloads.broken(framed.body, chance))
        return framed

    def _version(self, kind: str, of: tuple[str, int], wanted: int) -> int:
        """Return the version to write of a game's event type, where a registry names schemas the next one at most.

        There turnout learns of versions as they come, and a game's releases come one after another.
        """
        if of not in self._reached:
            return wanted
        version = min(wanted, self._reached[of] + 1)
        if kind == GOOD:
            self._reached[of] = max(version, self._reached[of])
        return version

    def _versions_at(self, game: str, index: int) -> int:
        """Return how many versions of a game are in use at an event."""
        every = self.plan.version_every
        if game == self.games[-1]:
            index -= self.plan.appear_after or 0
        return self.plan.versions if every is None else min(self.plan.versions, 1 + index // every)

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


def _broken_wrapper(payload: bytes, sequence: int, chance: int) -> bytes:
    """Return a wrapper no protobuf parser accepts: cut within its payload, noise, JSON, or a name that is not UTF-8."""
    match chance % 4:
        case 0:
            cut = 1 + (chance >> 4) % (len(payload) - 1)
            return Wrapper(game="Block Party", schema_id=1, payload=payload).SerializeToString()[:-cut]
        case 1:
            return noise(chance)
        case 2:
            return b'{"game": "Block Party", "sequence": %d}' % sequence
        case _:
            return b"\x0a\x04\xff\xfe\xfd\xfc" + Wrapper(schema_id=1, payload=payload).SerializeToString()
