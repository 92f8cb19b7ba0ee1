"""What was decided about streams: paused, parked, retries used up. Who is behind is never kept (law L7).

Drivers write what failed, people what they ask for; a stream about which nothing was decided has no row.
"""

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from sqlalchemy import Connection, Engine, select, update
from sqlalchemy.exc import IntegrityError

from pipeline.store.database.engine import writing
from pipeline.store.database.states import FailureClass, StreamDesired
from pipeline.store.database.tables import stream_control


@dataclass(frozen=True, slots=True)
class StreamControl:
    """What was decided about one stream and why; the default is a stream about which nothing was decided."""

    desired: StreamDesired = "running"
    own_query: bool = False  # read by a query of its own, not in the pass
    parked_at: float | None = None  # Unix seconds; None: it is not parked
    failures: int = 0  # in a row
    failure_class: FailureClass | None = None  # of the last failure
    evidence: str | None = None  # what failed, with the rows it was about; one line
    failed_at: float | None = None
    retry_at: float = 0.0  # no attempt before
    stopped_by: str | None = None  # a digest of the rules of an output contract that parked it; it ends as they change


_FIELDS = tuple(StreamControl.__dataclass_fields__)
_DECIDED: Final = select(*(stream_control.c[name] for name in ("game_key", *_FIELDS)))


def decided(engine: Engine) -> dict[str, StreamControl]:
    """Return every decision by game key."""
    with engine.connect() as connection:
        rows = connection.execute(_DECIDED)
        return {key: StreamControl(desired, bool(own_query), *rest) for key, desired, own_query, *rest in rows}


def record_failures(engine: Engine, decisions: Mapping[str, StreamControl]) -> None:
    """Keep the results of failures of these streams; what people requested stays as it is."""
    for key, decision in decisions.items():
        values = asdict(decision)
        with writing(engine) as connection:
            _write(connection, key, {name: values[name] for name in _FIELDS if name not in {"desired", "own_query"}})


def submit_control(
    engine: Engine, key: str, actor: str, *, desired: StreamDesired | None = None, own_query: bool | None = None
) -> None:
    """Note what a person wants of a stream; its driver acts at its next pass."""
    with writing(engine) as connection:
        submit_control_within(connection, key, actor, desired=desired, own_query=own_query)


def submit_control_within(
    connection: Connection, key: str, actor: str, *, desired: StreamDesired | None = None, own_query: bool | None = None
) -> None:
    """Note what a person wants of a stream, in the caller's transaction."""
    values: dict[str, Any] = {"requested_by": actor, "requested_at": time.time()}
    if desired is not None:
        values["desired"] = desired
    if own_query is not None:
        values["own_query"] = int(own_query)
    _write(connection, key, values)


def submit_retry(engine: Engine, key: str, actor: str) -> None:
    """Let a parked or waiting stream run again at once, with its whole budget."""
    with writing(engine) as connection:
        submit_retry_within(connection, key, actor)


def submit_retry_within(connection: Connection, key: str, actor: str) -> None:
    """Let a parked or waiting stream run again at once, in the caller's transaction."""
    fresh = asdict(StreamControl())
    values = {name: fresh[name] for name in _FIELDS if name not in {"desired", "own_query"}}
    _write(connection, key, {**values, "requested_by": actor, "requested_at": time.time()})


def resume_stopped(engine: Engine, key: str, stopped_by: str) -> None:
    """Let a stream run again that these rules of an output contract have stopped; a later decision stays."""
    fresh = asdict(StreamControl())
    values = {name: fresh[name] for name in _FIELDS if name not in {"desired", "own_query"}}
    is_stopped = (stream_control.c.game_key == key) & (stream_control.c.stopped_by == stopped_by)
    with writing(engine) as connection:
        connection.execute(update(stream_control).where(is_stopped).values(values))


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
