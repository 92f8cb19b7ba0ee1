"""The demo's game with a contract, silver, gold and books: what is declared once, and the faults that test it."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from sqlalchemy import Engine

from pipeline.base.errors import Refused
from pipeline.base.names import game_key
from pipeline.data.books.days import MICROS, Closing, Sums
from pipeline.data.books.ledger import Ledger
from pipeline.data.derived.definitions import GoldDefinition, loads
from pipeline.data.output_contracts.masks import broken
from pipeline.demo import books, promise
from pipeline.demo.breaking import faults
from pipeline.demo.simulator import game_names
from pipeline.settings.tree import Settings, load
from pipeline.store.derived import read_definitions
from pipeline.store.output_contracts import read_contracts
from protos.turnout.v1.wrapper_pb2 import Wrapper
from tests.unit.demo.house_world import House

DAY = 300


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[House]:
    made = House(tmp_path)
    yield made
    made.breaker.end_all()
    made.engine.dispose()


def declaring(demo: House, game: str) -> books.Declaring:
    return books.Declaring(load(demo.paths.root)[0], demo.paths, demo.engine, game)


def close(demo: House, game: str, *days: int) -> None:
    """Close days of a game, of five minutes each, without their rows."""
    ledger = Ledger(demo.paths.books, Settings().environment, game_key(game))
    for number, day in enumerate(days, 1):
        ledger.add(
            Closing(
                game_key=game_key(game), game=game, number=number, day=day * DAY * MICROS, day_seconds=DAY, revision=1,
                sums=Sums(0, 0, 0, 5, 1), without_event_time=0, clock_errors=0, closing_seq=9, seq=9, table_id="t",
                table_version=4, silver=(), notes=(), schema="", hash="ab" * 32, keeps_rows=True, closed_at=MICROS,
                closed_by="group a", reason="",
            )
        )  # fmt: skip


def applied(engine: Engine) -> tuple[int, int]:
    return read_contracts(engine).number, read_definitions(engine).number


def test_a_live_demo_declares_once_its_game_has_a_schema(demo: House) -> None:
    """Contract, silver and gold are applied as by a person, and never again, whatever a person applies afterwards."""
    waiting = declaring(demo, "Nobody yet")
    assert waiting.look() is None
    assert applied(demo.engine) == (0, 0)
    made = declaring(demo, "Go")
    assert "'Go' has a contract, silver and gold now" in str(made.look())
    assert promise.promised(demo.engine) == {game_key("Go"): "Go"}
    silver, gold = loads(read_definitions(demo.engine).definitions)
    assert isinstance(gold, GoldDefinition)
    assert (silver.game, gold.silver, gold.window) == ("Go", silver, 60)
    before = applied(demo.engine)
    assert made.look() is None
    assert "stay in force" in str(declaring(demo, "Chess").look())
    assert applied(demo.engine) == before


def test_a_demo_that_may_not_declare_says_why(demo: House) -> None:
    """A demo goes on where its user may not apply a contract, and says what is missing."""
    Path(str(demo.paths.settings_file)).write_text('[roles]\noperators = ["nobody@example.com"]\n')
    made = declaring(demo, "Go")
    assert "'Go' has no contract, silver and gold: " in str(made.look())
    assert made.look() is None
    assert applied(demo.engine) == (0, 0)


@pytest.mark.parametrize("name", game_names(12, 1, hostile=True))
def test_drivers_get_the_game_of_the_books(tmp_path: Path, name: str) -> None:
    """Also a hostile name comes through the variables as it is; games of the settings file stay alone."""
    settings = load(tmp_path, books.variables(Settings(), name))[0].books
    assert (settings.games, settings.day_seconds, settings.lateness_seconds) == ((name,), DAY, 60)
    assert books.variables(load(tmp_path, books.variables(Settings(), name))[0], "Go") == {}


@pytest.mark.parametrize("game", ["Chess", "Go", "Ludo"])
def test_a_bad_producers_rows_decode_and_break_the_contract(demo: House, game: str) -> None:
    """The rows of the fault are refused by the contract alone, in every format, of a live and of a bounded demo."""
    declaring(demo, game).look()
    demo.breaker.begin("contract", game)
    assert demo.first.wait(20)
    assert demo.refused() == set()
    rows = pa.table(demo.decoded().batch)
    for rule in (promise.PLAYER, promise.NO_TEST_PLAYERS):
        mask = broken(rows, rule, None)
        assert mask is not None
        assert mask.all()
    assert broken(rows, promise.ROUND, None) is None
    demo.breaker.undo("contract", game)


@pytest.mark.parametrize("game", ["Chess", "Go", "Ludo"])
def test_late_rows_are_good_ones_of_the_newest_closed_day(demo: House, game: str) -> None:
    """They keep the contract, and their event time is in the day that closed last."""
    declaring(demo, game).look()
    with pytest.raises(Refused, match=r"No day of .* is closed yet"):
        demo.breaker.begin("late", game)
    close(demo, game, 5_900_001, 5_900_003, 5_900_002)
    assert "which is closed" in demo.breaker.begin("late", game)
    assert len(demo.sent) == faults.LATE_ROWS
    assert demo.refused() == set()
    rows = pa.table(demo.decoded().batch)
    assert [broken(rows, rule, None) for rule in (promise.PLAYER, promise.ROUND)] == [None, None]
    times = {Wrapper.FromString(event.value).event_time.seconds for event in demo.sent}
    assert {at // DAY for at in times} == {5_900_003}


@pytest.mark.parametrize("fault", ["contract", "late"])
def test_a_game_without_the_contract_is_left_alone(demo: House, fault: str) -> None:
    """These faults name the game that has the demo's contract, and send nothing for others."""
    with pytest.raises(Refused, match="wait about a minute"):
        demo.breaker.begin(fault, "Chess")
    declaring(demo, "Go").look()
    with pytest.raises(Refused, match="choose 'Go'"):
        demo.breaker.begin(fault, "Chess")
    assert (demo.acts(), demo.sent) == ([], [])
