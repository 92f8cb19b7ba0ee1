"""Hostile names, reasons and errors reach a terminal as text: nothing in them acts there, hides or forges a line."""

import json
import logging
import math
import sys
import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner

from grants.applying import requests
from grants.observing import snapshot
from grants.planning.entitlements import AccessIntent
from pipeline.base.names import game_key
from pipeline.base.terminal import PlainFormatter, say_json
from pipeline.cli.main import cli, main
from pipeline.data.ingest import name_sketch
from pipeline.settings.tree import Paths, Settings, load
from pipeline.store import onboarding, sources, stream_control
from pipeline.store.database.engine import open_store
from pipeline.store.database.states import OperationState
from pipeline.store.games import Game
from pipeline.store.onboarding import OnboardingCandidate, RefusedName
from pipeline.store.operations import Intent, begin_step, change, end_step, list_operations, submit
from pipeline.store.processes import drivers, runs
from tests.browser.seed import Seeded, seed
from tests.tables.repair_world import Event, broken, make_world
from tests.unit.grants.grants_world import catalog_snapshot

HOSTILE = "evil\x1b[2J\x9b31m\x7f\x07\u202egnihton\u2066\u200b\r\nturnout: all is well"
NAME, WAITS, REFUSED = f"Go {HOSTILE}", f"Waits {HOSTILE}", f"Refused {HOSTILE}"
KEY = game_key(NAME)

LISTS = (
    "status", "status --all", "games list", "games pending", "groups list", "ops list", "ops show OPERATION",
    "audit list", "schemas list", "ingest gaps", "grants requests", "grants matrix --all",
)  # fmt: skip
QUARANTINE = ("quarantine list", "quarantine show", f"repair actions {game_key('Chess')}")
NO_JSON = {"ingest gaps"}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment in whose control store every free text is hostile."""
    folder, now = tmp_path_factory.mktemp("store"), time.time()
    seed(folder, [Seeded(NAME, "a", {"status": "FAILED", "last_error": HOSTILE})], now=now, history=False)
    engine = open_store(Settings(), Paths(folder))
    onboarding.approve(engine, OnboardingCandidate(KEY, NAME, "approval", None, HOSTILE, HOSTILE))
    onboarding.refuse(engine, RefusedName(REFUSED, HOSTILE, HOSTILE, now))
    sketch = name_sketch.sketched(pa.array([WAITS]), pa.array([3]), now, 10)
    onboarding.write_sketch(engine, sketch.dumps())
    failed = stream_control.StreamControl(failures=2, failure_class="poison", evidence=HOSTILE, failed_at=1.0)
    stream_control.record_failures(engine, {KEY: failed})
    run = runs.begin_run(engine, "a")
    assert run is not None
    runs.end_run(engine, run, HOSTILE, died=True)
    waits = submit(engine, Intent("pause", (f"game:{KEY}",), HOSTILE, HOSTILE))
    step = begin_step(engine, waits, "pause", HOSTILE)
    end_step(engine, waits, step, "failed", HOSTILE)
    change(engine, change(engine, waits, OperationState.RUNNING), OperationState.NEEDS_HUMAN, HOSTILE)
    wanted = AccessIntent(HOSTILE, KEY, read=True, reason=HOSTILE)
    requests.submit(engine, HOSTILE, [asdict(wanted)], HOSTILE)
    snapshot.keep(engine, catalog_snapshot(people=(HOSTILE,), keys=(KEY,)))
    snapshot.keep(engine, None, HOSTILE)
    first = sources.open_generation(engine, "a topic")
    gap = sources.AcceptedGap(0, f"topic {HOSTILE}", 0, 1, 2, "retention", HOSTILE, now)
    sources.replace_generation(engine, "a topic", first, sources.Identity(0, None, None, "b", 0, None), [gap])
    engine.dispose()
    return folder


@pytest.fixture(scope="module")
def quarantine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment whose quarantine has rows of a hostile game, and of a name that is no game."""
    world = make_world(tmp_path_factory.mktemp("quarantine"))
    world.ingest(broken(), Event(Game(KEY, NAME), 1, b""))
    world.split()
    world.engine.dispose()
    return world.paths.root


def printed(line: str, folder: Path, *more: str) -> str:
    engine = open_store(Settings(), Paths(folder))
    named = {each.operation_id for each in list_operations(engine)}
    engine.dispose()
    words = [named.pop() if word == "OPERATION" else word for word in line.split()]
    done = CliRunner().invoke(cli, [*words, *more, "--env-dir", str(folder)])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.output


def acting(text: str) -> set[str]:
    """Return the characters of lines that are more than letters one sees."""
    return {each for each in text if not each.isprintable()} - {"\n"}


@pytest.fixture
def folders(store: Path, quarantine: Path) -> dict[str, Path]:
    return {**dict.fromkeys(LISTS, store), **dict.fromkeys(QUARANTINE, quarantine)}


@pytest.mark.parametrize("line", [*LISTS, *QUARANTINE])
@pytest.mark.proves("G176")
def test_no_list_lets_a_text_act_on_the_terminal(line: str, folders: dict[str, Path]) -> None:
    """Escape sequences, C1 controls, bidi overrides and line breaks of a hostile text are printed as what they are."""
    text = printed(line, folders[line])
    assert acting(text) == set()
    assert not any(each.startswith("turnout: all is well") for each in text.splitlines())
    assert "\\x1b[2J\\x9b31m" in text or line.startswith("repair")


@pytest.mark.parametrize("line", [each for each in (*LISTS, *QUARANTINE) if each not in NO_JSON])
@pytest.mark.proves("G176")
def test_json_has_the_very_text_in_escapes(line: str, folders: dict[str, Path]) -> None:
    """Scripts get the text as it is; on a terminal JSON is as harmless."""
    text = printed(line, folders[line], "--json")
    assert acting(text) == set()
    assert text.isascii()
    for each in text.splitlines():
        json.loads(each)
    assert json.dumps(HOSTILE)[1:-1] in text or line.startswith("repair")


@pytest.mark.proves("G176")
def test_an_error_acts_on_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What a command refuses may quote a hostile text: it is escaped on stderr, and forges no line there."""
    engine = open_store(Settings(), Paths(tmp_path))
    snapshot.keep(engine, None, HOSTILE)
    engine.dispose()
    monkeypatch.setattr(sys, "argv", ["turnout", "grants", "matrix", "--env-dir", str(tmp_path)])
    with pytest.raises(SystemExit):
        main()
    said = capsys.readouterr().err.splitlines()
    assert acting("".join(said)) == set()
    assert said[0].startswith("turnout: The catalog was never read. evil\\x1b[2J")
    assert [each for each in said if each.startswith("turnout: all is well")] == []


def test_a_log_line_acts_on_nothing() -> None:
    """Logs of processes are read in a terminal, too; a traceback keeps its lines."""
    try:
        raise ValueError(HOSTILE)
    except ValueError:
        record = logging.LogRecord("a", logging.ERROR, "f", 1, "failed: %s", (HOSTILE,), sys.exc_info())
    text = PlainFormatter("%(name)s %(message)s").format(record)
    assert acting(text) == set()
    assert "Traceback" in text.splitlines()[2]


def test_json_has_numbers_that_every_parser_reads(capsys: pytest.CaptureFixture[str]) -> None:
    """JSON knows neither NaN nor infinities: they are the strings of protobuf's mapping, wherever they stand."""
    say_json({"rows": [(math.nan, math.inf, -math.inf, 1.5)], "at": datetime(2026, 1, 31, tzinfo=UTC)})
    printed = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert printed == {"rows": [["NaN", "Infinity", "-Infinity", 1.5]], "at": "2026-01-31 00:00:00+00:00"}


@dataclass(frozen=True, slots=True)
class _Span:
    from_: float
    to: tuple["_Span", ...] = ()


def test_a_value_is_printed_field_by_field(capsys: pytest.CaptureFixture[str]) -> None:
    """`--json` prints each field of a value, at any depth; `from` is no name in Python."""
    say_json(_Span(math.inf, (_Span(2.0),)))
    assert json.loads(capsys.readouterr().out) == {"from": "Infinity", "to": [{"from": 2.0, "to": []}]}


def test_every_alarm_of_the_controller_has_a_line(tmp_path: Path) -> None:
    """`turnout status` prints one line for each alarm, below the controller, and none with escapes."""
    engine = open_store(*load(tmp_path, {}))
    drivers.start_driver(engine, "controller", "main", None)
    drivers.heartbeat(engine, "controller", "main", "running", None, "group b has no driver\ngroup c is frozen")
    printed = CliRunner().invoke(cli, ["status", "--env-dir", str(tmp_path)]).output
    assert {"  group b has no driver", "  group c is frozen"} <= set(printed.splitlines())
    assert "controller main: running (2 alarms)" in printed.splitlines()
    assert "\\n" not in printed


def test_an_error_of_several_lines_is_no_alarms(tmp_path: Path) -> None:
    """Only the controller has alarms; what another driver failed of stands below it."""
    engine = open_store(*load(tmp_path, {}))
    for kind, name in (("ingest", "main"), ("group", "a")):
        drivers.start_driver(engine, kind, name, None)
        drivers.heartbeat(engine, kind, name, "running", 1)
    drivers.heartbeat(engine, "ingest", "main", "failed", 1, "no broker\nCaused by: refused")
    drivers.heartbeat(engine, "group", "a", "failed", 1, "job aborted\nCaused by: disk full")
    printed = CliRunner().invoke(cli, ["status", "--env-dir", str(tmp_path)]).output.splitlines()
    assert printed[1:6] == [
        "ingest main: failed", "  ingest has failed: no broker", "  Caused by: refused",
        "group a: failed", "  group a: has failed: job aborted",
    ]  # fmt: skip
    assert not [line for line in printed if "alarms" in line]
