"""Event types of a game on the pages Schemas and Game: states, rates, and counts where a person asks for them."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, delete
from streamlit.testing.v1 import AppTest

from app.components import type_table
from listeners.sample import StreamState, TypeRows
from pipeline.api import event_types
from pipeline.api.environment import OpenEnvironment
from pipeline.base.errors import Refused
from pipeline.data.contracts.policies import DEFAULTS
from pipeline.data.contracts.registration_batch import RegistrationBatch
from pipeline.data.contracts.registrations import unattended
from pipeline.data.contracts.schemas import Schema
from pipeline.settings.tree import Paths, Settings
from pipeline.store.database import tables
from pipeline.store.database.engine import open_store, writing
from tests.browser.seed import HOSTILE, Seeded, seed
from tests.tables.usage_world import AT, commit
from tests.unit.app.app_world import KEY, Opening, again, drawn_alive, pages_of, texts
from tests.unit.data.contracts.catalogue_world import avro, register

CHESS = KEY["Chess"]


@pytest.fixture
def opening(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Opening]:
    with pages_of(tmp_path, monkeypatch) as opened:
        yield opened


def sold() -> Schema:
    fields = [{"name": "price", "type": "long"}]
    return Schema(
        0, "avro", "acme.Sold", json.dumps({"type": "record", "name": "acme.Sold", "fields": fields}).encode()
    )


def one_type(folder: Path, types: dict[str, tuple[int, int]]) -> Engine:
    """Chess lands its first type; its driver reports rows of the last five minutes."""
    seed(folder, [Seeded("Chess", "a", {"types": json.dumps(types)})], now=time.time(), history=False)
    engine = open_store(Settings(), Paths(folder))
    with engine.begin() as connection:  # a seeded schema has no definition
        connection.execute(delete(tables.registrations))
        connection.execute(delete(tables.schemas))
    register(engine, avro(player="string"), by="ann")
    return engine


def two_types(folder: Path, types: dict[str, tuple[int, int]]) -> None:
    """Sales of Chess wait, too."""
    engine = one_type(folder, types)
    with writing(engine) as connection:
        RegistrationBatch(connection, [unattended("Chess", CHESS, sold(), DEFAULTS, registry="main")]).write()
    engine.dispose()


def frame(app: AppTest) -> list[dict[str, str]]:
    found = next(each.value for each in app.dataframe if "Refused, 5 min" in each.value)
    return [{str(name): str(value) for name, value in row.items()} for row in found.to_dict("records")]


@pytest.mark.parametrize("page", ["schemas", "game"])
def test_types_are_shown_with_rates_and_counted_where_asked(page: str, tmp_path: Path, opening: Opening) -> None:
    """Both pages list each type with its state and what came lately; the table is read once a person asks."""
    two_types(tmp_path, {"t.M": (600, 0), "acme.Sold": (0, 30)})
    commit(tmp_path / "tables" / CHESS, 1, (1, 0), (1, 60))
    app = opening(page, game=CHESS)
    (first, other) = frame(app)
    assert (first["Type"], first["Rows/s"], first["Refused, 5 min"]) == ("t.M", "2.0", "0")
    assert (other["Type"], other["Rows/s"], other["Refused, 5 min"]) == ("acme.Sold", "0", "30")
    assert ("waits" in other["State"], "In the table" in first) == (True, False)
    assert "1 waiting to be accepted" in texts(app)
    app.toggle(key=f"count_types_{CHESS}").set_value(True).run()
    (first, other) = frame(app)
    assert (first["In the table"], first["First row, UTC"]) == ("2", "2027-01-15 08:00")
    assert (other["In the table"], other["In quarantine"]) == ("0", "0")


def test_a_game_with_one_type_has_no_card_on_its_page(tmp_path: Path, opening: Opening) -> None:
    """The card stands only where there is something to tell apart."""
    one_type(tmp_path, {}).dispose()
    assert not [each for each in opening("game", game=CHESS).dataframe if "Refused, 5 min" in each.value]
    assert [each["Type"] for each in frame(opening("schemas", game=CHESS))] == ["t.M"]


def test_an_unknown_count_is_a_dash_and_an_estimate_says_so(
    tmp_path: Path, opening: Opening, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a driver there is no rate, a sample is no count, and a table that is away leaves a sentence."""
    two_types(tmp_path, {})

    def away(*_: object) -> None:
        raise Refused(f"it is away {HOSTILE[0]}")

    monkeypatch.setattr(type_table, "_counts", away)
    app = opening("schemas", game=CHESS)
    app.toggle(key=f"count_types_{CHESS}").set_value(True).run()
    assert {each["In the table"] for each in frame(app)} == {"–"}
    assert "Counts are not known: it is away" in texts(app)
    assert "<script" not in drawn_alive(app)
    guess = event_types.TypeUse(7, AT, None, 1, complete=False)
    monkeypatch.setattr(type_table, "_counts", lambda *_: (guess, guess))
    (first, _) = frame(again(app))
    assert (first["In the table"], first["First row, UTC"], first["Last row"]) == ("≈ 7", "by 2027-01-15 08:00", "–")
    assert "≈ is an estimate" in texts(app)


def test_a_type_among_the_others_has_no_rate(tmp_path: Path) -> None:
    """A driver tells 20 types apart: a type that it does not name is unknown while there are others, else still."""
    two_types(tmp_path, {})
    environment = OpenEnvironment(Settings(), Paths(tmp_path), open_store(Settings(), Paths(tmp_path)))
    (first, other) = event_types.of_game(environment, CHESS)
    environment.engine.dispose()

    def live(types: dict[str, TypeRows]) -> StreamState:
        return StreamState(CHESS, "a", "RUN", "RUNNING", 0.0, 1, None, 0.0, None, None, 0, 0, None, 0.0, types=types)

    assert event_types.recent(first, live({"t.M": TypeRows(300, 2)})) == event_types.Recent(1.0, 2)
    assert event_types.recent(other, live({"t.M": TypeRows(300, 2)})) == event_types.Recent(0.0, 0)
    assert event_types.recent(other, live({"t.M": TypeRows(300, 2), "other": TypeRows(1, 1)})) is None
    assert event_types.recent(first, None) is None
