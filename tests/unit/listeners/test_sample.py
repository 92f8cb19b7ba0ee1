"""Guards how a query's progress and name are read: what Spark does not know stays unknown."""

import json

import pytest

from listeners.sample import Progress, progress_from_json
from listeners.stream_id import QueryKind, StreamId, parse_query_name

# As Spark wrote it for a foreachBatch query over a Delta source; numbers and ids are made up.
RECORDED = {
    "id": "5ec1b5c6-3a0e-4a2b-9c52-0f8f4a1f5d11",
    "runId": "b2f0a7d4-8f2f-4a0d-8f6e-2d0c2f6a9b77",
    "name": "turnout-demux-eu-1",
    "timestamp": "2026-01-05T10:20:30.123Z",
    "batchId": 7,
    "batchDuration": 412,
    "numInputRows": 40,
    "inputRowsPerSecond": 8.0,
    "processedRowsPerSecond": 97.1,
    "durationMs": {"addBatch": 300, "getBatch": 4, "latestOffset": 20, "triggerExecution": 412, "walCommit": 30},
    "stateOperators": [],
    "sources": [{"description": "DeltaSource", "latestOffset": None, "numInputRows": 40}],
    "sink": {"description": "ForeachBatchSink", "numOutputRows": -1},
}


def read(**changes: object) -> Progress:
    return progress_from_json(json.dumps({**RECORDED, **changes}))


def test_a_recorded_progress_is_read_exactly() -> None:
    """Identity, rows and durations come from Spark's JSON unchanged."""
    assert read() == Progress(
        query_name="turnout-demux-eu-1",
        query_id="5ec1b5c6-3a0e-4a2b-9c52-0f8f4a1f5d11",
        run_id="b2f0a7d4-8f2f-4a0d-8f6e-2d0c2f6a9b77",
        batch_id=7,
        started_at="2026-01-05T10:20:30.123Z",
        input_rows=40,
        durations_ms={"addBatch": 300, "getBatch": 4, "latestOffset": 20, "triggerExecution": 412, "walCommit": 30},
    )


def test_minus_one_is_unknown() -> None:
    """Spark's -1 means that it does not know, so neither rows nor a duration may be told as a number."""
    progress = read(numInputRows=-1, durationMs={"addBatch": -1, "getBatch": 0})
    assert progress.input_rows is None
    assert progress.durations_ms == {"getBatch": 0}


def test_names_of_files_are_no_rows() -> None:
    """Spark counts what our sources give it: names of files, whose rows tasks read. How many there were is unknown."""
    sources = [{"description": "org.apache.x.PythonMicroBatchStreamWithAdmissionControl@1c", "numInputRows": 2}]
    assert read(numInputRows=2, sources=sources).input_rows is None


def test_absent_numbers_are_unknown() -> None:
    """An idle progress leaves fields out; that is unknown, not zero."""
    text = {name: value for name, value in RECORDED.items() if name not in {"numInputRows", "durationMs", "name"}}
    progress = progress_from_json(json.dumps(text))
    assert (progress.input_rows, progress.durations_ms, progress.query_name) == (None, {}, None)


def test_a_foreign_name_is_kept() -> None:
    """A session's other queries are told under their own names."""
    assert read(name="my query · 7").query_name == "my query · 7"


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", "null", json.dumps({**RECORDED, "durationMs": 3}), json.dumps({**RECORDED, "batchId": None})],
)
def test_what_is_no_progress_is_a_value_error(text: str) -> None:
    """Anything else fails with the one error that the caller expects."""
    with pytest.raises(ValueError, match=r"progress|JSON|Expecting"):
        progress_from_json(text)


@pytest.mark.parametrize(
    ("kind", "name"), [("ingest", "local"), ("demux", "eu-1"), ("game", "chess_a2b3c4d5e6f7"), ("demux", "game-x")]
)
def test_a_query_name_is_read_back(kind: QueryKind, name: str) -> None:
    """Name and identity are two spellings of one thing."""
    stream = StreamId(kind, name)
    assert parse_query_name(stream.query_name) == stream


@pytest.mark.parametrize(
    "text", [None, "", "demux-eu", "turnout-demux-", "turnout-other-x", "turnout-demux-eu\n", "xturnout-demux-eu"]
)
def test_a_foreign_query_name_is_nobodys(text: str | None) -> None:
    """Queries of others are not taken for ours, and are no error."""
    assert parse_query_name(text) is None


@pytest.mark.parametrize("name", ["", "a b", "-a", "é", "a/b", "x" * 65])
def test_a_name_that_could_not_be_read_back_is_refused(name: str) -> None:
    """Only names that fit into a query name identify a stream."""
    with pytest.raises(ValueError, match="query name"):
        StreamId("game", name)
