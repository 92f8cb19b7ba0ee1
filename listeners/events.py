"""A query's events as plain values: made in a callback, read on the outbox's thread."""

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
    """A micro-batch ended. The outbox's thread parses the text, never the callback."""

    json: str  # read it with sample.progress_from_json


@dataclass(frozen=True, slots=True)
class Idle:
    """A trigger found no data; Spark reports it at most every few seconds, without the query's name."""

    query_id: str
    run_id: str
    at: str  # ISO 8601, as Spark writes it


@dataclass(frozen=True, slots=True)
class Terminated:
    """A run ended; Spark reports it without the query's name."""

    query_id: str
    run_id: str
    error: str | None  # the exception's whole text; None when the query was stopped


QueryEvent = Started | Progressed | Idle | Terminated
