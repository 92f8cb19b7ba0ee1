"""The catalog's table of a game must be the game's own: external, at its place, or the writer is refused."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Final, Literal

import pytest
from click.testing import CliRunner
from deltalake import DeltaTable
from deltalake.schema import Field, PrimitiveType, Schema

from grants.applying.table_registration import register_missing
from grants.catalogs.columns import described
from grants.catalogs.opening import open_catalog
from grants.checks import tables_of_games
from grants.model import GameTable, Securable
from grants.observing.external import judged
from pipeline.base.names import game_key
from pipeline.cli.doctor import ask_catalog, look_at_logs
from pipeline.cli.main import cli
from pipeline.control.operations.definition import ControlContext
from pipeline.health.facts.placing import placing
from pipeline.platforms.local.catalog_checks import catalog_checks, managed_refusals, require_writable
from pipeline.settings.tree import Paths, Settings, load
from pipeline.store.database.engine import open_store
from pipeline.store.games import record_seen
from tests.unit.grants.catalog_world import UC, Recorder, recorder

Writer = Literal["direct", "spark"]

CHESS = str(game_key("Chess"))
TABLE = GameTable(CHESS, Securable(("main", "games", CHESS)), "1", None)
PLACE = f"s3://bucket/prod/tables/{CHESS}"


CASES: Final[list[tuple[GameTable | None, Writer, str | None, str]]] = [
    (None, "direct", None, ""),
    (replace(TABLE, location=f"{PLACE}/"), "direct", None, ""),
    (replace(TABLE, location=PLACE), "spark", None, ""),
    (TABLE, "direct", "unknown", "does not show where it lies"),  # such as a view
    (TABLE, "spark", "unknown", "Rename or drop it"),
    (replace(TABLE, is_managed=True), "direct", "refused", "external location above s3://bucket/prod/tables/"),
    (replace(TABLE, is_managed=True), "spark", "untried", "turnout try-managed"),
    (replace(TABLE, location="s3://other/x"), "direct", "refused", "lies at s3://other/x"),
    (replace(TABLE, location="s3://other/x"), "spark", "refused", "lies at s3://other/x"),
]


@pytest.mark.proves("G239")
@pytest.mark.parametrize(("table", "writer", "outcome", "words"), CASES)
def test_a_table_of_the_catalog_is_the_games_own_or_says_why_not(
    table: GameTable | None, writer: Writer, outcome: str | None, words: str
) -> None:
    """A managed table is refused with `direct`, with the reason and the way, and untried with `spark`."""
    found = judged(table, PLACE, writer)
    assert (None if found is None else found.outcome) == outcome
    assert words in str(found or "")


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment with a workspace's catalog, at an address where nobody listens."""
    (tmp_path / "turnout.toml").write_text('[access]\ncatalog = "databricks"\ncatalog_name = "main"\n', "utf-8")
    monkeypatch.setenv("DATABRICKS_HOST", "http://127.0.0.1:9")
    monkeypatch.setenv("DATABRICKS_TOKEN", "t")
    return tmp_path


def answer(stub: Recorder, monkeypatch: pytest.MonkeyPatch, **table: str) -> None:
    monkeypatch.setenv("DATABRICKS_HOST", stub.url)
    stub.answers[f"{UC}/tables/main.games.{CHESS}"] = {"name": CHESS, "table_id": "1", **table}


@pytest.mark.proves("G239")
def test_a_game_is_not_onboarded_over_a_managed_table(environment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is created `games approve` refuses, and the name stays no game; `doctor` and `fleet` say it."""
    with recorder() as stub:
        answer(stub, monkeypatch, table_type="MANAGED", storage_location="s3://managed/1")
        settings, paths = load(environment)
        (refusal,) = managed_refusals(settings, paths, [CHESS])
        assert refusal.startswith(f"The table main.games.{CHESS} is managed by the catalog: the direct writer cannot")
        (paths.tables / CHESS).make()
        assert [each.state for each in ask_catalog(settings, paths)] == ["missing"]
        done = CliRunner().invoke(cli, ["games", "approve", "Chess", "--env-dir", str(environment)])
        assert done.exit_code != 0
        assert "is managed by the catalog" in str(done.exception) + done.output
        listed = CliRunner().invoke(cli, ["games", "list", "--env-dir", str(environment)])
        assert "Chess" not in listed.output
        assert {method for method, _, _ in stub.submitted} == {"GET"}


def test_a_game_is_onboarded_over_its_own_table_or_none(environment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An external table at the game's place hinders nothing, and with `spark` a managed one is a note."""
    with recorder() as stub:
        settings, paths = load(environment)
        answer(stub, monkeypatch, table_type="EXTERNAL", storage_location=paths.table(game_key("Chess")).uri)
        assert require_writable(settings, paths, [CHESS]) == []
        answer(stub, monkeypatch, table_type="MANAGED")
        by_spark = replace(settings, demux=replace(settings.demux, writer="spark"))
        (note,) = require_writable(by_spark, paths, [CHESS])
        assert "nobody has tried that" in note


def test_a_catalog_without_an_answer_gives_a_note_and_refuses_nothing(
    environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unknown is no refusal: the approval is submitted with a note."""
    monkeypatch.delenv("DATABRICKS_TOKEN")
    settings, paths = load(environment)
    (check,) = catalog_checks(settings, paths, [CHESS])
    assert check.outcome == "unknown"
    done = CliRunner().invoke(cli, ["games", "approve", "Chess", "--no-wait", "--env-dir", str(environment)])
    assert done.exit_code == 0, done.output
    assert "Note: The catalog of main.games did not report its tables" in done.output + done.stderr


@pytest.mark.proves("G239")
def test_the_controller_registers_external_tables_alone(environment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It posts EXTERNAL, DELTA, the place, the columns and the mark once, and reports a managed table of that name."""
    settings, paths = load(environment)
    engine = open_store(settings, paths)
    go = str(game_key("Go"))
    record_seen(engine, {CHESS: "Chess", go: "Go"}, 1, placing())
    for key in (CHESS, go):
        DeltaTable.create(Path(paths.tables / key), Schema([Field("_seq", PrimitiveType("long"))]))
    with recorder() as stub:
        monkeypatch.setenv("DATABRICKS_HOST", stub.url)
        catalog = open_catalog(settings.access, paths, os.environ)
        managed = {"name": CHESS, "table_id": "1", "table_type": "MANAGED"}
        missing = (404, {"error_code": "TABLE_DOES_NOT_EXIST", "message": "none"})
        stub.answers |= {
            f"{UC}/schemas/main.games": {"name": "games"},
            f"{UC}/tables": lambda _path, _headers: (200, {"tables": [managed]}),
            f"{UC}/tables/main.games.{go}": lambda _path, _headers: missing,
        }
        context = ControlContext(settings, engine, paths)
        (problem,) = register_missing(context, catalog, Securable(("main", "games")))
        assert problem.startswith(f"The table main.games.{CHESS} is managed by the catalog")
        (posted,) = [body for method, _, body in stub.submitted if method == "POST"]
    assert posted == {
        "name": go, "catalog_name": "main", "schema_name": "games", "table_type": "EXTERNAL",
        "data_source_format": "DELTA", "storage_location": paths.table(game_key("Go")).uri,
        "columns": described([("_seq", "long")]), "comment": f"turnout_env={settings.environment}",
    }  # fmt: skip


def test_many_games_are_one_listing(environment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests do not grow with the number of games, and a schema that is not there yet hinders nothing."""
    settings, paths = load(environment)
    keys = [CHESS, *(str(game_key(f"Game {number}")) for number in range(50))]
    managed = {"name": CHESS, "table_id": "1", "table_type": "MANAGED"}
    with recorder() as stub:
        monkeypatch.setenv("DATABRICKS_HOST", stub.url)
        stub.answers |= {f"{UC}/schemas/main.games": {"name": "games"}, f"{UC}/tables": {"tables": [managed]}}
        environ = {"DATABRICKS_HOST": stub.url, "DATABRICKS_TOKEN": "t"}
        found = tables_of_games(settings, paths, keys, environ)
        assert [each.outcome for each in found] == ["refused"]
        assert len(stub.submitted) == 2


def test_the_embedded_catalog_and_a_folder_need_no_check(tmp_path: Path) -> None:
    """A laptop's catalog has external tables only, and a folder's tables may have other writers."""
    assert catalog_checks(Settings(), Paths(tmp_path), [CHESS]) == []
    assert look_at_logs(Paths(tmp_path)) == []
