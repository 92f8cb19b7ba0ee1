"""Guards the SQL of a workspace's alerts and dashboard, run by Spark over tables as the metrics writers make them."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import yaml
from pyspark.sql import SparkSession

from listeners.metrics_schema import MINUTES
from listeners.sample import LATENCY_EDGES_SECONDS
from pipeline.health.alerting.objectives import Objective, default
from pipeline.platforms.databricks.deploy.monitoring import ALERTS, DASHBOARD, burn_query, texts

NOW = datetime.now(UTC).replace(second=0, microsecond=0)
PAIRS = (("1h", "5m", 0.02),)
FAST = [0] * len(LATENCY_EDGES_SECONDS) + [0]
LATE = [*FAST[:-1], 10]


def minute(ago: int, game: str, **more: Any) -> dict[str, Any]:
    at = NOW - timedelta(minutes=ago)
    row = {
        "event_date": at.date(), "minute": at, "cluster_group": "main", "game_key": game, "status": "RUNNING",
        "backlog_age_seconds": 1.0, "rows": 10, "caught_up_rows": 0, "refused": 0, "commits": 1,
        "latency_counts": [10, *FAST[1:]], "writer": "w", "row": ago,
    }  # fmt: skip
    return {**row, **more}


@pytest.fixture
def tables(spark: SparkSession) -> Iterator[SparkSession]:
    """Views of the names that the dashboard's queries have, empty."""
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    for table in MINUTES:
        columns = ", ".join(f"CAST(NULL AS {_type(field.type)}) AS {field.name}" for field in table.schema)
        spark.sql(f"SELECT {columns} WHERE false").createOrReplaceTempView(table.name)
    yield spark
    for table in MINUTES:
        spark.catalog.dropTempView(table.name)


def _type(of: Any) -> str:
    words = {"date32[day]": "date", "timestamp[us, tz=UTC]": "timestamp", "list<item: int32>": "array<int>"}
    words |= {"list<element: int32>": "array<int>", "string": "string", "int64": "bigint", "double": "double"}
    words |= {"bool": "boolean"}
    return words[str(of)]


def fill(spark: SparkSession, rows: list[dict[str, Any]]) -> None:
    schema = spark.table("stream_minute").schema
    spark.createDataFrame(rows, schema).createOrReplaceTempView("stream_minute")


def burns(spark: SparkSession, objective: Objective, *before: Objective) -> dict[str, float]:
    found = spark.sql(burn_query(objective, before, PAIRS, 60.0, "")).collect()
    return {row["game_key"]: row["burn"] for row in found}


def test_a_game_that_is_late_burns(tables: SparkSession) -> None:
    """A game burns by its backlog, its latency or a broken status, in both windows; a paused game never does."""
    calm = [minute(ago, "calm") for ago in range(60)]
    aged = [minute(ago, "aged", backlog_age_seconds=61.0) for ago in range(60)]
    slow = [minute(ago, "slow", latency_counts=LATE) for ago in range(60)]
    down = [minute(ago, "down", status="FAILED", latency_counts=None) for ago in range(60)]
    still = [minute(ago, "still", status="PAUSED", backlog_age_seconds=9_999.0) for ago in range(60)]
    over = [minute(ago, "over", backlog_age_seconds=1.0 if ago < 5 else 61.0) for ago in range(60)]
    fill(tables, calm + aged + slow + down + still + over)
    found = burns(tables, default()[0])
    assert {game: burn > 1 for game, burn in found.items()} == {
        "calm": False, "aged": True, "slow": True, "down": True, "still": False, "over": False
    }  # fmt: skip


def test_a_row_that_was_written_twice_counts_once(tables: SparkSession) -> None:
    """A batch of minutes that its writer sent twice does not make its late rows more than they are."""
    rows = [minute(ago, "a", latency_counts=[96, *FAST[1:]]) for ago in range(60)]
    late = [minute(ago, "a", latency_counts=[*FAST[:-1], 4], row=1_000 + ago) for ago in range(60)]
    fill(tables, rows + late * 2)
    assert burns(tables, default()[0])["a"] == 0  # 4 of 100, where 8 of 104 would be too many
    fill(tables, rows + late + [{**each, "row": each["row"] + 1_000} for each in late])
    assert burns(tables, default()[0])["a"] > 1


def test_a_game_belongs_to_the_first_class(tables: SparkSession) -> None:
    """A class has the games that its expression names, without those of the classes before it."""
    fill(tables, [minute(0, "g-a"), minute(0, "g-b")])
    first, rest = Objective("first", "g-a", 5.0), Objective("rest", None, None)
    assert set(burns(tables, first)) == {"g-a"}
    assert set(burns(tables, rest, first)) == {"g-b"}


def test_each_query_of_the_bundle_runs(tables: SparkSession) -> None:
    """Spark takes each query of the alerts and of the dashboard, and finds the columns that they name."""
    alerts = yaml.safe_load(texts()[ALERTS])["resources"]["alerts"]
    for alert in alerts.values():
        query = alert["query_text"].replace("${var.catalog}.${var.schema}.", "")
        assert alert["evaluation"]["source"]["name"] in tables.sql(query).columns
    content = json.loads(texts()[DASHBOARD])
    queries = {each["name"]: "".join(each["queryLines"]) for each in content["datasets"]}
    widgets = [each["widget"] for page in content["pages"] for each in page["layout"]]
    for widget in widgets:
        query = widget["queries"][0]["query"]
        assert {field["name"] for field in query["fields"]} == set(widget["spec"]["encodings"])
        wanted = ", ".join(f"{field['expression']} AS `{field['name']}`" for field in query["fields"])
        keys = [field["expression"] for field in query["fields"] if "(" not in field["expression"]]
        grouped = f" GROUP BY {', '.join(keys)}" if keys else ""
        tables.sql(f"SELECT {wanted} FROM ({queries[query['datasetName']]}){grouped}").collect()
