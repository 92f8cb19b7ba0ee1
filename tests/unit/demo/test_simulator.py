"""The simulator: repeatable, countable, and as awkward as real producers are."""

import hashlib
import itertools
import json
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import ptars
import pytest
from google.protobuf.message import DecodeError, Message
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine

from pipeline.base.errors import Refused
from pipeline.base.names import MALFORMED, game_key, is_game_name
from pipeline.data.contracts.further_types import game_types
from pipeline.data.contracts.registry import LocalRegistry
from pipeline.demo.framings.by_type import TypeFraming
from pipeline.demo.samples.sample import FAMILIES, VERSIONS
from pipeline.demo.simulate import register_samples
from pipeline.demo.simulator import (
    BAD_KINDS,
    GOOD,
    Event,
    SimulationPlan,
    Simulator,
    family,
    game_names,
)
from protos.samples.puzzle import v3_pb2 as puzzle_v3
from protos.samples.racing import v3_pb2 as racing_v3
from protos.samples.shooter import v3_pb2 as shooter_v3
from protos.turnout.v1.wrapper_pb2 import Wrapper

PAYLOADS: dict[str, type[Any]] = {
    "puzzle": puzzle_v3.LevelPlayed,
    "shooter": shooter_v3.MatchPlayed,
    "racing": racing_v3.LapDriven,
}


def schema_ids(plan: SimulationPlan) -> dict[tuple[str, int], int]:
    """Number the schemas as a registry does: equal definitions share one id."""
    games = game_names(plan.games, plan.seed, hostile=plan.hostile)
    return {
        (game, version): 1 + FAMILIES.index(family(game)) * VERSIONS + version
        for game, version in itertools.product(games, range(1, plan.versions + 1))
    }


def simulate(plan: SimulationPlan, size: int = 1000) -> tuple[Simulator, list[Event]]:
    simulator = Simulator(plan, schema_ids(plan))
    return simulator, [event for batch in simulator.batches(size) for event in batch]


def refused_by_ptars(message: type[Message], data: bytes) -> bool:
    handler = ptars.HandlerPool([message.DESCRIPTOR.file]).get_for_message(message.DESCRIPTOR)
    try:
        handler.list_to_record_batch([data])
    except Exception:  # noqa: BLE001 - ptars documents no type
        return True
    return False


def refused_by_upb(message: type[Message], data: bytes) -> bool:
    try:
        message.FromString(data)
    except DecodeError:
        return True
    return False


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**40), size=st.integers(1, 700))
def test_same_seed_same_bytes(seed: int, size: int) -> None:
    """A plan alone decides every byte; the number of events in one call does not."""
    plan = SimulationPlan(games=30, events=600, seed=seed, bad_share=0.3, hostile=True)

    assert simulate(plan, 97)[1] == simulate(plan, size)[1]


def test_bytes_are_the_same_everywhere() -> None:
    """Another process, machine or day makes these very bytes; change the digest only with the samples or the draw."""
    events = simulate(SimulationPlan(games=30, versions=6, events=3000, seed=5, bad_share=0.1, hostile=True))[1]
    digest = hashlib.sha256(b"".join(event.value for event in events)).hexdigest()

    assert digest == "fca883385650b14425e2e2a84b4f78b78c0fade6e7535f975d02537ea49bf251"


def test_another_seed_gives_other_events() -> None:
    """The seed is used: two seeds have no wrapper in common."""
    first, second = (simulate(SimulationPlan(events=500, seed=seed))[1] for seed in (1, 2))

    assert {event.value for event in first}.isdisjoint(event.value for event in second)


def test_more_events_only_append() -> None:
    """A longer run begins with the shorter one, across the blocks in which random numbers are drawn."""
    assert simulate(SimulationPlan(events=5000))[1] == simulate(SimulationPlan(events=9000))[1][:5000]


def test_wrappers_say_what_the_event_says() -> None:
    """A good wrapper carries the event's game, sequence, a registered schema and a payload of that schema."""
    plan = SimulationPlan(games=30, versions=3, events=2000, hostile=True)
    ids = schema_ids(plan)
    seen = set()
    for event in simulate(plan)[1]:
        wrapper = Wrapper.FromString(event.value)
        assert (event.game, event.sequence, GOOD) == (wrapper.game, wrapper.sequence, event.kind)
        assert event.game.encode() == event.key
        version = next(version for version in (1, 2, 3) if ids[event.game, version] == wrapper.schema_id)
        payload = PAYLOADS[family(event.game)].FromString(wrapper.payload)
        assert (event.sequence, wrapper.event_time) == (payload.round, payload.ended_at)
        seen.add((family(event.game), version))
    assert seen == set(itertools.product(FAMILIES, (1, 2, 3)))


def test_events_are_distinct() -> None:
    """No two wrappers are equal and no two share an event id, whatever the game."""
    events = simulate(SimulationPlan(games=40, events=5000, hostile=True))[1]

    assert len(events) == len({event.value for event in events})
    assert len(events) == len({Wrapper.FromString(event.value).event_id for event in events})


def test_event_time_is_a_fixed_schedule() -> None:
    """Event times begin at the plan's start and advance by its step: no clock is read."""
    events = simulate(SimulationPlan(events=50, start_time=1000.5, step_seconds=0.25))[1]
    times = [Wrapper.FromString(event.value).event_time.ToMicroseconds() for event in events]

    assert [1_000_500_000 + 250_000 * index for index in range(50)] == times


def test_sequences_are_dense_for_each_game() -> None:
    """Each name's events count from 1 without a gap, bad ones included, so a lost one shows."""
    simulator, events = simulate(SimulationPlan(games=25, events=5000, bad_share=0.3, hostile=True))
    sequences: dict[str, list[int]] = {}
    for event in events:
        sequences.setdefault(event.game, []).append(event.sequence)

    assert all(list(range(1, len(found) + 1)) == found for found in sequences.values())
    assert {game: len(found) + 1 for game, found in sequences.items()} == simulator.next_sequence


def test_a_run_continues_another() -> None:
    """Given where the first run ended, a second one leaves no gap and repeats no event id."""
    first, events = simulate(SimulationPlan(games=5, events=300))
    more = simulate(SimulationPlan(games=5, events=300, start_sequence=first.next_sequence))[1]
    together = Counter((event.game, event.sequence) for event in events + more)

    assert set(together.values()) == {1}
    for game in {event.game for event in events}:
        assert max(number for name, number in together if name == game) == sum(name == game for name, _ in together)


def test_shares_are_kept() -> None:
    """The bad share is spread evenly over the kinds, a share of its own stands apart, and skew follows Zipf."""
    plan = SimulationPlan(games=10, events=60_000, bad_share=0.12, bad_shares={"empty_payload": 0.2}, skew=1.0)
    simulator, events = simulate(plan)
    counts = simulator.counts_by_kind()

    assert Counter(event.kind for event in events) == counts
    assert counts["empty_payload"] / 60_000 == pytest.approx(0.2, abs=0.01)
    for kind in set(BAD_KINDS) - {"empty_payload"}:
        assert counts[kind] / 60_000 == pytest.approx(0.02, abs=0.003)
    first, second = game_names(10, 1)[:2]
    assert simulator.counts[first, GOOD] / simulator.counts[second, GOOD] == pytest.approx(2, abs=0.15)


def test_weights_replace_the_skew() -> None:
    """A game sends its weight's part of all events, so that a run can hold quiet games beside busy ones."""
    simulator, _ = simulate(SimulationPlan(games=4, events=40_000, weights=(30, 0, 9, 1)))
    sent = [simulator.counts[game, GOOD] / 40_000 for game in simulator.games]
    assert sent == pytest.approx([0.75, 0, 0.225, 0.025], abs=0.01)


def test_counts_follow_what_was_handed_out() -> None:
    """The counts cover the batches taken so far and nothing ahead of them."""
    plan = SimulationPlan(events=1000, bad_share=0.2)
    simulator = Simulator(plan, schema_ids(plan))
    batch = next(simulator.batches(10))

    assert Counter((event.game, event.kind) for event in batch) == simulator.counts
    assert sum(len(rest) for rest in simulator.batches(300)) == 990


def bad(kind: str) -> list[Event]:
    return simulate(SimulationPlan(games=12, events=600, bad_shares={kind: 1.0}, hostile=True))[1]


@pytest.mark.parametrize("refused", [refused_by_upb, refused_by_ptars])
def test_malformed_wrappers_cannot_be_opened(refused: Callable[[type[Message], bytes], bool]) -> None:
    """Cut, noisy, JSON and wrongly encoded wrappers are refused by every parser in use."""
    events = bad("malformed_wrapper")

    assert all(refused(Wrapper, event.value) for event in events)
    assert not any(refused(Wrapper, event.value) for event in simulate(SimulationPlan(events=50))[1])
    assert {MALFORMED} == {event.game for event in events}


@pytest.mark.parametrize("refused", [refused_by_upb, refused_by_ptars])
def test_malformed_payloads_cannot_be_decoded(refused: Callable[[type[Message], bytes], bool]) -> None:
    """The wrapper of a malformed payload is fine; its payload is refused by every parser in use."""
    for event in bad("malformed_payload"):
        wrapper = Wrapper.FromString(event.value)
        assert (event.game, event.sequence) == (wrapper.game, wrapper.sequence)
        assert refused(PAYLOADS[family(event.game)], wrapper.payload)
    for event in simulate(SimulationPlan(events=50))[1]:
        assert not refused(PAYLOADS[family(event.game)], Wrapper.FromString(event.value).payload)


def test_every_other_bad_kind_is_what_it_says() -> None:
    """Names nobody registered, impossible names, foreign ids and empty payloads come in readable wrappers."""
    registered = schema_ids(SimulationPlan(games=12, hostile=True))

    def wrappers(kind: str) -> Iterable[Wrapper]:
        return (Wrapper.FromString(event.value) for event in bad(kind))

    unknown = {wrapper.game for wrapper in wrappers("unknown_game")}
    assert len(unknown) > 1
    assert unknown.isdisjoint(game_names(12, 1, hostile=True))
    assert all(is_game_name(name) for name in unknown)
    assert not any(is_game_name(wrapper.game) for wrapper in wrappers("invalid_name"))
    assert all(wrapper.payload == b"" for wrapper in wrappers("empty_payload"))
    foreign = list(wrappers("unknown_schema"))
    assert all(wrapper.schema_id not in {registered[wrapper.game, v] for v in (1, 2, 3)} for wrapper in foreign)
    assert {0, 2**32 - 1} < {wrapper.schema_id for wrapper in foreign}
    assert {wrapper.schema_id for wrapper in foreign} & set(registered.values())


def test_hostile_names_come_early() -> None:
    """A small run with `hostile` meets names that break paths, SQL, labels and case-blind file systems."""
    names = game_names(20, 1, hostile=True)

    assert all(is_game_name(name) for name in names)
    assert len({game_key(name) for name in names}) == 20
    assert "../x" in names
    assert {"chess", "Chess"} < set(names)
    assert any(len(name) >= 200 for name in names)
    for wanted in (" ", "'", ".", "🎮"):
        assert any(wanted in name for name in names)
    assert any(unicodedata.bidirectional(name[0]) == "AL" for name in names)
    assert len({unicodedata.normalize("NFC", name) for name in names}) < len(names)
    assert set(FAMILIES) == {family(name) for name in names[:3]}


def test_other_names_are_titles_of_games() -> None:
    """The demo's games are called as a studio would call them, and the smallest run has all families."""
    names = game_names(120, 1)

    assert all(char.isalnum() or char == " " for name in names for char in name)
    assert max(map(len, names)) < 20
    assert set(FAMILIES) == {family(name) for name in names[:3]}


@pytest.mark.parametrize("hostile", [False, True])
def test_more_games_only_append(hostile: bool) -> None:
    """A growing fleet keeps its names, and a thousand of them are all different."""
    names = game_names(1000, 7, hostile=hostile)

    assert len(set(names)) == 1000
    assert names[:300] == game_names(300, 7, hostile=hostile)


def test_impossible_plans_are_refused() -> None:
    """A wrong plan is one clear sentence before any event is made."""
    for plan, expected in (
        (SimulationPlan(games=0), "1 game or more"),
        (SimulationPlan(versions=7), "1 to 6 versions"),
        (SimulationPlan(bad_shares={"typo": 0.1}), "Unknown kind of bad event: typo"),
        (SimulationPlan(bad_shares={"empty_payload": 1.5}), "at most 1"),
        (SimulationPlan(bad_share=-0.1), "from 0 up"),
        (SimulationPlan(games=3, weights=(1.0, 1.0)), "3 games have 2 weights"),
        (SimulationPlan(games=2, weights=(0.0, 0.0)), "not all 0"),
    ):
        with pytest.raises(Refused, match=expected):
            Simulator(plan, schema_ids(plan))
    with pytest.raises(Refused, match="60 schemas have no id"):
        Simulator(SimulationPlan(), {})


@pytest.mark.parametrize("format_name", ["protobuf", "avro", "json"])
def test_a_game_sends_several_event_types(engine: Engine, format_name: str) -> None:
    """Each further type is a message of its own, accepted beside the first one, and all of them come."""
    plan = SimulationPlan(games=1, versions=2, events=200, event_types=3, formats=(format_name,))
    simulator = Simulator(plan, register_samples(engine, plan))
    schemas = LocalRegistry(engine).snapshot()
    (types,) = (game_types(schemas, key) for key in schemas.games)
    assert [(each.state, len(each.schemas)) for each in types] == [("first", 2), ("accepted", 2), ("accepted", 2)]
    sent = {Wrapper.FromString(each.value).schema_id for batch in simulator.batches(50) for each in batch}
    assert sent == {schema.schema_id for each in types for schema, _ in each.schemas}


def test_documents_name_their_type_and_no_schema() -> None:
    """Plain documents carry game, type, id, time and content, and the last game sends after the others."""
    plan = SimulationPlan(
        games=3, versions=2, events=400, formats=("json",), framings=("type",), event_types=5, appear_after=200
    )
    (events,) = Simulator(plan, {}, TypeFraming()).batches(400)
    documents = [json.loads(each.value) for each in events]
    assert {tuple(each) for each in documents} == {("game", "type", "id", "at", "data")}
    newcomer = game_names(3, plan.seed)[-1]
    assert newcomer not in {each["game"] for each in documents[:200]}
    assert len({each["type"] for each in documents if each["game"] == newcomer}) == 5
    later = replace(plan, version_every=150)
    (sent,) = Simulator(later, {}, TypeFraming()).batches(400)
    columns = [set(json.loads(each.value)["data"]) for each in sent if each.game == newcomer]
    assert set.union(*columns[:5]) < set.union(*columns), "its second version comes after its first one"
    again = Simulator(plan, {}, TypeFraming())
    assert [each.value for each in next(again.batches(400))] == [each.value for each in events]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"framings": ("type",)}, "Use --framing type with --formats json."),
        ({"formats": ("json",), "framings": ("type", "wrapper")}, "use the framing type alone"),
        ({"appear_after": 5}, "another framing than wrapper"),
    ],
)
def test_a_plan_of_documents_that_cannot_be_is_refused(wrong: dict[str, Any], said: str) -> None:
    """Documents without a schema are JSON and a source of their own; turnout knows its own ids from the start."""
    with pytest.raises(Refused, match=said):
        Simulator(SimulationPlan(games=2, versions=1, **wrong), {}, TypeFraming())
