"""`turnout schemas plan` and `register` take every format, by the suffix of the file."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from pipeline.cli.main import cli
from pipeline.data.contracts.registry import LocalRegistry
from pipeline.settings.tree import load
from pipeline.store import audit
from pipeline.store.database.engine import open_store


@pytest.fixture
def world(tmp_path: Path) -> Any:
    def call(command: str, *more: str, record: str = "acme.Lap", **fields: Any) -> Any:
        held = [{"name": name, "type": kind} for name, kind in fields.items()]
        path = tmp_path / "lap.avsc"
        path.write_text(json.dumps({"type": "record", "name": record, "fields": held}), "utf-8")
        given = ["--env-dir", str(tmp_path), "--game", "Go", "--message", record, *more, str(path)]
        return CliRunner().invoke(cli, ["schemas", command, *given])

    open_store(*load(tmp_path)).dispose()
    return call


def test_an_avsc_file_is_avro(world: Any, tmp_path: Path) -> None:
    """A person names no format for a file whose suffix says it; the plan shows what the table gets."""
    assert world("register", ms="int").exit_code == 0
    done = world("plan", ms="int", driver="string")
    assert (done.exit_code, "driver: is new" in done.output) == (0, True)
    engine = open_store(*load(tmp_path))
    assert [schema.format for schema in LocalRegistry(engine).snapshot().schemas.values()] == ["avro"]
    engine.dispose()


def test_a_json_file_is_a_json_schema(world: Any, tmp_path: Path) -> None:
    """A plan of JSON names what turnout does not check, and `register` refuses another title than the message."""
    path = tmp_path / "lap.json"
    given = ["--env-dir", str(tmp_path), "--game", "Ludo", "--message", "acme.Lap", str(path)]
    path.write_text('{"title":"acme.Lap","type":"object","properties":{"ms":{"type":"integer","maximum":9}}}', "utf-8")
    planned = CliRunner().invoke(cli, ["schemas", "plan", *given])
    assert "turnout does not check maximum of 'ms'" in planned.output
    assert CliRunner().invoke(cli, ["schemas", "register", *given]).exit_code == 0
    engine = open_store(*load(tmp_path))
    assert [schema.format for schema in LocalRegistry(engine).snapshot().schemas.values()] == ["json"]
    engine.dispose()
    path.write_text('{"title":"acme.Sold","type":"object","properties":{"ms":{"type":"integer"}}}', "utf-8")
    refused = CliRunner().invoke(cli, ["schemas", "register", *given])
    assert "its title is 'acme.Sold', not 'acme.Lap'" in str(refused.exception)


def test_another_event_type_is_refused_until_its_rename_is_confirmed(
    world: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    """The plan shows the rename, waits for a second person where the setting wants one, and the audit log has it."""
    (tmp_path / "turnout.toml").write_text("[schemas]\nsecond_person = true\n", "utf-8")
    world("register", ms="int")
    for command in ("plan", "register"):
        refused = world(command, record="acme.Round", ms="int")
        assert "'acme.Round' is another event type than acme.Lap, the type of the game 'Go'" in str(refused.exception)
    renamed = ("--continues", "acme.Lap")
    plan = json.loads(world("plan", "--json", *renamed, record="acme.Round", ms="int").output)
    assert [(step["path"], step["kind"], step["policy"]) for step in plan["steps"]] == [
        ("acme.Round", "type", "continue")
    ]
    asked = world("register", "--json", "--reason", "r", *renamed, record="acme.Round", ms="int")
    request = json.loads(asked.output)
    assert (request["plan_hash"], request["continues"]) == (plan["plan"], "acme.Lap")
    monkeypatch.setattr("pipeline.cli.context.current_user", lambda: "bob")
    done = CliRunner().invoke(cli, ["schemas", "approve", request["request_id"], "--env-dir", str(tmp_path)])
    assert "acme.Round: continues acme.Lap under a new name" in done.output
    engine = open_store(*load(tmp_path))
    assert [each.detail["continues"] for each in audit.entries(engine) if "continues" in each.detail]
    engine.dispose()
    assert world("register", record="acme.Round", ms="long").exit_code == 0


def test_a_breaking_change_is_requested_and_approved(world: Any, tmp_path: Path, monkeypatch: Any) -> None:
    """The commands ask for a second person where the setting wants one, and say for whom the request waits."""
    (tmp_path / "turnout.toml").write_text("[schemas]\nsecond_person = true\n", "utf-8")

    def act(command: str, *more: str, person: str) -> Any:
        monkeypatch.setattr("pipeline.cli.context.current_user", lambda: person)
        return CliRunner().invoke(cli, ["schemas", command, *more, "--env-dir", str(tmp_path)])

    assert json.loads(world("register", "--json", ms="int").output) == {
        "outcome": "registered", "game": "Go", "version": 1, "schema_id": 1
    }  # fmt: skip
    plan = json.loads(world("plan", "--json", driver="string").output)
    assert (plan["version"], plan["possible"], plan["needs_approval"]) == (2, True, True)
    assert [(step["kind"], step["breaking"]) for step in plan["steps"]] == [("remove", True), ("add", False)]
    asked = world("register", "--json", "--reason", "renamed", "--plan-hash", plan["plan"], driver="string")
    waits = json.loads(asked.output)
    assert (asked.exit_code, waits["outcome"], waits["plan_hash"]) == (1, "requested", plan["plan"])
    assert "Another person who can reach this environment must approve it." in waits["lines"]
    name = waits["request_id"][:8]
    own = act("approve", name, person=waits["requester"])
    assert "cannot approve your own request" in str(own.exception)
    assert act("approve", name, "--dry-run", person="bob").exit_code == 0
    done = act("approve", name, person="bob")
    assert (done.exit_code, "! ms: removed" in done.output) == (0, True)
    assert done.output.endswith("schema id 2: version 2 of 'Go' registered\n")
    (listed,) = json.loads(act("requests", "--json", person="eve").output)
    assert (listed["state"], listed["decided_by"], "definition" in listed) == ("approved", "bob", False)
    late = act("approve", name, "--dry-run", person="bob")
    assert (late.exit_code, f"Request {name} was approved by 'bob'." in late.output) == (1, True)


def test_a_format_that_nobody_reads_is_refused(world: Any) -> None:
    """An unknown format is one sentence with those that there are."""
    assert "this turnout reads: protobuf, avro, json" in str(world("plan", "--format", "xml", ms="int").exception)
