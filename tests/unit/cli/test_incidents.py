"""The commands `turnout incidents` and `turnout status` print incidents."""

import json
import time
from dataclasses import replace
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from sqlalchemy import Engine, update

from pipeline.cli.incidents import next_step
from pipeline.cli.main import cli
from pipeline.health.facts.incidents import keep_look
from pipeline.health.incidents.causes import Action
from pipeline.health.incidents.incidents import Incident
from pipeline.settings.tree import load
from pipeline.store.database.engine import open_store
from pipeline.store.database.report_tables import incident_looks
from tests.unit.health.incidents.incident_world import FINDING, OPEN


@pytest.fixture
def store(tmp_path: Path) -> Engine:
    return open_store(*load(tmp_path))


def keep(store: Engine, *wanted: Incident) -> None:
    keep_look(store, "ingest", time.time(), lambda _before: wanted)


def printed(folder: Path, *words: str) -> str:
    return CliRunner().invoke(cli, [*words, "--env-dir", str(folder)]).output


def test_open_incidents_come_first_with_evidence_and_next_action(store: Engine, tmp_path: Path) -> None:
    """A person reads what is wrong, why, what it is not and what to do, then what has ended."""
    ended = replace(OPEN, incident_id="old", ended_at=time.time() - 60, finding=replace(FINDING, title="It was full"))
    keep(store, replace(OPEN, since=1_700_000_000.0), ended)
    lines = printed(tmp_path, "incidents").splitlines()
    assert lines[:7] == [
        "1 open incident",
        f"  late       schema: {FINDING.title}, since 22:13 UTC; {OPEN.outlook}",
        "      492 rows",
        "      not: its neighbours are well",
        "      games: chess, go",
        "      next: `turnout schemas show chess`, or docs/runbooks/turnoutrejectratiohigh.md",
        "1 ended within the last day",
    ]
    assert "schema: It was full" in lines[7]


@pytest.mark.parametrize(
    ("page", "query", "words"),
    [
        ("repairs", {"repair": "retry", "games": "chess"}, ("repair", "retry")),
        ("game", {"game": "chess", "rows": "refused"}, ("quarantine", "list")),
        ("game", {"game": "chess"}, ("repair", "actions")),
        ("groups", {"steer": "a", "do": "restart"}, ("groups", "restart")),
        ("groups", {"steer": "a"}, ("groups", "propose")),
        ("operations", {"operation": "0af3"}, ("ops", "show")),
        ("operations", {}, ("ops", "list")),
        ("schemas", {"game": "chess"}, ("schemas", "show")),
    ],
)
def test_a_next_step_is_a_command_that_there_is(page: str, query: dict[str, str], words: tuple[str, str]) -> None:
    """A person at a terminal gets a command, not the label of a button."""
    printed = next_step(Action("Open…", page, query))
    assert printed.startswith(f"`turnout {' '.join(words)}")
    command = cli.get_command(click.Context(cli), words[0])
    assert isinstance(command, click.Group)
    assert words[1] in command.commands
    several: dict[str, str | tuple[str, ...]] = {"repair": "retry", "games": ("x", "y")}
    assert next_step(Action("Retry…", "repairs", several)) == "`turnout repair retry x y`"
    assert next_step(Action("Do it elsewhere", "access", {})) == "Do it elsewhere"


def test_json_has_what_pages_have(store: Engine, tmp_path: Path) -> None:
    """Both commands print the same incidents, and the process that judged them."""
    keep(store, OPEN)
    alone = json.loads(printed(tmp_path, "incidents", "--json"))
    (found,) = alone["incidents"]
    assert (found["cause"], found["games"], found["tone"], found["ended_at"]) == (
        "schema",
        ["chess", "go"],
        "late",
        None,
    )
    assert found["action"] == {"label": "Compare versions…", "page": "schemas", "query": {"game": "chess"}}
    assert alone["judged"]["by"] == "ingest"
    status = json.loads(printed(tmp_path, "status", "--json"))
    assert (status["incidents"], status["causes_judged"]["by"]) == (alone["incidents"], "ingest")


def test_status_has_one_line_for_each(store: Engine, tmp_path: Path) -> None:
    """The status is short: the command `incidents` has the rest."""
    keep(store, OPEN)
    lines = printed(tmp_path, "status").splitlines()
    at = lines.index("1 open incident")
    assert lines[at + 1].startswith("  late       schema: Rows of 2 games refused since schema version 7")
    assert lines[at + 2].startswith("latency is measured from")


def test_the_age_of_the_last_look_is_printed(store: Engine, tmp_path: Path) -> None:
    """While nobody judges, no incident is no good news."""
    assert "causes were never judged: neither a controller nor ingest has run" in printed(tmp_path, "incidents")
    keep(store)
    assert printed(tmp_path, "incidents").splitlines() == ["no open incident"]
    with store.begin() as connection:
        connection.execute(update(incident_looks).values(looked_at=time.time() - 600))
    assert printed(tmp_path, "incidents").splitlines() == [
        "no open incident, as last judged 10 min ago: neither a controller nor ingest judges causes now"
    ]


def test_hostile_texts_are_printed_inert(store: Engine, tmp_path: Path) -> None:
    """A message that made it into a finding cannot act on a terminal."""
    keep(store, replace(OPEN, finding=replace(FINDING, evidence=("\x1b[2J\u202eab",))))
    assert "\\x1b[2J\\u202eab" in printed(tmp_path, "incidents")
