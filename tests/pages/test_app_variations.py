"""Variations on the Schemas page: what is new without any value, and what people choose about it."""

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Engine

from pipeline.base.names import game_key
from pipeline.data.contracts.formats.json.gathering import gathered
from pipeline.data.contracts.formats.json.names import UNDECLARED
from pipeline.data.contracts.formats.json.stored_supersets import dumps
from pipeline.data.contracts.formats.json.superset import Superset
from pipeline.data.contracts.registry import LocalRegistry, Registration
from pipeline.settings.tree import load
from pipeline.store.database.engine import open_store, writing
from pipeline.store.operations import list_operations
from pipeline.store.variations import Variation, write_variations
from pipeline.store.writers import lock
from tests.browser.seed import HOSTILE
from tests.unit.app.app_world import Opening, pages_of, texts

CHESS = game_key("Chess")


@pytest.fixture
def opening(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Opening]:
    with pages_of(tmp_path, monkeypatch) as opened:
        yield opened


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Engine]:
    """Return a store with Chess, whose moves nobody declared; a hostile key came today."""
    engine = open_store(*load(tmp_path))
    superset = gathered(Superset(), [b'{"x":1}'])
    given = Registration("Chess", "move", dumps(superset), format=UNDECLARED)
    (done,) = LocalRegistry(engine).register_many([given])
    now = time.time()
    with writing(engine) as connection:
        lock(connection)
        for number, (name, age) in enumerate((("x:whole", 9e5), (f"{HOSTILE}:text", 60.0))):
            form = f"shape/1\n{name}"
            seen = now - age, now - age
            one = Variation(str(CHESS), "move", f"{number:016x}", form, 1, 1, number, *seen, 5, done.schema_id, "app 7")
            write_variations(connection, str(CHESS), "move", [one])
    yield engine
    engine.dispose()


def test_the_panel_lists_what_is_new(store: Engine, opening: Opening) -> None:
    """Each type says how much of its limits it uses, and its variations stand below, the newest first."""
    app = opening("schemas", game=CHESS)
    assert "✓ move · version 1 · 1 of 1,000 columns · 1 of 1,000 variations" in texts(app)
    found = next(each.value for each in app.dataframe if "What is new" in each.value)
    assert list(found[""]) == ["new", ""]
    assert list(found["Variation"]) == ["0000000000000001", "0000000000000000"]
    assert "✓ x: is new (add: add) → column x long" in texts(app)
    assert list(found["Producer"]) == ["app 7", "app 7"]


def test_a_type_is_pinned_after_a_look_at_the_plan(store: Engine, opening: Opening) -> None:
    """The button shows what a pin does, and the confirmation submits one operation."""
    app = opening("schemas", game=CHESS)
    app.button(key=f"pin_{CHESS}_1").click().run()
    assert "Rows with something new go to quarantine as pinned_type." in texts(app)
    next(each for each in app.button if each.label == "Pin variations").click().run()
    assert [(each.kind, each.parameters["type"]) for each in list_operations(store)] == [("pin-variations", "move")]


def test_columns_are_merged_after_a_look_at_the_plan(store: Engine, opening: Opening) -> None:
    """The button shows the columns before and after, and that it is one rebuild."""
    newest = gathered(gathered(Superset(), [b'{"x":1}']), [b'{"x":"a"}'])
    LocalRegistry(store).register_many([Registration("Chess", "move", dumps(newest), format=UNDECLARED)])
    app = opening("schemas", game=CHESS)
    app.button(key=f"merge_{CHESS}").click().run()
    assert "'move' of 'Chess': x long, x__v2 string → x string" in texts(app)
    assert "Then the table is rebuilt: one commit" in texts(app)


def test_a_type_is_declared_after_a_look_at_its_schema(store: Engine, opening: Opening) -> None:
    """The button shows the schema and what becomes of documents, and the confirmation submits one operation."""
    app = opening("schemas", game=CHESS)
    app.button(key=f"declare_{CHESS}_1").click().run()
    assert "1 column(s) stay, and no value moves: x" in texts(app)
    assert '"title": "move",' in texts(app)
    next(each for each in app.button if each.label == "Declare").click().run()
    assert [(each.kind, each.parameters["type"]) for each in list_operations(store)] == [("declare", "move")]


def test_a_game_with_many_types_has_a_short_page(store: Engine, opening: Opening) -> None:
    """The panel names the first ten versions that wait and the first thirty types, and counts the others."""
    definition = dumps(gathered(Superset(), [b'{"x":1}']))
    types = [Registration("Chess", f"type{number:02}", definition, format=UNDECLARED) for number in range(60)]
    LocalRegistry(store).register_many([replace(each, new_type=True) for each in types])
    app = opening("schemas", game=CHESS)
    assert len([each for each in app.button if each.label == "Pin…"]) == 30
    assert "31 more event types" in texts(app)
