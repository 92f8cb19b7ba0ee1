"""Second copies of rows are removed, exactly those: one copy of each row stays, and nobody beside it is disturbed."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from click.testing import CliRunner
from deltalake import DeltaTable
from sqlalchemy import update

from app.state.previews import Preview, preview_repair
from app.state.services import Environment
from pipeline.base import names
from pipeline.base.errors import Refused, Transient
from pipeline.base.failpoints import Injected
from pipeline.cli.main import cli
from pipeline.control import repair_proposals
from pipeline.control.controller import KINDS
from pipeline.control.operations.definition import ControlContext as Control
from pipeline.control.operations.executor import tick
from pipeline.data.repair import dedupe as module
from pipeline.data.repair import removal
from pipeline.data.repair.rebuild import rebuild
from pipeline.data.verify.report import as_dict, render_balance
from pipeline.lake.delta.table import TableConflict
from pipeline.settings.tree import Paths, Settings
from pipeline.store.database.engine import open_store
from pipeline.store.database.tables import games
from pipeline.store.operations import list_operations, operation, submit
from tests.tables.dedupe_laws import commit, compacted, require_the_original, run
from tests.tables.repair_world import (
    CHESS,
    GO,
    SECOND,
    Event,
    Message,
    World,
    arming,
    copied,
    early,
    good,
    make_world,
)
from tests.tables.value_world import _rewrite
from tests.unit.app.app_world import sign_in


@pytest.fixture(scope="module")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Chess and Go with rows of five seqs, all of them in bronze and none in a table yet."""
    made = make_world(tmp_path_factory.mktemp("dedupe"))
    made.register(GO)
    for number in range(5):
        made.ingest(good(10 * number + 1), good(number + 1, GO), good(10 * number + 2))
    return made


@pytest.fixture
def world(made_once: World, tmp_path: Path) -> World:
    return copied(made_once, tmp_path)


def doubled(world: World) -> list[dict[str, Any]]:
    """Double Chess's rows of the first two seqs; return what its table should hold in the end."""
    commit(world, (0, 2))
    commit(world, (0, 5))
    every = world.contents()
    places = [(row["_seq"], row["_pos"]) for row in every]
    assert len(places) == 14
    return [row for at, row in enumerate(every) if places.index(places[at]) == at]


@pytest.mark.parametrize("merge", [False, True], ids=["across files", "within one file"])
@pytest.mark.proves("G153")
def test_exactly_the_second_copies_go(world: World, merge: bool) -> None:
    """A doubled table is as if nothing had been doubled: by one commit, and neither cursor nor other tables move."""
    world.split(GO)
    wanted = doubled(world)
    if merge:
        compacted(world)
    folder = world.paths.table(CHESS.key)
    before = DeltaTable(folder)
    neighbour = DeltaTable(world.paths.table(GO.key)).version()
    done = run(world)
    assert (done.places, done.removed, done.differing) == (4, 4, 0)
    after = DeltaTable(folder)
    assert (world.contents(), after.version()) == (wanted, before.version() + 1)
    app = names.stream_app_id(world.environment, CHESS.key, 1)
    assert after.transaction_version(app) == before.transaction_version(app) == 5
    assert after.transaction_version(names.repair_app_id(world.environment, CHESS.key)) == 1
    assert DeltaTable(world.paths.table(GO.key)).version() == neighbour
    assert world.verify().complete
    assert run(world).removed == 0
    assert DeltaTable(folder).version() == after.version()


def test_a_file_of_second_copies_alone_is_left_out_not_rewritten(world: World) -> None:
    """Where a file has nothing but second copies, no other file is touched."""
    commit(world, (0, 5))
    commit(world, (2, 4))
    files = set(DeltaTable(world.paths.table(CHESS.key)).file_uris())
    done = run(world)
    assert (done.removed, done.files) == (4, 1)
    assert set(DeltaTable(world.paths.table(CHESS.key)).file_uris()) < files


def test_a_dry_run_changes_nothing(world: World) -> None:
    """Its numbers are those of the removal that follows."""
    doubled(world)
    before = DeltaTable(world.paths.table(CHESS.key)).version()
    reported = run(world, dry_run=True)
    assert DeltaTable(world.paths.table(CHESS.key)).version() == before
    assert (reported.removed, reported.files) == (run(world).removed, reported.files)


@pytest.mark.proves("G153")
def test_a_deduped_table_is_the_original_one(tmp_path_factory: pytest.TempPathFactory) -> None:
    """However often and across which files rows were doubled, what stays is the table without any doubling."""
    require_the_original(tmp_path_factory, doublings=3)


def test_copies_of_another_schema_set_are_one_row(world: World) -> None:
    """A copy from before the table had a column, and one from after, are the same row."""
    commit(world, (0, 2))
    world.register(message=SECOND)
    world.ingest(early(7))
    commit(world, (0, 6))
    done = run(world)
    assert (done.places, done.removed, done.differing) == (4, 4, 0)
    assert world.verify().ok


def _spoil(world: World, place: tuple[int, int], copies: int) -> None:
    """Change a value of the first copies of a row, of each to another one."""
    left = [copies]

    def change(table: Any) -> Any:
        rows = table.to_pylist()
        for row in rows:
            if (row["_seq"], row["_pos"]) == place and left[0]:
                row["points"], left[0] = 98 + left[0], left[0] - 1
        return type(table).from_pylist(rows, schema=table.schema)

    while left[0]:
        _rewrite(Path(world.paths.table(CHESS.key)), ("_seq", "_pos"), place, change)


def test_of_copies_that_differ_the_one_that_bronze_gives_stays(world: World) -> None:
    """An independent decoder decides between copies with different values, and it is told how many there were."""
    wanted = doubled(world)
    compacted(world)
    _spoil(world, (1, 0), copies=1)
    done = run(world)
    assert (done.removed, done.differing) == (4, 1)
    assert world.contents() == wanted


def test_where_no_copy_is_right_nothing_is_done(world: World) -> None:
    """Of two wrong copies neither counts as right: dedupe asks for a rebuild, and the table stays unchanged."""
    doubled(world)
    compacted(world)
    _spoil(world, (1, 0), copies=2)
    before = DeltaTable(world.paths.table(CHESS.key)).version()
    with pytest.raises(Refused, match=r"differ, and none matches bronze, the first at seq 1, pos 0.*rebuild"):
        run(world)
    assert DeltaTable(world.paths.table(CHESS.key)).version() == before


def _beside(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Let something happen between the look and the commit, once."""
    real = removal._commit

    def first(*arguments: Any) -> None:
        monkeypatch.setattr(removal, "_commit", real)
        act()
        real(*arguments)

    monkeypatch.setattr(removal, "_commit", first)


@pytest.mark.proves("G153")
def test_a_pass_beside_it_is_not_disturbed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that a pass lands meanwhile stay, and the driver's open table goes on over the removal."""
    wanted = doubled(world)
    world.stream(CHESS)

    def land() -> None:
        world.ingest(good(500))
        world.split()

    _beside(monkeypatch, land)
    assert run(world).removed == 4
    world.ingest(good(600))
    world.split()
    assert [row["points"] for row in world.contents()] == [*(row["points"] for row in wanted), 500, 600]
    assert world.verify().ok


@pytest.mark.proves("G153")
def test_a_compaction_beside_it_makes_it_begin_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that were merged meanwhile are not merged back, and no copy comes back with them."""
    wanted = doubled(world)
    _beside(monkeypatch, lambda: compacted(world))
    assert run(world).removed == 4
    assert world.contents() == wanted


def test_a_compaction_that_is_later_is_given_up(world: World) -> None:
    """Files that the removal has replaced are not put back by a merge that began before."""
    from pipeline.data.maintenance.rewrite import columns_of, packed
    from pipeline.lake.delta.rewrite import RewriteConflict, replace_files, table_files

    wanted, folder = doubled(world), world.paths.table(CHESS.key)
    table = DeltaTable(folder)
    old = table_files(table)
    new = packed(folder, columns_of(table), old, ["_seq", "_pos"], ["_seq"])
    run(world)
    with pytest.raises(RewriteConflict):
        replace_files(folder, old, new, "OPTIMIZE")
    assert world.contents() == wanted


def test_copies_of_a_schema_that_is_registered_meanwhile_are_decided(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law L15: an attempt decides with schemas read after its look at the table, so it knows those of all copies."""
    doubled(world)

    def meanwhile() -> None:
        world.register(message=SECOND)
        world.ingest(early(7))
        for _ in range(2):
            commit(world, (5, 6))
        compacted(world)
        _spoil(world, (6, 0), copies=1)

    _beside(monkeypatch, meanwhile)
    done = run(world)
    assert (done.removed, done.differing) == (5, 1)
    assert [row["points"] for row in world.contents() if row["_seq"] == 6] == [7]


def test_a_rebuild_beside_it_wins(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table that was made anew meanwhile is looked at again; nothing of the old one is removed from it."""
    wanted = doubled(world)
    schemas = world.registry.snapshot
    _beside(monkeypatch, lambda: rebuild(world.paths, world.environment, world.engine, schemas, CHESS))
    assert run(world).removed == 0
    assert world.contents() == wanted


def test_a_repair_that_began_before_it_begins_again(world: World) -> None:
    """The removal moves the table's repair counter, so a rebuild that looked before cannot switch unseen."""
    doubled(world)
    app = names.repair_app_id(world.environment, CHESS.key)
    before = DeltaTable(world.paths.table(CHESS.key)).transaction_version(app)
    run(world)
    assert DeltaTable(world.paths.table(CHESS.key)).transaction_version(app) == (before or 0) + 1


def test_one_that_is_overtaken_again_and_again_gives_up(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for ever, and it says what to do."""
    doubled(world)
    monkeypatch.setattr(module, "ATTEMPTS", 2)
    _never(monkeypatch)
    with pytest.raises(Transient, match="run dedupe again"):
        run(world)


def _never(monkeypatch: pytest.MonkeyPatch) -> None:
    def overtaken(*_: Any) -> None:
        raise TableConflict("overtaken")

    monkeypatch.setattr(removal, "publish", overtaken)


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.proves("G153")
def test_killed_around_its_commit_it_is_done_once(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Whether it dies before or after its commit, the table is whole, and doing it again leaves one copy of each."""
    wanted = doubled(world)
    arming(tmp_path / "points", monkeypatch, "in_dedupe")(number)
    with pytest.raises(Injected):
        run(world)
    assert world.verify().totals.duplicated == (4 if number == 1 else 0)
    run(world)
    assert world.contents() == wanted
    assert world.verify().ok


@pytest.mark.parametrize("field", ["filename", "File_Row_Number", "file", "row", "seq", "pos", "every", "copies"])
@pytest.mark.proves("B29")
def test_a_field_may_be_called_like_anything_the_search_uses(tmp_path: Path, field: str) -> None:
    """The search for copies has no names that a payload's field could have."""
    message = Message({field: (1, "int64")})
    paths, chosen = Paths(tmp_path), Settings()
    made = World(paths, chosen, open_store(chosen, paths))
    made.register(message=message)
    for number in range(4):
        made.ingest(Event(CHESS, 1, message.payload(**{field: number + 1})))
    commit(made, (0, 2))
    commit(made, (0, 4))
    assert run(made).removed == 2
    assert [row[field] for row in made.contents()] == [1, 2, 3, 4]


def test_a_table_whose_log_is_damaged_is_one_sentence(world: World) -> None:
    """The command, the page and the operation say what is wrong; none of them dies of it."""
    doubled(world)
    env = ["--env-dir", str(world.paths.root)]
    submitted = CliRunner().invoke(
        cli, ["repair", "dedupe", "Chess", "--reason", "doubled", "--no-wait", "--json", *env]
    )
    newest = max(Path(world.paths.table(CHESS.key) / "_delta_log").glob("*.json"))
    newest.write_bytes(newest.read_bytes()[:30])
    again = CliRunner().invoke(cli, ["repair", "dedupe", "Chess", "--reason", "doubled", "--json", *env])
    assert isinstance(again.exception, Refused)
    title, reason = str(again.exception).splitlines()
    assert (title, again.stdout) == ("Nothing to dedupe.", "")
    assert reason.startswith(f"{CHESS.key}: The table of {CHESS.key} cannot be opened: ")
    with pytest.raises(Refused, match=r"cannot be opened: .*\. Repair its Delta log"):
        run(world)
    tick(Control(world.settings, world.engine, world.paths), KINDS)
    done = operation(world.engine, json.loads(submitted.stdout)["operation_id"])
    assert (done.state, f"Nothing was done: {CHESS.key}: The table of" in str(done.outcome)) == ("failed", True)


@pytest.mark.parametrize(
    "damage", [lambda raw: raw[:4] + b"\xff" * 60 + raw[64:], lambda raw: raw[:100], lambda _: b""]
)
def test_a_damaged_file_is_one_sentence(world: World, damage: Callable[[bytes], bytes]) -> None:
    """Wherever a file is damaged, nothing is removed and a rebuild is what helps."""
    doubled(world)
    folder = world.paths.table(CHESS.key)
    file = folder / unquote(removal_paths(Path(folder))[0])
    Path(file).write_bytes(damage(Path(file).read_bytes()))
    before = DeltaTable(folder).version()
    with pytest.raises(Refused, match=r"cannot be read or rewritten: .*turnout repair rebuild"):
        run(world)
    assert DeltaTable(folder).version() == before


def removal_paths(folder: Path) -> list[str]:
    return sorted(removal.file_sizes(DeltaTable(folder)))


def test_a_game_without_a_table_is_refused(world: World) -> None:
    """There is one sentence, and nothing is made."""
    with pytest.raises(Refused, match="no table yet"):
        run(world)


def test_verify_names_the_doubled_rows_and_what_removes_them(world: World) -> None:
    """The report names games, places and the command."""
    doubled(world)
    balance = world.verify()
    assert balance.totals.duplicated == 4
    assert f"turnout repair dedupe {CHESS.key}" in render_balance(balance)
    assert as_dict(balance)["duplicated_games"] == [CHESS.key]
    assert {(each.seq, each.pos) for each in balance.problems if each.kind == "duplicated"} == {
        (1, 0), (1, 2), (2, 0), (2, 2),
    }  # fmt: skip


def test_it_is_an_operation(world: World) -> None:
    """The command shows what it finds and submits; the controller removes, looks again, and says so."""
    wanted = doubled(world)
    env = ["--env-dir", str(world.paths.root)]
    dry = CliRunner().invoke(cli, ["repair", "dedupe", "Chess", "--dry-run", *env])
    assert (dry.exit_code, "4 second copies to remove from 1 table(s)" in dry.output) == (0, True)
    assert list_operations(world.engine) == []
    submitted = CliRunner().invoke(cli, ["repair", "dedupe", "Chess", "--reason", "old", "--no-wait", "--json", *env])
    reported = json.loads(submitted.stdout)
    assert (reported["kind"], reported["reason"], reported["targets"]) == ("dedupe", "old", [f"game:{CHESS.key}"])
    control = Control(world.settings, world.engine, world.paths)
    for _ in range(8):
        tick(control, KINDS)
        for begun in list(control.background_tasks._begun.values()):
            begun.exception()
    done = operation(world.engine, reported["operation_id"])
    assert done.state == "succeeded", done.outcome
    assert f"{CHESS.key}: 4 row(s) with more than one copy, 4 second copies in" in str(done.outcome)
    assert str(done.outcome).endswith("No row has a second copy now.")
    assert world.contents() == wanted
    again = CliRunner().invoke(cli, ["repair", "dedupe", "Chess", "--reason", "doubled", *env])
    assert (again.exit_code, "0 second copies to remove" in again.output) == (0, True)
    assert len(list_operations(world.engine)) == 1


def test_a_table_that_was_repaired_meanwhile_is_looked_at_again_first(world: World) -> None:
    """Dedupe does not apply to a table that another repair has changed since it was shown."""
    doubled(world)
    env = ["--env-dir", str(world.paths.root)]
    submitted = CliRunner().invoke(
        cli, ["repair", "dedupe", "Chess", "--reason", "doubled", "--no-wait", "--json", *env]
    )
    run(world)
    tick(Control(world.settings, world.engine, world.paths), KINDS)
    done = operation(world.engine, json.loads(submitted.stdout)["operation_id"])
    assert (done.state, "it has changed since you looked" in str(done.outcome)) == ("failed", True)


def test_more_second_copies_than_were_shown_are_not_removed(world: World) -> None:
    """A confirmation covers a number of rows: with another number the table stays, and needs another review."""
    doubled(world)
    env = ["--env-dir", str(world.paths.root)]
    submitted = CliRunner().invoke(
        cli, ["repair", "dedupe", "Chess", "--reason", "doubled", "--no-wait", "--json", *env]
    )
    commit(world, (0, 5))
    before = world.rows()
    more = len(before) - len(set(before))
    assert more > 4
    done = _finish(world, json.loads(submitted.stdout)["operation_id"])
    assert (done.state, world.rows()) == ("failed", before)
    assert f"you confirmed 4 second copies, the table now has {more}. Nothing was removed" in str(done.outcome)
    again = CliRunner().invoke(cli, ["repair", "dedupe", "Chess", "--reason", "doubled", "--no-wait", "--json", *env])
    done = _finish(world, json.loads(again.stdout)["operation_id"])
    assert (done.state, world.rows()) == ("succeeded", sorted(set(before)))


def test_a_page_counts_what_the_command_counts(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under Repairs the number of second copies is shown, and no other number is removed: as by the command."""
    doubled(world)
    preview = previewed(world, monkeypatch)
    assert "4 second copies to remove from 1 table(s)" in " ".join(preview.lines)
    env = ["--env-dir", str(world.paths.root)]
    dry = json.loads(CliRunner().invoke(cli, ["repair", "dedupe", "Chess", "--dry-run", "--json", *env]).stdout)
    intent = preview.intent
    assert (dry["kind"], dry["targets"], dry["preview"]) == (intent.kind, list(intent.targets), intent.preview)
    assert intent.parameters == {"games": [CHESS.key], "shown": {CHESS.key: 4}}
    run(world)
    with pytest.raises(Refused, match=r"Nothing to dedupe.\n(.*\n)*0 second copies to remove"):
        previewed(world, monkeypatch)


@pytest.mark.parametrize("limit", ["MAX_BYTES", "MAX_COUNTED"])
def test_a_page_does_not_read_large_tables_and_says_so(
    world: World, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    """A page must not hang: what it cannot count is not agreed to as a number, and the command counts it."""
    doubled(world)
    monkeypatch.setattr(repair_proposals, limit, 0)
    preview = previewed(world, monkeypatch)
    assert f"{CHESS.key}: not counted, since a page reads only few and small tables" in " ".join(preview.lines)
    assert "shown" not in preview.intent.parameters
    assert preview.intent.targets == (f"game:{CHESS.key}",)
    env = ["--env-dir", str(world.paths.root)]
    assert "4 second copies" in CliRunner().invoke(cli, ["repair", "dedupe", "Chess", "--dry-run", *env]).output
    submitted = submit(world.engine, preview.intent)
    assert _finish(world, submitted.operation_id).state == "succeeded"
    assert world.verify().ok


def previewed(world: World, monkeypatch: pytest.MonkeyPatch) -> Preview:
    """Return what the page Repairs shows of a dedupe of Chess."""
    sign_in(monkeypatch, "ann")
    environment = Environment(world.settings, world.paths, str(world.paths.control_db))
    return preview_repair(environment, "dedupe", [CHESS.key])


def _finish(world: World, operation_id: str) -> Any:
    """Let a new controller do the operation; return how it ended."""
    control = Control(world.settings, world.engine, world.paths)
    for _ in range(8):
        tick(control, KINDS)
        for begun in list(control.background_tasks._begun.values()):
            begun.exception()
    return operation(world.engine, operation_id)


def test_a_game_that_cannot_be_decided_keeps_no_other_from_its_dedupe(world: World) -> None:
    """The command leaves out the game of which no copy is right, says so with exit code 1, and submits the other."""
    doubled(world)
    compacted(world)
    _spoil(world, (1, 0), copies=2)
    commit(world, (0, 5), GO)
    commit(world, (2, 5), GO)
    env = ["--env-dir", str(world.paths.root)]
    both = ["repair", "dedupe", "Chess", GO.key, "--reason", "doubled"]
    dry = CliRunner().invoke(cli, [*both, "--dry-run", *env])
    assert (dry.exit_code, f"left out: {CHESS.key}: the copies of 1 row(s) differ" in dry.output) == (1, True)
    submitted = CliRunner().invoke(cli, [*both, "--no-wait", "--json", *env])
    reported = json.loads(submitted.stdout)
    assert (submitted.exit_code, reported["targets"]) == (1, [f"game:{GO.key}"])
    assert _finish(world, reported["operation_id"]).state == "succeeded"
    alone = CliRunner().invoke(cli, ["repair", "dedupe", "Chess", "--reason", "doubled", *env])
    assert isinstance(alone.exception, Refused)


def test_what_a_killed_try_removed_stands_in_the_outcome(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A controller that dies between the commit and the journal leaves the numbers in the table's history."""
    doubled(world)
    env = ["--env-dir", str(world.paths.root)]
    submitted = CliRunner().invoke(
        cli, ["repair", "dedupe", "Chess", "--reason", "doubled", "--no-wait", "--json", *env]
    )
    reported = json.loads(submitted.stdout)
    dying = Control(world.settings, world.engine, world.paths)
    tick(dying, KINDS)
    for begun in list(dying.background_tasks._begun.values()):
        begun.exception()
    assert world.verify().totals.duplicated == 0
    done = _finish(world, reported["operation_id"])
    assert done.state == "succeeded", done.outcome
    assert "which did not end: dedupe: 4 second copies of 4 row(s)." in str(done.outcome)
    assert "0 second copies" not in str(done.outcome)


def test_a_dedupe_that_always_dies_is_not_taken_for_a_replay(world: World) -> None:
    """Given up after three tries, it speaks of the controller's memory: it reads no row of quarantine."""
    doubled(world)
    env = ["--env-dir", str(world.paths.root)]
    submitted = CliRunner().invoke(
        cli, ["repair", "dedupe", "Chess", "--reason", "doubled", "--no-wait", "--json", *env]
    )
    reported = json.loads(submitted.stdout)
    for _ in range(3):
        tick(Control(world.settings, world.engine, world.paths), KINDS)
    done = _finish(world, reported["operation_id"])
    assert done.state == "failed"
    assert "begun 3 times and never ended: perhaps the controller had too little memory" in str(done.outcome)
    assert "quarantine" not in str(done.outcome)


def test_verify_names_only_games_that_a_dedupe_takes(world: World) -> None:
    """The command that the report ends with is not refused: retired and unknown games stand in a line of their own."""
    doubled(world)
    commit(world, (0, 5), GO)
    commit(world, (2, 5), GO)
    env = ["--env-dir", str(world.paths.root)]
    with world.engine.begin() as connection:
        connection.execute(update(games).where(games.c.game_key == GO.key).values(retired_at=1.0))
    text = CliRunner().invoke(cli, ["verify", *env]).output
    assert f"`turnout repair dedupe {CHESS.key} --reason" in text
    assert f"retired, unknown, or without a schema: {GO.key}. " in text
