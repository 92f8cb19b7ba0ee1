"""What a query reports through the listener, as plain values; made in a callback, read on the outbox's thread."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Started:
    """A query started; Spark reports it synchronously, before `start()` returns."""

    query_id: str
    run_id: str
    name: str | None
    at: str  # ISO 8601, as Spark writes it


@dataclass(frozen=True, slots=True)
class Progressed:
    """A micro-batch ended. The text is parsed where the outbox is drained, never in the callback."""

    json: str  # read it with sample.progress_from_json


@dataclass(frozen=True, slots=True)
class Idle:
    """A trigger found no data; reported at most every few seconds, and without the query's name."""

    query_id: str
    run_id: str
    at: str  # ISO 8601, as Spark writes it


@dataclass(frozen=True, slots=True)
class Terminated:
    """A run ended; Spark does not give the query's name here."""

    query_id: str
    run_id: str
    error: str | None  # the exception's whole text; None when the query was stopped


QueryEvent = Started | Progressed | Idle | Terminated
