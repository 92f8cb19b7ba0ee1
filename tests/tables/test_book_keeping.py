"""A driver, a command and a page keep the books of a game: who closed, what waits, and what people are told."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from pipeline.api import books as api
from pipeline.api import reopening
from pipeline.api.environment import OpenEnvironment
from pipeline.base.errors import Refused
from pipeline.cli.main import cli
from pipeline.data.books.keeping import BookKeeper
from pipeline.store import audit
from pipeline.store.books import due_in
from pipeline.store.through import write_through
from tests.tables.books_world import BEGIN, DAY, LATENESS, BooksWorld, make_books, row
from tests.tables.repair_world import CHESS, World, make_world


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> World:
    return make_world(tmp_path_factory.mktemp("keeping"))


@pytest.fixture
def world(tmp_path: Path, empty: World) -> Iterator[BooksWorld]:
    made = make_books(tmp_path, base=empty, games=("Chess",))
    yield made
    made.engine.dispose()


def keeper(world: BooksWorld, *, holds: bool = True) -> BookKeeper:
    return BookKeeper(world.settings, world.paths, world.engine, "a", lambda _: holds)


def level(world: BooksWorld, through: float) -> None:
    world.split()
    world.silver()
    world.complete(through)
    write_through(world.engine, [(world.seq, BEGIN + through)], [])


def overview(world: BooksWorld) -> api.GameOverview:
    environment = OpenEnvironment(world.settings, world.paths, world.engine)
    return next(each for each in api.overview(environment) if each.game == CHESS)


def test_a_driver_closes_the_days_of_named_games(world: BooksWorld) -> None:
    """The driver that holds a game closes a day once its hour is there, and no other driver does."""
    world.ingest(row(5.0), row(150.0))
    level(world, 120.0)
    keeper(world, holds=False).look()
    assert overview(world).closed == ()
    keeping = keeper(world)
    keeping.look()
    (closed,) = overview(world).closed
    assert (closed.closed_by, closed.sums.accepted) == ("group a", 1)
    (waits,) = overview(world).open
    assert waits.reasons[0].startswith("It waits until the source is complete through")
    with world.engine.connect() as connection:
        assert due_in(connection) == {CHESS.key: BEGIN + 2 * DAY + LATENESS}
    world.ingest(row(250.0))
    level(world, 240.0)
    keeping.look()
    assert [each.number for each in overview(world).closed] == [1, 2]


def test_a_driver_reports_why_a_day_does_not_close(world: BooksWorld) -> None:
    """A game whose rows cannot be classified is reported with the reason, and is tried again."""
    world.ingest(row(5.0))
    world.split()
    world.complete(120.0)
    write_through(world.engine, [(world.seq, BEGIN + 120.0)], [])
    keeping = keeper(world)
    keeping.look()
    assert "silver chess has not read" in (overview(world).obstacle or "")
    world.silver()
    keeping.look()
    assert overview(world).closed == ()
    keeper(world).look()
    assert len(overview(world).closed) == 1


def test_a_restarted_driver_closes_an_older_day_that_waited(world: BooksWorld) -> None:
    """A day that could not close while a later one was closed does not wait for the end of another day."""
    world.ingest(row(5.0), row(105.0))
    level(world, 2 * DAY + LATENESS)
    world.books().close(CHESS, round((BEGIN + DAY) * 1e6), "ann", "the month ends")
    keeper(world).look()
    assert [each.sums.accepted for each in overview(world).closed] == [1, 1]
    assert overview(world).open == ()


def turnout(world: BooksWorld, *arguments: str) -> tuple[int, str]:
    (world.paths.root / "turnout.toml").write_text(f"[books]\nday_seconds = {DAY}\nlateness_seconds = {LATENESS}\n")
    result = CliRunner().invoke(cli, [*arguments, "--env-dir", str(world.paths.root)])
    return result.exit_code, f"{result.output}{result.exception or ''}"


def test_a_person_closes_a_day(world: BooksWorld) -> None:
    """The command refuses a day with its reason, closes it once, and the audit log has both."""
    day = "2023-11-14T22:14:00Z"
    world.ingest(row(5.0), row(6.0, kind="broken"))
    level(world, 60.0)
    code, said = turnout(world, "books", "close", "Chess", day)
    assert code != 0
    assert "cannot close: It waits until the source is complete through 2023-11-14 22:15:10 UTC" in said
    level(world, 120.0)
    assert turnout(world, "books", "close", "Chess", day, "--reason", "monthly report")[0] == 0
    first = turnout(world, "books", "show", "Chess", "--json")
    assert turnout(world, "books", "close", "Chess", day)[0] == 0
    assert turnout(world, "books", "show", "Chess", "--json") == first
    (shown,) = json.loads(first[1])["days"]
    assert (shown["day"], shown["state"], shown["reason"]) == ("2023-11-14T22:13:20Z", "closed", "monthly report")
    assert (shown["refused"], shown["accepted"], shown["pending"]["accepted"]) == (1, 1, 0)
    assert "closed: 1 refused, 0 duplicate, 0 late, 1 accepted" in turnout(world, "books", "show")[1]
    assert "closed: 1 refused, 0 duplicate, 0 late, 1 accepted" in turnout(world, "books", "show", "Chess")[1]
    assert turnout(world, "books", "verify", "Chess")[0] == 0
    (file,) = Path(str(world.paths.closed(CHESS.key))).glob("*.parquet")
    rows = pq.read_table(file)
    pq.write_table(rows.set_column(rows.column_names.index("points"), "points", pa.array([7])), file)
    assert turnout(world, "books", "verify", "Chess", "--json")[0] == 1
    ends = [each.outcome for each in audit.entries(world.engine) if each.action == "close a day"]
    assert ends == [None, "failed", None, "succeeded", None, "succeeded"]


def test_two_people_reopen_a_day(world: BooksWorld) -> None:
    """One asks with a reason and another approves, never the same; each step is in the audit log."""
    environment = OpenEnvironment(world.settings, world.paths, world.engine)
    day, moment = "2023-11-14T22:14:00Z", BEGIN + 40.0
    world.ingest(row(5.0))
    level(world, 120.0)
    code, said = turnout(world, "books", "reopen", "Chess", day, "--reason", "wrong")
    assert code != 0
    assert "The day is not closed." in said
    turnout(world, "books", "close", "Chess", day)
    asked = json.loads(turnout(world, "books", "reopen", "Chess", day, "--reason", "wrong", "--json")[1])
    assert (asked["state"], asked["revision"], asked["day"]) == ("asked", 1, "2023-11-14T22:13:20Z")
    assert "waits already" in turnout(world, "books", "reopen", "Chess", day, "--reason", "wrong")[1]
    code, said = turnout(world, "books", "approve", asked["request_id"][:8])
    assert code != 0
    assert "You cannot approve your own request" in said
    assert overview(world).reopened == {}
    wanted = reopening.find(environment, asked["request_id"])
    assert reopening.approve(environment, "bob", wanted, "agreed").state == "approved"
    with pytest.raises(Refused, match="open again already"):
        reopening.reopen(environment, "ann", CHESS, moment, "once more")
    ((_, opened),) = overview(world).reopened.items()
    assert (opened.approved_by, opened.reason) == ("bob", "wrong")
    with pytest.raises(Refused, match="open again already"):
        reopening.approve(environment, "eve", wanted)
    level(world, time.time() - BEGIN)
    assert "reopened: 0 refused" in turnout(world, "books", "show", "Chess")[1]
    assert turnout(world, "books", "close", "Chess", day, "--reason", "corrected")[0] == 0
    shown = turnout(world, "books", "show", "Chess")[1]
    assert "revision 2 by" in shown
    assert "earlier: 2023-11-14T22:13:20Z closed" in shown
    code, said = turnout(world, "books", "verify", "Chess", "--json")
    assert json.loads(said)["days"] == {"2023-11-14T22:13:20Z": "same", "2023-11-14T22:13:20Z revision 2": "same"}
    assert overview(world).reopened == {}
    acts = [(each.action, each.outcome) for each in audit.entries(world.engine) if "reopen" in each.action]
    assert [each for each in acts if each[1]] == [
        ("reopen a day", "failed"), ("reopen a day", "succeeded"), ("reopen a day", "succeeded"),
        ("approve a reopening", "failed"), ("approve a reopening", "succeeded"), ("reopen a day", "failed"),
        ("approve a reopening", "failed"),
    ]  # fmt: skip


def test_a_request_about_an_older_revision_opens_nothing(world: BooksWorld) -> None:
    """An approval opens the revision that was shown to both people, and a withdrawn or rejected request opens none."""
    environment = OpenEnvironment(world.settings, world.paths, world.engine)
    world.ingest(row(5.0))
    level(world, 120.0)
    turnout(world, "books", "close", "Chess", "2023-11-14T22:14:00Z")
    first, second, third = (
        reopening.reopen(environment, who, CHESS, BEGIN + 40.0, "wrong") for who in ("ann", "eve", "zoe")
    )
    assert reopening.reject(environment, "ann", first, "a mistake").state == "withdrawn"
    assert reopening.reject(environment, "bob", second, "no").state == "rejected"
    assert overview(world).reopened == {}
    day = overview(world).closed[0].day
    world.reopen(day, 110.0)
    world.close()
    with pytest.raises(Refused, match="has revision 2 by now"):
        reopening.approve(environment, "bob", third)
    assert [each.state for each in reopening.requests(environment)] == ["asked", "approved", "rejected", "withdrawn"]


def test_a_driver_closes_no_reopened_day(world: BooksWorld) -> None:
    """People have something to do before such a day closes again; the driver only reports why it waits."""
    world.ingest(row(5.0))
    level(world, 120.0)
    keeping = keeper(world)
    keeping.look()
    (closed,) = overview(world).closed
    world.reopen(closed.day, 115.0)
    keeping.look()
    (waits,) = overview(world).open
    assert (waits.day, waits.needs[0], len(overview(world).closed)) == (
        closed.day, "It was reopened by ann, approved by bob: a mistake", 1
    )  # fmt: skip
    with world.engine.connect() as connection:
        assert due_in(connection) == {CHESS.key: BEGIN + 115.0}
