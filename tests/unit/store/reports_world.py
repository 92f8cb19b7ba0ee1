"""States of streams as a driver reports them."""

from collections.abc import Sequence

from sqlalchemy import Engine

from listeners.sample import StreamState
from pipeline.store.processes.drivers import StreamReports


def write_streams(engine: Engine, states: Sequence[StreamState], *, is_news: bool = False) -> None:
    """Report these streams of one group once, as a driver that has just begun does."""
    StreamReports(engine).write(states, is_news=is_news)
