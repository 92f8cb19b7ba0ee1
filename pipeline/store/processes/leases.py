"""Who should run: one lease per driver in the control store, judged by the store's own clock and no other.

Leases save work and keep a driver from running twice. No row depends on them: the tables' compare-and-set sees to that
(law L4), with leases or without.
"""

import logging
import os
import secrets
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Self

from sqlalchemy import ColumnElement, Engine, Float, exists, select, true, update
from sqlalchemy.exc import IntegrityError, SQLAlchemyError
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from listeners.process_kinds import GROUP, described
from pipeline.base.errors import Refused
from pipeline.base.texts import in_utc
from pipeline.settings.tree import Store
from pipeline.store.database.engine import writing
from pipeline.store.database.tables import groups, leases

_log = logging.getLogger("turnout")
_RENEWALS: Final = 3  # within the time of one lease, so that one or two may fail
MARGIN: Final = 1 / _RENEWALS
"""The share of its time that a lease must still have before something is begun that nothing else protects."""
_MAX_PID: Final = 1 << 31


class LeaseLost(Refused):
    """Another process has taken over what this one drove."""


class store_now(FunctionElement[float]):  # noqa: N801 - a function of SQL
    """The time by the store's clock, in Unix seconds."""

    type = Float()
    inherit_cache = True


@compiles(store_now, "sqlite")
def _sqlite_now(*_arguments: Any, **_options: Any) -> str:
    return "((julianday('now') - 2440587.5) * 86400.0)"


@compiles(store_now, "postgresql")
def _postgresql_now(*_arguments: Any, **_options: Any) -> str:
    # Not now(): that is when the transaction began, which may have waited for another since.
    return "CAST(extract(epoch FROM clock_timestamp()) AS double precision)"


def store_time(engine: Engine) -> float:
    """Return the time by the store's clock, in Unix seconds."""
    with engine.connect() as connection:
        return float(connection.execute(select(store_now())).scalar_one())


@dataclass(frozen=True, slots=True)
class Process:
    """A process, distinct from every other one there was."""

    host: str
    pid_namespace: str | None  # this boot of the machine and its space of pids; None where the system does not tell
    pid: int
    started: int | None  # ticks of the machine since its boot, so that a pid used again is not taken for it

    @classmethod
    def this(cls) -> Self:
        """Return the process we are."""
        return cls.of(os.getpid())

    @classmethod
    def of(cls, pid: int) -> Self:
        """Return the process that has this pid now, on this machine."""
        stat = _stat(pid)
        return cls(socket.gethostname(), _pid_namespace(), pid, stat.started if stat else None)

    @property
    def makes_sense(self) -> bool:
        """Whether it can be signalled: a pid of 0 or less is many processes, ourselves among them."""
        return 0 < self.pid < _MAX_PID

    @property
    def address(self) -> tuple[str, int]:
        """Host and process id, as a driver reports itself."""
        return self.host, self.pid

    def is_here(self) -> bool:
        """Return whether it is one of this machine and container, of which we can know."""
        return self.pid_namespace is not None and self.pid_namespace == _pid_namespace()

    def is_dead(self) -> bool:
        """Return whether it has certainly ended; of another machine's or container's process nobody here knows."""
        if not self.is_here():
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            pass  # there is such a process, of another user
        stat = _stat(self.pid)
        return stat is not None and (stat.is_over or stat.started != self.started)


@dataclass(frozen=True, slots=True)
class Holding:
    """A driver's lease as the store has it; times are Unix seconds of the store's clock."""

    process: Process
    token: str
    epoch: int
    since: float
    expires_at: float

    def __str__(self) -> str:
        where = f"process {self.process.pid} on {self.process.host}"
        return f"{where}, since {_moment(self.since)}, with a lease until {_moment(self.expires_at)}"


def expire_dead(engine: Engine) -> list[tuple[str, str]]:
    """Let each lease run out now whose holder was a process of this machine that has ended; return kinds and names.

    So that everybody knows at once what only this machine can see.
    """
    names = (*Process.__slots__, "kind", "name", "token", "epoch")
    with engine.connect() as connection:
        held = connection.execute(select(*(leases.c[name] for name in names)).where(leases.c.expires_at > store_now()))
        dead = [row for row in held if Process(*row[:4]).is_dead()]
    if not dead:
        return []
    with writing(engine) as connection:
        for row in dead:
            as_seen = (leases.c.kind == row.kind) & (leases.c.name == row.name)
            as_seen &= (leases.c.token == row.token) & (leases.c.epoch == row.epoch)
            connection.execute(update(leases).where(as_seen).values(expires_at=store_now()))
    return [(row.kind, row.name) for row in dead]


class Lease:
    """A driver's lease on ingest or on one group. Every write of it is a compare-and-set on its holder and epoch."""

    def __init__(
        self,
        engine: Engine,
        kind: str,
        name: str,
        seconds: float,
        process: Process | None = None,
        run_id: int | None = None,
    ) -> None:
        """Prepare a lease for this process, or for another one; `acquire` takes it.

        `run_id` is the run that a controller started the process for.
        """
        self._engine, self._kind, self.name, self.seconds, self.run_id = engine, kind, name, seconds, run_id
        self._process = process or Process.this()
        self._token = secrets.token_hex(16)
        self.epoch = 0  # grows with every new holder; 0 before the first `acquire`
        self._lost: LeaseLost | None = None
        self._older: Holding | None = None  # the lease of before ours, which an older copy of the store still has

    def acquire(self) -> None:
        """Take the lease, if it is free, has run out, or is held by a process of this machine that has ended.

        Raises:
            Refused: another process has it.
        """
        seen = self.read_holding()
        if seen is not None and seen.token == self._token:  # an earlier attempt got it, only its answer was lost
            self.epoch = seen.epoch
            self.renew()
        elif not (self._insert() if seen is None else self._replace(seen)):
            raise Refused(
                f"Another process drives {self.what}: {self.read_holding()}, which it renews while it runs. "
                "Stop that process first; if it has ended, wait until then."
            )

    def renew(self) -> None:
        """Renew the lease for its whole time, also after it expired if no other process has taken it.

        A store that is an older copy, such as a standby after a failover, names an earlier holder. A lease of another
        process that has run out has no owner: it is taken again, as is one that such a copy lacks, but that of a group
        which was removed. One that an earlier holder does not renew is waited for, without an error.

        Raises:
            LeaseLost: another process has it.
        """
        query = update(leases).where(self._mine).values(expires_at=store_now() + self.seconds)
        with writing(self._engine) as connection:
            if connection.execute(query).rowcount:
                return
        seen = self.read_holding()
        if seen is None and self.epoch and self._has_subject() and self._insert():
            _log.warning("the store had no lease on %s: taken again", self.what)
            return
        if seen is not None and self.epoch:
            if self._replace(seen):
                _log.warning("the lease on %s was of %s, which lives no more: taken again", self.what, seen)
                return
            if seen.epoch < self.epoch and self._older in {None, seen}:
                self._older = seen  # of the time before ours: it has run out by the next renewals, unless it lives
                return
        self._lost = LeaseLost(
            f"This process no longer drives {self.what}: it did not renew its lease for {self.seconds:g} s, and "
            f"another took over ({seen or 'which has ended since'}). Stop this process."
        )
        raise self._lost

    def release(self) -> None:
        """Let the lease run out now; does nothing when another process has it."""
        with writing(self._engine) as connection:
            connection.execute(update(leases).where(self._mine).values(expires_at=store_now()))

    def check(self) -> None:
        """Go on only while no renewal has found another holder; asks nobody.

        Raises:
            LeaseLost: one has.
        """
        if self._lost is not None:
            raise self._lost

    def read_holding(self) -> Holding | None:
        """Return the holder of the lease, or the last one; None if it was never held."""
        query = select(*(leases.c[name] for name in (*Process.__slots__, "token", "epoch", "since", "expires_at")))
        with self._engine.connect() as connection:
            row = connection.execute(query.where(self._row)).one_or_none()
        return None if row is None else Holding(Process(*row[:4]), *row[4:])

    def runs(self, margin_seconds: float = 0.0) -> ColumnElement[bool]:
        """Return the SQL condition that this lease is not taken and runs for `margin_seconds` longer."""
        return exists().where(self._mine, leases.c.expires_at > store_now() + margin_seconds)

    @property
    def what(self) -> str:
        """What it is a lease on, for people."""
        return described(self._kind, self.name)

    @property
    def _row(self) -> ColumnElement[bool]:
        return (leases.c.kind == self._kind) & (leases.c.name == self.name)

    @property
    def _mine(self) -> ColumnElement[bool]:
        return self._row & (leases.c.token == self._token) & (leases.c.epoch == self.epoch)

    def _insert(self) -> bool:
        try:
            with writing(self._engine) as connection:
                row = {"kind": self._kind, "name": self.name, **self._values(self.epoch + 1)}
                connection.execute(leases.insert().values(row))
        except IntegrityError:  # another process was the first, just now
            return False
        self.epoch += 1
        return True

    def _has_subject(self) -> bool:
        """Return whether there is what it is a lease on: with a group its lease is removed."""
        if self._kind != GROUP:
            return True
        with self._engine.connect() as connection:
            return connection.execute(select(groups.c.name).where(groups.c.name == self.name)).first() is not None

    def _replace(self, seen: Holding) -> bool:
        is_free = seen.token == self._token or seen.process.is_dead()
        free = true() if is_free else leases.c.expires_at <= store_now()
        epoch = max(seen.epoch, self.epoch) + 1  # an older copy of the store may have a lower one than ours
        as_seen = self._row & (leases.c.token == seen.token) & (leases.c.epoch == seen.epoch)
        whole = store_now() + self.seconds  # what runs beyond it was renewed before the store's clock was set back
        with writing(self._engine) as connection:
            done = connection.execute(update(leases).where(as_seen, free).values(self._values(epoch)))
            if not done.rowcount:
                connection.execute(update(leases).where(as_seen, leases.c.expires_at > whole).values(expires_at=whole))
        if done.rowcount:
            self.epoch, self._older = epoch, None
        return bool(done.rowcount)

    def _values(self, epoch: int) -> dict[str, Any]:
        times = {"since": store_now(), "expires_at": store_now() + self.seconds}
        return {**asdict(self._process), "run_id": self.run_id, "token": self._token, "epoch": epoch, **times}


def held_by(engine: Engine, kind: str, name: str) -> Process | None:
    """Return which process had a lease last, whether it runs or not; None where none ever did."""
    query = select(*(leases.c[each] for each in Process.__slots__)).where(leases.c.kind == kind, leases.c.name == name)
    with engine.connect() as connection:
        row = connection.execute(query).one_or_none()
    return None if row is None else Process(*row)


@contextmanager
def leased(engine: Engine, wanted: Store, kind: str, name: str, run_id: int | None = None) -> Iterator[Lease | None]:
    """Hold a driver's lease while the block runs, whatever keeps its thread busy; None when leases are turned off.

    Raises:
        Refused: another process has it.
    """
    if not wanted.leases:
        yield None
        return
    lease = Lease(engine, kind, name, wanted.lease_seconds, run_id=run_id)
    lease.acquire()
    ended = threading.Event()
    keeper = threading.Thread(target=_keep, args=(lease, ended), name="lease", daemon=True)
    keeper.start()
    try:
        yield lease
    finally:
        ended.set()
        keeper.join()
        try:
            lease.release()
        except SQLAlchemyError as error:
            _log.warning("could not release the lease on %s, it will expire: %s", lease.what, error)


def _keep(lease: Lease, ended: threading.Event) -> None:
    """Renew a lease until it is given back or lost."""
    while not ended.wait(lease.seconds / _RENEWALS):
        try:
            lease.renew()
        except LeaseLost:
            return  # `check` tells the driver
        except SQLAlchemyError as error:
            _log.warning("could not renew the lease on %s, retrying: %s", lease.what, error)


@dataclass(frozen=True, slots=True)
class _Stat:
    is_over: bool  # only its parent still has to hear of its end
    started: int


def _stat(pid: int) -> _Stat | None:
    """Return what the system reports of a process, None when nothing."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()  # the name before it may hold anything
    return _Stat(is_over=fields[0] in "ZX", started=int(fields[19]))


def _pid_namespace() -> str | None:
    """Return where a pid means the same process: this boot, this space of pids."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("utf-8").strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return None


def _moment(at: float) -> str:
    return in_utc(at, "%Y-%m-%d %H:%M:%S UTC")
