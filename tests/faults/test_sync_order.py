"""The order of system calls that land and split rows, traced from outside: a file is on disk before it is named."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Final, NamedTuple

import pytest

CALLS: Final = "openat,fsync,link,rename"
_SYNC: Final = re.compile(r"fsync\(\d+<(.+)>\)")
_MADE: Final = re.compile(r"openat\(.*O_CREAT.*\) = \d+<(.+)>")
_NAMED: Final = re.compile(r'(?:link|rename)\("(.+)", "(.+)"\)')
_LOG: Final = "_delta_log"


class Call(NamedTuple):
    """A system call below the environment: sync, made or named."""

    kind: str
    place: Path


@pytest.fixture(scope="module")
def env(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("traced") / "env"


@pytest.fixture(scope="module")
def calls(env: Path) -> list[Call]:
    """Land two batches and split them, in a process that strace watches."""
    trace = env.parent / "trace"
    command = ["strace", "-f", "-y", "-e", f"trace={CALLS}", "-o", str(trace)]
    command += [sys.executable, "-m", "tests.tables.power_world", str(env)]
    subprocess.run(command, check=True, timeout=170, capture_output=True)
    found: list[Call] = []
    for line in trace.read_text("utf-8", "replace").splitlines():
        for kind, pattern in (("sync", _SYNC), ("made", _MADE), ("named", _NAMED)):
            match = pattern.search(line)
            if match and Path(match[match.lastindex or 1]).is_relative_to(env):
                found.append(Call(kind, Path(match[match.lastindex or 1]).relative_to(env)))
    return found


def _entries(calls: list[Call], table: str) -> list[tuple[int, Path]]:
    """Return when turnout named each entry of the logs of some tables."""
    return [
        (at, place)
        for at, (kind, place) in enumerate(calls)
        if kind == "named" and place.parent.name == _LOG and place.suffix == ".json" and place.parts[0] == table
    ]


@pytest.mark.parametrize("table", ["bronze", "quarantine", "tables"])
@pytest.mark.proves("G250")
def test_files_are_on_disk_before_an_entry_names_them(env: Path, calls: list[Call], table: str) -> None:
    """Laws L1, L3 and L5: a file is synced, and then its folder, before the entry is linked."""
    entries = _entries(calls, table)
    assert entries
    for at, entry in entries:
        actions = [json.loads(line) for line in (env / entry).read_text("utf-8").splitlines()]
        for path in (action["add"]["path"] for action in actions if "add" in action):
            file = entry.parent.parent / path
            synced = calls.index(Call("sync", file), calls.index(Call("made", file)))
            assert synced < calls.index(Call("sync", file.parent), synced) < at


@pytest.mark.proves("G250")
def test_ingest_has_all_files_on_disk_before_its_batch_counts_as_done(calls: list[Call]) -> None:
    """Law L1: quarantine's entry before bronze's, bronze's before Spark's commit, and Spark's plan before all."""
    done = [at for at, call in enumerate(calls) if call.kind == "named" and call.place.parent.name == "commits"]
    bronze, refused = _entries(calls, "bronze"), _entries(calls, "quarantine")
    assert len(done) == len(bronze) == 2
    for batch, (at, entry) in enumerate(bronze):
        assert calls.index(Call("sync", entry.parent), at) < done[batch]
        before = max(when for when, _ in refused if when < at)
        assert calls.index(Call("sync", Path("quarantine", _LOG)), before) < at
        plan = next(call.place for call in calls if call.place.match(f"query/offsets/{batch}"))
        first = next(i for i in range(len(calls)) if calls[i].kind == "made" and calls[i].place.suffix == ".parquet")
        assert calls.index(Call("sync", plan)) < at
        assert batch or calls.index(Call("sync", plan)) < first


@pytest.mark.proves("G250")
def test_refused_rows_are_on_disk_before_a_cursor_moves_past_them(calls: list[Call]) -> None:
    """Law L5: quarantine's entry and its folder come before the entry of a game's table in each pass."""
    refused = _entries(calls, "quarantine")
    for at, _ in _entries(calls, "tables"):
        before = max(when for when, _ in refused if when < at)
        assert calls.index(Call("sync", Path("quarantine", _LOG)), before) < at
