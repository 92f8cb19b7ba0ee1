"""What was decided about streams: paused, parked, retries used up. Who is behind is never kept (law L7).

Drivers write what failed, people what they ask for; a stream about which nothing was decided has no row.
"""

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

from sqlalchemy import Connection, Engine, select, update
from sqlalchemy.exc import IntegrityError

from pipeline.store.drivers import is_time
from pipeline.store.tables import stream_control
from pipeline.store.writing import writing

FailureClass = Literal["expected", "transient", "poison", "fatal"]
"""`expected`: another owner was first, costs nothing. `transient`: storage, registry or disk. `poison`: the rows, the
schema or the table. `fatal`: it killed a worker."""

Desired = Literal["running", "paused"]


@dataclass(frozen=True, slots=True)
class StreamControl:
    """What was decided about one stream and why; the default is a stream about which nothing was decided."""

    desired: Desired = "running"
    own_query: bool = False  # read by a query of its own, not in the pass
    parked_at: float | None = None  # Unix seconds; None: it is not parked; 0: nobody knows since when
    failures: int = 0  # in a row
    failure_class: FailureClass | None = None  # of the last failure
    evidence: str | None = None  # what failed, with the rows it was about; one line
    failed_at: float | None = None
    retry_at: float = 0.0  # no attempt before


_MAX_FAILURES: Final = 1_000  # no budget allows so many
_FIELDS = tuple(StreamControl.__dataclass_fields__)
_DECIDED: Final = select(*(stream_control.c[name] for name in ("game_key", *_FIELDS)))


def decided(engine: Engine) -> dict[str, StreamControl]:
    """Return every decision by game key. A stream whose row a hand has spoilt is parked, and its evidence says why."""
    with engine.connect() as connection:
        return {key: _decision(*row) for key, *row in connection.execute(_DECIDED)}


def _decision(desired: Any, own_query: Any, parked_at: Any, failures: Any, *rest: Any) -> StreamControl:
    """Return what a row says; of one that a hand has spoilt it is not known whether the stream may run."""
    failure_class, evidence, failed_at, retry_at = rest
    sound = (
        desired in ("running", "paused"),
        own_query in (0, 1),
        parked_at is None or is_time(parked_at),
        type(failures) is int and 0 <= failures <= _MAX_FAILURES,
        failure_class is None or isinstance(failure_class, str),
        evidence is None or isinstance(evidence, str),
        failed_at is None or is_time(failed_at),
        is_time(retry_at),
    )
    if all(sound):
        return StreamControl(desired, bool(own_query), parked_at, failures, *rest)
    values = zip(_FIELDS, (desired, own_query, parked_at, failures, *rest), sound, strict=True)
    wrong = ", ".join(f"{name} {value!r:.80}" for name, value, is_sound in values if not is_sound)
    return StreamControl(
        desired if sound[0] else "running",
        own_query=sound[1] and bool(own_query),
        parked_at=0.0,
        evidence=f"its row in table stream_control of the control store is invalid: {wrong}. Correct it",
    )


def record_failures(engine: Engine, decisions: Mapping[str, StreamControl]) -> None:
    """Keep the results of failures of these streams; what people requested stays as it is."""
    for key, decision in decisions.items():
        values = asdict(decision)
        with writing(engine) as connection:
            _write(connection, key, {name: values[name] for name in _FIELDS if name not in {"desired", "own_query"}})


def ask(engine: Engine, key: str, actor: str, *, desired: Desired | None = None, own_query: bool | None = None) -> None:
    """Note what a person wants of a stream; its driver acts at its next pass."""
    with writing(engine) as connection:
        ask_within(connection, key, actor, desired=desired, own_query=own_query)


def ask_within(
    connection: Connection, key: str, actor: str, *, desired: Desired | None = None, own_query: bool | None = None
) -> None:
    """Note what a person wants of a stream, in the caller's transaction."""
    asked: dict[str, Any] = {"requested_by": actor, "requested_at": time.time()}
    if desired is not None:
        asked["desired"] = desired
    if own_query is not None:
        asked["own_query"] = int(own_query)
    _write(connection, key, asked)


def ask_retry(engine: Engine, key: str, actor: str) -> None:
    """Let a parked or waiting stream run again at once, with its whole budget."""
    with writing(engine) as connection:
        ask_retry_within(connection, key, actor)


def ask_retry_within(connection: Connection, key: str, actor: str) -> None:
    """Let a parked or waiting stream run again at once, in the caller's transaction."""
    fresh = asdict(StreamControl())
    values = {name: fresh[name] for name in _FIELDS if name not in {"desired", "own_query"}}
    _write(connection, key, {**values, "requested_by": actor, "requested_at": time.time()})


def _write(connection: Connection, key: str, values: Mapping[str, Any]) -> None:
    own_row = update(stream_control).where(stream_control.c.game_key == key).values(values)
    if connection.execute(own_row).rowcount:
        return
    row = {**asdict(StreamControl()), "own_query": 0, **values}
    try:
        with connection.begin_nested():
            connection.execute(stream_control.insert().values(game_key=key, **row))
    except IntegrityError:  # another process decided at the same moment
        connection.execute(own_row)
