"""Shapes of documents that nobody declared are registered once, from a range of bronze that is kept."""

import contextlib
import json
import random
import shutil
import threading
import time
from dataclasses import replace
from itertools import count
from pathlib import Path
from unittest.mock import ANY

import pytest
from sqlalchemy import delete

from pipeline.base import failpoints
from pipeline.base.names import game_key
from pipeline.data.contracts import declared_types
from pipeline.data.contracts.formats.json.caps import Caps
from pipeline.data.contracts.formats.json.undeclared_format import superset_of
from pipeline.data.contracts.further_types import accepting
from pipeline.data.contracts.given_ids import GivenIds
from pipeline.data.contracts.registrations import Registration
from pipeline.data.contracts.registry import LocalRegistry
from pipeline.data.repair.rebuild import rebuild
from pipeline.data.variations import bronze_view
from pipeline.data.variations import documents as documents_module
from pipeline.data.variations.bronze_view import BronzeView
from pipeline.data.variations.documents import Documents, FirstRows, Span
from pipeline.data.variations.resolution import ShapeResolution
from pipeline.lake.delta.opening import open_table
from pipeline.settings.tree import Paths
from pipeline.store.database.engine import open_store
from pipeline.store.database.tables import games, placements, registrations, schemas, variations
from pipeline.store.games import Game
from pipeline.store.variations import read_variations
from tests.onboarding_world import give_rules, rule
from tests.tables.flood_world import USUAL_ROWS, flooded
from tests.tables.killed_world import fated
from tests.tables.registering_world import (
    LATER,
    Killed,
    arrive,
    content,
    drive,
    need,
    registry,
    reported,
    resolve,
    shapes,
    supersets,
    tried,
    waits,
    world_of,
)
from tests.tables.shapes_world import BY_TYPE, FIELDS, GAME, KEY, quarantine, record, shapes_world, table

MOVE = ("move", b'{"x":1}')
NAMED = ("move", b'{"x":2,"name":"a"}')
SOLD = ("sold", b'{"price":2.5}')
POINTS = [
    f"{when}_{effect}"
    for effect in ("read_range", "publish_id", "publish_placed", "store_commit", "commit_registration")
    for when in ("before", "after")
]


def test_a_first_registration_gives_columns_and_variations_and_ends_its_need(tmp_path: Path) -> None:
    """Law L14: a need is answered by one registration, whose variations have paths and places, and no value."""
    world = world_of(tmp_path, [MOVE, NAMED, SOLD])
    resolve(world, need("move"))
    assert supersets(world) == [("move", 1, ("name", "x"))]
    assert waits(world) == []
    later, first = read_variations(world.engine, KEY, "move")
    assert (first.form, first.first_seq, first.first_pos, first.schema_id) == ("shape/1\nx:whole", 1, 0, 1)
    assert (later.form, later.facts, later.first_pos) == ("shape/1\nname:text", 1, 1)
    world.split_all()
    assert [row["name"] for row in table(world)] == []  # `sold` has no shapes yet
    resolve(world, need("sold", place=(1, 2)))
    world.split_all()
    assert [row["name"] for row in table(world)] == [None, "a"]
    world.engine.dispose()


def test_a_later_registration_begins_at_the_first_uncovered_row(tmp_path: Path) -> None:
    """A later range runs from the row that needs it to bronze's end, and finds all shapes there at once."""
    world = world_of(tmp_path, [MOVE])
    resolve(world, need("move"))
    arrive(world, [MOVE, NAMED])
    arrive(world, [("move", b'{"y":true}'), ("move", b'{"y":"b"}')])
    resolve(world, need("move", 1, (2, 1)))
    assert supersets(world) == [("move", 1, ("x",)), ("move", 2, ("name", "x", "y"))]
    assert waits(world) == []
    given = GivenIds(world.paths.bronze)
    given.refresh()
    origins = [origin for _, origin in given.computed(KEY).values()]
    assert [(each.first, each.last, each.rows) for each in origins] == [((1, 0), (1, 0), 1), ((2, 1), (3, 1), 3)]
    world.engine.dispose()


@pytest.mark.parametrize("stride", [5, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.proves("G285")
def test_a_registration_killed_between_any_two_effects_is_repeated_with_the_same_content(
    tmp_path: Path, stride: int
) -> None:
    """A killed registration keeps its range with its id: what is done again is the same, also if bronze has grown."""
    whole = world_of(tmp_path / "whole", [MOVE], [NAMED])
    resolve(whole, need("move"))
    met = set[str]()
    for number in count(1, stride):
        world = world_of(tmp_path / str(number), [MOVE], [NAMED])
        with fated(world.engine, number) as fate:
            resolve(world, need("move"))
        given = GivenIds(world.paths.bronze)
        given.refresh()
        if given.computed(KEY):
            arrive(world, [("move", b'{"late":1}')])
        resolve(world, need("move"))
        assert content(world) == content(whole), fate.passed[-1]
        assert [each.fingerprint for each in read_variations(world.engine, KEY)] == [
            each.fingerprint for each in read_variations(whole.engine, KEY)
        ]
        assert waits(world) == []
        world.engine.dispose()
        if not fate.is_dead:
            met = set(fate.passed)
            break
    assert set(POINTS) < met, "it comes to each of them"
    whole.engine.dispose()


def test_two_drivers_register_the_same_shapes_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loser of an id reads what the winner registered, and goes on from there."""
    world = world_of(tmp_path, [MOVE])
    one, two = shapes(world), shapes(world)
    for each in (one, two):
        each.note([need("move")])
    acted: list[str] = []

    def other(name: str) -> None:
        if name == "before_commit_registration" and not acted:
            acted.append(name)
            two.step()

    monkeypatch.setattr(failpoints, "on_hit", other)
    one.step()
    assert acted
    assert supersets(world) == [("move", 1, ("x",))]
    assert waits(world) == []
    world.engine.dispose()


def test_a_driver_with_another_store_takes_over_what_was_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Law L1: of two stores of one bronze the loser of an id computes the winner's columns, and then goes on."""
    world = world_of(tmp_path / "env", [MOVE])
    shutil.copytree(world.paths.root, tmp_path / "copy", ignore=lambda _, names: {"tables", "bronze"} & {*names})
    copied = open_store(world.settings, Paths(tmp_path / "copy"))
    other = ShapeResolution(copied, world.paths.bronze, world.environment, Caps(columns=900), lambda: LATER)
    other.note([need("move")])
    acted: list[str] = []

    def first(name: str) -> None:
        if name == "before_publish_id" and not acted:
            acted.append(name)
            other.step()

    monkeypatch.setattr(failpoints, "on_hit", first)
    resolve(world, need("move"))
    assert acted
    mine, theirs = (LocalRegistry(each, world.paths.bronze).snapshot() for each in (world.engine, copied))
    assert mine.of(KEY) == theirs.of(KEY)
    assert [each.definition.count(b'"columns":900') for each in mine.of(KEY)] == [1]
    copied.dispose()
    world.engine.dispose()


@pytest.mark.parametrize("keeps_placed", [True, False])
@pytest.mark.proves("G285")
def test_an_older_store_gets_its_registrations_again(tmp_path: Path, keeps_placed: bool) -> None:
    """Law L1: what is kept beside bronze is computed again with its id and columns, before anything new."""
    world = world_of(tmp_path, [MOVE], [NAMED])
    resolve(world, need("move"))
    arrive(world, [("move", b'{"x":"text"}')])
    resolve(world, need("move", 1, (3, 0)))
    before = content(world)
    with world.engine.begin() as connection:
        for each in (variations, placements, registrations, schemas):
            connection.execute(delete(each))
    if not keeps_placed:
        for file in (Path(world.paths.bronze).parent / "registrations").glob("placed-*"):
            file.unlink()
    arrive(world, [("move", b'{"new":1}')])
    resolve(world, need("move", 2, (4, 0)))
    assert content(world)[:2] == before  # type: ignore[index]
    assert supersets(world)[2] == ("move", 3, ("name", "new", "x"))
    world.engine.dispose()


@pytest.mark.proves("G285")
def test_rows_that_bronze_has_lost_leave_a_sentence(tmp_path: Path) -> None:
    """Law L14: columns that cannot be computed again keep their game waiting, and say what to restore."""
    world = world_of(tmp_path, [MOVE])
    resolve(world, need("move"))
    with world.engine.begin() as connection:
        for each in (variations, placements, registrations, schemas):
            connection.execute(delete(each))
    shutil.rmtree(world.paths.bronze.path)
    world.seq = 0
    arrive(world, [("move", b'{"other":1}')])
    driver = shapes(world)
    driver.note([need("move")])
    driver.step()
    assert supersets(world) == []
    assert "cannot be computed again" in driver.troubles()["shapes"]
    world.engine.dispose()


def test_a_first_range_ends_with_the_thousandth_row(tmp_path: Path) -> None:
    """The rows behind the first 1,000 of a type wait for a registration of their own."""
    world = world_of(tmp_path, [MOVE] * 999 + [NAMED] + [("move", b'{"late":1}')])
    resolve(world, need("move"), now=0.0)
    assert supersets(world) == [("move", 1, ("name", "x"))]
    world.engine.dispose()


def test_a_first_range_waits_for_ten_seconds_of_bronze(tmp_path: Path) -> None:
    """A type's first columns are not those of its first row alone; the time is that of bronze's commits."""
    world = world_of(tmp_path, [MOVE])
    landed = shapes(world)._registrar._opened(0.0).landed_at
    assert resolve(world, need("move"), now=landed + 9) <= 1.0
    assert supersets(world) == []
    arrive(world, [NAMED])
    assert resolve(world, need("move"), now=landed + 30) == ANY
    assert supersets(world) == [("move", 1, ("name", "x"))]
    world.engine.dispose()


def test_rows_from_before_an_approval_count(tmp_path: Path) -> None:
    """A game that waited for approval gets the columns of what came before it, and none without an approval."""
    world = world_of(tmp_path)
    world.names.clear()
    arrive(world, [MOVE])
    resolve(world, need("move"))
    assert supersets(world) == []
    world.names[GAME] = str(KEY)
    arrive(world, [NAMED])
    resolve(world, need("move", place=(2, 0)))
    assert supersets(world) == [("move", 1, ("name", "x"))]
    assert [each.first_seq for each in read_variations(world.engine, KEY)] == [2, 1]
    world.engine.dispose()


def test_a_retired_game_registers_nothing(tmp_path: Path) -> None:
    """A retired game's rows stay in bronze; its needs wait until it is restored."""
    world = world_of(tmp_path, [MOVE])
    with world.engine.begin() as connection:
        connection.execute(games.update().values(retired_at=1.0))
    resolve(world, need("move"))
    assert supersets(world) == []
    assert len(waits(world)) == 1
    world.engine.dispose()


def test_the_first_type_is_that_of_the_first_row_and_others_wait(tmp_path: Path) -> None:
    """ADR 46: the first type's fields are the table's columns; another type waits until it is accepted."""
    world = world_of(tmp_path, [MOVE, SOLD])
    resolve(world, need("sold", place=(1, 1)), need("move"))
    known = registry(world).snapshot()
    assert [(schema.message, at.other_type) for schema, at in known.placed(KEY)] == [("move", False), ("sold", True)]
    world.split_all()
    assert [row["x"] for row in table(world)] == [1]
    (schema,) = [each for each in known.of(KEY) if each.message == "sold"]
    accepted = Registration(GAME, "sold", schema.definition, format=schema.format, new_type=True)
    registry(world).register_many([accepted])
    arrive(world, [("sold", b'{"price":1.5,"x":"a"}')])
    resolve(world, need("sold", 1, (2, 0)))
    newest, at = registry(world).snapshot().placed(KEY)[-1]
    assert (newest.message, at.struct, at.quarantined) == ("sold", "sold", None)
    world.engine.dispose()


def test_equal_shapes_of_two_games_share_an_id_and_each_has_its_range(tmp_path: Path) -> None:
    """Law L1: a schema is one for both, and an older store computes each game's again from its own rows."""
    world = world_of(tmp_path, [MOVE])
    world.names["Go"] = str(game_key("Go"))
    arrive(world, [MOVE], "Go")
    resolve(world, need("move"))
    resolve(world, need("move", place=(2, 0), game="Go"))
    assert content(world) == content(world, game_key("Go"))
    with world.engine.begin() as connection:
        for each in (variations, placements, registrations, schemas):
            connection.execute(delete(each))
    resolve(world, need("move"), need("move", place=(2, 0), game="Go"))
    assert supersets(world, "Go") == supersets(world) == [("move", 1, ("x",))]
    world.engine.dispose()


HOSTILE = [
    b'{"a":1,"a":2}',
    b"{}",
    b"[1]",
    b'{"4711":1}',
    b'{"\\u007fother":1}',
    b'{"_seq":1,"A":1,"a":2,"a.b":"\\u0000"}',
]


def test_hostile_keys_and_types_are_registered_or_contained(tmp_path: Path) -> None:
    """Hostile names of keys and types reach no path, statement or column unescaped, and each need is answered."""
    names = ["'; DROP TABLE games;--", "a/b\\..", "\u202egnp", "x" * 256, "_type", "é\u2028"]
    world = world_of(tmp_path, [(name, each) for name in names for each in HOSTILE])
    resolve(world, *[need(name, place=(1, at * len(HOSTILE))) for at, name in enumerate(names)])
    assert [each[:2] for each in supersets(world)] == [(name, 1) for name in names]
    assert waits(world) == []
    assert all("4711" not in each.form for each in read_variations(world.engine, KEY))
    world.engine.dispose()


def test_caps_close_a_type(tmp_path: Path) -> None:
    """A type with too many variations lands its further ones whole, and says so in its superset."""
    many = [("move", json.dumps({f"k{number}": 1}).encode()) for number in range(5)]
    world = world_of(tmp_path, many)
    resolve(world, need("move"), caps=Caps(variations=3))
    assert len(read_variations(world.engine, KEY)) == 3
    world.split_all()
    whole = [row["__other__"] for row in table(world)]
    assert whole == [None, None, None, '{"k3": 1}', '{"k4": 1}']
    world.engine.dispose()


def test_random_types_end_at_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A game gets a limited number of types: rows of further ones are refused, and the game does not wait for them."""
    monkeypatch.setattr(declared_types, "MOST_TYPES", 5)
    world = world_of(tmp_path, [(f"t{number}", b'{"x":1}') for number in range(8)])
    drive(world)
    assert [name for name, _, _ in supersets(world)] == [f"t{number}" for number in range(5)]
    assert waits(world) == []
    reasons = [reason for reason, _ in quarantine(world)]
    assert reasons == [*["other_type"] * 4, *["unknown_schema"] * 3]
    world.engine.dispose()


@pytest.mark.parametrize("point", ["before_read_range", "before_commit_registration"])
def test_a_type_that_is_accepted_during_a_registration_keeps_its_column(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    """Law L1: a key of the first type never gets the name of a column that an event type got meanwhile."""
    world = world_of(tmp_path, [MOVE, SOLD])
    drive(world)
    arrive(world, [("move", b'{"x":1,"Sold":4}')])
    lacking, left = reported(world), [point]

    def accepted(name: str) -> None:
        if left and name == left[0]:
            left.clear()
            known = registry(world)
            known.register_many(accepting(known.snapshot(), KEY, GAME, ["sold"], "ann"))

    monkeypatch.setattr(failpoints, "on_hit", accepted)
    resolve(world, *lacking)
    drive(world)
    arrive(world, [SOLD])
    drive(world)
    rows = [(row["sold"], [row[name] for name in row if name.startswith("Sold__")]) for row in table(world)]
    assert rows == [(None, [None]), (None, [4]), ({"price": 2.5}, [None])]
    world.engine.dispose()


def test_a_key_and_a_type_of_one_name_in_one_registration_get_columns_of_their_own(tmp_path: Path) -> None:
    """Law L1: a type that a rule accepts gets its column beside those that the first type gets with it."""
    world = world_of(tmp_path, [MOVE])
    give_rules(world.engine, rule(GAME, event_types=("*",)))
    drive(world)
    arrive(world, [SOLD, ("move", b'{"x":1,"sold":4}')])
    resolve(world, need("sold", place=(2, 0)), need("move", 1, (2, 1)))
    drive(world)
    assert [(row["sold"], row["sold__2"]) for row in table(world)] == [(None, None), (None, {"price": 2.5}), (4, None)]
    world.engine.dispose()


def test_a_game_that_fails_in_a_way_that_nobody_foresaw_lets_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law L6: a registration of one game that fails, however it does, keeps no other game waiting."""
    world = world_of(tmp_path, [MOVE])
    world.names["Go"] = str(game_key("Go"))
    arrive(world, [MOVE], "Go")
    left = ["first"]

    def fails(name: str) -> None:
        if name == "before_commit_registration" and left:
            raise ValueError(left.pop())

    monkeypatch.setattr(failpoints, "on_hit", fails)
    driver = shapes(world)
    driver.note([need("move"), need("move", place=(2, 0), game="Go")])
    driver.step()
    assert (supersets(world), supersets(world, "Go")) == ([], [("move", 1, ("x",))])
    assert "first" in driver.troubles()["shapes"]
    world.engine.dispose()


def test_the_id_of_a_producer_is_kept_as_every_control_store_takes_it(tmp_path: Path) -> None:
    """PostgreSQL has no text with NUL: a producer's id with one is kept with a mark in its place."""
    world = shapes_world(tmp_path, replace(BY_TYPE, fields=(*FIELDS, ("producer_id", "by"))))
    world.arrive(b'{"game":"Chess","type":"move","by":"a\\u0000b","data":{"x":1}}')
    resolve(world, need("move"))
    assert [each.producer for each in read_variations(world.engine, KEY)] == ["a\ufffdb"]
    world.engine.dispose()


def test_ids_in_the_place_of_types_cost_no_more_than_their_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law L6: a game that sends an id as its type slows neither the registration of others nor their passes."""
    monkeypatch.setattr(declared_types, "MOST_TYPES", 20)
    world = world_of(tmp_path, [(f"t{number}", b"{}") for number in range(20)])
    drive(world)
    arrive(world, [(f"{number:032x}", b"{}") for number in range(30_000)])
    started = time.process_time()
    tried(world)
    view = BronzeView(world.paths.bronze, world.environment)
    documents = Documents(view, Game(KEY, GAME), registry(world).snapshot())
    documents.count({"t0": FirstRows(1)}, 1)
    assert time.process_time() - started < 4  # 8 s where each is looked for among all
    world.engine.dispose()


def test_documents_are_the_same_however_many_are_opened_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law L1: a range of bronze gives the same documents in the same order, in whatever parts they are opened."""
    world = world_of(tmp_path, [MOVE, SOLD, SOLD, NAMED, MOVE], [SOLD, MOVE])
    view = BronzeView(world.paths.bronze, world.environment)
    documents = Documents(view, Game(KEY, GAME), registry(world).snapshot())
    spans = {"move": Span((1, 0), (2, 9)), "sold": Span((1, 2), (2, 0))}
    whole = list(documents.read(spans))
    assert [(each.type, each.place, each.payload) for each in whole] == [
        ("move", (1, 0), MOVE[1]), ("sold", (1, 2), SOLD[1]), ("move", (1, 3), NAMED[1]), ("move", (1, 4), MOVE[1]),
        ("sold", (2, 0), SOLD[1]), ("move", (2, 1), MOVE[1]),
    ]  # fmt: skip
    for rows in (1, 2, 3):
        monkeypatch.setattr(documents_module, "_OPENED_ROWS", rows)
        assert list(documents.read(spans)) == whole
    monkeypatch.setattr(bronze_view, "_SMALL_FILE", 0)  # all files are large: they are scanned
    view = BronzeView(world.paths.bronze, world.environment)
    assert list(Documents(view, Game(KEY, GAME), registry(world).snapshot()).read(spans)) == whole
    world.engine.dispose()


def test_games_that_wait_together_share_what_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of bronze is read once for all games whose first ranges have ended, and not kept longer."""
    world = shapes_world(tmp_path)
    names = [GAME, "Go", "Ludo"]
    world.names |= {name: str(game_key(name)) for name in names}
    for seq in range(1, 4):
        told = [json.dumps(name).encode() for name in names]
        world.arrive(*[record("move", b'{"x":%d}' % seq).replace(b'"Chess"', each, 1) for each in told])
    read: list[str] = []
    by_game = bronze_view._by_game

    def counted(path: str) -> object:
        read.append(path)
        return by_game(path)

    monkeypatch.setattr(bronze_view, "_by_game", counted)
    driver = shapes(world)
    driver.note([need("move", game=name) for name in names])
    driver.step()
    assert [supersets(world, name) for name in names] == [[("move", 1, ("x",))]] * 3
    assert len(read) == len(set(read)) >= 3
    assert driver._registrar._kept_files._held == {}
    world.engine.dispose()


def test_landed_rows_are_counted_for_the_variations_of_their_registration(tmp_path: Path) -> None:
    """Counts and last times of variations are statistics of passes, by the first superset that covers each row."""
    world = world_of(tmp_path, [MOVE, MOVE])
    resolve(world, need("move"))
    arrive(world, [NAMED, MOVE, NAMED])
    resolve(world, need("move", 1, (2, 0)))
    landed = {int(each): rows for each, rows in tried(world)[KEY]["shapes"].items()}
    assert landed == {1: 3, 2: 2}
    driver = shapes(world)
    for _ in range(2):
        driver.count(KEY, landed)
    driver.step()
    driver.count(KEY, {1: 1})
    driver.step()
    assert {(each.form.split()[-1], each.count, each.last_seen) for each in read_variations(world.engine, KEY)} == {
        ("name:text", 4, LATER), ("x:whole", 7, LATER),
    }  # fmt: skip
    world.engine.dispose()


SOUND = [b'{"a":1}', b'{"a":2.5}', b'{"b":{"c":1}}', b'{"b":{"c":"x","d":[{"e":1}]}}', b'{"m":{"1":1,"2":2.5}}']


@pytest.mark.parametrize("seed", [0, *(pytest.param(each, marks=pytest.mark.long) for each in range(1, 6))])
def test_drivers_that_are_killed_register_what_verify_finds_right(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Laws L5, L12: drivers that are killed anywhere leave each value in its column, also after a rebuild."""
    chance = random.Random(seed)
    world = world_of(tmp_path)

    def killed(name: str) -> None:
        if name in POINTS and chance.random() < 0.05:
            raise Killed(name)

    for _ in range(4):
        documents = chance.choices([*SOUND, *HOSTILE], k=chance.randint(1, 6))
        arrive(world, [(chance.choice(("move", "sold")), each) for each in documents])
        monkeypatch.setattr(failpoints, "on_hit", killed)
        for _ in range(3):
            with contextlib.suppress(Killed):
                resolve(world, *reported(world))
        monkeypatch.setattr(failpoints, "on_hit", None)
        if chance.random() < 0.7:
            drive(world)
    drive(world)
    rows = table(world)
    rebuild(world.paths, world.environment, world.engine, registry(world).snapshot, Game(KEY, GAME))
    assert table(world) == rows
    balance = world.check()
    assert balance.values is not None
    assert (balance.problems, balance.values.mismatches, balance.values.rows) == ((), 0, len(rows))
    world.engine.dispose()


def test_a_thread_registers_at_once_what_it_is_woken_for(tmp_path: Path) -> None:
    """The 30 s of a new game have no room for a poll: a noted need is looked at when it comes."""
    world = world_of(tmp_path, [MOVE] * 1000)
    driver = ShapeResolution(world.engine, world.paths.bronze, world.environment)
    stop, began = threading.Event(), time.monotonic()
    driver.start(stop)
    driver.note([need("move")])
    while not supersets(world) and time.monotonic() < began + 20:
        stop.wait(0.05)
    stop.set()
    driver.wake()
    assert supersets(world) == [("move", 1, ("x",))]
    world.engine.dispose()


def test_many_types_at_once_are_few_transactions(tmp_path: Path) -> None:
    """A game with many types reads bronze once for all of them, and is given all ids by one file."""
    world = world_of(tmp_path, [(f"t{number}", b'{"x":1}') for number in range(30)])
    assert drive(world) <= 3
    assert len(supersets(world)) == 30
    folder = Path(world.paths.bronze.path).parent / "registrations"
    assert len(list(folder.iterdir())) == 4
    world.engine.dispose()


@pytest.mark.parametrize("rows", [5_000, pytest.param(1_000_000, marks=[pytest.mark.long, pytest.mark.timeout(900)])])
def test_a_flood_of_shapes_is_registered_in_bounded_memory(tmp_path: Path, rows: int) -> None:
    """Law L6: 1,000,000 shapes of one type cost 1,000 columns, few registrations and little memory; all rows land."""
    flood = flooded(tmp_path, rows)
    world = flood.world
    assert flood.registrations <= 3
    assert flood.registering.mib < 200
    kept = read_variations(world.engine, KEY, most=5_000)
    newest = superset_of(registry(world).snapshot().of(KEY)[-1])
    assert (len(kept), newest.closed > 0) == (newest.variations, True)
    assert newest.variations <= newest.caps.variations
    assert newest.columns() <= newest.caps.columns + 1
    assert world.check(sample=100).problems == ()
    landed = open_table(world.paths.table(KEY)).to_pyarrow_table(columns=["__other__"]).column("__other__")
    assert len(landed) == USUAL_ROWS + rows
    assert len(landed) - landed.null_count >= rows - newest.caps.variations
    world.engine.dispose()
