"""Verify finds every planted error and accuses no clean set, however the rows lie."""

import random
import tempfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.base.errors import Refused
from pipeline.base.names import MALFORMED, game_key
from pipeline.data.verify import readings
from pipeline.data.verify.balance import FAULTS, Balance, Counts, verify
from pipeline.data.verify.routing import key_of
from pipeline.settings.tree import Paths
from tests.tables.verify_world import (
    CHESS,
    CHESS_TWIN,
    ENVIRONMENT,
    GO,
    Row,
    World,
    append_bronze,
    append_quarantine,
    append_table,
    clean,
    edit_randomly,
    oracle,
    random_world,
)


def check(world: World, root: Path) -> Balance:
    return verify(world.write(root), ENVIRONMENT)


def of(balance: Balance, key: str) -> Counts:
    return next(game.counts for game in balance.games if game.game_key == key)


def faults(balance: Balance) -> dict[str, int]:
    return {name: getattr(balance.totals, name) for name in FAULTS if getattr(balance.totals, name)}


def test_clean_set(tmp_path: Path) -> None:
    """A set of tables in which every row is where it belongs is in balance, with every row counted once."""
    balance = check(clean(), tmp_path)
    assert (faults(balance), balance.problems) == ({}, ())
    assert balance.ok
    assert not balance.complete
    assert Counts(bronze_rows=9, landed=5, quarantined=3, pending=1) == balance.totals
    assert Counts(bronze_rows=4, landed=2, quarantined=1, pending=1) == of(balance, GO)
    assert balance.by_reason == {"invalid_name": 1, "malformed_payload": 1, "malformed_wrapper": 1}


Edit = Callable[[World], None]


def _lose(world: World) -> None:
    world.tables[CHESS].remove((1, 1))


def _double(world: World) -> None:
    world.tables[CHESS] += [(1, 1), (1, 1)]


def _move(world: World) -> None:
    world.tables[CHESS].remove((1, 1))
    world.tables[GO].append((1, 1))


def _copy(world: World) -> None:
    world.tables[GO].append((1, 1))


def _forget(world: World) -> None:
    assert world.quarantine is not None
    world.quarantine.pop(0)


def _forget_ingest(world: World) -> None:
    assert world.quarantine is not None
    world.quarantine.pop(1)


def _unchain(world: World) -> None:
    world.bronze[6].prev = world.bronze[7].prev = 1


def _unchain_within(world: World) -> None:
    world.bronze[0].prev = 7


def _unchain_null(world: World) -> None:
    world.bronze[0].prev = None


def _skip(world: World) -> None:
    world.cursors[GO] = 4


def _restore_bronze(world: World) -> None:
    world.cursors[CHESS] = 9


def _behind(world: World) -> None:
    world.cursors[CHESS] = 2


def _no_cursor(world: World) -> None:
    del world.cursors[CHESS]


def _invent(world: World) -> None:
    world.tables[GO].append((2, 77))


def _invent_refused(world: World) -> None:
    world.refuse(GO, (2, 77))


def _refuse_elsewhere(world: World) -> None:
    world.refuse(GO, (1, 1))


def _refuse_and_copy_elsewhere(world: World) -> None:
    world.refuse(GO, (1, 1))
    world.tables[CHESS_TWIN] = [(1, 1)]
    world.cursors[CHESS_TWIN] = 1


def _repeat(world: World) -> None:
    world.bronze.append(Row(CHESS, 3, 0, 1))


def _share_place(world: World) -> None:
    world.bronze.append(Row(GO, 1, 0, 0))
    world.tables[GO].append((1, 0))


def _wrong_key(world: World) -> None:
    world.bronze[0].game = world.bronze[1].game = "chess"


def _delete_unread(world: World) -> None:
    world.bronze = [row for row in world.bronze if (row.seq, row.pos) != (4, 0)]


def _delete_several_unread(world: World) -> None:
    world.bronze.append(Row(GO, 4, 6, 2))


def _delete_landed(world: World) -> None:
    world.bronze = [row for row in world.bronze if (row.seq, row.pos) != (1, 1)]


def _delete_beside_a_copy(world: World) -> None:
    _delete_unread(world)
    world.bronze.append(Row(MALFORMED, 4, 2, 0, "malformed_wrapper"))


def _delete_all_of_a_game(world: World) -> None:
    world.bronze = [row for row in world.bronze if (row.key, row.seq) != (GO, 4)]
    world.bronze.append(Row(GO, 5, 0, 4))
    world.quarantine = [each for each in world.quarantine or [] if each[0] != GO]


def _nameless(world: World) -> None:
    world.tables[CHESS].append((None, None))


def _nameless_twice(world: World) -> None:
    world.tables[CHESS] += [(None, None), (None, None), (3, None), (3, None)]


@pytest.mark.parametrize(
    ("edit", "expected", "place"),
    [
        (_lose, {"lost": 1}, (CHESS, 1, 1)),
        (_double, {"duplicated": 2}, (CHESS, 1, 1)),
        (_move, {"lost": 1, "misrouted": 1}, (CHESS, 1, 1)),
        (_copy, {"misrouted": 1}, (GO, 1, 1)),
        (_forget, {"lost": 1}, (CHESS, 3, 1)),
        (_forget_ingest, {"lost": 1}, (GO, 4, 1)),
        (_unchain, {"broken_chain": 1}, (GO, 4, None)),
        (_unchain_within, {"broken_chain": 1}, (CHESS, 1, None)),
        (_unchain_null, {"broken_chain": 1}, (CHESS, 1, None)),
        (_skip, {"lost": 1}, (GO, 4, 0)),
        (_restore_bronze, {"beyond_bronze": 1}, (CHESS, 9, None)),
        (_behind, {"early": 1}, (CHESS, 3, 0)),
        (_no_cursor, {"early": 3}, (CHESS, 1, 0)),
        (_invent, {"phantom": 1}, (GO, 2, 77)),
        (_invent_refused, {"phantom": 1}, (GO, 2, 77)),
        (_refuse_elsewhere, {"phantom": 1}, (GO, 1, 1)),
        (_refuse_and_copy_elsewhere, {"misrouted": 1, "phantom": 1}, (CHESS_TWIN, 1, 1)),
        (_delete_unread, {"bronze_holes": 1}, (None, 4, 0)),
        (_delete_several_unread, {"bronze_holes": 3}, (None, 4, 3)),
        (_delete_landed, {"phantom": 1}, (CHESS, 1, 1)),
        (_delete_beside_a_copy, {"bronze_holes": 1, "bronze_duplicates": 1}, (None, 4, 0)),
        (_delete_all_of_a_game, {"broken_chain": 1}, (GO, 5, None)),
        (_repeat, {"bronze_duplicates": 1}, (CHESS, 3, 0)),
        (_share_place, {"bronze_duplicates": 1}, None),
        (_wrong_key, {"misrouted": 2}, (CHESS, 1, 0)),
        (_nameless, {"phantom": 1}, (CHESS, None, None)),
        (_nameless_twice, {"phantom": 4}, (CHESS, None, None)),
    ],
)
@pytest.mark.proves("G159", "G160")
def test_planted_error(edit: Edit, expected: dict[str, int], place: tuple[object, ...] | None, tmp_path: Path) -> None:
    """Every kind of damage is found, counted once under its own name, and its place is named."""
    world = clean()
    edit(world)
    balance = check(world, tmp_path)
    assert expected == faults(balance)
    assert not balance.ok
    if place is not None:
        first = balance.problems[0]
        assert place == (first.game_key, first.seq, first.pos)


def test_boundary_of_pending_and_lost(tmp_path: Path) -> None:
    """A missing row is lost from exactly the cursor's seq downwards and pending above it (law L5)."""
    world = clean()
    world.tables[CHESS] = []
    world.cursors[CHESS] = 1
    world.quarantine = (world.quarantine or [])[1:]
    chess = of(check(world, tmp_path), CHESS)
    assert (chess.lost, chess.pending) == (2, 2)


def test_copies_and_twins_are_no_failure(tmp_path: Path) -> None:
    """Quarantine is a set and the table wins: copies and stale twins are told, not counted (law L5)."""
    world = clean()
    world.refuse(CHESS, (3, 1), "unknown_schema")
    world.refuse(CHESS, (1, 0))
    world.refuse(CHESS, (1, 0))
    balance = check(world, tmp_path)
    assert balance.ok
    assert (balance.totals.stale_twins, balance.totals.quarantine_copies, balance.totals.quarantined) == (1, 2, 3)
    assert sum(balance.by_reason.values()) == 3


def test_game_without_table_and_without_quarantine(tmp_path: Path) -> None:
    """Rows of a game without a table are still to come, and a missing quarantine table is an empty one."""
    world = World(bronze=[Row(CHESS, 1, 0, 0), Row(GO, 1, 1, 0)], tables={CHESS: [(1, 0)]}, cursors={CHESS: 1})
    paths = world.write(tmp_path)
    Path(paths.table("half_made")).mkdir()
    balance = verify(paths, ENVIRONMENT)
    assert balance.ok
    assert Counts(bronze_rows=1, pending=1) == of(balance, GO)


def test_table_without_bronze_rows(tmp_path: Path) -> None:
    """A table of a game bronze knows nothing of holds phantoms; an empty one is fine."""
    world = clean()
    world.tables |= {"stray": [(1, 50)], "empty": []}
    world.cursors |= {"stray": 1}
    balance = check(world, tmp_path)
    assert faults(balance) == {"phantom": 1}
    assert Counts(landed=1, phantom=1) == of(balance, "stray")


def test_generations(tmp_path: Path) -> None:
    """The cursor is the newest generation's, whatever was told before the rebuild, or after an older copy (law L12)."""
    world = clean()
    paths = world.write(tmp_path)
    append_table(paths, GO, [], 4, generation=3)
    assert faults(verify(paths, ENVIRONMENT)) == {"lost": 1}
    assert faults(verify(paths, ENVIRONMENT, {GO: 1})) == {"lost": 1}
    assert faults(verify(paths, ENVIRONMENT, {GO: 4})) == {"lost": 1}


def test_hostile_columns(tmp_path: Path) -> None:
    """Payload columns named like ours, changing from file to file, do not disturb the count."""
    world = clean()
    world.tables[CHESS].remove((3, 0))
    paths = world.write(tmp_path / "a folder's é")
    names = [
        "filename",
        "file_row_number",
        "seq",
        "pos",
        "side",
        'we"ird; --',
        "rows",
        "paths",
        "game_key",
        "ord",
        "files",
    ]
    hostile = {name: pa.array(["x"]) for name in names}
    hostile |= {name: pa.array([{"_seq": "x", "ord": "y"}]) for name in ("f", "places", "entries")}
    append_table(paths, CHESS, [(3, 0)], 3, payload=hostile)
    assert faults(verify(paths, ENVIRONMENT)) == {}


def test_nothing_ingested(tmp_path: Path) -> None:
    """Without bronze nothing can be proved, and verify reports that instead of a balance."""
    with pytest.raises(Refused, match="Start ingest first"):
        verify(Paths(tmp_path), ENVIRONMENT)


def test_empty_bronze(tmp_path: Path) -> None:
    """A bronze table without rows and without a commit of ingest balances with nothing, and proves nothing."""
    balance = check(World(), tmp_path)
    assert (balance.ok, balance.complete) == (True, False)
    assert Counts() == balance.totals


def test_unreadable_file(tmp_path: Path) -> None:
    """A data file that is gone is told by name, never counted as no rows."""
    paths = clean().write(tmp_path)
    next(Path(paths.table(GO)).glob("*.parquet")).unlink()
    with pytest.raises(Refused, match=f"tables/{GO}"):
        verify(paths, ENVIRONMENT)


def test_foreign_table(tmp_path: Path) -> None:
    """A table without our position columns is refused by name."""
    paths = clean().write(tmp_path)
    write_deltalake(Path(paths.table("foreign")), pa.table({"a": [1]}))
    with pytest.raises(Refused, match="tables/foreign has no column _pos, _seq"):
        verify(paths, ENVIRONMENT)


def test_batch_ingest_is_writing(tmp_path: Path) -> None:
    """A quarantine row of the batch after bronze's last is ahead of bronze, one further on is a phantom."""
    paths = clean().write(tmp_path)
    append_quarantine(paths, [(GO, 5, 0, "unknown_game")])
    balance = verify(paths, ENVIRONMENT)
    assert (faults(balance), balance.totals.ahead) == ({}, 1)
    append_quarantine(paths, [(GO, 6, 0, "unknown_game")])
    assert faults(verify(paths, ENVIRONMENT)) == {"phantom": 1}


def _history(paths: Paths) -> list[Callable[[], object]]:
    """Return the commits of two ingest batches, of the passes after them and of a replay, in their order."""
    batch = [Row(CHESS, 5, 0, 3), Row(CHESS, 5, 1, 3), Row(GO, 5, 2, 4, "unknown_game")]
    return [
        lambda: append_quarantine(paths, [(GO, 5, 2, "unknown_game")]),
        lambda: append_bronze(paths, batch),
        lambda: append_quarantine(paths, [(CHESS, 5, 1, "malformed_payload")]),
        lambda: append_table(paths, CHESS, [(5, 0)], 5),
        lambda: append_bronze(paths, [Row(CHESS, 6, 0, 5)]),
        lambda: append_quarantine(paths, [(CHESS, 6, 0, "malformed_payload")]),
        lambda: append_table(paths, CHESS, [(3, 1)], 6),
        lambda: DeltaTable(paths.quarantine).delete(f"game_key = '{CHESS}' AND seq = 3"),
    ]


@settings(max_examples=12, deadline=None)
@given(moments=st.lists(st.integers(0, 5), min_size=8, max_size=8).map(sorted))
@pytest.mark.proves("G159")
def test_reading_while_others_write(moments: list[int]) -> None:
    """Whichever commits fall between verify's own readings, rows in motion are never accused."""
    with tempfile.TemporaryDirectory() as root, pytest.MonkeyPatch.context() as patch:
        paths = clean().write(Path(root))
        history = _history(paths)
        pinned = 0
        pin_one = readings._snapshot

        def pin_after_commits(*arguments: object, **options: object) -> object:
            nonlocal pinned
            for commit, moment in zip(history, moments, strict=True):
                if moment == pinned:
                    commit()
            pinned += 1
            return pin_one(*arguments, **options)  # type: ignore[arg-type]  # passed on as they came

        patch.setattr(readings, "_snapshot", pin_after_commits)
        assert faults(verify(paths, ENVIRONMENT)) == {}
        assert pinned == 5


@given(name=st.text(min_size=1, max_size=60))
def test_second_opinion_of_keys(name: str) -> None:
    """Verify's own implementation of a game's key agrees with the one that routes."""
    assert game_key(name) == key_of(name)


@settings(max_examples=12, deadline=None)
@given(dice=st.randoms(use_true_random=False), edits=st.integers(0, 4))
def test_random_worlds(dice: random.Random, edits: int) -> None:
    """For any small world and any edits, verify counts what a plain count finds, and the sides add up."""
    world = random_world(dice)
    assert set(oracle(world)) <= {"pending"}
    for _ in range(edits):
        edit_randomly(world, dice)
    with tempfile.TemporaryDirectory() as root:
        balance = check(world, Path(root))
    totals = balance.totals
    pending = {"pending": totals.pending} if totals.pending else {}
    expected = oracle(world)
    assert expected == faults(balance) | pending
    assert (not expected.keys() - {"pending"}) == balance.ok
    for counts in [totals, *(game.counts for game in balance.games)]:
        accounted = counts.landed + counts.quarantined + counts.pending + counts.lost
        assert counts.bronze_rows + counts.duplicated + counts.misrouted + counts.phantom == accounted
