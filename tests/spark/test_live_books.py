"""The live demo's game with a contract, silver, gold and books: a bad producer, a rebuild, and a day that stays."""

import json
import urllib.request
from collections.abc import Iterator
from typing import Any, Final

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from prometheus_client.parser import text_string_to_metric_families

from pipeline.api.trends import game_trend
from pipeline.base.names import game_key
from pipeline.demo import books
from pipeline.demo.breaking.faults import LATE_ROWS
from pipeline.demo.simulator import game_names
from pipeline.store.database.states import Cause
from tests.spark.live_demo_world import GAMES, READY_SECONDS, Demo, running, until, within

pytestmark = [pytest.mark.long, pytest.mark.timeout(1_800)]

GAME: Final = books.live_game(game_names(GAMES, 1))
KEY: Final = game_key(GAME)
_DAY_SECONDS: Final = 900.0  # until one has closed: 5 minutes and a minute of lateness, on a busy machine


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    with running(tmp_path_factory.mktemp("books") / "env") as made:
        yield made
    assert made.json("verify")["ok"] is True
    made.engine.dispose()


def violations(demo: Demo) -> float:
    """Return how many rows broke the contract's rule, as the group's `/metrics` has it."""
    found = 0.0
    for file in demo.paths.targets.glob("group-*.json"):
        (group,) = json.loads(file.read_text())
        with urllib.request.urlopen(f"http://{group['targets'][0]}/metrics", timeout=5) as answer:
            families = text_string_to_metric_families(answer.read().decode())
        found += sum(
            each.value
            for family in families
            for each in family.samples
            if each.name == "turnout_stream_contract_violations_total" and each.labels["game"] == KEY
        )
    return found


def incidents(demo: Demo) -> list[str]:
    """Return the causes of the open incidents of the game."""
    judged = demo.json("incidents")["incidents"]
    return [each["cause"] for each in judged if each["ended_at"] is None and KEY in each["games"]]


def derived(demo: Demo) -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in demo.json("derived", "list")["derived"]}


def closings(demo: Demo) -> list[dict[str, Any]]:
    closed: list[dict[str, Any]] = demo.json("books", "show")["closed"]
    return closed


def sorted_rows(demo: Demo, *place: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = DeltaTable(demo.env.joinpath(*place)).to_pyarrow_table().to_pylist()
    return sorted(rows, key=lambda row: (str(row.get("window_start")), row.get("_seq", 0), row.get("_pos", 0)))


def leaves(name: str, kind: pa.DataType, expression: str) -> Iterator[str]:
    """Yield the columns of a silver table that a column of the game's table becomes, as SQL."""
    if pa.types.is_struct(kind):
        for field in kind:
            yield from leaves(f"{name}_{field.name}", field.type, f'{expression}."{field.name}"')
    else:
        yield f'{expression} AS "{name}"'


def recomputed(demo: Demo, computed_until: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return silver and gold as DuckDB computes them of the game's table and the kept closing seqs."""
    table = DeltaTable(demo.paths.table(KEY)).to_pyarrow_table()
    own = ("_seq", "_pos", "_event_time", "_event_id", "_source_time")
    fields = [each for each in table.schema if each.name in own or not each.name.startswith("_")]
    columns = [leaf for each in fields for leaf in leaves(each.name, each.type, f'game."{each.name}"')]
    with duckdb.connect() as database:
        database.execute("SET TimeZone = 'UTC'")
        database.register("game", table)
        database.register("closings", DeltaTable(demo.env / "closings" / books.LIVE.gold).to_pyarrow_table())
        database.execute(
            f"CREATE TABLE silver AS SELECT {', '.join(columns)} FROM game "
            "QUALIFY row_number() OVER (PARTITION BY _event_id ORDER BY _seq, _pos) = 1 ORDER BY _seq, _pos"
        )
        silver = database.sql("SELECT * FROM silver ORDER BY _seq, _pos").to_arrow_table().to_pylist()
        gold = database.sql(
            "WITH dated AS (SELECT *, time_bucket(INTERVAL 1 MINUTE, _event_time) AS start FROM silver) "
            "SELECT start AS window_start, start + INTERVAL 1 MINUTE AS window_end, count(*) AS events, "
            "count(DISTINCT _event_id) AS ids, min(_event_time) AS first_at, max(_event_time) AS last_at, "
            "count(*) AS _rows, any_value(closing_seq) AS _closing_seq FROM dated "
            "ASOF JOIN closings ON dated.start + INTERVAL 1 MINUTE <= closings.window_end "
            f"WHERE _seq <= closing_seq AND start < to_timestamp({computed_until}) GROUP BY start ORDER BY start"
        ).to_arrow_table().to_pylist()  # fmt: skip
    return silver, gold


def test_a_bad_producer_is_seen_and_its_rows_are_quarantined(demo: Demo) -> None:
    """A contract holds in the demo: rows that break it are counted and refused, an incident names it, others land."""
    until(lambda: demo.json("contracts", "show", GAME)["contracts"] != [], READY_SECONDS)
    assert "contract" not in demo.refused(KEY)
    rows = demo.game(KEY).reported
    demo.begin("contract", GAME)
    until(lambda: demo.refused(KEY).get("contract", 0) > 40, within("contract", 0))
    until(lambda: violations(demo) > 40, within("contract", 0))
    until(lambda: game_trend(demo.paths, KEY, 900.0).broken.get("demo/player", 0) > 40, within("contract", 0))
    until(lambda: str(Cause.CONTRACT) in incidents(demo), within("contract", 1))
    demo.mend("contract", GAME)
    now = demo.game(KEY).reported
    assert rows is not None
    assert now is not None
    assert now.rows_total > rows.rows_total
    players = DeltaTable(demo.paths.table(KEY)).to_pyarrow_table(columns=["player_id"]).column(0).to_pylist()
    assert not [each for each in players if "test player" in each]


def test_a_closed_day_stays_while_silver_and_gold_follow_a_rebuild(demo: Demo) -> None:
    """Law L12 and that of books: late rows and a rebuild change no closed day; silver and gold are as recomputed."""
    until(lambda: any(each["accepted"] for each in closings(demo)), _DAY_SECONDS)
    before = closings(demo)
    closed = before[-1]
    kept = sorted_rows(demo, "closed", str(KEY))
    assert (closed["day_seconds"], closed["closed_by"][:6]) == (300, "group ")
    demo.begin("late", GAME)
    demo.begin("silence")
    tables = derived(demo)
    until(lambda: (derived(demo)[books.LIVE.gold]["late"] or 0) >= LATE_ROWS, READY_SECONDS)
    done = demo.run("repair", "rebuild", GAME, "--reason", "to see that all follows")
    assert done.exit_code == 0, done.output

    def has_followed() -> bool:
        now = derived(demo)
        return now[books.LIVE.gold]["open"] == 0 and all(
            now[name]["generation"] > tables[name]["generation"] for name in (books.SILVER, books.LIVE.gold)
        )

    until(has_followed, READY_SECONDS)
    found = derived(demo)[books.LIVE.gold]
    silver, gold = recomputed(demo, found["until"])
    assert sorted_rows(demo, "silver", books.SILVER) == silver
    assert sorted_rows(demo, "gold", books.LIVE.gold) == gold
    assert found["late"] >= LATE_ROWS
    assert len(silver) > len(gold) > 2
    demo.mend("silence")

    def entries() -> list[dict[str, Any]]:
        later = closings(demo)[len(before) :]
        return [entry for each in later for entry in each["entries"] if entry["day"] == closed["day"]]

    until(lambda: entries() != [], _DAY_SECONDS)
    (entry,) = entries()
    assert (entry["late"], entry["accepted"], entry["duplicate"], entry["refused"]) == (LATE_ROWS, 0, 0, 0)
    assert closings(demo)[: len(before)] == before
    days = {row["_day"] for row in kept}
    assert [row for row in sorted_rows(demo, "closed", str(KEY)) if row["_day"] in days] == kept
    assert demo.run("books", "verify", GAME).exit_code == 0
    (shown,) = [each for each in demo.json("books", "show", GAME)["days"] if each["day"] == closed["day"]]
    assert (shown["hash"], shown["accepted"], shown["state"]) == (closed["hash"], closed["accepted"], "closed")
    assert shown["corrected"]["late"] == LATE_ROWS
