"""`turnout schemas list`, `show` and `diff` print what the catalogue has, and the same as JSON."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from sqlalchemy import Engine

from pipeline.base.errors import Refused
from pipeline.base.names import game_key
from pipeline.cli.main import cli
from pipeline.data.contracts.registry import LocalRegistry
from pipeline.health.facts.placing import placing
from pipeline.settings.tree import load
from pipeline.store.database.engine import open_store
from pipeline.store.games import record_seen
from tests.unit.data.contracts.catalogue_world import avro, register
from tests.unit.data.contracts.definition_world import bundle, define


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Engine]:
    """Return a store with a game that changed its format, and one whose newest rows go to quarantine."""
    engine = open_store(*load(tmp_path))
    register(engine, avro(player="string"), game="Go", by="ann")
    register(engine, avro(player="int"), "incompatible=quarantine", game="Go")
    LocalRegistry(engine).register("Ludo", "t.M", bundle(define({"M": {"dice": (1, "int32")}})))
    register(engine, avro(dice="int"), game="Ludo")
    yield engine
    engine.dispose()


def lines(folder: Path, *words: str) -> list[str]:
    done = CliRunner().invoke(cli, ["schemas", *words, "--env-dir", str(folder)], catch_exceptions=False)
    assert done.exit_code == 0
    return done.output.splitlines()


def as_json(folder: Path, *words: str) -> Any:
    (line,) = lines(folder, *words, "--json")
    return json.loads(line)


def test_a_list_has_each_version_with_its_format(store: Engine, tmp_path: Path) -> None:
    """A line per version, by game: its format, who registered it, and a mark where its rows go to quarantine."""
    listed = [" ".join(line.split()) for line in lines(tmp_path, "list")]
    assert [line.partition(" 20")[0] for line in listed] == [
        "1 avro t.M v1",
        "2 avro t.M v2",
        "3 protobuf t.M v1",
        "4 avro t.M v2",
    ]
    assert [line.split(" ", 6)[6] for line in listed] == ["ann 'Go'", "- ! 'Go'", "- 'Ludo'", "- 'Ludo'"]
    found = as_json(tmp_path, "list")
    assert [each["registered_by"] for each in found] == ["ann", None, None, None]
    assert found[1]["policies"] == {"incompatible": "quarantine"}
    assert found[1]["quarantined"].startswith("player: its type changed")


def test_a_version_is_shown_with_its_fields_and_its_effect(store: Engine, tmp_path: Path) -> None:
    """The newest version is the default; each field has its column, each change its kind and policy."""
    shown = lines(tmp_path, "show", "Ludo")
    assert shown[0] == "'Ludo' version 2: schema id 4, t.M (avro)"
    assert "  dice: int -> dice long" in shown or "  dice: int -> dice int" in shown
    assert "  change: dice: continues the column of protobuf in avro (format: keep)" in shown
    first = as_json(tmp_path, "show", game_key("Ludo"), "--version", "1")
    assert [(each["path"], each["id"], each["column"]) for each in first["fields"]] == [("dice", 1, "dice")]
    assert any(line.startswith("rows go to quarantine: player") for line in lines(tmp_path, "show", "Go"))


def test_numbers_of_extensions_without_a_definition_are_named(store: Engine, tmp_path: Path) -> None:
    """A plan and a version say which values of a payload no column gets."""
    file = define({"M": {"dice": (1, "int32")}}, syntax="proto2")
    file.message_type[0].extension_range.add(start=100, end=200)
    definition, note = (
        tmp_path / "m.desc",
        "  note: extensions 100 to 199 are not in the definition: turnout ignores them",
    )
    definition.write_bytes(bundle(file))
    assert note in lines(tmp_path, "plan", "--game", "Chess", "--message", "t.M", str(definition))
    LocalRegistry(store).register("Chess", "t.M", bundle(file))
    assert note in lines(tmp_path, "show", "Chess")
    assert as_json(tmp_path, "show", "Chess")["notes"] == [note.removeprefix("  note: ")]


def test_a_diff_is_printed_in_words_and_as_text(store: Engine, tmp_path: Path) -> None:
    """Any two versions can be compared, in either direction."""
    printed = lines(tmp_path, "diff", "Go", "1", "2")
    assert printed[0] == "incompatible: player: its type changed from string to int"
    assert printed[1:] == ["  t.M (avro)", "-   player: string", "+   player: int"]
    found = as_json(tmp_path, "diff", "Go", "2", "1")
    assert [each["kind"] for each in found["changes"]] == ["incompatible"]
    assert [each["mark"] for each in found["text"]] == ["", "-", "+"]
    assert lines(tmp_path, "diff", "Go", "1", "1")[0] == "no change of any field"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("show", "Nobody"), "No such game"),
        (("show", "Chess"), "has no schema yet"),
        (("diff", "Go", "1", "7"), "has no version 7: it has 2"),
    ],
)
def test_a_missing_version_is_one_sentence(
    words: tuple[str, ...], sentence: str, store: Engine, tmp_path: Path
) -> None:
    """A game or version that does not exist is refused before anything is printed."""
    record_seen(store, {game_key("Chess"): "Chess"}, 1, placing())
    with pytest.raises(Refused, match=sentence):
        lines(tmp_path, *words)
