"""Answers of registries become rows of the control store: once, for ever, and never from an outage."""

import re
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Engine, delete, event, select
from sqlalchemy.exc import OperationalError

from pipeline.base.failpoints import Injected
from pipeline.base.names import game_key
from pipeline.data.contracts.policies import parse_policies
from pipeline.data.contracts.registries import resolution as resolution_module
from pipeline.data.contracts.registries.answers import (
    Absent,
    Answer,
    Away,
    Found,
    Unusable,
    Version,
    by_age,
    version_of,
)
from pipeline.data.contracts.registries.notes import Need
from pipeline.data.contracts.registries.recording import give_up
from pipeline.data.contracts.registries.resolution import Resolution
from pipeline.data.contracts.registry import LocalRegistry
from pipeline.data.contracts.schemas import Writer
from pipeline.lake.storage.places import located
from pipeline.settings.tree import load
from pipeline.store.database.engine import open_store, writing
from pipeline.store.database.tables import registrations, schema_needs
from pipeline.store.processes.leases import store_time
from pipeline.store.schema_needs import (
    OpenNeed,
    RegistryHealth,
    read_states,
    trust_again,
    write_needs,
    write_state,
)
from pipeline.store.writers import lock
from tests.lakebase import store_url
from tests.unit.data.contracts.registries.resolution_world import CHESS, EIGHT, NOW, PATIENCE, SEVEN, World, found
from tests.unit.store.outage_world import away

FIRST, SECOND = b"\x00", b"\x02\x02"
GO = Need(game_key("Go"), "Go", "main", SEVEN, 1, 0)
GARBAGE = Found("protobuf", b"\xff", {b"": "t.M"})


@pytest.fixture
def world(engine: Engine) -> World:
    return World(engine)


def test_a_found_schema_is_kept_and_registered_for_all_games_that_wait(world: World) -> None:
    """Law L13: an answer becomes a numbered row, and the games that need it get their registration with it."""
    resolution = world.resolution()
    resolution.note([CHESS, GO, CHESS])
    assert world.after(resolution, 0) > 0
    schemas = world.schemas
    (chess,), (go,) = schemas.of(CHESS.game_key), schemas.of(GO.game_key)
    assert chess == go
    assert world.writer() == Writer(chess.schema_id)
    assert world.asked == [SEVEN]
    assert world.needs == []
    assert world.state() == ("ok", 0, None)
    with world.engine.connect() as connection:
        origins = connection.execute(select(registrations.c.actor, registrations.c.registry)).all()
    assert [tuple(each) for each in origins] == [(None, "main")] * 2, "no person did it, and history says where from"


def test_a_need_waits_while_its_schema_gets_no_id(world: World, tmp_path: Path) -> None:
    """Law L14: where ids are taken beside bronze and that place does not serve, games wait, and are answered later."""
    place = tmp_path / "registrations"
    place.write_text("a file in the way")
    resolution = world.resolution(bronze=located(tmp_path / "bronze"))
    resolution.note([CHESS])
    assert world.after(resolution, 0) > 0
    assert (world.writer(), len(world.needs)) == (None, 1)
    place.unlink()
    world.after(resolution, 60)
    writer = world.writer()
    assert writer is not None
    assert (writer.schema_id, world.needs) == (1, [])
    assert sorted(file.name for file in place.iterdir()) == ["1", "placed-1"]


def test_a_known_writer_takes_no_registry(world: World) -> None:
    """A found id is kept for ever: another game that needs it gets it while the registry is away."""
    resolution = world.resolution()
    resolution.note([CHESS])
    world.after(resolution, 0)
    world.answer = Away("down")
    resolution.note([GO])
    world.after(resolution, 1)
    assert world.schemas.of(GO.game_key) == world.schemas.of(CHESS.game_key)
    assert world.asked == [SEVEN]


@pytest.mark.parametrize("paths", [{FIRST: "t.M"}, {FIRST: "t.M", SECOND: "t.N"}], ids=["one", "two"])
def test_each_index_path_of_an_id_is_a_writer_of_its_own(world: World, paths: dict[bytes, str]) -> None:
    """One id names all messages of a file: a game gets the one that its rows name, or the only one there is."""
    world.answer = found(paths)
    resolution = world.resolution()
    resolution.note([CHESS])
    world.after(resolution, 0)
    assert world.writer() == Writer(indexed=True)
    assert {path for registry, path in world.schemas.writers} == {SEVEN, *(SEVEN + each for each in paths)}
    assert [each.message for each in world.schemas.of(CHESS.game_key)] == (["t.M"] if len(paths) == 1 else [])
    resolution.note([CHESS._replace(writer=SEVEN + max(paths))])
    world.after(resolution, 0)
    assert [each.message for each in world.schemas.of(CHESS.game_key)] == [paths[max(paths)]]
    assert world.asked == [SEVEN]


def test_a_path_without_a_message_is_refused(world: World) -> None:
    """The registry has answered: its file has no such message, and no later answer about that id can have one."""
    world.answer = found({FIRST: "t.M"})
    resolution = world.resolution()
    resolution.note([CHESS, CHESS._replace(writer=SEVEN + b"\x02\x08")])
    world.after(resolution, 0)
    refused = world.writer(SEVEN + b"\x02\x08")
    assert refused is not None
    assert refused.refused == (
        "registry main has schema 7 (message 0208), which turnout cannot use: it has no message at that index path, or "
        "clients differ about which one it is"
    )
    assert world.needs == []


@pytest.mark.parametrize(("message", "gets"), [("t.N", "t.N"), ("", None)])
def test_ids_without_index_paths_have_the_message_of_the_profile(world: World, message: str, gets: str | None) -> None:
    """Where an id stands in the wrapper no path follows it: a person names the message, unless there is only one."""
    world.answer = found({FIRST: "t.M", SECOND: "t.N"})
    resolution = world.resolution(others=lambda _: world)
    need = CHESS._replace(registry=f"main:{message}")
    resolution.note([need])
    world.after(resolution, 0)
    kept = world.schemas.writers[need.registry, SEVEN]
    assert [each.message for each in world.schemas.of(CHESS.game_key)] == ([] if gets is None else [gets])
    assert (kept.schema_id is None, kept.indexed) == (gets is None, False)
    assert gets or "set source.message" in (kept.refused or "")


def test_another_message_in_the_settings_is_another_question(world: World) -> None:
    """Else its rows would be decoded as the message that was named before, and the registry be blamed for it."""
    world.answer = found({FIRST: "t.M", SECOND: "t.N"})
    resolution = world.resolution(others=lambda _: world)
    for message in ("t.M", "t.N"):
        resolution.note([CHESS._replace(registry=f"main:{message}")])
        world.after(resolution, 0)
    resolution.note([CHESS])  # a framing with index paths
    world.after(resolution, 0)
    resolution.note([CHESS._replace(writer=SEVEN + SECOND)])
    world.after(resolution, 40_000)  # and samples
    assert {each.message for each in world.schemas.of(CHESS.game_key)} == {"t.M", "t.N"}
    assert world.schemas.writers["main", SEVEN].indexed
    with world.engine.connect() as connection:
        assert {each.state for each in read_states(connection).values()} == {"ok"}


def test_absent_counts_after_three_answers_over_half_a_minute(world: World) -> None:
    """Law L14: one answer may come from a registry that is behind; nothing is refused before the third."""
    world.answer = Absent("no such id")
    resolution = world.resolution()
    resolution.note([CHESS])
    for seconds in (0, 1, 14, 14, 0.5):
        world.after(resolution, seconds)
        assert world.writer() is None
    (need,) = world.needs
    assert (need.absences, need.answer) == (2, "registry main has no schema 7: no such id")
    world.after(resolution, 0.5)
    assert world.writer() == Writer(refused="registry main has no schema 7: no such id")
    assert len(world.asked) == 3
    assert world.needs == []


def test_absent_takes_three_answers_however_long_they_take(world: World) -> None:
    """Law L14: half a minute between the first two is not enough."""
    world.answer = Absent("no such id")
    resolution = world.resolution(patience=replace(PATIENCE, absent=40))
    resolution.note([CHESS])
    world.after(resolution, 0)
    world.after(resolution, 40)
    assert world.writer() is None
    world.after(resolution, 40)
    assert world.writer() is not None


def test_absent_takes_half_a_minute_however_many_answers(world: World) -> None:
    """Law L14: several drivers that ask at the same moment hear one and the same answer."""
    world.answer = Absent("no such id")
    resolution = world.resolution(patience=replace(PATIENCE, absent=5))
    resolution.note([CHESS])
    for _ in range(6):
        world.after(resolution, 5)
        assert world.writer() is None
    world.after(resolution, 5)
    assert world.writer() is not None


@pytest.mark.parametrize("late", [Found, Away])
def test_a_later_question_finds_an_absent_schema(world: World, late: type) -> None:
    """Law L14: a schema that appears later is a new row under a later number; away changes nothing."""
    world.answer = Absent("no such id")
    resolution = world.resolution()
    resolution.note([CHESS])
    for _ in range(3):
        world.after(resolution, 15)
    before = world.schemas
    resolution.note([CHESS])
    world.after(resolution, 15)  # refused is an answer too
    assert len(world.asked) == 3
    for _ in range(10):
        resolution.note([CHESS], again=True)
        world.after(resolution, 2)
    assert len(world.asked) == 4, "asked at most each half minute"
    world.answer = found() if late is Found else Away("down")
    world.after(resolution, 30)
    if late is Found:
        assert world.writer() == Writer(world.schemas.games[CHESS.game_key][0])
        assert world.needs == []
    else:
        assert world.writer() == before.writers["main", SEVEN]
        assert len(world.needs) == 1
    assert LocalRegistry(world.engine).snapshot(before.version) == before


@pytest.mark.parametrize("late", [Found, Absent, Away])
def test_a_registry_hears_of_refused_writers_each_ten_minutes_without_a_need(world: World, late: type[Answer]) -> None:
    """Law L14: rows of a schema that comes late would go to quarantine for ever; away decides nothing about it."""
    world.answer = Absent("no such id")
    resolution = world.resolution()
    resolution.note([CHESS])
    for _ in range(3):
        world.after(resolution, 15)
    refused, asked = world.writer(), len(world.asked)
    world.after(resolution, 500)
    assert len(world.asked) == asked
    answers: dict[type[Answer], Answer] = {Found: found(), Absent: Absent("no such id"), Away: Away("down")}
    world.answer = answers[late]
    world.after(resolution, 100)
    assert len(world.asked) == asked + 1
    now = world.writer()
    assert now is not None
    assert (now.schema_id is not None, now == refused) == (late is Found, late is not Found)
    world.after(resolution, 500)
    assert len(world.asked) == asked + 1
    if late is Found:  # its rows are needs again, which takes no registry
        resolution.note([CHESS])
        world.after(resolution, 30)
        assert (len(world.asked), world.needs) == (asked + 1, [])
        assert world.schemas.games[CHESS.game_key] == (now.schema_id,)


@pytest.mark.proves("D9")
def test_a_clock_that_is_set_back_lengthens_no_wait_for_a_registry(world: World) -> None:
    """D9: another driver's moments lie in the future then; each wait lasts at most its own time."""
    world.answer = Absent("no such id")
    resolution = world.resolution()
    resolution.note([CHESS])
    world.after(resolution, 0)
    world.now -= 3600
    for _ in range(3):
        assert world.after(resolution, 15) <= 15
    assert len(world.asked) == 4
    assert world.writer() is not None
    resolution.note([CHESS], again=True)
    world.after(resolution, 0)
    world.now -= 3600
    world.answer = found()
    resolution.note([CHESS], again=True)
    world.after(resolution, 30)
    assert world.schemas.of(CHESS.game_key) != ()


@pytest.mark.proves("D9")
def test_a_clock_that_is_set_back_lengthens_no_outage_and_no_reading(world: World) -> None:
    """D9: neither a registry that was away nor rows that are read again are waited for longer than their own time."""
    world.answer = Away("no route to host")
    resolution = world.resolution()
    resolution.note([CHESS, CHESS._replace(writer=EIGHT, pos=1)])
    assert world.after(resolution, 0) == 1
    world.now -= 3600
    world.answer = {SEVEN: found({FIRST: "t.M", SECOND: "t.N"}), EIGHT: found(b="int64")}
    world.after(resolution, 1)
    assert world.asked[:3] == [SEVEN, SEVEN, EIGHT]
    world.now -= 3600
    world.after(resolution, 300)
    assert [len(each) for each in world.schemas.games.values()] == [1]


@pytest.mark.proves("D9")
def test_the_clock_of_a_drivers_machine_decides_nothing(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """D9: two drivers whose clocks differ by an hour would take two answers of one moment for two an hour apart."""
    world = World(engine, Absent("no such id"))
    drivers = [Resolution(engine, {"main": world}) for _ in range(2)]
    for hours, driver in enumerate(drivers * 2):
        monkeypatch.setattr("time.time", lambda hours=hours: NOW + 3600.0 * hours)
        driver.note([CHESS])
        driver.step()
    assert world.asked == [SEVEN]
    (need,) = world.needs
    assert need.asked_at == need.absent_since
    assert abs((need.asked_at or 0.0) - store_time(engine)) < 600


def test_away_decides_nothing_and_gets_ever_fewer_questions(world: World) -> None:
    """Law L14: the state says which registry is away since when; nothing else is written."""
    world.answer = Away("no route to host")
    resolution = world.resolution()
    resolution.note([CHESS, GO._replace(writer=EIGHT)])
    waits = [world.after(resolution, 0)]
    for _ in range(8):
        waits.append(world.after(resolution, waits[-1]))
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert len(world.asked) == 9, "one question each time, however many wait"
    assert world.after(resolution, 10) == 50
    assert world.schemas.version == 0
    assert world.state() == ("away", 0, "no route to host")
    world.answer = found()
    world.after(resolution, 50)
    assert world.state()[0] == "ok"
    assert world.schemas.of(CHESS.game_key) == world.schemas.of(GO.game_key) != ()


@pytest.mark.proves("G191")
def test_a_schema_that_a_registry_never_gives_delays_no_other(world: World) -> None:
    """Law L14: an error for one id, or a version that stays pending, is a wait for the games that need it alone."""
    world.answer = {SEVEN: Away("answers 500"), EIGHT: found()}
    resolution = world.resolution()
    resolution.note([CHESS])
    world.after(resolution, 0)
    resolution.note([GO._replace(writer=EIGHT)])
    world.after(resolution, 1)
    assert len(world.schemas.of(GO.game_key)) == 1
    assert world.state()[0] == "away"
    world.answer = found()
    world.after(resolution, 60)
    assert world.schemas.of(CHESS.game_key) == world.schemas.of(GO.game_key)


def test_an_outage_keeps_the_order_of_a_games_schemas(world: World) -> None:
    """A table takes schemas as its rows come: with the newer one first, the older one would be a narrowing."""
    world.answer = Away("no route to host")
    resolution = world.resolution()
    resolution.note([CHESS, CHESS._replace(writer=EIGHT)])
    world.after(resolution, 0)
    world.answer = {SEVEN: found(a="int32"), EIGHT: found(a="int64")}
    world.after(resolution, 60)
    assert world.asked == [SEVEN, SEVEN, EIGHT]
    assert [len(each) for each in world.schemas.games.values()] == [2]
    assert world.schemas.placements == {}


def test_a_schema_waits_for_the_message_that_rows_before_it_need(world: World) -> None:
    """One id has many messages, so rows are read once more: what they need after it is not registered before it."""
    one = found({FIRST: "t.M", SECOND: "t.N"}, a="int32")
    world.answer = {SEVEN: one, EIGHT: found(a="int64")}
    resolution = world.resolution()
    both = CHESS, CHESS._replace(writer=EIGHT)
    resolution.note([*both, GO._replace(writer=EIGHT)])
    world.after(resolution, 0)
    assert [len(world.schemas.of(each.game_key)) for each in (CHESS, GO)] == [0, 1]
    resolution.note([CHESS._replace(writer=SEVEN + FIRST), both[1]])
    world.after(resolution, 1)
    assert len(world.schemas.of(CHESS.game_key)) == 2
    assert world.schemas.placements == {}, "int64 continues int32; the other way round it would be refused"
    assert world.needs == []


def test_two_drivers_keep_the_order_of_a_game_whose_rows_are_read_again(world: World) -> None:
    """Each asks for all needs: what one knows of the rows to be read again, the other finds in the store."""
    world.answer = {SEVEN: found({FIRST: "t.M", SECOND: "t.N"}, a="int32"), EIGHT: found(a="int64")}
    group, ingest = world.resolution(), world.resolution()
    both = CHESS, CHESS._replace(writer=EIGHT)
    group.note(both[:1])
    world.after(group, 0)
    ingest.note(both[1:])
    for driver in (ingest, group, ingest):
        world.after(driver, 1)
    assert world.schemas.games == {}
    group.note([CHESS._replace(writer=SEVEN + FIRST), both[1]])
    world.after(ingest, 1)
    world.after(group, 1)
    assert len(world.schemas.of(CHESS.game_key)) == 2
    assert world.schemas.placements == {}, "int64 continues int32; the other way round it would be refused"
    assert world.needs == []


def test_a_game_that_never_reads_again_gets_its_later_schema(world: World) -> None:
    """Its rows may be of a message that it has, so they report nothing: what comes later waits for minutes only."""
    world.answer = {SEVEN: found({FIRST: "t.M", SECOND: "t.N"}), EIGHT: found(b="int64")}
    resolution = world.resolution()
    resolution.note([CHESS, CHESS._replace(writer=EIGHT)])
    world.after(resolution, 0)
    world.after(resolution, 299)
    assert world.schemas.games == {}
    world.after(resolution, 1)
    assert [len(each) for each in world.schemas.games.values()] == [1]
    assert world.needs == []


def test_an_unusable_schema_is_refused_at_once(world: World) -> None:
    """The registry has it, turnout cannot use it: its rows go to quarantine with the reason, on one line."""
    world.answer = {SEVEN: Unusable("its references form a circle\nsecond line"), EIGHT: GARBAGE}
    resolution = world.resolution()
    resolution.note([CHESS, CHESS._replace(writer=EIGHT)])
    world.after(resolution, 0)
    texts = [writer.refused or "" for writer in world.schemas.writers.values()]
    assert texts[0] == (
        "registry main has schema 7, which turnout cannot use: its references form a circle second line"
    )
    assert texts[1].startswith("registry main has schema 8, which turnout cannot use: ")


def test_a_schema_that_no_table_takes_waits_for_a_person(world: World) -> None:
    """Nobody is there to choose a policy, so its rows go to quarantine, from where a person lets them in."""
    world.answer = {SEVEN: found(a="int32"), EIGHT: found(a="string")}
    resolution = world.resolution()
    resolution.note([CHESS, CHESS._replace(writer=EIGHT), GO._replace(writer=EIGHT)])
    world.after(resolution, 0)
    _, new = world.schemas.of(CHESS.game_key)
    assert world.schemas.placement(CHESS.game_key, new.schema_id).quarantined == (
        "needs a person: a: its type changed from int32 to string"
    )
    assert world.schemas.placement(GO.game_key, new.schema_id).quarantined is None
    lenient = world.resolution(policies={"main": parse_policies(["incompatible=side-column"])})
    lenient.note([CHESS._replace(writer=EIGHT)])
    world.after(lenient, 0)
    assert world.schemas.placement(CHESS.game_key, new.schema_id).quarantined is not None, "a person decides"
    registry = LocalRegistry(world.engine)
    chosen = parse_policies(["incompatible=side-column"])
    assert registry.register("Chess", "t.M", new.definition, chosen).schema_id == new.schema_id
    assert world.schemas.placement(CHESS.game_key, new.schema_id).quarantined is None
    resolution.note([CHESS._replace(writer=EIGHT)])
    world.after(resolution, 0)
    assert world.schemas.placement(CHESS.game_key, new.schema_id).quarantined is None


def test_policies_of_a_registry_decide_for_its_games(world: World) -> None:
    """Settings may choose beforehand what becomes of a change."""
    world.answer = {SEVEN: found(a="int32"), EIGHT: found(a="string")}
    resolution = world.resolution(policies={"main": parse_policies(["incompatible=side-column"])})
    resolution.note([CHESS, CHESS._replace(writer=EIGHT)])
    world.after(resolution, 0)
    _, new = world.schemas.of(CHESS.game_key)
    assert world.schemas.placement(CHESS.game_key, new.schema_id).names == (("a", "a__v2"),)


@pytest.mark.proves("G199")
def test_a_registry_that_contradicts_itself_is_not_trusted(world: World) -> None:
    """A lying registry changes nothing: the first answer counts, and no new id is taken until a person says so."""
    resolution = world.resolution()
    resolution.note([CHESS])
    world.after(resolution, 0)
    before = world.schemas
    world.answer = found(a="string")
    world.after(resolution, PATIENCE.sample)  # it looks again at a known id
    assert world.asked == [SEVEN, SEVEN]
    assert world.state()[0] == "mistrusted"
    told = re.fullmatch(
        r".*another content for schema 7 than before: fingerprint (\w{16}), and turnout keeps (\w{16})\..*",
        world.state()[2] or "",
    )
    assert told is not None
    assert told[1] != told[2]
    resolution.note([GO, GO._replace(writer=EIGHT)])
    world.after(resolution, PATIENCE.sample)
    assert len(world.asked) == 2, "no new id is taken from it"
    assert world.schemas.of(GO.game_key) == before.of(CHESS.game_key), "what was known before stays known"
    assert world.schemas.writers == before.writers
    assert trust_again(world.engine, "main", world.now)
    world.answer = {SEVEN: found(), EIGHT: found(b="string")}
    world.after(resolution, 1)
    assert len(world.schemas.of(GO.game_key)) == 2
    assert not trust_again(world.engine, "main", world.now)


@pytest.mark.parametrize("answer", [found(), Absent("deleted"), Unusable("too large"), Away("down"), GARBAGE])
def test_a_look_at_a_known_id_forgets_nothing(world: World, answer: Answer) -> None:
    """An id that its registry has deleted since stays what it was."""
    resolution = world.resolution()
    resolution.note([CHESS])
    world.after(resolution, 0)
    before = world.schemas
    world.answer = answer
    world.after(resolution, PATIENCE.sample)
    assert world.asked == [SEVEN, SEVEN]
    assert world.schemas == before
    assert world.state()[0] == ("away" if isinstance(answer, Away) else "ok")


def test_a_name_keeps_the_schema_that_it_had_first(world: World) -> None:
    """The newest schema of a topic changes in an honest registry, so it is never looked at again."""
    resolution = world.resolution()
    resolution.note([CHESS._replace(writer=b"topic")])
    world.after(resolution, 0)
    world.answer = found(a="string")
    world.after(resolution, PATIENCE.sample)
    assert world.asked == [b"topic"]
    assert world.state()[0] == "ok"


def test_of_two_that_resolve_at_once_the_first_wins(world: World) -> None:
    """Both asked before either wrote; the second finds the rows and adds none."""
    one, two = world.resolution(), world.resolution()
    one.note([CHESS])
    two.note([CHESS])

    def other() -> None:
        world.meanwhile = None
        two.step()

    world.meanwhile = other
    one.step()
    assert world.asked == [SEVEN, SEVEN]
    assert world.schemas.version == 2
    assert world.state()[0] == "ok"


@pytest.mark.parametrize("late", [Absent("deleted"), Unusable("too large"), GARBAGE])
def test_a_refusal_that_comes_second_changes_nothing(world: World, late: Answer) -> None:
    """Another driver found the schema while this one got its answer: it stays found, and its games get it."""
    one, two = world.resolution(patience=replace(PATIENCE, absences=1, absent_for=0)), world.resolution()
    one.note([GO])
    two.note([CHESS])

    def other() -> None:
        world.meanwhile = None
        two.step()
        two.note([GO])
        world.answer = late

    world.meanwhile = other
    one.step()
    assert world.writer() == Writer(world.schemas.games[CHESS.game_key][0])
    assert world.schemas.of(GO.game_key) == world.schemas.of(CHESS.game_key)


def test_an_outage_ends_no_mistrust(world: World) -> None:
    """Another driver's question may end after this one's: only a person trusts the registry again."""
    for state, at in (("mistrusted", 1.0), ("away", 2.0), ("ok", 200.0)):
        with writing(world.engine) as connection:
            lock(connection)
            write_state(connection, RegistryHealth("main", state, NOW + at, f"was {state}", NOW + at))  # type: ignore[arg-type]
    assert world.state() == ("mistrusted", 1.0, "was mistrusted")
    assert world.health("main").checked_at == NOW + 200


def test_a_name_whose_schema_changed_between_two_answers_is_no_lie(world: World) -> None:
    """Two drivers asked for the newest schema of a topic while it changed: the first answer counts."""
    one, two, need = world.resolution(), world.resolution(), CHESS._replace(writer=b"topic")
    one.note([need])
    two.note([need])

    def other() -> None:
        world.meanwhile = None
        two.step()
        world.answer = found(a="string")

    world.meanwhile = other
    one.step()
    assert world.schemas.version == 2
    assert world.state()[0] == "ok"


def test_a_kill_between_answer_and_write_leaves_the_need(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of an answer is kept before all of it is; the next process asks again."""
    resolution = world.resolution()
    resolution.note([CHESS])
    (tmp_path / "armed").write_text("after_registry_answer raise 1\n")
    monkeypatch.setenv("TURNOUT_FAILPOINTS", str(tmp_path))
    with pytest.raises(Injected):
        world.after(resolution, 0)
    assert world.schemas.version == 0
    next_one = world.resolution()
    world.after(next_one, 0)
    assert len(world.schemas.of(CHESS.game_key)) == 1
    assert world.asked == [SEVEN, SEVEN]


def test_a_flood_of_one_game_delays_no_other(world: World) -> None:
    """Law L16: games take turns, and no game has more open needs than fit."""
    world.answer = Absent("no such id")
    flood = [CHESS._replace(writer=b"\x00" + number.to_bytes(4, "big")) for number in range(1001)]
    write_needs(
        world.engine, [OpenNeed("main", each.writer, each.game_key, each.game, NOW - 1, 1, 0) for each in flood]
    )
    assert len(world.needs) == 1000
    resolution = world.resolution()
    resolution.note([GO._replace(writer=b"\x00\xff\xff\xff\xff")])
    assert world.after(resolution, 0) == 0, "more is due at once"
    assert world.asked[1] == b"\x00\xff\xff\xff\xff"
    assert len(world.asked) == 50


def test_a_registry_that_the_settings_lack_is_away(world: World) -> None:
    """Law L14: rows of an older generation wait with a sentence that says what to set."""
    resolution = world.resolution()
    resolution.note([CHESS._replace(registry="old.2")])
    world.after(resolution, 0)
    assert world.schemas.version == 0
    health = world.health("old.2")
    assert health.state == "away"
    assert health.detail == (
        "The settings have no registry old.2. Add its table with this generation, or let what games wait for go to "
        "quarantine by `turnout schemas give-up old.2`."
    )


def test_a_person_gives_up_a_registry_that_never_answers(world: World) -> None:
    """A generation whose registry is gone would hold its games for ever; their rows keep their bytes in quarantine."""
    world.answer = Away("gone")
    resolution = world.resolution()
    resolution.note([CHESS, GO._replace(writer=EIGHT), GO._replace(registry="other")])
    world.after(resolution, 0)
    assert give_up(world.engine, "main", [SEVEN, EIGHT], world.now) == 2
    assert world.writer(EIGHT) == Writer(refused="a person gave up waiting for schema 8 of main")
    assert [need.registry for need in world.needs] == ["other"]


def test_a_game_that_waits_writes_its_need_each_half_minute_only(world: World) -> None:
    """Law L14: it repeats the need twice a second, however long a registry is away, and each write locks the store."""
    world.answer = Away("it is down")
    resolution = world.resolution()
    writes: list[object] = []
    event.listen(world.engine, "commit", writes.append)
    resolution.note([CHESS])
    world.after(resolution, 0)
    before = len(writes)
    for _ in range(50):
        resolution.note([CHESS])
        world.now += 0.5
        world.passed += 0.5
        resolution._notes.write(world.now)
    assert len(writes) == before
    with world.engine.begin() as connection:
        connection.execute(delete(schema_needs))  # an older copy of the store
    world.now += 5
    world.passed += 5
    resolution.note([CHESS])
    resolution._notes.write(world.now)
    assert [need.writer for need in world.needs] == [SEVEN]


def test_needs_wait_while_the_store_is_away(world: World) -> None:
    """B3: what was noted is written once the store answers again; the registry is not asked before."""
    resolution = world.resolution()
    resolution.note([CHESS])
    with away(world.engine), pytest.raises(OperationalError):
        world.after(resolution, 0)
    assert world.asked == []
    world.after(resolution, 1)
    assert len(world.schemas.of(CHESS.game_key)) == 1


def test_threads_serve_what_is_noted(engine: Engine, tmp_path: Path) -> None:
    """A note wakes the thread of its registry; a registry that hangs keeps no other one waiting."""
    environ = {"TURNOUT_STORE__URL": store_url(engine)}
    own = open_store(*load(tmp_path / "threads", environ))
    world, hang, done, stop = World(own), threading.Event(), threading.Event(), threading.Event()

    class Hanging:
        def resolve(self, _writer: bytes) -> Answer:
            hang.wait(60)
            return Away("slow")

    class Quick:
        def resolve(self, writer: bytes) -> Answer:
            answer = world.resolve(writer)
            done.set()
            return answer

    resolution = Resolution(own, {"slow": Hanging(), "main": Quick()})
    before = set(threading.enumerate())
    resolution.start(stop)
    started = {each for each in threading.enumerate() if each.name.startswith("registry-")} - before
    assert len(started) == 2
    resolution.note([CHESS._replace(registry="slow")])
    resolution.note([CHESS])
    assert done.wait(30)
    stop.set()
    hang.set()
    resolution.wake()
    for thread in started:
        thread.join(30)
        assert not thread.is_alive()
    assert len(world.schemas.of(CHESS.game_key)) == 1
    own.dispose()


EARLY, LATE = b"\x01" + b"\xff" * 16, b"\x01" + bytes(16)  # GUIDs: their order says nothing of age


def landing(world: World, game: Need) -> list[bytes]:
    """Return the writers of a game in the order in which their schemas were registered for it."""
    schemas = world.schemas
    named = {found.schema_id: writer for (_, writer), found in schemas.writers.items()}
    return [named[each] for each in schemas.games.get(game.game_key, ())]


def test_needs_noted_together_are_registered_by_the_rows_that_need_them(world: World) -> None:
    """Law L13: in the order of writers the newer schema came first, and rows of the older one went to quarantine."""
    world.answer = {EARLY: found(a="int32"), LATE: found(a="int64")}
    resolution = world.resolution()
    resolution.note([CHESS._replace(writer=LATE, seq=3, pos=2), CHESS._replace(writer=EARLY, seq=3, pos=1)])
    world.after(resolution, 0)
    assert world.asked == [EARLY, LATE]
    assert landing(world, CHESS) == [EARLY, LATE]


def test_each_game_has_the_order_of_its_own_rows(world: World) -> None:
    """Two games that need the same two schemas in opposite orders each get their own."""
    world.answer = {EARLY: found(a="int32"), LATE: found({b"": "t.N"})}
    resolution = world.resolution()
    both = [(EARLY, 1), (LATE, 2)]
    resolution.note(CHESS._replace(writer=writer, pos=pos) for writer, pos in both)
    resolution.note(GO._replace(writer=writer, pos=3 - pos) for writer, pos in both)
    world.after(resolution, 0)
    assert (landing(world, CHESS), landing(world, GO)) == ([EARLY, LATE], [LATE, EARLY])


def test_the_place_of_an_earlier_row_counts_whoever_reports_it(world: World) -> None:
    """Ingest and groups read different rows: a need is of the first of them, in memory and in the store."""
    world.answer = {EARLY: found(a="int32"), LATE: found(a="int64")}
    ingest, group = world.resolution(), world.resolution()
    late = CHESS._replace(writer=LATE, seq=4)
    ingest.note([late, CHESS._replace(writer=EARLY, seq=9)])
    ingest._notes.write(NOW)
    group.note(CHESS._replace(writer=EARLY, seq=seq) for seq in (7, 2, 5))
    group._notes.write(NOW)
    assert [(need.writer, need.seq) for need in world.needs] == [(EARLY, 2), (LATE, 4)]
    world.after(ingest, 0)
    assert landing(world, CHESS) == [EARLY, LATE]


def test_a_known_schema_waits_for_what_earlier_rows_need(world: World) -> None:
    """Another game has it already: registered at once, it would be older than the schema of the rows before."""
    world.answer = {EARLY: Absent("not yet"), LATE: found(a="int64")}
    resolution = world.resolution()
    resolution.note([GO._replace(writer=LATE)])
    world.after(resolution, 0)
    early, late = CHESS._replace(writer=EARLY, seq=2), CHESS._replace(writer=LATE, seq=2, pos=1)
    resolution.note([early, late])
    world.after(resolution, 0)
    assert landing(world, CHESS) == []
    world.answer[EARLY] = found(a="int32")
    world.after(resolution, 15)
    assert landing(world, CHESS) == [EARLY, LATE]
    assert world.needs == []


def test_the_first_row_decides_the_event_type_whichever_registry_has_its_schema(world: World) -> None:
    """A game without a schema waits for the registry of its first row: another one's answer made the type else."""
    world.answer = {EARLY: Away("just now"), LATE: found({b"": "t.N"})}
    resolution = Resolution(world.engine, {"main": world, "other": world}, lambda: NOW, steady=lambda: world.passed)
    resolution.note([CHESS._replace(writer=LATE, seq=3), CHESS._replace(registry="other", writer=EARLY, seq=2)])
    world.after(resolution, 0)
    assert landing(world, CHESS) == []
    world.answer[EARLY] = found(a="int32")
    for _ in range(2):  # each registry has its own thread
        world.after(resolution, 30)
    held = world.schemas.placed(CHESS.game_key)
    assert [(schema.message, placement.other_type) for schema, placement in held] == [("t.M", False), ("t.N", True)]


@pytest.mark.parametrize("again", [False, True])
def test_no_schema_waits_for_a_refused_one(world: World, *, again: bool) -> None:
    """An absent writer's rows are in quarantine: what follows lands, also while a replay asks for them again."""
    world.answer = {EARLY: Absent("no such id"), LATE: found(a="int64")}
    resolution = world.resolution(patience=replace(PATIENCE, absences=2 if again else 1, absent_for=0))
    resolution.note([CHESS._replace(writer=EARLY, seq=2)], again=again)
    resolution.note([CHESS._replace(writer=LATE, seq=2, pos=1)])
    world.after(resolution, 0)
    assert landing(world, CHESS) == [LATE]


def test_age_orders_schemas_of_one_type_only(world: World) -> None:
    """Law L13: the first type of a game is that of its first row, however old the schemas of others are."""
    other, newer, older = (b"\x01" + bytes([place]) * 16 for place in range(3))
    world.answer = {
        newer: replace(found(a="int64"), version=Version("ids", 9)),
        other: replace(found({b"": "t.N"}), version=Version("ids", 8)),
        older: replace(found(a="int32"), version=Version("ids", 7)),
    }
    resolution = world.resolution()
    resolution.note(CHESS._replace(writer=each, pos=place) for place, each in enumerate((newer, other, older)))
    world.after(resolution, 0)
    schemas = world.schemas
    ids = [schemas.writers["main", each].schema_id for each in (older, other, newer)]
    assert list(schemas.games[CHESS.game_key]) == ids


def test_versions_of_one_subject_are_registered_by_age(world: World) -> None:
    """Law L13: a registry whose ids do not grow tells the version; found in one go, the older one comes first."""
    newer, older, other = (b"\x03" + bytes([place]) * 16 for place in range(3))
    world.answer = {
        newer: replace(found(a="int64"), version=Version("laps", 2)),
        older: replace(found(a="int32"), version=Version("laps", 1)),
        other: replace(found(a="int64", b="string"), version=Version("cars", 1)),
    }
    resolution = world.resolution()
    resolution.note(CHESS._replace(writer=each, pos=place) for place, each in enumerate((newer, other, older)))
    world.after(resolution, 0)
    assert world.asked == [newer, other, older], "as its rows come"
    schemas = world.schemas
    ids = [schemas.writers["main", each].schema_id for each in (older, other, newer)]
    assert list(schemas.games[CHESS.game_key]) == ids
    assert not any(schemas.placement(CHESS.game_key, each).quarantined for each in schemas.games[CHESS.game_key])
    resolution.note(GO._replace(writer=each, pos=place) for place, each in enumerate((newer, older)))
    world.after(resolution, 0)
    assert len(world.asked) == 3
    assert list(world.schemas.games[GO.game_key]) == [ids[0], ids[2]], "known ones as well"


def test_versions_order_only_their_own_subject() -> None:
    """Law L16: a game's older version waits for no other game's turn, and what tells no version keeps its place."""
    two, none, one, other = Version("a", 2), None, Version("a", 1), Version("b", 1)
    assert by_age([two, none, other, one], lambda each: each) == [one, none, other, two]


@pytest.mark.parametrize(
    ("subject", "number"), [("laps", True), ("laps", "1"), ("laps", 0), ("laps", 2**31), ("", 1), ("\ud800", 1), (5, 1)]
)
def test_a_hostile_version_orders_nothing(subject: object, number: object) -> None:
    """A hostile registry's version is none, and its schema counts without it."""
    assert version_of(subject, number) is None


def test_answers_before_a_registry_went_away_are_kept(world: World) -> None:
    """Law L14: one go asks for several; the store keeps the first answer, and the state says away."""
    world.answer = {SEVEN: found(a="int32"), EIGHT: Away("down")}
    resolution = world.resolution()
    resolution.note([CHESS, CHESS._replace(writer=EIGHT)])
    assert world.after(resolution, 0) == 1
    assert world.writer() is not None
    assert world.state()[0] == "away"
    assert [need.writer for need in world.needs] == [EIGHT]


def test_answers_of_a_slow_registry_are_kept_meanwhile(world: World) -> None:
    """Law L16: the first game waits at most some seconds for the answers to others."""
    world.meanwhile = lambda: setattr(world, "passed", world.passed + 3)
    resolution = world.resolution()
    resolution.note(CHESS._replace(writer=b"\x00" + number.to_bytes(4, "big")) for number in range(5))
    assert world.after(resolution, 0) == 0, "more is due at once"
    assert len(world.asked) == 2
    assert len(world.schemas.writers) == 2


def test_large_answers_are_kept_one_by_one(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A registry with huge schemas fills no driver's memory."""
    monkeypatch.setattr(resolution_module, "_GATHERED_BYTES", 1)
    resolution = world.resolution()
    resolution.note([CHESS, CHESS._replace(writer=EIGHT)])
    assert world.after(resolution, 0) == 0, "more is due at once"
    assert world.asked == [SEVEN]
    assert world.writer() is not None
