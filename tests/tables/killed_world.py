"""Ends a controller at its n-th point: each fail-point, each end of a transaction, and what a test counts besides."""

from collections.abc import Callable, Iterator
from concurrent.futures import wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from sqlalchemy import Engine, event

from pipeline.base import failpoints
from pipeline.control.operations.definition import ControlContext
from pipeline.store.operations import operation
from tests.tables.registering_world import Killed


@dataclass
class Fate:
    """How far a process comes; it is dead from its n-th point on, in all its threads."""

    number: int  # 0: it lives
    passed: list[str] = field(default_factory=list)

    @property
    def is_dead(self) -> bool:
        return 0 < self.number <= len(self.passed)

    def come(self, point: str) -> None:
        """Come to a point, or end there."""
        self.passed.append(point)
        if self.is_dead:
            raise Killed(point)


@contextmanager
def fated(engine: Engine, number: int) -> Iterator[Fate]:
    """Let the block be a process that ends at its n-th point."""
    fate = Fate(number)

    def commit(_connection: object) -> None:
        fate.come("commit of the store")

    event.listen(engine, "commit", commit)
    failpoints.on_hit = fate.come
    try:
        with suppress(Killed):
            yield fate
    finally:
        failpoints.on_hit = None
        event.remove(engine, "commit", commit)


def brought_on(context: ControlContext, tick: Callable[[ControlContext], object], operation_id: str) -> None:
    """Let a controller tick until an operation has ended."""
    for _ in range(10):
        try:
            tick(context)
        finally:
            wait(list(context.background_tasks._begun.values()))
        if not operation(context.engine, operation_id).is_open:
            return
