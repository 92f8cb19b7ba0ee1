"""A store whose clock is in a test's hand, and drivers that want leases in it."""

from typing import Any

from sqlalchemy import Engine, event, text

from pipeline.store.processes.leases import Lease, Process

SECONDS = 30.0


class StoreClock:
    """The clock of a store, in a test's hand: the function of SQL that reads it is replaced.

    SQLite asks this object. PostgreSQL finds the function in the store's own schema before it finds its own, and that
    asks a table.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine, self._now = engine, 1_800_000_000.0
        if engine.dialect.name == "sqlite":
            event.listen(engine, "connect", self._replace)
            engine.dispose()  # connections of before have the old clock
            return
        with engine.begin() as connection:
            connection.execute(text("CREATE TABLE test_clock (now double precision)"))
            connection.execute(text("INSERT INTO test_clock VALUES (:now)"), {"now": self._now})
            connection.execute(
                text(
                    "CREATE FUNCTION clock_timestamp() RETURNS timestamptz LANGUAGE sql "
                    "AS 'SELECT to_timestamp(now) FROM test_clock'"
                )
            )

    @property
    def now(self) -> float:
        """Unix seconds."""
        return self._now

    @now.setter
    def now(self, now: float) -> None:
        self._now = now
        if self._engine.dialect.name != "sqlite":
            with self._engine.begin() as connection:
                connection.execute(text("UPDATE test_clock SET now = :now"), {"now": now})

    def _replace(self, connection: Any, _record: Any) -> None:
        connection.create_function("julianday", 1, lambda _now: self._now / 86_400 + 2_440_587.5)


def elsewhere(pid: int) -> Process:
    """A process of another machine: nobody here knows whether it lives."""
    return Process(f"host-{pid}", f"boot-{pid}", pid, 1)


def group_lease(engine: Engine, name: str, pid: int = 1) -> Lease:
    """A lease on a group, taken."""
    lease = Lease(engine, "group", name, SECONDS, elsewhere(pid))
    lease.acquire()
    return lease
