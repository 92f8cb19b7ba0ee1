"""A store whose clock is in a test's hand, and drivers that want leases in it."""

from typing import Any

from sqlalchemy import Engine, event

from pipeline.store.leases import Lease, Process

SECONDS = 30.0


class StoreClock:
    """The clock of a SQLite store, in a test's hand: the function of SQL that reads it is replaced."""

    def __init__(self, engine: Engine) -> None:
        self.now = 1_800_000_000.0
        event.listen(engine, "connect", self._replace)
        engine.dispose()  # connections of before have the old clock

    def _replace(self, connection: Any, _record: Any) -> None:
        connection.create_function("julianday", 1, lambda _now: self.now / 86_400 + 2_440_587.5)


def elsewhere(pid: int) -> Process:
    """A process of another machine: nobody here knows whether it lives."""
    return Process(f"host-{pid}", f"boot-{pid}", pid, 1)


def group_lease(engine: Engine, name: str, pid: int = 1) -> Lease:
    """A lease on a group, taken."""
    lease = Lease(engine, "group", name, SECONDS, elsewhere(pid))
    lease.acquire()
    return lease
