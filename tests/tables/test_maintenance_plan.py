import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.data.maintenance import plan
from tests.tables.maintenance_world import (
    file,
)

UNITS = st.lists(
    st.builds(lambda size, fresh: (size, fresh), st.integers(1, 50), st.booleans()), min_size=0, max_size=40
)


def units_of(drawn: list[tuple[int, bool]]) -> list[plan.Unit]:
    return [plan.Unit((file(f"f{at}", size),), fresh) for at, (size, fresh) in enumerate(drawn)]


@given(UNITS, st.integers(1, 6), st.integers(10, 200))
def test_runs_are_neighbours_within_their_bounds(drawn: list[tuple[int, bool]], fewest: int, most: int) -> None:
    """A run is a stretch of neighbours, long enough to be worth it, small enough to be sorted, and none overlap."""
    units = units_of(drawn)
    places = {id(unit): at for at, unit in enumerate(units)}
    seen: list[int] = []
    for chosen in plan.runs(units, fewest, most):
        at = [places[id(unit)] for unit in chosen]
        assert list(range(at[0], at[-1] + 1)) == at
        assert len(at) >= max(fewest, 2)
        assert sum(unit.size for unit in chosen) <= most
        seen += at
    assert sorted(set(seen)) == seen


@given(UNITS, st.integers(1, 6), st.integers(10, 200))
def test_what_was_merged_is_not_merged_again(drawn: list[tuple[int, bool]], fewest: int, most: int) -> None:
    """Applying a plan leaves an empty plan: a round after a round has nothing to do."""
    units = units_of(drawn)
    merged = list(units)
    for chosen in plan.runs(units, fewest, most):
        at = merged.index(chosen[0])
        files = tuple(each for unit in chosen for each in unit.files)
        merged[at : at + len(chosen)] = [plan.Unit(files, fresh=False)]
    assert plan.runs(merged, fewest, most) == []


def test_a_row_is_rewritten_about_as_often_as_its_table_doubles() -> None:
    """Compaction's own writing stays small: 4,096 appended files are rewritten 10 times on average, not 400 times."""
    units: list[plan.Unit] = []
    written = 0
    for at in range(4096):
        units.append(plan.Unit((file(f"f{at}"),), fresh=True))
        for chosen in plan.runs(units, 10, 1_000_000):
            files = tuple(each for unit in chosen for each in unit.files)
            written += len(files)
            place = units.index(chosen[0])
            units[place : place + len(chosen)] = [plan.Unit(files, fresh=False)]
    assert len(units) < 30
    assert written / 4096 <= 10


@given(st.lists(st.tuples(st.integers(1, 30), st.integers(0, 4), st.integers(0, 20)), max_size=30), st.integers(0, 35))
def test_bronze_units_hold_whole_seqs_and_end_at_the_bound(drawn: list[tuple[int, int, int]], last_seq: int) -> None:
    """Law L2: files that share a seq are merged together, and nothing is taken that a reader still has to read."""
    files = [file(f"f{at}", 1, (low, low + span), age) for at, (low, span, age) in enumerate(drawn)]
    units = plan.by_seq(files, last_seq, 15)
    taken = {each.path for unit in units for each in unit.files}
    for unit in units:
        assert all(each.high["seq"] <= last_seq and each.modified_ms <= 15 for each in unit.files)
        others = [each for each in files if each not in unit.files]
        for mine in unit.files:
            assert all(o.high["seq"] < mine.low["seq"] or o.low["seq"] > mine.high["seq"] for o in others)
    left = [each.low["seq"] for each in files if each.path not in taken]
    assert all(each.high["seq"] < min(left) for unit in units for each in unit.files if left)


def test_files_nobody_can_describe_are_left_alone() -> None:
    """A file without statistics, or with an escaped path, is not merged: its rows or its name may be misread."""
    files = [file("a"), file("b%20c", 1, (1, 1)), file("d", 1, (2, 2))]
    assert [tuple(each.path for each in unit.files) for unit in plan.by_seq(files, 9, 9)] == [("d",)]
    assert [tuple(each.path for each in unit.files) for unit in plan.by_age(files, 9)] == [("a",), ("d",)]


LOG = st.dictionaries(
    st.builds(
        lambda version, kind: f"{version:020}.{kind}",
        st.integers(0, 30),
        st.sampled_from(["json", "checkpoint.parquet", "crc"]),
    ),
    st.builds(plan.LogFile, st.floats(0, 100), st.integers(0, 20_000)),
    max_size=60,
)


@given(LOG, st.floats(0, 100), st.floats(0, 100), st.integers(0, 300_000), st.integers(-1, 30))
@pytest.mark.proves("G144")
def test_what_is_left_of_a_log_begins_with_an_old_checkpoint(
    entries: dict[str, plan.LogFile], recent: float, oldest: float, max_bytes: int, pointed_to: int
) -> None:
    """It begins with a checkpoint of before the last hour that no reader is sent past; nothing after it is deleted."""
    window = plan.LogWindow(min(oldest, recent), max_bytes, recent)
    keep = plan.first_kept(entries, window, pointed_to)
    able = {
        int(name[:20]): entry.modified
        for name, entry in entries.items()
        if "checkpoint" in name and entry.modified < recent and int(name[:20]) <= pointed_to
    }
    doomed = plan.expendable_log(entries, keep, recent)
    assert keep is None or keep in able
    assert sorted(doomed) == sorted(name for name in entries if keep is not None and int(name[:20]) < keep)
    assert [int(name[:20]) for name in doomed] == sorted(int(name[:20]) for name in doomed)
    assert not any(at < window.oldest for version, at in able.items() if keep is None or version > keep)
    left = sum(entry.on_disk for name, entry in entries.items() if name not in doomed)
    assert left <= max_bytes or not able or keep == max(able)
    older = [version for version, at in able.items() if keep is not None and version < keep and at >= window.oldest]
    assert all(
        any(later > version and at < window.oldest for later, at in able.items())
        or sum(entry.on_disk for name, entry in entries.items() if int(name[:20]) >= version) > max_bytes
        for version in older
    )


def test_drafts_of_killed_writers_go_by_age() -> None:
    """A draft of a commit, checkpoint or pointer is deleted when it is old, and never the pointer itself."""
    old = {
        f".{0:020}.json-ab.tmp",
        f".{0:020}.checkpoint.parquet-cd.tmp",
        "._last_checkpoint-ef.tmp",
        "_commit_1.json.tmp",
    }
    kept = {f".{1:020}.json-ab.tmp": 9.0, "_last_checkpoint": 1.0, f"{0:020}.json": 1.0}
    entries = {name: plan.LogFile(at, 1) for name, at in {**kept, **dict.fromkeys(old, 2.0)}.items()}
    assert plan.expendable_log(entries, None, 5.0) == sorted(old)


@given(
    st.dictionaries(st.sampled_from("abcdef"), st.floats(0, 100)),
    st.sets(st.sampled_from("abcdef")),
    st.dictionaries(st.sampled_from("abcdef"), st.floats(0, 100)),
    st.floats(0, 100),
)
@pytest.mark.proves("G142")
def test_a_file_goes_only_when_nobody_can_need_it(
    found: dict[str, float], living: set[str], removed_at: dict[str, float], cutoff: float
) -> None:
    """Never delete a file of the table, a file that left it recently, or a file that may still be committed."""
    doomed = plan.expendable_files(found, living, removed_at, cutoff)
    assert not living & set(doomed)
    assert all(found[path] < cutoff and removed_at.get(path, -1) < cutoff for path in doomed)
    assert all(
        path in doomed or path in living or at >= cutoff or removed_at.get(path, -1) >= cutoff
        for path, at in found.items()
    )
