"""Quarantine and its replay, on a small environment without Spark."""

import base64
import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from click.testing import CliRunner
from deltalake import DeltaTable
from deltalake.writer import write_deltalake

from pipeline.base.errors import Refused
from pipeline.base.failpoints import ENVIRON, Injected
from pipeline.cli.main import cli
from pipeline.data.repair import removal, stale_quarantine
from pipeline.data.repair import replay as replays
from pipeline.data.repair.quarantined import Selection, opened
from pipeline.data.repair.replay import Replayed, replay_all
from pipeline.lake.delta.table import TableConflict
from tests import repairing
from tests.tables.repair_world import (
    CHESS,
    GO,
    SECOND,
    World,
    arming,
    broken,
    copied,
    early,
    good,
    make_world,
)
from tests.tables.replay_laws import is_clean, require_any_order_adds_up, run, shown


@pytest.fixture(scope="module")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Chess has two rows of an unregistered schema, and one that is broken for ever."""
    made = make_world(tmp_path_factory.mktemp("replay"))
    made.ingest(good(1), early(2), broken(), good(3))
    made.ingest(early(4), good(5))
    made.split(through=1)
    made.split()
    assert is_clean(made.verify(), landed=3, quarantined=3)
    return made


@pytest.fixture
def world(made_once: World, tmp_path: Path) -> World:
    return copied(made_once, tmp_path)


@pytest.fixture
def arm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Arms an exception at the replay's n-th fail-point."""
    return arming(tmp_path / "failpoints", monkeypatch, "in_replay")


def test_what_decodes_today_lands_once_and_leaves_quarantine(world: World) -> None:
    """A8, A29 and law L5: a replayed row is in the table once, with its values, and no longer in quarantine."""
    assert run(world)[CHESS.key] == Replayed(refused={"unknown_schema": 2, "malformed_payload": 1})
    assert world.register(message=SECOND) == 2
    assert run(world)[CHESS.key] == Replayed(landed=2, refused={"malformed_payload": 1}, removed=2)
    assert is_clean(world.verify(), landed=5, quarantined=1, stale_twins=0)
    assert [(row["_seq"], row["points"], row["player"]) for row in world.contents()] == [
        (1, 1, None), (1, 2, "player 2"), (1, 3, None), (2, 4, "player 4"), (2, 5, None),
    ]  # fmt: skip
    assert world.refused() == [(1, 2)]
    assert run(world)[CHESS.key] == Replayed(refused={"malformed_payload": 1})
    world.ingest(good(6), early(7))
    world.split()
    assert is_clean(world.verify(), landed=7, quarantined=1)


def test_a_schema_that_is_registered_during_a_replay_of_many_counts_for_those_still_to_come(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law L15: a replay of all may take hours; each game is decoded with the schemas that hold at its turn."""
    world.register(message=SECOND)
    world.register(GO)
    world.ingest(good(6, GO), early(7, GO))
    world.split(GO)

    def meanwhile(_point: str) -> None:
        world.register(GO, SECOND)

    monkeypatch.setattr(replays, "hit", meanwhile)
    assert CHESS.key < GO.key, "in this order they are replayed"
    done = run(world)
    assert (done[CHESS.key].landed, done[GO.key].landed) == (2, 1)


def test_the_selection_chooses_by_game_reason_and_time(world: World) -> None:
    """Only what was chosen is replayed; the rest stays as it is."""
    world.register(message=SECOND)
    assert run(world, Selection(reason="malformed_payload"))[CHESS.key].landed == 0
    assert run(world, Selection(game=GO)) == {}
    with opened(world.paths, world.known(), Selection()) as found:
        first = found.rows(1, 0)[0].first_seen
    assert run(world, Selection(since=first))[CHESS.key].landed == 1
    assert run(world, Selection(until=first))[CHESS.key].landed == 1


@pytest.mark.parametrize(
    "hits", [(1, 3), (2, 3), *(pytest.param(each, marks=pytest.mark.long) for each in ((1,), (2,), (1, 2)))]
)
@pytest.mark.proves("A29", "G151")
def test_a_replay_killed_half_way_twice_publishes_each_row_once(
    world: World, arm: Callable[[int], None], hits: tuple[int, ...]
) -> None:
    """A29: before the commit, or between commit and removal; quarantine never shows a row that has landed."""
    world.register(message=SECOND)
    for number in hits:
        arm(number)
        try:
            run(world)
        except Injected:
            assert is_clean(world.verify(), bronze_rows=6)
        landed = set(world.rows())
        assert not landed & set(shown(world))
        assert len(landed) + len(shown(world)) == 6
    arm(0)
    run(world)
    assert is_clean(world.verify(), landed=5, quarantined=1, stale_twins=0)
    assert len(world.rows()) == len(set(world.rows())) == 5


@pytest.mark.parametrize("number", [1, pytest.param(2, marks=pytest.mark.long)])
@pytest.mark.proves("G151")
def test_a_replay_that_is_killed_for_real_goes_on_where_it_was(world: World, tmp_path: Path, number: int) -> None:
    """A29 with SIGKILL of its process, before its commit and after."""
    world.register(message=SECOND)
    folder = tmp_path / "kill"
    folder.mkdir()
    (folder / "armed").write_text(f"in_replay crash {number}\n")
    command = repairing.command(world.paths.root, "replay")
    environ = {**os.environ, ENVIRON: str(folder)}
    died = subprocess.run(command, env=environ, capture_output=True, start_new_session=True, timeout=120)
    assert died.returncode == -signal.SIGKILL, died.stderr
    assert is_clean(world.verify(), landed=3 if number == 1 else 5)
    again = subprocess.run(command, env=environ, capture_output=True, text=True, start_new_session=True, timeout=120)
    assert again.returncode == 0, again.stderr
    assert is_clean(world.verify(), landed=5, quarantined=1, stale_twins=0)
    assert world.refused() == [(1, 2)]


@pytest.mark.parametrize("point", ["decode", "hit"])
@pytest.mark.proves("G151")
def test_two_replays_at_the_same_moment_publish_each_row_once(
    world: World, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    """Law L4 for repairs: the second finds the first's counter and looks again at what is there."""
    world.register(message=SECOND)
    others: list[dict[str, Replayed]] = []

    real = getattr(replays, point)

    def meanwhile(*arguments: Any) -> Any:
        monkeypatch.undo()
        others.append(run(world))
        return real(*arguments)

    monkeypatch.setattr(replays, point, meanwhile)
    done = run(world)[CHESS.key]
    assert [each[CHESS.key].landed for each in others] == [2]
    assert (done.landed, done.present) == (0, 2)
    assert is_clean(world.verify(), landed=5, duplicated=0)


def test_rows_above_the_cursor_wait_for_their_stream(world: World) -> None:
    """Law L5: what the stream has not decided is not a replay's to decide, or the stream would land it again."""
    world.register(message=SECOND)
    world.ingest(early(8))
    rows = DeltaTable(world.paths.bronze).to_pyarrow_table().filter(pc.field("seq") == 3).to_pylist()
    world.quarantine([{**row, "reason": "unknown_schema"} for row in rows])  # a pass died before its commit
    assert run(world)[CHESS.key].waiting == 1
    assert is_clean(world.verify(), landed=5, early=0)
    world.split()
    assert is_clean(world.verify(), landed=6)


def test_rows_that_bronze_does_not_have_are_not_published(world: World) -> None:
    """Law L1: bronze is the truth; a row of quarantine that it lacks is told of, and stays."""
    world.register(message=SECOND)
    world.quarantine([{"game_key": CHESS.key, "game": "Chess", "seq": 1, "pos": 77, "raw": early(9).raw}])
    assert run(world)[CHESS.key].not_in_bronze == 1
    assert len(world.rows()) == 5
    assert world.verify().totals.phantom == 1


@pytest.mark.parametrize("later", [True, False])
@pytest.mark.proves("G152")
def test_rows_from_before_a_game_was_known_are_replayed(tmp_path: Path, later: bool) -> None:
    """They stand under no game's key; they land in the table of the game they name, and verify sees them there."""
    world = make_world(tmp_path)
    world.ingest(good(1, GO), good(2), broken(GO))
    world.split()
    assert run(world) == {}
    world.register(GO)
    if later:
        world.ingest(good(3, GO))
        world.split(GO)
    assert is_clean(world.verify(), quarantined=2)
    assert run(world)[GO.key] == Replayed(landed=1, refused={"malformed_payload": 1}, removed=1)
    assert world.rows(GO)[0] == (1, 0)
    assert is_clean(world.verify(), quarantined=1, landed=2 + later, stale_twins=0)
    counts = {game.game_key: game.counts for game in world.verify().games}
    assert (counts[GO.key].bronze_rows, counts[GO.key].landed) == (1 + later, 1 + later)
    world.ingest(good(4, GO))
    world.split(GO)
    assert is_clean(world.verify(), landed=3 + later, quarantined=1, pending=0)


def test_a_row_that_landed_in_another_game_is_still_misrouted(tmp_path: Path) -> None:
    """Verify counts a row from before its game was known as landed only with the game it names."""
    world = make_world(tmp_path)
    world.ingest(good(1, GO), good(2))
    world.split()
    assert world.refused() == [(1, 0)]
    chess = DeltaTable(world.paths.table(CHESS.key))
    rows = chess.to_pyarrow_table()
    stray = rows.set_column(1, "_pos", pa.array([0], pa.int32()))
    write_deltalake(chess, stray, mode="append")
    assert world.verify().totals.misrouted == 1


def test_a_dry_run_tells_all_and_changes_nothing(world: World) -> None:
    """Its numbers are those of the replay that follows, and no table and no file is touched."""
    world.register(message=SECOND)
    before = sorted((str(path), path.stat().st_mtime_ns) for path in world.paths.root.rglob("*.parquet"))
    reported = run(world, dry_run=True)[CHESS.key]
    assert before == sorted((str(path), path.stat().st_mtime_ns) for path in world.paths.root.rglob("*.parquet"))
    assert DeltaTable(world.paths.quarantine).version() == 2
    assert reported == Replayed(landed=2, refused={"malformed_payload": 1})
    assert run(world)[CHESS.key] == Replayed(landed=2, refused={"malformed_payload": 1}, removed=2)


def test_twins_are_removed_beside_live_appends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that a pass puts into quarantine meanwhile are all kept, and those of other games are not touched."""
    world = make_world(tmp_path)
    world.register(GO)
    world.ingest(good(1), early(2), broken(), good(3))
    world.ingest(early(4), good(5))
    world.split(through=1)
    world.split()
    world.ingest(broken(GO), early(9))
    world.split(GO)
    world.split()
    world.register(message=SECOND)
    real = removal._commit
    calls: list[int] = []

    def beside(*arguments: Any) -> None:
        if len(calls) < 3:
            world.ingest(broken(), broken(GO))
            world.split()
            world.split(GO)
        calls.append(1)
        real(*arguments)

    monkeypatch.setattr(removal, "_commit", beside)
    assert run(world)[CHESS.key].removed == 3
    assert len(calls) == 4
    assert is_clean(world.verify(), landed=6, quarantined=8, stale_twins=0)
    assert len(world.refused()) == 8


def test_a_removal_whose_files_were_merged_meanwhile_begins_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A compaction of quarantine between the look and the commit neither brings rows back nor doubles them."""
    world.register(message=SECOND)
    real = removal._commit

    def beside(*arguments: Any) -> None:
        monkeypatch.undo()
        DeltaTable(world.paths.quarantine).optimize.compact()
        real(*arguments)

    monkeypatch.setattr(removal, "_commit", beside)
    assert run(world)[CHESS.key].removed == 2
    assert is_clean(world.verify(), landed=5, quarantined=1, stale_twins=0, quarantine_copies=0)


def test_a_removal_that_others_overtake_again_and_again_gives_up(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A twin does no harm, so nobody waits for its removal for ever; the replay says what is left."""
    world.register(message=SECOND)

    def never(*_: Any) -> None:
        raise TableConflict("overtaken")

    monkeypatch.setattr(stale_quarantine, "_delete", never)
    (done,) = replay_all(
        world.paths, world.environment, world.registry.snapshot, world.known(), Selection(), dry_run=False
    )
    assert "still in quarantine" in (done.error or "")
    assert is_clean(world.verify(), landed=5, quarantined=1, stale_twins=2)
    assert shown(world) == [(1, 2)]


def test_listing_counts_each_place_once_and_escapes_names(tmp_path: Path) -> None:
    """Names are hostile data: no control character reaches the terminal, as text or as JSON."""
    world = make_world(tmp_path)
    world.register(GO)
    world.ingest(broken(GO), broken(GO), early(1, GO), good(2))
    world.split(GO)
    world.split()
    world.append_quarantine(DeltaTable(world.paths.quarantine).to_pyarrow_table())  # every row once more
    for command in (["list"], ["list", "--json"], ["show"], ["show", "--json", "--bytes", "0"]):
        done = CliRunner().invoke(cli, ["quarantine", *command, "--env-dir", str(world.paths.root)])
        assert done.exit_code == 0, done.output
        assert all(letter.isprintable() or letter == "\n" for letter in done.output), command
        assert "\\x1b[2J\\u202e" in done.output or "\\u001b[2J\\u202e" in done.output
    counted = CliRunner().invoke(cli, ["quarantine", "list", "--json", "--env-dir", str(world.paths.root)])
    reported = json.loads(counted.output)
    assert reported["rows"] == 3
    assert [(each["reason"], each["rows"], each["schema_ids"]) for each in reported["counts"]] == [
        ("malformed_payload", 2, [1]), ("unknown_schema", 1, [2]),
    ]  # fmt: skip
    assert reported["counts"][0]["first_seen"] <= reported["counts"][0]["last_seen"]


def test_show_gives_position_reason_and_bytes_within_bounds(world: World) -> None:
    """A person sees where a row stood in the source and how it begins; never more rows or bytes than asked for."""
    arguments = ["--rows", "1", "--bytes", "8", "--env-dir", str(world.paths.root)]
    text = CliRunner().invoke(cli, ["quarantine", "show", *arguments]).output
    raw = early(4).raw
    assert f"{len(raw)} bytes: {raw[:8].hex(' ')} … {len(raw) - 8} more" in text
    assert "unknown_schema: schema 2 is not registered for this game" in text
    assert "topic\\x07/0/2000" in text
    assert text.endswith("1 of 3 row(s) in quarantine\n")
    (row,) = json.loads(CliRunner().invoke(cli, ["quarantine", "show", "--json", *arguments]).output)["shown"]
    assert (row["seq"], row["pos"], row["size"]) == (2, 0, len(raw))
    assert base64.b64decode(row["raw"]) == raw[:8]


@pytest.mark.parametrize(
    "arguments",
    [
        ["quarantine", "list", "--game", "nobody"],
        ["quarantine", "show", "--since", "yesterday"],
        ["repair", "replay", "--quarantine-reason", "boredom"],
    ],
)
def test_a_selection_that_makes_no_sense_is_refused(world: World, arguments: list[str]) -> None:
    """A misspelt game, time or reason is no empty answer."""
    done = CliRunner().invoke(cli, [*arguments, "--env-dir", str(world.paths.root)])
    assert done.exit_code != 0
    assert isinstance(done.exception, Refused) or "is not a time" in done.output


def test_rows_that_kill_a_worker_are_replayed_only_when_asked_for(world: World) -> None:
    """They would kill the process of the replay, too."""
    world.register(message=SECOND)
    row = DeltaTable(world.paths.bronze).to_pyarrow_table().filter(FIRST_EARLY).to_pylist()[0]
    world.quarantine([{**row, "reason": "kills_worker"}])  # the newest reason of a place counts
    assert shown(world, Selection(reason="kills_worker")) == [(1, 1)]
    assert run(world)[CHESS.key].landed == 1
    assert shown(world, Selection(reason="kills_worker")) == [(1, 1)]
    assert run(world, Selection(reason="kills_worker"))[CHESS.key].landed == 1
    assert is_clean(world.verify(), landed=5, quarantined=1, stale_twins=0)


FIRST_EARLY = (pc.field("seq") == 1) & (pc.field("pos") == 1)


@pytest.mark.proves("G151")
def test_any_order_of_passes_and_repairs_adds_up(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Law L5 after every step: each row at or below the cursor is in the table or in quarantine, once."""
    require_any_order_adds_up(tmp_path_factory, orders=2)
