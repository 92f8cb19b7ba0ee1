"""`turnout grants`, `catalog` and `read` as people type them, on a real embedded catalog."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from deltalake import DeltaTable, Field, Schema
from deltalake.schema import PrimitiveType

from grants.catalog import Change
from grants.model import Securable
from pipeline.base.errors import Refused
from pipeline.cli.main import cli
from pipeline.data.derived.definitions import SilverDefinition, dumps
from pipeline.store import audit, derived
from pipeline.store.operations import list_operations
from tests.unit.grants.access_world import ANN, BOB, CHESS, GO, House

POLICY = """version: 1
grants:
  - principals: [{who}]
    games: ["*"]
    reason: Numbers
    ticket: T-1
"""


def typed(house: House, *words: str) -> Result:
    """Run a command; what it refuses is raised, as `main` gets it."""
    result = CliRunner().invoke(cli, [*words, "--env-dir", str(house.world.paths.root)])
    if isinstance(result.exception, Refused):
        raise result.exception
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.fixture
def tables(house: House) -> House:
    """The house, with both games' tables registered."""
    for key in (CHESS, GO):
        house.make_table(key)
    house.rounds()
    return house


def test_a_grant_is_planned_applied_read_by_and_undone(tables: House) -> None:
    """Everything an admin does with one game can be typed, and each command says what it did."""
    change = ("--grant", "Chess", "--principal", ANN, "--reason", "numbers")
    shown = typed(tables, "grants", "plan", *change).output
    assert "does not read → reads" in shown
    assert "GRANT SELECT ON TABLE" in shown
    fingerprint = shown.strip().rpartition(" ")[2]
    assert typed(tables, "grants", "apply", *change, "--plan", fingerprint, "--no-wait").exit_code == 0
    done = tables.finish()
    assert done.state == "succeeded"
    assert typed(tables, "read", "Chess", "--as", ANN).output.startswith("_seq")
    with pytest.raises(Refused, match="403"):
        typed(tables, "read", "Chess", "--as", BOB)
    assert "reads" in typed(tables, "grants", "why", "Chess", ANN).output
    assert json.loads(typed(tables, "grants", "why", CHESS, BOB, "--json").output)["reads"] is False
    tables.rounds()
    matrix = json.loads(typed(tables, "grants", "matrix", "--json").output)["principals"]
    assert (matrix[ANN][CHESS], matrix[ANN][GO], matrix[BOB][CHESS]) == ("reads", "no", "no")
    typed(tables, "grants", "undo", done.operation_id[:8], "--reason", "wrong", "--no-wait")
    assert tables.finish().state == "succeeded"
    with pytest.raises(Refused, match="403"):
        typed(tables, "read", "Chess", "--as", ANN)


def test_a_policy_is_applied_drifts_and_is_put_right(tables: House, tmp_path: Path) -> None:
    """A policy file is planned and applied; what a hand changes is found and reverted; applied again it is nothing."""
    file = tmp_path / "policy.yml"
    file.write_text(POLICY.format(who=ANN))
    typed(tables, "grants", "apply", "--policy", str(file), "--reason", "policy", "--no-wait")
    assert tables.finish().state == "succeeded"
    tables.catalog.change(Change(Securable((*tables.schema.path, CHESS)), ANN, remove=("SELECT",)))
    found = json.loads(typed(tables, "grants", "drift", "--json").output)["findings"]
    assert [(each["kind"], each["entitlement"]["key"]) for each in found] == [("missing", CHESS)]
    act = ("--act", "revert", "--finding", found[0]["id"][:8], "--reason", "not by hand")
    typed(tables, "grants", "drift", *act, "--no-wait")
    assert tables.finish().state == "succeeded"
    again = typed(tables, "grants", "apply", "--policy", str(file), "--reason", "policy")
    assert "0 catalog changes" in again.output
    assert len(list_operations(tables.world.engine)) == 2
    file.write_text(POLICY.format(who=BOB))
    typed(tables, "grants", "apply", "--policy", str(file), "--prune", "--reason", "policy", "--no-wait")
    assert tables.finish().state == "succeeded"
    exported = typed(tables, "grants", "export").output
    assert (ANN in exported, BOB in exported) == (False, True)


def test_an_exported_policy_changes_nothing(tables: House, tmp_path: Path) -> None:
    """An export says what holds: as a policy where it holds, it changes nothing."""
    until = (datetime.now(UTC) + timedelta(30)).date().isoformat()
    change = ("--grant", "Chess", "--grant", "Go", "--principal", ANN, "--until", until, "--reason", "numbers")
    typed(tables, "grants", "apply", *change, "--no-wait")
    assert tables.finish().state == "succeeded"
    file = tmp_path / "exported"
    file.write_text(typed(tables, "grants", "export").output)
    said = typed(tables, "grants", "apply", "--policy", str(file), "--prune", "--reason", "same")
    assert "0 catalog changes; 0 entitlements begin, 0 end" in said.output
    assert len(list_operations(tables.world.engine)) == 1


def test_what_came_back_by_an_undo_is_exported(tables: House) -> None:
    """An entitlement for which nobody gave a reason names the operation it is of: an export leaves nothing out."""
    change = ("--principal", ANN, "--reason", "numbers", "--no-wait")
    typed(tables, "grants", "apply", "--grant", "Chess", *change)
    tables.finish()
    typed(tables, "grants", "apply", "--revoke", "Chess", *change)
    typed(tables, "grants", "undo", tables.finish().operation_id, "--no-wait")
    undone = tables.finish()
    assert undone.state == "succeeded"
    assert f"operation {undone.operation_id[:8]}" in typed(tables, "grants", "export").output


def test_wrong_use_is_one_sentence_and_changes_nothing(tables: House, tmp_path: Path) -> None:
    """Unknown names, no reason, a stale plan, options that do not go together: refused, and nothing is asked for."""
    broken = tmp_path / "broken.yml"
    broken.write_text("version: 1\ngrants:\n  - principals: [x]\n    game: Chess\n    reason: r\n")
    grant = ("--grant", "Chess", "--principal", ANN)
    for words, said in (
        (("--grant", "Nim", "--principal", ANN, "--reason", "r"), "No such game"),
        (("--grant", "Chess", "--principal", "nobody@example.com", "--reason", "r"), "nobody@example.com"),
        (grant, "needs one"),
        ((*grant, "--reason", "r", "--plan", "0000"), "has changed and is"),
        ((*grant, "--reason", "r", "--policy", str(broken)), "cannot be combined"),
        (("--policy", str(broken), "--reason", "r"), "line 4"),
        ((*grant, "--reason", "r", "--until", "tomorrow"), "neither a date"),
        (("--reason", "r"), "Give --policy FILE"),
        (("--policy", str(tmp_path / "none.yml"), "--reason", "r"), "cannot be read"),
    ):
        with pytest.raises(Refused, match=said):
            typed(tables, "grants", "apply", *words)
    assert list_operations(tables.world.engine) == []


def test_a_dry_run_asks_for_nothing(tables: House) -> None:
    """`--dry-run` shows the very plan, and leaves store, audit log and catalog as they are."""
    words = ("--grant", "Chess", "--principal", ANN, "--reason", "numbers", "--dry-run")
    assert "GRANT SELECT" in typed(tables, "grants", "apply", *words).output
    assert list_operations(tables.world.engine) == []
    assert list(audit.entries(tables.world.engine)) == []


def test_a_request_is_listed_rejected_and_withdrawn(tables: House) -> None:
    """Requests can be typed as well; typed again it is the same; who asked cannot decide."""
    for said in ("waits for an access admin", "Already requested"):
        words = ("--grant", "Chess", "--principal", ANN, "--reason", "numbers", "--request")
        assert said in typed(tables, "grants", "apply", *words).output
    waiting = json.loads(typed(tables, "grants", "requests", "--json").output)
    assert [each["state"] for each in waiting] == ["asked"]
    assert (
        json.loads(typed(tables, "grants", "apply", *words, "--json").stdout)["request_id"] == waiting[0]["request_id"]
    )
    with pytest.raises(Refused, match="your own request"):
        typed(tables, "grants", "reject", waiting[0]["request_id"], "--reason", "no")
    assert "withdrawn" in typed(tables, "grants", "withdraw", waiting[0]["request_id"][:8]).output
    log = typed(tables, "audit", "list").output
    assert "request access begun  grant Chess (chess_" in log
    assert f") to {ANN}" in log
    assert list_operations(tables.world.engine) == []


def test_a_finding_that_is_ignored_is_printed_as_json(tables: House) -> None:
    """What is printed for scripts is one JSON document, for people beside it; nothing is ignored in a dry run."""
    typed(tables, "grants", "apply", "--grant", "Chess", "--principal", ANN, "--reason", "numbers", "--no-wait")
    assert tables.finish().state == "succeeded"
    tables.catalog.change(Change(Securable((*tables.schema.path, CHESS)), ANN, remove=("SELECT",)))
    (found,) = json.loads(typed(tables, "grants", "drift", "--json").stdout)["findings"]
    words = ("grants", "drift", "--act", "ignore", "--finding", found["id"], "--reason", "known", "--json")
    assert json.loads(typed(tables, *words, "--dry-run").stdout)["ignored"] is False
    assert json.loads(typed(tables, *words).stdout)["findings"][0]["id"] == found["id"]
    (found,) = json.loads(typed(tables, "grants", "drift", "--json").stdout)["findings"]
    assert found["ignored"].startswith("known (")
    lift = ("grants", "drift", "--act", "unignore", "--finding", found["id"], "--reason", "not any more", "--json")
    assert json.loads(typed(tables, *lift).stdout)["unignored"] is True
    late = (*words, "--until", "2099-01-01")
    with pytest.raises(Refused, match="within 366 days"):
        typed(tables, *late)
    (found,) = json.loads(typed(tables, "grants", "drift", "--json").stdout)["findings"]
    assert found["ignored"] is None


def test_without_a_catalog_the_commands_say_so(house: House) -> None:
    """A catalog that was never read is no empty matrix: it is said, with what to do."""
    with pytest.raises(Refused, match="never read"):
        typed(house, "grants", "matrix")


def test_people_are_added_once(house: House) -> None:
    """`catalog add-user` makes who is missing and puts them into groups, and can be repeated."""
    for _ in range(2):
        assert typed(house, "catalog", "add-user", "zoe@example.com", "--group", "readers").exit_code == 0
    there = house.catalog.directory()
    assert there.groups_of["zoe@example.com"] == {"readers"}


def test_a_policy_gives_silver_tables_without_their_games(tables: House) -> None:
    """An entry of `derived` is applied; a table that is not yet made is left out with a note, and fails nothing."""
    engine, paths = tables.world.engine, tables.world.paths
    entries = [SilverDefinition("sold", "Chess"), SilverDefinition("later", "Chess")]
    derived.apply(engine, dumps(entries), 0, "bob", "for readers")
    DeltaTable.create(Path(paths.silver / "sold"), Schema([Field("_seq", PrimitiveType("long"))]))
    tables.rounds()
    policy = Path(paths.root) / "policy.yml"
    policy.write_text(f"version: 1\ngrants:\n  - {{principals: [{BOB}], derived: [sold, later], reason: BI}}\n")
    shown = typed(tables, "grants", "apply", "--policy", str(policy), "--reason", "BI", "--no-wait")
    assert shown.exit_code == 0
    assert "silver__later is not yet made, so it is left out" in shown.output
    assert tables.finish().state == "succeeded"
    assert typed(tables, "read", "silver__sold", "--as", BOB).exit_code == 0
    with pytest.raises(Refused, match="403"):
        typed(tables, "read", "Chess", "--as", BOB)
    assert 'derived:\n      - "sold"' in typed(tables, "grants", "export").output
