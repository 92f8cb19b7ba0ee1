"""Whether a driver lives: from what it reported, its lease and the controller's record of its process.

Pure: all times are Unix seconds by the store's clock, `now` included. A driver's own word counts only while nothing
that is surer contradicts it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from pipeline.health.verdicts.reported import GroupIntent
from pipeline.store.rows import CLOCK_BOUND_SECONDS, START_LIMIT_SECONDS, Driver

HEARTBEAT_SECONDS: Final = 5.0
"""The time between two heartbeats by default: the setting metrics.heartbeat_seconds."""

MISSED_HEARTBEATS: Final = 3
"""Missed heartbeats in a row after which nothing that a driver reported counts."""

STORE_REFUSES: Final = "the control store takes no writes"

RUNS: Final = frozenset({"running", "skewed"})
"""What a driver at work reports as its state: `skewed` where its clock differs from the control store's."""

_WAITED: Final = "has waited "
_SKEW: Final = "has a clock that differs from the control store's"
_LEAST_LIMIT_SECONDS: Final = 15.0  # a busy machine delays a heartbeat by seconds

State = Literal["not_started", "starting", "running", "stopped", "failed", "dead", "unknown"]
"""`failed`: it reported so itself. `dead`: its process has ended without having been stopped, as is on record.
`unknown`: it may live, but nothing that it reported can be relied on: it is silent, or has lost its lease."""


@dataclass(frozen=True, slots=True)
class HeldLease:
    """The lease on what a driver does: who has it, or had it last."""

    process: tuple[str, int]
    since: float
    expires_at: float
    run_id: int | None = None  # as a driver's


@dataclass(frozen=True, slots=True)
class ProcessRun:
    """A process that the controller started for a group, or for maintenance."""

    run_id: int
    started_at: float
    ended_at: float | None
    died: bool  # it ended without having been asked to
    message: str | None  # how it ended
    is_known: bool = field(default=True, kw_only=True)  # False: it is being started, or its start failed
    start_seconds: float = field(default=START_LIMIT_SECONDS, kw_only=True)  # its driver's limit to report


@dataclass(frozen=True, slots=True)
class Liveness:
    """A driver's judged state, since when (None is unknown), and why it is not simply running, as a predicate."""

    state: State
    since: float | None
    reason: str | None
    is_over: bool = False  # its process's end is on record
    has_lost_lease: bool = False  # another process may take its place, although nobody saw it end
    is_skewed: bool = False  # it beats, and its clock differs from the control store's
    gone_since: float | None = None  # of one that is dead or was started: when the process before it was there no more

    @property
    def is_live(self) -> bool:
        """Whether a process works on it, as far as anything is known."""
        return self.state in {"running", "starting"}

    @property
    def waits_for_storage(self) -> bool:
        """Whether it beats, and its work waits for storage."""
        return self.state == "running" and (self.reason or "").startswith(_WAITED)

    @property
    def silence(self) -> str | None:
        """Why nothing can be expected of the driver, as a clause; None when it lives."""
        return None if self.is_live else f"its driver {self.reason}"


def storage_wait(seconds: float, what_for: str) -> str:
    """Return what a driver reports whose work waits for storage, as a predicate; `Liveness` knows it again."""
    return f"{_WAITED}{seconds:.0f} s {what_for}"


def controller_absence(liveness: Liveness | None) -> str | None:
    """Return as a clause that no controller acts, as far as anything is known; None where one does."""
    if liveness is not None and liveness.is_live:
        return None
    return "the controller is silent" if liveness is not None and liveness.state == "unknown" else "no controller runs"


@dataclass(frozen=True, slots=True)
class DriverFacts:
    """All that is known of drivers, read at one moment; `judge` is the one rule of who lives."""

    now: float  # Unix seconds by the control store's clock
    drivers: Mapping[tuple[str, str], Driver]  # keyed by (kind, name), like the next mappings but the last
    leases: Mapping[tuple[str, str], HeldLease]
    runs: Mapping[tuple[str, str], ProcessRun]  # the newest of each
    ended: Mapping[tuple[str, str], Sequence[ProcessRun]] = field(default_factory=dict, kw_only=True)
    """The runs that ended within an hour, the newest first."""
    lived: Mapping[tuple[str, str], float] = field(default_factory=dict, kw_only=True)
    """End of the last run that lived for `START_LIMIT_SECONDS` or had to stop; without one, the start of the first."""
    groups: Mapping[str, GroupIntent] = field(default_factory=dict, kw_only=True)  # registered ones, by name
    heartbeat_seconds: float = field(default=HEARTBEAT_SECONDS, kw_only=True)
    unheard: frozenset[tuple[str, str]] = field(default_factory=frozenset, kw_only=True)
    """Drivers that a control store without writes silences: nothing that they fail to report is a sign."""

    def names(self, kind: str) -> list[str]:
        """Return the names of the processes of a kind that ever reported, in order."""
        return sorted(name for each, name in self.drivers if each == kind)

    def judge(self, kind: str, name: str) -> Liveness:
        """Judge one driver; without any facts it was never started."""
        key = (kind, name)
        driver, lease, run = self.drivers.get(key), self.leases.get(key), self.runs.get(key)
        if driver is not None and key in self.unheard:
            ago = _since(driver.heartbeat_at, self.now)
            return Liveness("unknown", driver.heartbeat_at, f"was last heard {ago} ago: {STORE_REFUSES}")
        limit = heartbeat_limit(self.heartbeat_seconds)
        return judge_driver(driver, lease, run, self.now, limit, self.ended.get(key, ()))


def heartbeat_limit(every_seconds: float) -> float:
    """Return after how many seconds without a heartbeat a driver is silent, by its interval in seconds."""
    return max(_LEAST_LIMIT_SECONDS, MISSED_HEARTBEATS * every_seconds)


def judge_driver(
    driver: Driver | None,
    lease: HeldLease | None,
    run: ProcessRun | None,
    now: float,
    limit: float,
    ended: Sequence[ProcessRun] = (),
) -> Liveness:
    """Return the state of what one driver should do; `ended` has its runs that ended lately, the newest first.

    The controller's record of a process's end and a lost lease count at once, a missed heartbeat after `limit` seconds.
    What an earlier process reported says nothing about the present one.
    """
    if driver is None or _is_replaced(driver, lease, run, now):
        found = _judge_unreported(lease, run, now)
        return found if found.since is None else replace(found, gone_since=_gone_since(found.since, None, ended))
    if (
        run is not None
        and run.run_id == driver.run_id
        and run.ended_at is not None
        and not _is_heard_after(driver, run.ended_at, now)
    ):
        found = _judge_ended(run, run.ended_at, now, driver.error if driver.state == "failed" else None)
        return replace(found, gone_since=_gone_since(run.ended_at, None, ended))
    if driver.state == "stopped":
        return Liveness("stopped", driver.heartbeat_at, "is stopped")
    if driver.state == "failed":
        return Liveness("failed", driver.heartbeat_at, f"has failed{f': {driver.error}' if driver.error else ''}")
    if lease is not None and lease.process == driver.process and lease.expires_at <= now:
        lost = f"lost its lease {now - lease.expires_at:.0f} s ago: its process has ended or hangs"
        since = min(lease.expires_at, driver.heartbeat_at)  # the silence began before it
        return Liveness("unknown", since, lost, has_lost_lease=True)
    patience = max(limit, START_LIMIT_SECONDS) if driver.state == "starting" else limit
    doubt = _doubt(driver.state, driver.heartbeat_at, now, patience)
    if doubt == _SKEW:
        return Liveness("unknown", driver.heartbeat_at, driver.error or doubt, is_skewed=True)
    if doubt is not None:
        return Liveness("unknown", driver.heartbeat_at, doubt)
    began = _gone_since(driver.started_at, run, ended)
    if driver.state == "starting":
        return Liveness("starting", driver.started_at, f"is starting, for {_since(began, now)}", gone_since=began)
    if driver.state == "running":
        return Liveness("running", driver.started_at, driver.error, gone_since=began)
    return Liveness("unknown", driver.heartbeat_at, "reported a state that this version does not know")


def _gone_since(at: float, run: ProcessRun | None, ended: Sequence[ProcessRun]) -> float:
    """Return when nothing worked any more before a process that ended or was started then; with none before it: then.

    A start that failed belongs to the same absence, as it made no process. A stop does if a start soon followed.
    """
    if run is not None and run.ended_at is None:
        at = min(at, run.started_at)
    for each in ended:
        if each.ended_at is None or each.ended_at > at or (not each.died and at - each.ended_at > START_LIMIT_SECONDS):
            break
        at = each.ended_at
        if each.is_known:
            break
        at = min(at, each.started_at)
    return at


def _doubt(state: str, heartbeat_at: float, now: float, limit: float) -> str | None:
    """Return what is wrong with a heartbeat, None where nothing is."""
    quiet = now - heartbeat_at
    if quiet < -CLOCK_BOUND_SECONDS:
        return (
            f"sent a heartbeat that is {-quiet:.0f} s in the future: the clock of its machine is ahead of the control "
            "store's, or that was set back"
        )
    if quiet > limit:
        return f"is silent for {quiet:.0f} s"
    return _SKEW if state == "skewed" else None


def _is_replaced(driver: Driver, lease: HeldLease | None, run: ProcessRun | None, now: float) -> bool:
    """Whether the row is of an earlier process: another holds the lease now, or was started since."""
    is_held = lease is not None and lease.expires_at > now
    if lease is not None and is_held and lease.process != driver.process:
        return True
    if run is None or run.run_id == driver.run_id or run.started_at <= driver.started_at:
        return False
    return run.ended_at is None or not (is_held or _is_heard_after(driver, run.ended_at, now))


def _is_heard_after(driver: Driver, ended_at: float, now: float) -> bool:
    """Whether it is another process than the one that ended: an id comes again, a start by hand is not recorded."""
    return ended_at < driver.heartbeat_at <= now + CLOCK_BOUND_SECONDS


def _judge_unreported(lease: HeldLease | None, run: ProcessRun | None, now: float) -> Liveness:
    """Judge what no process has reported for yet, from what others know of it."""
    since = None
    if run is not None and run.ended_at is None:
        since = run.started_at
    elif lease is not None and lease.expires_at > now:
        since = lease.since
    if since is not None and now - since < -CLOCK_BOUND_SECONDS:
        ahead = f"was started {since - now:.0f} s in the future: the control store's clock was set back since"
        return Liveness("unknown", since, ahead)
    if since is not None:
        waits = f"was started {_since(since, now)} ago and has not reported yet"
        limit = START_LIMIT_SECONDS if run is None or run.ended_at is not None else run.start_seconds
        return Liveness("starting" if now - since <= limit else "unknown", since, waits)
    if run is not None and run.ended_at is not None:
        return _judge_ended(run, run.ended_at, now, None)
    if lease is not None:
        lost = f"lost its lease {_since(lease.expires_at, now)} ago, before it reported"
        return Liveness("unknown", lease.expires_at, lost, has_lost_lease=True)
    return Liveness("not_started", None, "was never started")


def _judge_ended(run: ProcessRun, ended_at: float, now: float, error: str | None) -> Liveness:
    if not run.died:
        return Liveness("stopped", ended_at, "is stopped", is_over=True)
    ago = f"{_since(ended_at, now)} ago: {run.message or 'how is not known'}"
    if error is not None:
        return Liveness("failed", ended_at, f"has failed: {error}; its process ended {ago}", is_over=True)
    how = f"could not be started {ago}" if not run.is_known else f"ended {ago}"
    return Liveness("dead", ended_at, how, is_over=True)


def _since(at: float, now: float) -> str:
    return f"{max(0.0, now - at):.0f} s"
