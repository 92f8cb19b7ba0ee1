"""The catalogue says of each game's schemas what the store has: versions, who registered them, fields, differences."""

import json
import time

import pytest
from sqlalchemy import Engine, event

from pipeline.base.errors import Refused
from pipeline.base.names import game_key
from pipeline.data.contracts.catalogue.condition import read_catalogue, read_writers
from pipeline.data.contracts.catalogue.definitions import read_definitions
from pipeline.data.contracts.catalogue.differences import changes, summary, table_steps, text_diff
from pipeline.data.contracts.catalogue.fields import MOST_LINES, as_text, fields_of
from pipeline.data.contracts.catalogue.versions import GameVersions, read_versions
from pipeline.data.contracts.formats.avro.format import AvroFormat
from pipeline.data.contracts.registries.answers import Found
from pipeline.data.contracts.registries.notes import Need
from pipeline.data.contracts.registries.resolution import Resolution
from pipeline.data.contracts.registry import LocalRegistry, Registration
from pipeline.data.contracts.schemas import Schema
from pipeline.settings.registries import RegistrySettings
from pipeline.store.database.engine import writing
from pipeline.store.schema_needs import OpenNeed, RegistryHealth, write_needs, write_state
from pipeline.store.writers import lock
from tests.unit.data.contracts.catalogue_world import avro, register
from tests.unit.data.contracts.definition_world import bundle, define

KEY = game_key("Chess")


def chess(engine: Engine) -> GameVersions:
    return read_versions(engine, KEY)[KEY]


def three_versions(engine: Engine) -> GameVersions:
    """Register a first version, a fitting second, and a third whose rows go to quarantine."""
    register(engine, avro(player="string", rating="int"), by="ann")
    register(engine, avro(player="string", rating="long", clock={"type": "enum", "name": "C", "symbols": ["FAST"]}))
    register(engine, avro(player="int", rating="long"), "incompatible=quarantine", by="bob")
    return chess(engine)


def test_versions_say_who_registered_them(engine: Engine) -> None:
    """Each version has the person who registered it; where nobody did, as in a simulation, nobody is named."""
    found = three_versions(engine)
    assert [(each.version, each.registered_by) for each in found.versions] == [(1, "ann"), (2, None), (3, "bob")]


def test_a_registry_is_named_for_what_it_gave(engine: Engine) -> None:
    """A version that turnout registered from a registry's answer has that registry, and the id that means it."""
    answer = Found("protobuf", bundle(define({"M": {"a": (1, "int32")}})), {b"": "t.M"})

    class Answering:
        def resolve(self, _writer: bytes) -> Found:
            return answer

    asked = Resolution(engine, {"main": Answering()})
    asked.note([Need(KEY, "Chess", "main", b"\x00\x00\x00\x00\x07", 1, 0)])
    asked.step()
    found = chess(engine)
    assert [each.registered_by for each in found.versions] == ["registry main"]
    assert read_writers(engine, found).known == (("main", "7", found.versions[0].schema_id),)


def test_only_the_newest_word_about_a_schema_makes_trouble(engine: Engine) -> None:
    """A version whose rows go to quarantine is trouble until the same schema is registered with a policy that lands."""
    assert [each.version for each in three_versions(engine).quarantined] == [3]
    register(engine, avro(player="int", rating="long"), "incompatible=side-column")
    found = chess(engine)
    assert (len(found.versions), found.quarantined) == (4, ())


def test_a_diff_is_what_changes_between_two_versions(engine: Engine) -> None:
    """The words are the plan's steps from one version to any other; the text has the lines of both."""
    found = three_versions(engine)
    schemas = read_definitions(engine, {each.schema_id for each in found.versions})
    one, two, three = (schemas[each.schema_id] for each in found.versions)
    assert [(step.kind, step.path) for step in changes(one, two)] == [("widen", "rating"), ("add", "clock")]
    assert [(step.kind, step.path) for step in changes(two, one)] == [("remove", "clock"), ("widen", "rating")]
    assert {(step.kind, step.path) for step in changes(one, three)} == {("incompatible", "player"), ("widen", "rating")}
    assert changes(one, one) == ()
    lines = [f"{each.mark}{each.text.strip()}" for each in text_diff(one, two)]
    assert lines == [
        " t.M (avro)",
        " player: string",
        "-rating: int",
        "+rating: long",
        "+clock: enum",
        "+value FAST",
    ]


def test_an_effect_is_what_the_table_got(engine: Engine) -> None:
    """It is planned on what landed before, by the policies of that registration: a side column has its name."""
    three_versions(engine)
    register(engine, avro(player="int", rating="long"), "incompatible=side-column", "widen=side-column")
    found = chess(engine)
    schemas = read_definitions(engine, {each.schema_id for each in found.versions})
    (third,) = [step for step in table_steps(found, found.version(3), schemas) if step.path == "player"]
    assert (third.policy, third.column) == ("quarantine", None)
    (fourth,) = [step for step in table_steps(found, found.version(4), schemas) if step.path == "player"]
    assert (fourth.policy, fourth.column) == ("side-column", "player__v2")
    columns = {
        each.path: each.column for each in fields_of(schemas[found.version(4).schema_id], found.version(4).placement)
    }
    assert columns["player"] == "player__v2"
    assert summary(table_steps(found, found.version(3), schemas)).startswith("player: its type changed")


def test_fields_of_any_depth_have_their_columns(engine: Engine) -> None:
    """A field inside a message has its path in the schema and in the table; rows in quarantine have no columns."""
    inner = {"type": "record", "name": "Clock", "fields": [{"name": "left", "type": ["null", "int"]}]}
    register(engine, avro(player="string", clock=inner))
    version = chess(engine).version(1)
    schema = read_definitions(engine, {version.schema_id})[version.schema_id]
    assert [(each.path, each.column, each.column_type) for each in fields_of(schema, version.placement)] == [
        ("player", "player", "string"),
        ("clock", "clock", "struct<left: long>"),
        ("clock.left", "clock.left", "long"),
    ]
    assert "    left: int, optional" in [each.text for each in as_text(schema)]


def test_the_catalogue_says_trouble_first(engine: Engine) -> None:
    """Rows in quarantine, registries that are away or mistrusted, and games that wait follow each other."""
    three_versions(engine)
    settings = {"main": RegistrySettings(url="http://h:1"), "old": RegistrySettings(url="http://h:2", generation=2)}
    assert [each.health for each in read_catalogue(engine, settings).registries] == [None, None]
    now = time.time()
    with writing(engine) as connection:
        lock(connection)
        write_state(connection, RegistryHealth("main", "away", now, "no answer", now, now + 1))
    write_needs(engine, [OpenNeed("main", b"\x00\x00\x00\x00\x07", game_key("Go"), "Go", now, 1, 0)])
    seen = read_catalogue(engine, settings)
    assert [phrase.split(" since")[0] for phrase in seen.troubles] == [
        "rows of version 3 of Chess go to quarantine",
        "registry main is away",
        "1 game waits for a schema: Go",
    ]
    assert [(each.registry, each.kind, each.waiting_games) for each in seen.registries] == [
        ("main", "confluent", 1),
        ("old.2", "confluent", 0),
    ]
    waits = seen.game(game_key("Go"))
    assert waits is not None
    assert (waits.newest, [each.writers for each in seen.waiting[waits.key]]) == (None, [1])


def test_a_version_that_is_not_there_is_refused(engine: Engine) -> None:
    """The refusal says how many the game has."""
    register(engine, avro(a="int"))
    with pytest.raises(Refused, match="has no version 2: it has 1"):
        chess(engine).version(2)


def test_a_thousand_games_take_a_fixed_number_of_statements(engine: Engine) -> None:
    """Reading all games costs no statement per game, and no definition is read for a list."""
    statements: list[str] = []
    event.listen(engine, "before_cursor_execute", lambda *given: statements.append(given[2]))
    counts = []
    for games in (1, 30):
        names = [f"game {number}" for number in range(games)]
        LocalRegistry(engine).register_many([Registration(name, "t.M", avro(a="int"), format="avro") for name in names])
        statements.clear()
        assert len(read_catalogue(engine, {}).games) == games
        counts.append(len(statements))
    assert counts[0] == counts[1]
    assert not any("definition" in each for each in statements)


@pytest.mark.long
def test_a_thousand_games_are_listed_within_a_second(engine: Engine) -> None:
    """Three thousand versions of a thousand games cost this process less than a second, first and later."""
    given = ({"a": "int"}, {"a": "int", "b": "string"}, {"a": "int", "b": "string", "c": "double"})
    for fields in given:
        names = (f"game {number}" for number in range(1000))
        each = [Registration(name, "t.M", avro(**fields), actor="ann", format="avro") for name in names]
        LocalRegistry(engine).register_many(each)
    for _ in range(2):
        begun = time.process_time()
        seen = read_catalogue(engine, {})
        spent = time.process_time() - begun
        assert sum(len(each.versions) for each in seen.games) == 3000
        assert spent < 1, spent


def test_a_diff_of_huge_schemas_is_bounded() -> None:
    """Two enums of ten thousand values, and hundreds of records with the same field, are compared in bounded work."""

    def wide(turn: int) -> Schema:
        inner = [
            {"name": f"r{number}", "type": {"type": "record", "name": f"R{number}", "fields": listed(turn, number)}}
            for number in range(450)
        ]
        symbols = [f"V{number}_{turn * (number % 2)}" for number in range(10_000)]
        many = {"name": "e", "type": {"type": "enum", "name": "E", "symbols": symbols}}
        definition = json.dumps({"type": "record", "name": "t.R", "fields": [*inner, many]})
        return Schema(turn, "avro", "t.R", AvroFormat().canonical("t.R", definition.encode()))

    def listed(turn: int, number: int) -> list[dict[str, str]]:
        return [{"name": "id", "type": "int"}, *([{"name": "more", "type": "int"}] if turn and number % 2 else [])]

    before, after = wide(0), wide(1)
    begun = time.process_time()
    lines = text_diff(before, after)
    assert time.process_time() - begun < 3
    assert len(lines) <= 2 * (MOST_LINES + 1)
    assert sum(each.mark == "+" and each.text == "    more: int" for each in lines) == 225
