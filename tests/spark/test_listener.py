"""Guards the listener against a real query: every kind of event arrives, and nothing in it disturbs the query."""

import queue
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from listeners import listener
from listeners.events import Progressed, QueryEvent, Started, Terminated
from listeners.listener import Attachment, attach
from listeners.sample import progress_from_json

PATIENCE_SECONDS = 60


class Inbox:
    """A sink that a test can wait on."""

    def __init__(self) -> None:
        self._events: queue.SimpleQueue[QueryEvent] = queue.SimpleQueue()

    def take(self, event: QueryEvent) -> None:
        self._events.put(event)

    def until_terminated(self) -> list[QueryEvent]:
        """Return all events up to the end of a run; raises queue.Empty when none comes in time."""
        events = [self._events.get(timeout=PATIENCE_SECONDS)]
        while not isinstance(events[-1], Terminated):
            events.append(self._events.get(timeout=PATIENCE_SECONDS))
        return events


def run(spark: SparkSession, folder: Path, name: str, *, fail: bool = False) -> int:
    """Run a query over one file of five rows to its end and return how many rows its batches saw."""
    source = folder / "in"
    source.mkdir(exist_ok=True)
    (source / "rows.txt").write_text("".join(f"{number}\n" for number in range(5)))
    seen: list[int] = []

    def batch(frame: DataFrame, _batch_id: int) -> None:
        if fail:
            raise RuntimeError("the batch is bad")
        seen.append(frame.count())

    query = (
        spark.readStream.text(str(source))
        .writeStream.foreachBatch(batch)
        .queryName(name)
        .option("checkpointLocation", str(folder / f"checkpoint-{name}"))
        .trigger(availableNow=True)
        .start()
    )
    try:
        assert query.awaitTermination(PATIENCE_SECONDS)
    finally:
        query.stop()
    return sum(seen)


@pytest.fixture(params=["lean", "public"])
def attachment(
    request: pytest.FixtureRequest, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Attachment, Inbox]]:
    """A listener of each kind; the public one is what a Spark without the Java interface gets."""
    inbox = Inbox()
    with monkeypatch.context() as patched:
        if request.param == "public":
            patched.setattr(listener, "java_class", lambda _jvm, *_names: None)
        attached = attach(spark, inbox.take)
    assert request.param == attached.kind
    yield attached, inbox
    attached.detach()


def test_every_event_of_a_run_arrives(
    spark: SparkSession, attachment: tuple[Attachment, Inbox], tmp_path: Path
) -> None:
    """Started, Progressed and Terminated of one run arrive in order, with one run id and Spark's numbers."""
    attached, inbox = attachment
    assert run(spark, tmp_path, "turnout-demux-eu-1") == 5
    started, *progressed, terminated = inbox.until_terminated()
    assert isinstance(started, Started)
    assert isinstance(terminated, Terminated)
    assert (started.name, terminated.error) == ("turnout-demux-eu-1", None)
    reported = [progress_from_json(event.json) for event in progressed if isinstance(event, Progressed)]
    assert reported
    assert {(started.query_id, started.run_id, "turnout-demux-eu-1")} == {
        (progress.query_id, progress.run_id, progress.query_name) for progress in reported
    }
    assert terminated.run_id == started.run_id
    assert reported[0].input_rows == 5
    assert reported[0].durations_ms["triggerExecution"] > 0
    assert attached.errors == 0


def test_a_failed_run_tells_why(spark: SparkSession, attachment: tuple[Attachment, Inbox], tmp_path: Path) -> None:
    """The end of a run that failed carries the exception's text."""
    _, inbox = attachment
    with pytest.raises(Exception, match="the batch is bad"):
        run(spark, tmp_path, "failing", fail=True)
    terminated = inbox.until_terminated()[-1]
    assert isinstance(terminated, Terminated)
    assert terminated.error is not None
    assert "the batch is bad" in terminated.error


def test_this_spark_gets_the_lean_adapter(spark: SparkSession) -> None:
    """On the Spark we ship with, the cheap path is the one in use; a new Spark that loses it must be noticed."""
    attached = attach(spark, lambda _: None)
    attached.detach()
    assert attached.kind == "lean"


@pytest.mark.proves("G135")
def test_a_raising_sink_does_not_disturb_the_query(spark: SparkSession, tmp_path: Path) -> None:
    """The query runs to its end, and every event that could not be handed over is counted."""
    inbox = Inbox()

    def sink(event: QueryEvent) -> None:
        inbox.take(event)
        raise RuntimeError("full")

    attached = attach(spark, sink)
    try:
        assert run(spark, tmp_path, "undisturbed") == 5
        events = inbox.until_terminated()
    finally:
        attached.detach()
    # The last event is told before its error is counted.
    assert len(events) - 1 <= attached.errors <= len(events)
    assert attached.last_error == "RuntimeError: full"


def test_a_detached_listener_is_silent(spark: SparkSession, tmp_path: Path) -> None:
    """After detach no event arrives, and detaching again does nothing."""
    silent, witness = Inbox(), Inbox()
    detached = attach(spark, silent.take)
    detached.detach()
    detached.detach()
    attached = attach(spark, witness.take)
    try:
        assert run(spark, tmp_path, "unheard") == 5
        assert witness.until_terminated()
    finally:
        attached.detach()
    with pytest.raises(queue.Empty):
        silent._events.get_nowait()
