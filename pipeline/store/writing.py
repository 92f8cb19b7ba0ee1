"""A transaction of the control store that changes something on the data path: a fail-point before it and one after."""

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, Engine

from pipeline.failpoints import effect


@contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """Give a connection whose changes are committed when the block ends, and taken back when it raises."""
    with effect("store_commit"), engine.begin() as connection:
        yield connection
