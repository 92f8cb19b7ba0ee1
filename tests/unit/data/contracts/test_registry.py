import pickle
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Engine, event, func, select

from pipeline.base.errors import Refused
from pipeline.base.names import GameKey, game_key
from pipeline.data.contracts.plans import render_plan
from pipeline.data.contracts.policies import parse_policies
from pipeline.data.contracts.registry import LocalRegistry, Registered, Registration, SchemaSet
from pipeline.data.contracts.schemas import PLAIN, FieldPlacement
from pipeline.lake.storage.places import located
from pipeline.settings.tree import Paths, Settings
from pipeline.store.database.engine import open_store
from pipeline.store.database.tables import placements, registrations, schemas
from tests.unit.data.contracts.definition_world import Fields, bundle, define

FIELDS: Fields = {"a": (1, "int32")}
SIDE = parse_policies(["incompatible=side-column"])
PARKED = parse_policies(["incompatible=quarantine"])
STRICT = parse_policies(["rename=refuse"])


def definition(*more: str, name: str = "M") -> bytes:
    fields = {**FIELDS, **{field: (number, "string") for number, field in enumerate(more, start=2)}}
    return bundle(define({name: fields}))


def retyped(kind: str) -> bytes:
    return bundle(define({"M": {"a": (1, kind)}}))


@pytest.fixture
def registry(engine: Engine) -> LocalRegistry:
    return LocalRegistry(engine)


def test_versions_count_per_game_and_definitions_are_shared(registry: LocalRegistry) -> None:
    """Each game counts its own versions, and two games with one definition share its id."""
    one = registry.register("chess", "t.M", definition())
    two = registry.register("chess", "t.M", definition("b"))
    other = registry.register("go", "t.M", definition("b"))
    assert (one.version, two.version, other.version) == (1, 2, 1)
    assert other.schema_id == two.schema_id != one.schema_id
    snapshot = registry.snapshot()
    assert snapshot.games == {game_key("chess"): (one.schema_id, two.schema_id), game_key("go"): (two.schema_id,)}
    assert [each.schema_id for each in snapshot.of(game_key("chess"))] == [one.schema_id, two.schema_id]
    assert snapshot.of(GameKey("nobody")) == ()


def test_registering_again_is_a_no_op(registry: LocalRegistry) -> None:
    """The same schema for the same game changes nothing, also when it is not the game's newest."""
    first = registry.register("chess", "t.M", definition())
    registry.register("chess", "t.M", definition("b"))
    version = registry.latest_version()
    assert registry.register("chess", "t.M", definition()) == Registered(first.schema_id, 1, new=False)
    assert registry.latest_version() == version


@pytest.mark.proves("G77")
def test_a_change_that_any_earlier_version_forbids_is_refused(registry: LocalRegistry) -> None:
    """The refusal names game, version and field, and leaves nothing behind."""
    registry.register("chess", "t.M", definition())
    registry.register("chess", "t.M", definition("b"))
    before = registry.snapshot()
    with pytest.raises(Refused, match=r"(?s)version 2 of the game 'chess'.*a: its type changed from int32 to string"):
        registry.register_many(
            [Registration("go", "t.M", definition()), Registration("chess", "t.M", retyped("string"))]
        )
    assert registry.snapshot() == before


@pytest.mark.proves("G75")
def test_a_registration_does_exactly_what_its_plan_shows(registry: LocalRegistry, engine: Engine) -> None:
    """The plan writes nothing; with its hash, it is applied to the letter or refused when it is another one now."""
    registry.register("chess", "t.M", definition())
    checked = Registration("chess", "t.M", retyped("string"), SIDE)
    shown = registry.plan(checked)
    assert registry.latest_version() == 1
    assert shown.placement == FieldPlacement((("a", "a__v2"),))
    assert list(render_plan(shown)) == [
        "'t.M' as version 2 of the game 'chess'",
        "! a: its type changed from int32 to string",
        "      incompatible: side-column -> a__v2 string",
        "      old rows have null there; new rows have their value there",
        " 1 of 1 change(s) are breaking, marked by '!': readers or producers must know",
        f"plan {shown.hash}",
    ]
    registry.register("chess", "t.M", retyped("bool"), SIDE)
    with pytest.raises(Refused, match=r"Review the plan again"):
        registry.register_many([replace(checked, plan_hash=shown.hash)])
    again = registry.plan(checked)
    assert again.placement == FieldPlacement((("a", "a__v3"),))
    (done,) = registry.register_many([replace(checked, plan_hash=again.hash)])
    assert done == Registered(done.schema_id, 3, new=True)
    assert registry.snapshot().placement(game_key("chess"), done.schema_id) == again.placement
    with engine.connect() as connection:
        kept = connection.execute(select(placements).order_by(placements.c.registration_id)).all()
    assert [(row.registration_id, row.plan_hash) for row in kept][1] == (3, again.hash)


def test_a_plan_tells_what_would_be_refused(registry: LocalRegistry) -> None:
    """A plan may be looked at whatever is in it: refused changes are told, and the last line is its hash."""
    registry.register("chess", "t.M", definition())
    plan = registry.plan(Registration("chess", "t.M", retyped("string")))
    assert [str(step) for step in plan.refused] == ["a: its type changed from int32 to string"]
    said = "refused because of 1 change(s): choose --policy incompatible=side-column or quarantine, or"
    assert any(said in line for line in render_plan(plan))
    assert not registry.plan(Registration("chess", "t.M", definition())).new


@pytest.mark.parametrize(
    ("then", "policies", "breaking"),
    [
        (definition("b"), [], 0),
        (retyped("int64"), [], 0),
        (retyped("uint64"), ["incompatible=side-column"], 1),
        (bundle(define({"M": {"c": (1, "int32")}})), [], 0),
        (bundle(define({"M": {"c": (1, "int32")}})), ["rename=add"], 1),
        (bundle(define({"M": {"b": (2, "string")}})), [], 1),
        (retyped("string"), ["incompatible=side-column"], 1),
        (definition("b"), ["add=quarantine"], 1),
    ],
)
def test_a_plan_sets_off_what_breaks(registry: LocalRegistry, then: bytes, policies: list[str], breaking: int) -> None:
    """A change is breaking where values lie elsewhere than a reader looks for them, are null, or go to quarantine."""
    registry.register("chess", "t.M", definition())
    plan = registry.plan(Registration("chess", "t.M", then, parse_policies(policies)))
    assert (len(plan.breaking), plan.refused) == (breaking, ())
    assert sum(line.startswith("! ") for line in render_plan(plan)) == breaking


@pytest.mark.proves("G74")
def test_placements_are_part_of_a_schema_set(registry: LocalRegistry, engine: Engine) -> None:
    """Law L5: where a schema's fields lie is pinned with the set, and no later registration changes it."""
    first = registry.register("chess", "t.M", definition())
    registry.register("go", "t.M", retyped("string"))
    plain = registry.snapshot()
    second = registry.register("chess", "t.M", retyped("string"), SIDE)
    sided = registry.snapshot()
    registry.register("chess", "t.M", retyped("bool"), SIDE)
    key = game_key("chess")
    other = LocalRegistry(engine)
    assert other.snapshot(plain.version) == plain
    assert other.snapshot(sided.version) == sided
    assert plain.placements == {}
    assert sided.placement(key, first.schema_id) == PLAIN
    assert sided.placement(key, second.schema_id) == FieldPlacement((("a", "a__v2"),))
    assert sided.placement(game_key("go"), second.schema_id) == PLAIN  # the same schema, another game
    assert pickle.loads(pickle.dumps(sided)) == sided


def test_a_quarantined_schema_may_be_let_in_later(registry: LocalRegistry) -> None:
    """Quarantine is no dead end: the same schema registered with another policy lands from that version on."""
    registry.register("chess", "t.M", definition())
    parked = registry.register("chess", "t.M", retyped("string"), PARKED)
    before = registry.snapshot()
    assert (
        before.placement(game_key("chess"), parked.schema_id).quarantined == "a: its type changed from int32 to string"
    )
    assert registry.register("chess", "t.M", retyped("string"), PARKED) == replace(parked, new=False)
    with pytest.raises(Refused):
        registry.register("chess", "t.M", retyped("string"))
    landed = registry.register("chess", "t.M", retyped("string"), SIDE)
    assert landed == Registered(parked.schema_id, 3, new=True)
    after = registry.snapshot()
    assert after.games == before.games
    assert after.placement(game_key("chess"), parked.schema_id) == FieldPlacement((("a", "a__v2"),))
    assert registry.snapshot(before.version) == before
    assert registry.register("chess", "t.M", retyped("string"), SIDE) == replace(landed, new=False)


@pytest.mark.parametrize(
    ("game", "content", "sentence"),
    [
        ("", definition(), "cannot name a game"),
        ("x" * 257, definition(), "cannot name a game"),
        ("a\0b", definition(), "cannot name a game"),
        ("\udcff", definition(), "not valid UTF-8"),
        ("chess", b"\xff", "not a FileDescriptorSet"),
        ("chess", definition(name="N"), "does not define the message"),
        ("chess", definition("_seq"), "_seq: names that begin with '_'"),
        ("chess", bundle(define({"M": {"m": (1, "M")}})), "contains itself"),
    ],
)
def test_what_cannot_be_registered_is_refused(
    registry: LocalRegistry, game: str, content: bytes, sentence: str
) -> None:
    """Hostile names and definitions that no table can hold are refused before the store is touched."""
    with pytest.raises(Refused, match=sentence):
        registry.register(game, "t.M", content)
    assert registry.latest_version() == 0


@pytest.mark.parametrize("game", ["../x", "Robert'); DROP TABLE games;--", "шахматы", "a b", "A B", "🎲"])
def test_names_are_data(registry: LocalRegistry, game: str) -> None:
    """Any name that is UTF-8 text can have a schema; case twins are two games."""
    assert registry.register(game, "t.M", definition()).new
    assert list(registry.snapshot().games) == [game_key(game)]


@pytest.mark.proves("G70")
def test_a_schema_set_is_a_pure_function_of_its_version(registry: LocalRegistry, engine: Engine) -> None:
    """A set pinned by number never changes, whatever is registered later, for every reader."""
    registry.register("chess", "t.M", definition())
    pinned = registry.snapshot()
    registry.register("chess", "t.M", definition("b"))
    for _ in range(6):
        registry.register("go", "t.M", definition(*"bcdefg"[: _ + 1]))
        registry.snapshot()
    assert registry.snapshot(pinned.version) == LocalRegistry(engine).snapshot(pinned.version) == pinned
    assert registry.snapshot(0) == SchemaSet(version=0, games={}, schemas={})
    with pytest.raises(Refused, match=r"Schema set 99 does not exist; the newest is 8"):
        registry.snapshot(99)


def test_asking_again_costs_one_query(registry: LocalRegistry, engine: Engine) -> None:
    """When nothing was registered, a snapshot is the same object after one short query; a pinned one needs none."""
    registry.register("chess", "t.M", definition())
    first = registry.snapshot()
    statements: list[str] = []
    event.listen(engine, "before_cursor_execute", lambda *args: statements.append(args[2]))
    assert registry.snapshot() is first
    assert len(statements) == 1
    assert registry.snapshot(first.version) is first
    assert len(statements) == 1


def test_a_large_registry_is_small_and_one_batch(registry: LocalRegistry) -> None:
    """Three hundred games with six versions of three definitions go in as one batch and pickle into little."""
    registrations = [
        Registration(f"game {game}", f"t.M{game % 3}", definition(*"bcdefg"[:version], name=f"M{game % 3}"))
        for game in range(300)
        for version in range(6)
    ]
    results = registry.register_many(registrations)
    assert [each.version for each in results] == [1, 2, 3, 4, 5, 6] * 300
    snapshot = registry.snapshot()
    assert (len(snapshot.games), len(snapshot.schemas)) == (300, 18)
    content = pickle.dumps(snapshot)
    assert len(content) < 100_000
    assert pickle.loads(content) == snapshot
    assert not any(each.new for each in registry.register_many(registrations))


def test_a_set_is_packed_once_and_read_once(registry: LocalRegistry) -> None:
    """Law L5: the tasks of passes with one set get the very same one, and a part or a newer set is another."""
    registry.register_many([Registration(game, "t.M", definition("b")) for game in ("a", "b")])
    snapshot = registry.snapshot()
    content = pickle.dumps(snapshot)
    assert pickle.loads(content) is pickle.loads(pickle.dumps(snapshot))
    part = snapshot.only([game_key("a")])
    assert pickle.loads(pickle.dumps(part)) == part != snapshot
    registry.register("a", "t.M", definition("b", "c"))
    newer = registry.snapshot()
    assert pickle.loads(pickle.dumps(newer)) == newer != snapshot
    assert pickle.loads(content) == snapshot


def test_one_batch_may_hold_what_builds_on_itself(registry: LocalRegistry) -> None:
    """Within a batch a later schema is checked against the earlier ones, and a repeated one is no second version."""
    results = registry.register_many(
        [Registration("g", "t.M", definition(*fields)) for fields in ((), ("b",), (), ("b",))]
    )
    assert [(each.version, each.new) for each in results] == [(1, True), (2, True), (1, False), (2, False)]


def test_racing_processes_agree(tmp_path: Path) -> None:
    """Whoever races, every schema and version exists once, and of incompatible ones exactly one wins."""
    engines = [open_store(Settings(), Paths(tmp_path)) for _ in range(6)]
    barrier = threading.Barrier(len(engines))
    outcomes: list[str] = []

    def race(number: int) -> None:
        registry = LocalRegistry(engines[number], located(tmp_path / "bronze"))
        barrier.wait()
        for game in range(8):
            registry.register(f"shared {game}", "t.M", definition())
            registry.register(f"own {number} {game}", "t.M", definition("b"))
            try:
                registry.register(f"shared {game}", "t.M", definition(f"only_{number}"), STRICT)
                outcomes.append(f"won {game}")
            except Refused:
                outcomes.append("refused")

    threads = [threading.Thread(target=race, args=(number,)) for number in range(len(engines))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    snapshot = LocalRegistry(engines[0]).snapshot()
    with engines[0].connect() as connection:
        marks = connection.execute(select(func.count(schemas.c.fingerprint.distinct()), func.count())).one()
        total = connection.execute(select(func.count()).select_from(registrations)).scalar_one()
    for engine in engines:
        engine.dispose()
    assert sorted(outcomes) == ["refused"] * 40 + [f"won {game}" for game in range(8)]
    assert {len(ids) for key, ids in snapshot.games.items() if key.startswith("shared")} == {2}
    assert marks[0] == marks[1]
    assert total == 8 * 2 + 6 * 8
