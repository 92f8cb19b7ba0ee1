"""Days close: each row of bronze is in one class, a closed day stays as it is, and later days say what changed."""

import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.base.errors import Refused
from pipeline.base.names import stream_app_id
from pipeline.lake.delta import accepted_gaps
from pipeline.lake.delta.opening import open_table
from pipeline.lake.delta.table import CursorTable, TableConflict
from pipeline.store import sources
from pipeline.store.operations import Intent, submit
from pipeline.store.sources import AcceptedGap, Identity
from tests.tables.books_world import BEGIN, DAY, BooksWorld, books_of, make_books, row
from tests.tables.repair_world import CHESS, SECOND, World, make_world
from tests.tables.silver_world import hooked, killed


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> World:
    return make_world(tmp_path_factory.mktemp("books"))


@pytest.fixture
def world(tmp_path: Path, empty: World) -> Iterator[BooksWorld]:
    with books_of(tmp_path, empty) as made:
        yield made


ROW = st.builds(
    row,
    at=st.sampled_from([5.0, 50.0, 99.0, 100.0, 150.0, 250.0, 4000.0, -3_000_000.0, None]),
    taken=st.sampled_from([20.0, 120.0, 150.0, None]),
    name=st.sampled_from(["a", "b", None]),
    points=st.integers(1, 3),
    kind=st.sampled_from(["good", "good", "good", "early", "broken"]),
)
CHANGES = st.one_of(
    st.tuples(st.just("ingest"), st.lists(ROW, min_size=1, max_size=4)),
    st.tuples(st.just("complete"), st.sampled_from([60.0, 115.0, 240.0, 400.0])),
    st.tuples(st.just("kill"), st.integers(1, 20)),
    st.tuples(st.just("reopen"), st.tuples(st.integers(0, 3), st.sampled_from([115.0, 240.0, 400.0]))),
    st.tuples(st.sampled_from(["split", "silver", "close", "replay", "rebuild"]), st.none()),
)


def do(world: BooksWorld, change: str, what: Any) -> None:
    match change:
        case "ingest":
            world.ingest(*what)
        case "complete":
            world.complete(what)
        case "kill":
            level(world)
            killed(world.close, what)
            world.promise()
        case "reopen":
            number, at = what
            days = [each for each in world.books().look(CHESS).days if each.state == "closed"]
            if days:
                world.reopen(days[number % len(days)].day, at)
        case "close":
            level(world)
            world.close()
            world.promise()
        case _:
            getattr(world, change)()


def level(world: BooksWorld) -> None:
    world.split()
    world.silver()


def run(empty: World, changes: list[tuple[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as folder, books_of(Path(folder), empty) as world:
        world.ingest(row(5.0, name="a"), row(150.0))
        for change, what in changes:
            do(world, change, what)
        level(world)
        world.check()
        world.complete(1000.0)
        world.close()
        world.promise()
        world.check()


@given(st.lists(CHANGES, max_size=8))
@settings(max_examples=3)
def test_each_row_is_in_one_class_and_closed_days_stay(empty: World, changes: list[tuple[str, Any]]) -> None:
    """Over orders, duplicates, late rows, replays, kills, reopened days: classes add up, and what is closed stays."""
    run(empty, changes)


@pytest.mark.long
@pytest.mark.timeout(900)
@given(st.lists(CHANGES, max_size=14))
@settings(max_examples=60)
def test_each_row_is_in_one_class_over_many_orders(empty: World, changes: list[tuple[str, Any]]) -> None:
    """As the short one, over many more orders."""
    run(empty, changes)


def closed_day(world: BooksWorld) -> None:
    """Close day 0 with one row of each class that it can have."""
    world.ingest(row(5.0, name="a"), row(6.0, name="a"), row(7.0, kind="broken"), row(8.0, kind="early"), row(9.0))
    level(world)
    world.complete(120.0)
    world.close()
    world.promise()


def test_a_day_closes_with_its_classes(world: BooksWorld) -> None:
    """Tested in order: refused, duplicate, late, accepted; the ledger and the rows are two Delta tables."""
    closed_day(world)
    day = world.day(0)
    assert day.state == "closed"
    assert (day.sums.refused, day.sums.duplicate, day.sums.late, day.sums.accepted) == (2, 1, 0, 2)
    assert day.closing is not None
    assert day.closing.silver == ("chess@1",)
    assert len(world.closed_rows(day.day)) == 2
    world.check()


def test_a_late_row_leaves_a_closed_day_as_it_was(world: BooksWorld) -> None:
    """A closed day never changes: the next day that closes says what came, with a reference, and both show it."""
    closed_day(world)
    before = world.day(0)
    world.ingest(row(10.0), row(150.0))
    level(world)
    assert world.day(0).pending.late == 1
    world.complete(240.0)
    (made,) = world.close()
    world.promise()
    (entry,) = made.entries
    assert (entry.day, entry.revision, entry.sums.late, entry.sums.rows) == (before.day, 1, 1, 1)
    after = world.day(0)
    assert (after.closing, after.sums, after.corrected.late, after.pending.rows) == (before.closing, before.sums, 1, 0)
    world.check()


def test_a_late_duplicate_is_a_duplicate(world: BooksWorld) -> None:
    """The classes are tested in their order: a row that silver left out is no late one."""
    closed_day(world)
    world.ingest(row(7.0, name="a"), row(11.0))
    level(world)
    pending = world.day(0).pending
    assert (pending.duplicate, pending.late, pending.rows) == (1, 1, 2)


def test_an_entry_has_only_what_no_entry_has_yet(world: BooksWorld) -> None:
    """Each later day says what came since the last one, so the entries of a day can be added up."""
    closed_day(world)
    for number in (1, 2):
        world.ingest(row(10.0), row(number * DAY + 50.0))
        level(world)
        world.complete(number * DAY + 140.0)
        (made,) = world.close()
        (entry,) = [each for each in made.entries if each.day == BEGIN * 1_000_000]
        assert (entry.sums.late, entry.sums.rows) == (1, 1)
    world.promise()
    assert world.day(0).corrected.late == 2
    world.check()


def test_rows_that_silver_has_not_read_belong_to_no_class_yet(world: BooksWorld) -> None:
    """Else each of them would be a duplicate: the day waits for the version of the table that silver has read."""
    world.ingest(row(5.0))
    level(world)
    world.ingest(row(6.0))
    world.split()
    world.complete(120.0)
    day = world.day(0)
    assert (day.sums.rows, day.sums.accepted) == (1, 1)
    assert "lack its rows of seq 2" in " ".join(day.reasons)


def test_a_reopened_day_closes_with_another_revision(world: BooksWorld) -> None:
    """Late rows up to the reopening are accepted then, and the revision before stays in both tables with its hash."""
    closed_day(world)
    world.ingest(row(10.0))
    level(world)
    begin = BEGIN * 1_000_000
    before = world.day(0).closing
    world.promise()
    world.reopen(begin, 200.0)
    day = world.day(0)
    assert (day.state, day.earlier, day.needs) == (
        "reopened", (before,), ("It was reopened by ann, approved by bob: a mistake",)
    )  # fmt: skip
    assert "through 2023-11-14 22:16:40 UTC" in day.reasons[0]
    with pytest.raises(Refused, match="cannot close: It waits until the source is complete"):
        world.books().close(CHESS, begin, "ann", "again")
    world.complete(200.0)
    with pytest.raises(Refused, match="only with a person's --reason: It was reopened by ann"):
        world.books().close(CHESS, begin, "ann")
    assert not world.books().close_due(CHESS, "closer").open[0].reasons
    (made,) = world.close()
    world.promise()
    assert before is not None
    assert (made.revision, made.number, made.sums.late, made.sums.accepted) == (2, 2, 0, before.sums.accepted + 1)
    assert made.reopened is not None
    assert (made.reopened.requested_by, made.reopened.approved_by, made.entries) == ("ann", "bob", ())
    assert (world.day(0).state, world.day(0).closing, world.day(0).earlier) == ("closed", made, (before,))
    assert [len(world.closed_rows(begin, revision)) for revision in (1, 2)] == [2, 3]
    world.check()
    assert world.books().close(CHESS, begin, "ann") == made


def test_entries_refer_to_the_revision_in_force(world: BooksWorld) -> None:
    """No day has an entry for a day that is open again; entries refer to its next revision later."""
    closed_day(world)
    begin = BEGIN * 1_000_000
    world.reopen(begin, 300.0)
    world.ingest(row(10.0), row(150.0))
    level(world)
    world.complete(240.0)
    (other,) = world.close()
    assert (other.revision, other.entries) == (1, ())
    world.complete(300.0)
    (again,) = world.close()
    assert (again.day, again.revision) == (begin, 2)
    world.ingest(row(11.0), row(250.0))
    level(world)
    world.complete(340.0)
    (third,) = world.close()
    world.promise()
    assert [(each.day, each.revision, each.sums.late) for each in third.entries] == [(begin, 2, 1)]
    world.check()


def test_anybody_can_compute_the_hash(world: BooksWorld) -> None:
    """The hash is that of the values of the game's accepted rows, by DuckDB and SHA-256 alone."""
    closed_day(world)
    closing = world.day(0).closing
    assert closing is not None
    with duckdb.connect() as database:
        database.execute("SET TimeZone = 'UTC'")
        database.register("rows", open_table(world.paths.closed(CHESS.key)).to_pyarrow_table())
        found = database.execute(
            "SELECT sha256(string_agg(sha256(to_json(own)::VARCHAR), '' ORDER BY _seq, _pos)) "
            "FROM (SELECT * EXCLUDE (_day, _revision) FROM rows) AS own"
        ).fetchone()
    assert found == (closing.hash,)


def test_the_ledger_has_the_sums_of_number_columns(world: BooksWorld) -> None:
    """People sign numbers: the ledger's sums are exact, and those that any reader computes from the closed rows."""
    most = 2**63 - 1
    world.register(message=SECOND)
    world.ingest(*(row(number / 10, points=most) for number in range(40)), row(5.0, points=-7, kind="early"))
    level(world)
    world.complete(120.0)
    (made,) = world.close()
    assert made.column_sums == (("points", str(40 * most - 7)),)
    with duckdb.connect() as database:
        database.register("rows", open_table(world.paths.closed(CHESS.key)).to_pyarrow_table())
        assert database.execute("SELECT sum(points)::VARCHAR FROM rows").fetchone() == (made.column_sums[0][1],)
    (kept,) = open_table(world.paths.books).to_pyarrow_table().column("sums").to_pylist()
    assert kept == list(made.column_sums)


def test_a_replay_after_the_close_is_an_entry(world: BooksWorld) -> None:
    """A row that a replay lands leaves the refused ones of its day by a signed entry of the next day."""
    closed_day(world)
    world.replay()
    world.silver()
    world.ingest(row(150.0))
    level(world)
    world.complete(240.0)
    (made,) = world.close()
    world.promise()
    (entry,) = made.entries
    assert (entry.sums.refused, entry.sums.accepted, entry.sums.rows) == (-1, 1, 0)
    world.check()


@pytest.mark.parametrize("step", [7, pytest.param(1, marks=pytest.mark.long)])
def test_a_closer_killed_between_any_two_effects_closes_each_day_once(world: BooksWorld, step: int) -> None:
    """The rows and the record are one commit, and the ledger follows it: a restart finishes what was begun."""
    reached = 0
    for at in count(1, step):
        number = at * 10
        world.ingest(row(number * DAY + 5.0), row(number * DAY + 6.0, kind="broken"), row(7.0))
        level(world)
        world.complete((number + 2) * DAY)
        was_killed = killed(world.close, at)
        world.close()
        world.promise()
        world.check()
        if not was_killed:
            break
        reached = at
    assert reached > 4, "there are fewer effects than a closing has"


def test_a_day_is_closing_until_the_ledger_has_it(world: BooksWorld) -> None:
    """A closing that was killed before the ledger shows as closing; the next closer finishes with the same record."""
    world.ingest(row(5.0))
    level(world)
    world.complete(120.0)

    def die(point: str) -> None:
        if point == "before_write_data_file" and world.paths.books.is_folder():
            raise TableConflict("stop")

    with hooked(die), pytest.raises(TableConflict):
        world.close()
    began = world.day(0)
    assert began.state == "closing"
    world.close()
    world.promise()
    assert world.day(0).closing == began.closing
    world.check()


def test_of_two_closers_one_closes(world: BooksWorld) -> None:
    """A closer whose classification another one has overtaken adds nothing."""
    world.ingest(row(5.0), row(150.0))
    level(world)
    world.complete(400.0)
    rivals = iter([world.books()])

    def overtake(point: str) -> None:
        if point == "before_draft_commit":
            for rival in rivals:
                rival.close_due(CHESS, "rival")

    with hooked(overtake), pytest.raises(TableConflict):
        world.close()
    world.promise()
    assert {world.day(number).closing.closed_by for number in (0, 1)} == {"rival"}  # type: ignore[union-attr]
    world.check()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("early", "It waits until the source is complete through 2023-11-14 22:15:10 UTC"),
        ("behind", "The game's tables lack its rows of seq 2"),
        ("silver", "silver chess has not read the game's table yet"),
        ("repair", "of the game is open"),
    ],
)
def test_a_day_that_cannot_close_says_why(world: BooksWorld, change: str, reason: str) -> None:
    """An open day names what it waits for, and closing it by hand is refused with that."""
    world.ingest(row(5.0))
    world.split()
    if change != "silver":
        world.silver()
    if change == "behind":
        world.ingest(row(6.0))
    if change != "early":
        world.complete(120.0)
    if change == "repair":
        submit(world.engine, Intent("rebuild", (f"game:{CHESS.key}",), "ann", "a test"))
    look = world.books().look(CHESS)
    assert reason in " ".join([look.obstacle or "", *(why for each in look.days for why in each.reasons)])
    with pytest.raises(Refused, match=r"cannot close|has not read"):
        world.books().close(CHESS, BEGIN * 1_000_000, "ann", "a reason")
    assert change == "silver" or not world.close()


def test_rows_without_a_good_event_time_count_on_the_day_of_their_source_time(world: BooksWorld) -> None:
    """They are flagged, and many of them keep the day open until a person says that it is right."""
    world.ingest(row(None, 20.0), row(5000.0, 30.0), row(-4_000_000.0, 40.0), row(3000.0, 50.0), row(None, None))
    level(world)
    world.complete(120.0)
    day = world.day(0)
    assert (day.sums.rows, day.without_event_time, day.clock_errors) == (4, 2, 2)
    assert not world.close()
    with pytest.raises(Refused, match="2 of 4 rows are clock errors"):
        world.books().close(CHESS, day.day, "ann")
    world.books().close(CHESS, day.day, "ann", "the console's clock was wrong")
    world.promise()
    closed = world.day(0)
    assert closed.closing is not None
    assert (closed.closing.closed_by, closed.closing.reason) == ("ann", "the console's clock was wrong")
    assert "2 of 4 rows are clock errors." in closed.notes
    world.check()


def test_a_day_of_which_bronze_lost_rows_needs_a_reason(world: BooksWorld) -> None:
    """Nobody knows which rows an accepted gap had, so only a person can say that the day is right without them."""
    world.ingest(row(5.0))
    world.ingest(row(6.0))
    world.split()
    accept_gap(world, 1, 2)
    world.silver()
    world.complete(120.0)
    assert not world.close()
    assert "Bronze lost the seqs 2 to 2, which may have had rows of the day." in world.day(0).needs
    made = world.books().close(CHESS, BEGIN * 1_000_000, "ann", "the producer sends no such rows")
    assert made.notes == ("Bronze lost the seqs 2 to 2, which may have had rows of the day.",)


def accept_gap(world: BooksWorld, above: int, through: int) -> None:
    app = stream_app_id(world.environment, CHESS.key, 1)
    table = CursorTable.create(world.paths.table(CHESS.key), pa.schema([]), app)
    gap = accepted_gaps.record(table.transaction_version, world.environment, CHESS.key, above, through)
    table.commit([], table.cursor, table.cursor or 0, also=gap)


def test_a_day_with_rows_behind_lost_ones_only_needs_a_reason(tmp_path: Path, empty: World) -> None:
    """Lost rows are of days whose rows were taken between the pairs around them, wherever the day's own rows lie."""
    world = make_books(tmp_path, base=empty, ahead_seconds=20)
    world.ingest(row(-150.0))
    world.complete(20.0)
    world.ingest(row(-149.0))
    world.ingest(row(90.0), row(550.0))
    world.split()
    accept_gap(world, 1, 2)
    world.silver()
    world.complete(400.0)
    needs = {each.day // 1_000_000 - BEGIN: " ".join(each.needs) for each in world.books().look(CHESS).days}
    assert {day: "Bronze lost" in why for day, why in needs.items()} == {-200: False, 0: True, 500: False}
    world.engine.dispose()


def test_a_day_of_which_a_source_lost_rows_needs_a_reason(tmp_path: Path, empty: World) -> None:
    """A loss lies between the last time through which bronze had all and its acceptance; other days close."""
    world = make_books(tmp_path, base=empty, ahead_seconds=20)
    world.ingest(row(-150.0), row(-50.0), row(5.0))
    level(world)
    world.complete(60.0)
    sources.open_generation(world.engine, "topic \x07")
    lost = [AcceptedGap(0, "topic \x07", number, 3, 8, "retention", "ann", BEGIN + 130.0) for number in (0, 1)]
    sources.replace_generation(world.engine, "topic \x07", 1, Identity(0, None, 1, "b", world.seq, None), lost)
    world.ingest(row(150.0), row(250.0))
    level(world)
    world.complete(400.0)
    why = "topic \\x07 lost partition 0 offsets 3 to 8, partition 1 offsets 3 to 8, which may have had rows of the day."
    needs = {each.day // 1_000_000 - BEGIN: each.needs for each in world.books().look(CHESS).days}
    assert needs == {-200: (), -100: (), 0: (why,), 100: (why,), 200: ()}
    assert [each.day // 1_000_000 - BEGIN for each in world.close()] == [-200, -100, 200]
    with pytest.raises(Refused, match=r"only with a person's --reason: topic"):
        world.books().close(CHESS, BEGIN * 1_000_000, "ann")
    assert world.books().close(CHESS, BEGIN * 1_000_000, "ann", "nobody played then").notes == (why,)
    world.engine.dispose()


def test_rows_may_stay_out_of_the_closed_days(tmp_path: Path, empty: World) -> None:
    """Without rows the ledger has the same sums and the same hash."""
    hashes = []
    for keeps in (True, False):
        world = make_books(tmp_path / str(keeps), base=empty, keep_rows=keeps)
        world.ingest(row(5.0), row(6.0))
        level(world)
        world.complete(120.0)
        (made,) = world.close()
        hashes.append((made.hash, made.sums))
        world.engine.dispose()
    assert hashes[0] == hashes[1]


def test_types_without_silver_are_no_duplicates(tmp_path: Path, empty: World) -> None:
    """A game without a silver table has no duplicates, and its days say so."""
    world = make_books(tmp_path, base=empty, silver=False)
    world.ingest(row(5.0, name="a"), row(6.0, name="a"))
    level(world)
    world.complete(120.0)
    world.close()
    day = world.day(0)
    assert (day.sums.duplicate, day.sums.accepted) == (0, 2)
    assert "No row is a duplicate of types without a silver table: t.M." in day.notes
    world.engine.dispose()
