"""The real drivers, repairs, maintenance and moves in orders that a seeded scheduler chooses; see docs/faults.md."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import pytest

from pipeline.base.failpoints import EFFECTS, ENVIRON
from pipeline.base.names import GameKey
from pipeline.data.contracts.schemas import Schema, SchemaSet, Writer
from pipeline.data.streams.writing.job import READ, SplitJob
from pipeline.lake.storage.places import located
from tests.checkout import ROOT
from tests.model.schedule_mutants import MUTANTS
from tests.model.schedule_patch import Splits
from tests.model.schedule_world import FIRST, KNOWN, PROFILE, REGISTRY, SECOND, WORLDS, world

SCHEDULES: Final = int(os.environ.get("SCHEDULES", "100"))
LONG_SCHEDULES: Final = 5_000
FOREIGN_SCHEDULES: Final = 1_500  # all with rows of a foreign registry, which few of the others have
TYPED_SCHEDULES: Final = 500  # all with rows of further event types
SHAPED_SCHEDULES: Final = 500  # all with documents that nobody declared
DERIVED_SCHEDULES: Final = 500  # all with a silver table that every driver carries
_SECONDS: Final = 60 + max(SCHEDULES, LONG_SCHEDULES) / 5  # on a busy machine; a quiet one takes a fifth of it

NOT_REACHED: Final = {
    "commit_by_delta_rs",  # of tables that another program gave features
    "commit_by_spark",
    "compact_by_delta_rs",
    "delete_log_entry",  # log cleanup waits for a week
    "delete_staging",
    "deploy_create", "deploy_delete", "deploy_journal", "deploy_restart", "deploy_update",  # in a workspace
    "put_query_aside",  # a checkpoint that was damaged
    "set_properties",
    "withdraw_commit",  # of a log that was cut meanwhile: log cleanup waits for a week
    "write_checkpoint",  # by delta-rs, likewise of tables with features
}  # fmt: skip
"""Effects that no schedule comes to, and why."""


def ran(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run schedules in processes of their own: they replace what modules have, and need a fixed order of sets.

    None outlives its test: those of one that took too long would take the processor from all tests after it.
    """
    command = [sys.executable, "-m", "tests.model.schedule_run", *arguments]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, stdout=pipe, stderr=pipe, text=True, start_new_session=True) as running:
        try:
            stdout, stderr = running.communicate()
        finally:
            with suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGKILL)
    return subprocess.CompletedProcess(command, running.returncode, stdout, stderr)


@lru_cache(maxsize=1)
def planted() -> Mapping[str, Mapping[str, Any]]:
    """Return what looking for each planted race came to."""
    done = ran("--mutant", "all", "--schedules", "2000", "--seconds", "120", "--json")
    return {reported["mutant"]: reported for reported in map(json.loads, done.stdout.splitlines())}


def first_of_commit() -> int:
    """Return the first seed of this commit: each commit looks at orders of its own, and again at the same ones."""
    if "FIRST_SCHEDULE" in os.environ:
        return int(os.environ["FIRST_SCHEDULE"])
    command = ["git", "rev-parse", "--short=8", "HEAD"]
    submitted = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    return int(submitted.stdout, 16) if submitted.returncode == 0 else 1  # a checkout without git has the first ones


@pytest.mark.timeout(_SECONDS)
@pytest.mark.parametrize(
    ("first", "count"),
    [
        pytest.param(first_of_commit(), SCHEDULES, id="of-this-commit"),
        pytest.param(1918882697, 1, id="a-rival-moved-the-checkpoint"),
        pytest.param(1, LONG_SCHEDULES, id="the-first", marks=pytest.mark.long),
    ],
)
@pytest.mark.proves("G34")
def test_no_order_loses_or_doubles_a_row(first: int, count: int) -> None:
    """Laws L3 to L8 and L12: in whatever order passes, catch-up, own queries, moves, repairs and crashes come."""
    done = ran("--schedules", str(count), "--first", str(first), "--json")
    reported = json.loads(done.stdout) if done.stdout else {"failed": [(0, [done.stderr])], "points": []}
    summary = ", ".join(f"{reported.get(name)} {name}" for name in ("schedules", "steps", "seconds"))
    sys.stdout.write(f"\n{summary}, the first is {first}\n")
    for seed, problems in reported["failed"]:
        pytest.fail(f"{problems[0]}\nagain, shorter: {sys.executable} -m tests.model.schedule_run --again {seed}")
    assert reported["schedules"] == count
    assert set(EFFECTS) >= NOT_REACHED
    if count >= 1_000:
        reached = {
            f"{when}_{effect}" for effect in EFFECTS if effect not in NOT_REACHED for when in ("before", "after")
        }
        assert reached <= set(reported["points"])


@pytest.mark.long
@pytest.mark.timeout(_SECONDS)
@pytest.mark.proves("G34", "G191")
def test_no_order_lands_or_refuses_a_row_before_its_writer_is_known() -> None:
    """Laws L13 to L15: games wait for a registry that is away, denies or gets a schema late, and nobody else does."""
    done = ran("--schedules", str(FOREIGN_SCHEDULES), "--focus", "foreign", "--json")
    reported = json.loads(done.stdout)
    assert (reported["failed"], reported["schedules"]) == ([], FOREIGN_SCHEDULES)


@pytest.mark.long
@pytest.mark.timeout(_SECONDS)
@pytest.mark.proves("G34", "G240")
def test_no_order_lands_a_row_before_its_type_is_accepted() -> None:
    """Laws L5, L12 and L15: types that come one by one share no columns, and lose no row by decisions about them."""
    done = ran("--schedules", str(TYPED_SCHEDULES), "--focus", "types", "--json")
    reported = json.loads(done.stdout)
    assert (reported["failed"], reported["schedules"]) == ([], TYPED_SCHEDULES)


@pytest.mark.long
@pytest.mark.timeout(_SECONDS)
@pytest.mark.proves("G34", "G285")
def test_no_order_moves_a_value_of_an_undeclared_document() -> None:
    """Laws L1, L5, L12 and L14: columns depend on bronze and the kept ranges, on no driver."""
    done = ran("--schedules", str(SHAPED_SCHEDULES), "--focus", "shapes", "--json")
    reported = json.loads(done.stdout)
    assert (reported["failed"], reported["schedules"]) == ([], SHAPED_SCHEDULES)


@pytest.mark.timeout(_SECONDS)
@pytest.mark.parametrize("count", [6, pytest.param(DERIVED_SCHEDULES, marks=pytest.mark.long)])
def test_no_order_gives_silver_other_rows_than_a_recomputation(count: int) -> None:
    """Laws L3 to L5, L12 and L15 for silver: at each version it is exact, and no two commits have one position.

    All drivers carry it at once, die anywhere, and miss changes of its definition and rebuilds of its game.
    """
    first = first_of_commit() if count < DERIVED_SCHEDULES else 1
    done = ran("--schedules", str(count), "--first", str(first), "--focus", "derived", "--focus", "rebuild", "--json")
    reported = json.loads(done.stdout)
    assert (reported["failed"], reported["schedules"]) == ([], count), f"the first is {first}"


@pytest.mark.timeout(60)
def test_a_schedule_writes_no_files_of_fail_points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each hit would count a file's lines anew: with the folder of a Spark test beside it, 5,000 took an hour."""
    monkeypatch.setenv(ENVIRON, str(tmp_path))
    done = ran("--schedules", "2", "--jobs", "1")
    assert (done.returncode, list(tmp_path.iterdir())) == (0, [])


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", [name for name in MUTANTS if not MUTANTS[name].is_rare])
@pytest.mark.proves("G34")
def test_every_planted_race_is_found(name: str) -> None:
    """A search that cannot find a race proves nothing by finding none; the defect that doubled rows takes a minute."""
    reported = planted()[name]
    assert reported["failed"], f"not found in {reported['schedules']} schedules, {reported['seconds']} s"
    if name == "defect 1 again":
        assert reported["seconds"] < 60


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", [name for name in MUTANTS if MUTANTS[name].is_rare])
@pytest.mark.proves("G34")
def test_every_rare_race_is_found(name: str) -> None:
    """As the others, with more schedules."""
    (reported,) = map(json.loads, ran("--mutant", name, "--schedules", "2000", "--json").stdout.splitlines())
    assert reported["failed"], f"not found in {reported['schedules']} schedules, {reported['seconds']} s"


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("plain", "foreign"), [(8, 2), pytest.param(25, 4, marks=pytest.mark.long)])
def test_a_schedule_takes_the_same_course_over_the_real_libraries(plain: int, foreign: int) -> None:
    """The store in memory is as good as delta-rs, Parquet and our own log files, point by point."""
    done = ran("--compare", "--schedules", str(plain), "--first", "500")
    assert (done.stdout.strip(), done.returncode) == ("", 0), done.stderr
    for focus in ("foreign", "types", "shapes", "derived"):
        done = ran("--compare", "--schedules", str(foreign), "--first", "500", "--focus", focus)
        assert (done.stdout.strip(), done.returncode) == ("", 0), done.stderr


def test_what_was_split_once_is_not_taken_for_what_other_registrations_make_of_it() -> None:
    """A seed is one order whatever ran before it: two sets of schemas may have one version (law L5)."""
    first, second = (Schema(number, "protobuf", "t.M", described) for number, described in ((1, FIRST), (2, SECOND)))
    rows = next(table for each in range(WORLDS) for files in world(each).files for table in files)
    (batch,) = rows.select(READ).to_batches()
    keys = [GameKey(key) for key in rows.column("game_key").to_pylist()]
    splits = Splits()
    known = {
        splits.key(
            [batch], SplitJob(dict.fromkeys(keys, 0), SchemaSet(5, dict.fromkeys(keys, ids), held), located(Path("t")))
        )
        for ids, held in (((1,), {1: first}), ((1, 2), {1: first, 2: second}))
    }
    assert len(known) == 2


def test_what_was_split_once_is_not_taken_for_what_other_answers_of_a_registry_make_of_it() -> None:
    """A row of a foreign writer lands, is refused or waits by the writers of the set (law L13)."""
    tables = [table for each in range(WORLDS) for files in world(each, foreign=True).files for table in files]
    rows = next(table for table in tables if table.column("writer").null_count < table.num_rows)
    batches = rows.select(READ).combine_chunks().to_batches()
    keys = [GameKey(key) for key in rows.column("game_key").to_pylist()]
    splits, held = Splits(), Schema(1, "protobuf", "t.M", FIRST)
    known = {
        splits.key(
            batches,
            SplitJob(
                dict.fromkeys(keys, 0),
                SchemaSet(5, dict.fromkeys(keys, (1,)), {1: held}, writers=writers, profiles=profiles),
                located(Path("t")),
            ),
        )
        for profiles in ({}, {5: PROFILE})
        for writers in ({}, {(REGISTRY, KNOWN): Writer(1)}, {(REGISTRY, KNOWN): Writer(refused="it has none")})
    }
    assert len(known) == 6


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_failing_schedule_is_the_same_again_and_gets_shorter() -> None:
    """A seed is one order, in whichever process; the shortest that fails alike is what a person reads."""
    name = "reach off by one"
    seed = str(planted()[name]["failed"][0][0])
    whole, again = (ran("--again", seed, "--mutant", name, "--whole").stdout for _ in range(2))
    assert whole == again
    shorter = ran("--again", seed, "--mutant", name).stdout
    assert "PROBLEM" in shorter
    assert _switches(shorter) < _switches(whole) * 2 / 3


def _switches(reported: str) -> int:
    return int(reported.splitlines()[1].split()[0])
