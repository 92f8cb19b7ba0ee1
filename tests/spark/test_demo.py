import json
import re
import subprocess
import sys
import threading
from datetime import timedelta
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, NamedTuple

import duckdb
import pyarrow.compute as pc
import pytest
from click.testing import CliRunner
from deltalake import DeltaTable

from pipeline.base.names import game_key
from pipeline.cli.main import cli, main
from pipeline.demo.heard import SOON_SECONDS
from pipeline.demo.server_process import free_ports
from pipeline.demo.simulator import game_names
from pipeline.lake.delta.opening import open_table
from pipeline.settings.tree import Paths
from tests.spark.demo_world import last_line, turnout


class Run(NamedTuple):
    """One bounded run of the demo."""

    source: str
    events: int
    games: int

    @property
    def name(self) -> str:
        return f"{self.source}-{self.events}"


FEW: Final = Run("kafka", 3_000, 10)
MANY: Final = (Run("kafka", 15_000, 40), Run("delta", 15_000, 40))
BAD: Final = 0.02

pytestmark = pytest.mark.timeout(420)  # several cold sessions in one test


@pytest.fixture(
    scope="module", params=[FEW, *(pytest.param(each, marks=pytest.mark.long) for each in MANY)], ids=attrgetter("name")
)
def first(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Path, dict[str, Any]]:
    """Run the demo; by a real broker in each test run, as the tests of this folder read a landing table."""
    run: Run = request.param
    env = tmp_path_factory.mktemp("demo") / "env with a space"
    amounts = ("--events", str(run.events), "--games", str(run.games), "--versions", "5", "--bad-share", str(BAD))
    options = ("--source", run.source, "--env-dir", str(env), *amounts, "--hostile")
    done = turnout("demo", "--once", "--books", "--json", *options)
    assert done.returncode == 0, done.stderr
    return run, env, last_line(done)


def test_the_bounded_run_loses_doubles_and_misroutes_nothing(first: tuple[Run, Path, dict[str, Any]]) -> None:
    """The first promise: events of many games in 5 schema versions, 2 % of them bad, and every row is accounted for."""
    run, _, result = first
    assert {"events": run.events, "bronze_rows": run.events, "versions": 5}.items() <= result.items()
    assert tuple(result[name] for name in ("lost", "duplicated", "misrouted", "pending")) == (0, 0, 0, 0)
    assert result["landed"] + result["quarantined"] == run.events
    by_reason = result["by_reason"]
    assert by_reason.pop("contract") == result["contract_refused"] > 0
    assert BAD / 2 < sum(by_reason.values()) / run.events < BAD * 1.5
    assert set(by_reason) == {
        *("malformed_wrapper", "invalid_name", "unknown_game", "unknown_schema", "empty_payload", "malformed_payload")
    }
    assert result["seconds"] > 0


def test_the_silver_table_has_each_event_of_its_game(first: tuple[Run, Path, dict[str, Any]]) -> None:
    """The simulator gives each event an id of its own: silver has as many rows as its game's table, and the same."""
    run, env, result = first
    (path,) = (env / "tables").glob(f"{game_key(game_names(run.games, 1, hostile=True)[0])}*")
    rows, silver = (DeltaTable(each).to_pyarrow_table() for each in (path, env / "silver" / "demo_events"))
    assert result["silver_rows"] == rows.num_rows == silver.num_rows > 0
    places = [sorted(zip(each["_seq"].to_pylist(), each["_pos"].to_pylist(), strict=True)) for each in (rows, silver)]
    assert places[0] == places[1]


def test_days_of_the_game_are_closed(first: tuple[Run, Path, dict[str, Any]]) -> None:
    """The accepted rows of the closed days are those of the game's table, and none is of a test player."""
    run, env, result = first
    key = game_key(game_names(run.games, 1, hostile=True)[0])
    ledger = DeltaTable(env / "books").to_pyarrow_table()
    assert result["days_closed"] == ledger.num_rows > 0
    rows = [
        DeltaTable(env / folder / key).to_pyarrow_table(columns=["_seq", "_pos", "player_id"])
        for folder in ("tables", "closed")
    ]
    assert not [each for each in rows[0].column("player_id").to_pylist() if each.startswith("0")]
    assert sorted(map(str, rows[0].to_pylist())) == sorted(map(str, rows[1].to_pylist()))
    assert sum(ledger.column("accepted").to_pylist()) == rows[1].num_rows


def test_the_gold_table_has_each_window_of_its_silver_table(first: tuple[Run, Path, dict[str, Any]]) -> None:
    """The simulated events are some minutes old: all windows are closed, with the numbers that DuckDB gives."""
    _, env, result = first
    gold = DeltaTable(env / "gold" / "demo_by_10s").to_pyarrow_table()
    silver = DeltaTable(env / "silver" / "demo_events").to_pyarrow_table()
    with duckdb.connect() as database:
        database.execute("SET TimeZone = 'UTC'")
        database.register("silver", silver)
        expected = database.sql(
            "SELECT time_bucket(INTERVAL 10 SECONDS, _event_time) AS bucket, count(*), count(DISTINCT _event_id), "
            "min(_event_time), max(_event_time) FROM silver GROUP BY bucket ORDER BY bucket"
        ).fetchall()
    columns = ("window_start", "events", "ids", "first_at", "last_at")
    found = sorted(zip(*(gold.column(each).to_pylist() for each in columns), strict=True))
    assert found == expected
    assert result["gold_rows"] == len(expected) > 0
    assert sum(gold.column("_rows").to_pylist()) == result["silver_rows"]


@pytest.mark.long
@pytest.mark.parametrize("first", MANY[1:], indirect=True, ids=attrgetter("name"))
def test_a_second_bounded_run_adds_only_the_new_events(first: tuple[Run, Path, dict[str, Any]]) -> None:
    """Everything goes on where it stopped: nothing is read twice, and sequence numbers continue."""
    _, env, before = first
    done = turnout(
        *("demo", "--once", "--json", "--env-dir", str(env)),
        *("--events", "5000", "--games", "40", "--versions", "6", "--hostile"),
    )
    assert done.returncode == 0, done.stderr
    after = last_line(done)
    assert before["bronze_rows"] + 5_000 == after["bronze_rows"]
    assert tuple(after[name] for name in ("lost", "duplicated", "misrouted", "pending")) == (0, 0, 0, 0)


@pytest.mark.long
@pytest.mark.parametrize("source", ["kafka", "delta"])
def test_a_bounded_run_via_an_edge_tells_its_producer_of_each_event(tmp_path: Path, source: str) -> None:
    """Each acknowledged event comes back to its producer once, landed or refused, as the tables have it."""
    options = ("--events", "3000", "--games", "10", "--bad-share", str(BAD), "--hostile", "--env-dir", str(tmp_path))
    done = turnout("demo", "--once", "--json", "--via", "edge", "--source", source, *options)
    assert done.returncode == 0, done.stderr
    result = last_line(done)
    assert (result["edge_landed_seen"], result["edge_refused_seen"]) == (result["landed"], result["quarantined"])
    assert set(result["by_reason"]) == {"unknown_game", "unknown_schema"}  # the edge refuses the others at once
    assert result["edge_without_outcome"] == 0
    assert result["edge_refused_seconds"] < SOON_SECONDS


@pytest.mark.long
def test_a_live_demo_via_an_edge_says_that_a_refused_event_came_back_soon(tmp_path: Path) -> None:
    """While drivers keep up, the demo's producer knows of its refused event within 10 s, and the demo says so."""
    ports = free_ports(None, 1)
    (tmp_path / "turnout.toml").write_text("[dashboard]\nport = {}\n[access]\nport = {}\n".format(*ports))
    command = (sys.executable, "-m", "pipeline", "demo", "--via", "edge", "--games", "3", "--rate", "100")
    process = subprocess.Popen([*command, "--env-dir", str(tmp_path)], stderr=subprocess.PIPE, text=True)
    watchdog = threading.Timer(300, process.kill)
    watchdog.start()
    try:
        found = [0.0]
        for line in process.stderr or ():
            found += map(float, re.findall(r"refused event came back to its producer (\S+) s after", line))
            if 0 < found[-1] <= SOON_SECONDS:
                break
        assert 0 < found[-1] <= SOON_SECONDS, found
    finally:
        watchdog.cancel()
        process.terminate()
        process.communicate(timeout=90)


def test_paths_and_verify_speak_json_on_their_last_line(first: tuple[Run, Path, dict[str, Any]]) -> None:
    """Scripts rely on these: where the tables are, and whether they add up."""
    run, env, _ = first
    paths, proof = (
        json.loads(CliRunner().invoke(cli, [*words, "--json", "--env-dir", str(env)]).stdout.splitlines()[-1])
        for words in (["paths"], ["verify", "--complete"])
    )
    assert len(paths["games"]) == run.games
    assert all((Path(table) / "_delta_log").is_dir() for table in [paths["bronze"], *paths["games"].values()])
    assert proof["ok"] is True


def test_each_game_is_complete_through_its_last_record(first: tuple[Run, Path, dict[str, Any]]) -> None:
    """L8: after a run over a real source `wait` says that what was sent has landed, and nothing of tomorrow."""
    _, env, _ = first
    games = json.loads(CliRunner().invoke(cli, ["paths", "--json", "--env-dir", str(env)]).stdout.splitlines()[-1])[
        "games"
    ]

    def wait(game: str, moment: str) -> tuple[int, dict[str, Any]]:
        done = CliRunner().invoke(
            cli, ["wait", game, "--through", moment, "--timeout", "0", "--json", "--env-dir", str(env)]
        )
        return done.exit_code, json.loads(done.stdout.splitlines()[-1])

    bronze = open_table(Paths(env).bronze).to_pyarrow_table(columns=["game_key", "source_time"])
    for key in sorted(games)[:3]:
        last = pc.max(bronze.filter(pc.field("game_key") == key).column("source_time")).as_py()
        assert wait(key, last.isoformat())[0] == 0
        code, found = wait(key, (last + timedelta(days=1)).isoformat())
        assert (code, found["next_seq"]) == (1, None)
        assert "bronze has all of its source through" in found["sentence"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["verify", "--env-dir", "."], "turnout: 1 wrong setting(s)"),
        (["demo", "--games", "0"], "Usage: "),
        (["verify", "--env-dir", "empty"], "turnout: "),
        (["groups", "run", "../x", "--env-dir", "empty"], "turnout: '../x' cannot name a cluster group"),
    ],
)
def test_wrong_use_ends_with_2_and_one_sentence(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    said: str,
) -> None:
    """Exit code 2: a wrong option, a wrong setting, nothing ingested, a group name that cannot be."""
    (tmp_path / "turnout.toml").write_text("[ingest]\ntrigger_seconds = 'soon'\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["turnout", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith(said)
