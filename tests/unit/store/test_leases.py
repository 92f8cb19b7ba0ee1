"""Leases in the control store: who should run, by the store's clock alone."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from sqlalchemy import Engine, Row, StaticPool, create_engine, delete, func, select, text, update

from pipeline.base.errors import Refused
from pipeline.health.facts.placing import placing
from pipeline.settings.tree import Store, load
from pipeline.store.database.tables import drivers, leases
from pipeline.store.games import register_group
from pipeline.store.processes.drivers import heartbeat, start_driver
from pipeline.store.processes.leases import Lease, LeaseLost, Process, leased, store_now
from pipeline.store.processes.runs import active_drivers
from tests.lakebase import store_url
from tests.unit.store.leases_world import SECONDS, StoreClock, elsewhere, group_lease


@pytest.fixture
def clock(engine: Engine) -> StoreClock:
    return StoreClock(engine)


# ------------------------------------------------------------------------------------------------------ one driver's


def test_the_store_has_the_time(engine: Engine) -> None:
    """The store's own clock is asked in SQL, by SQLite and by PostgreSQL; a file's store agrees with this machine."""
    before = time.time()
    with engine.connect() as connection:
        reported = connection.scalar(select(store_now()))
    assert reported is not None
    assert before - 0.01 <= reported <= time.time() + 0.01
    assert "clock_timestamp()" in str(select(store_now()).compile(create_engine("postgresql+psycopg://")))


@pytest.mark.proves("G89")
def test_a11_a_second_driver_is_refused_and_told_who_has_the_lease(engine: Engine, clock: StoreClock) -> None:
    """A11: while a driver's lease runs nobody else gets it, and the sentence says who has it and what to do."""
    group_lease(engine, "a", 77)
    clock.now += SECONDS - 0.1
    with pytest.raises(
        Refused,
        match=r"Another process drives group a: process 77 on host-77, since 2027-01-15 08:00:00 UTC, "
        r"with a lease until 2027-01-15 08:00:(29|30) UTC.*Stop that process first",
    ):
        group_lease(engine, "a", 78)
    assert group_lease(engine, "b", 78).epoch == 1  # another group is another lease


def test_a_report_of_an_earlier_run_is_not_this_ones(engine: Engine) -> None:
    """A driver on another machine may have its predecessor's process id: what that one reported counts no more."""
    start_driver(engine, "group", "a", None, 1)
    heartbeat(engine, "group", "a", "running", None)
    lease = Lease(engine, "group", "a", SECONDS, Process("another", None, os.getpid(), None), run_id=2)
    lease.acquire()
    assert active_drivers(engine)["a"].state is None
    start_driver(engine, "group", "a", None, 2)
    assert active_drivers(engine)["a"].state == "starting"


@pytest.mark.proves("G89")
def test_a12_the_same_driver_twice_in_one_process_is_refused(engine: Engine) -> None:
    """A12: a lease belongs to one driver, not to its process; the older one is not touched."""
    with leased(engine, Store(), "ingest", "main") as lease:
        assert lease is not None
        with pytest.raises(Refused, match=f"drives ingest: process {os.getpid()} on "):
            Lease(engine, "ingest", "main", SECONDS).acquire()
        lease.renew()
        lease.check()


def test_a_lease_that_was_given_back_or_ran_out_is_free(engine: Engine, clock: StoreClock) -> None:
    """After a clean end the next driver starts at once, after another when the lease has run out; epochs grow."""
    first = group_lease(engine, "a", 1)
    first.release()
    second = group_lease(engine, "a", 2)
    clock.now += SECONDS + 0.1
    third = group_lease(engine, "a", 3)
    assert [first.epoch, second.epoch, third.epoch] == [1, 2, 3]


@pytest.mark.parametrize("lives", [True, False])
@pytest.mark.proves("D9")
def test_a_clock_that_is_set_back_makes_a_lease_last_for_its_own_time_only(
    engine: Engine, clock: StoreClock, lives: bool
) -> None:
    """D9: who died before has the lease for its whole time from the next claim on; a driver that lives renews it."""
    holder = group_lease(engine, "a", 1)
    clock.now -= 3600.0
    with pytest.raises(Refused, match="Another process drives group a"):
        group_lease(engine, "a", 2)
    clock.now += SECONDS / 2
    if lives:
        holder.renew()
    clock.now += SECONDS / 2 + 0.1
    if lives:
        with pytest.raises(Refused, match="Another process drives group a"):
            group_lease(engine, "a", 2)
    else:
        assert group_lease(engine, "a", 2).epoch == 2


def test_a_stale_holder_is_refused_and_told_who_took_over(engine: Engine, clock: StoreClock) -> None:
    """D8: who comes back after another took the lease cannot renew it, nor give it back for the other."""
    stale = group_lease(engine, "a", 1)
    clock.now += SECONDS + 0.1
    heir = group_lease(engine, "a", 2)
    with pytest.raises(LeaseLost, match=r"no longer drives group a.*process 2 on host-2, since.*Stop this process"):
        stale.renew()
    with pytest.raises(LeaseLost):
        stale.check()
    stale.release()
    heir.renew()
    heir.check()
    with pytest.raises(Refused):
        stale.acquire()


def set_back(engine: Engine, row: Row[Any]) -> None:
    """Let the store be an older copy of itself, such as a standby that lacks the newest transactions."""
    with engine.begin() as connection:
        connection.execute(update(leases).values(row._asdict()))


def row_of(engine: Engine) -> Row[Any]:
    with engine.connect() as connection:
        return connection.execute(select(leases)).one()


def test_an_expired_lease_of_an_older_store_has_no_owner(engine: Engine, clock: StoreClock) -> None:
    """After a failover to a standby that names an earlier holder the driver takes its lease again and goes on."""
    group_lease(engine, "a", 1)
    older = row_of(engine)
    clock.now += SECONDS + 0.1
    lease = group_lease(engine, "a", 2)
    set_back(engine, older)
    lease.renew()
    lease.check()
    assert lease.epoch == 3, "no game is held under an epoch of before"
    with pytest.raises(Refused, match="process 2 on host-2"):
        group_lease(engine, "a", 3)


@pytest.mark.parametrize("lives", [True, False])
def test_an_earlier_holder_of_an_older_store_is_waited_for(engine: Engine, clock: StoreClock, lives: bool) -> None:
    """Where its lease still runs in the older store, only its next renewal shows that it lives and took over."""
    earlier = group_lease(engine, "a", 1)
    older = row_of(engine)
    lease = Lease(engine, "group", "a", SECONDS, elsewhere(2))
    earlier.release()
    lease.acquire()
    set_back(engine, older)
    for _ in range(2):
        lease.renew()
        lease.check()
        assert lease.epoch == 2
    clock.now += SECONDS / 2
    if lives:
        earlier.renew()
        with pytest.raises(LeaseLost, match=r"another took over .process 1"):
            lease.renew()
        return
    clock.now += SECONDS / 2 + 0.1
    lease.renew()
    assert lease.epoch == 3


@pytest.mark.parametrize("holds", [True, False])
def test_a_driver_is_heard_again_after_a_failover(engine: Engine, holds: bool) -> None:
    """An older store names an earlier process: who has the lease beats under its own name, who lost it does not."""
    with leased(engine, Store(), "group", "a") as lease:
        assert lease is not None
        start_driver(engine, "group", "a", "host:1", 7)
        with engine.begin() as connection:
            connection.execute(update(drivers).values(pid=1, metrics_address="other:1", run_id=6))
            if not holds:
                connection.execute(update(leases).values(token="another's", pid=1, epoch=9))
        heartbeat(engine, "group", "a", "running", 5)
    with engine.connect() as connection:
        row = connection.execute(select(drivers)).one()
    assert (row.pid, row.metrics_address, row.run_id) == ((os.getpid(), "host:1", 7) if holds else (1, "other:1", 6))


def test_who_was_away_renews_if_nobody_took_over(engine: Engine, clock: StoreClock) -> None:
    """A driver that was stopped too long, but whom nobody replaced, goes on as it was."""
    lease = group_lease(engine, "a")
    clock.now += 10 * SECONDS
    lease.renew()
    lease.check()
    with pytest.raises(Refused):
        group_lease(engine, "a", 2)


def test_a_lost_answer_does_not_shut_the_driver_out(engine: Engine) -> None:
    """Who acquires again after the store took the lease down but did not answer has it."""
    lease = group_lease(engine, "a")
    lease.acquire()
    assert lease.epoch == 1


def test_of_many_that_saw_the_same_one_gets_the_lease(engine: Engine, clock: StoreClock) -> None:
    """Taking a lease is a compare-and-set on its holder, its epoch and its time, so only one of many can win."""
    rivals = [Lease(engine, "group", "a", SECONDS, elsewhere(pid)) for pid in range(1, 5)]
    assert [rival._insert() for rival in rivals] == [True, False, False, False]
    clock.now += SECONDS + 0.1
    seen = rivals[0].read_holding()
    assert seen is not None
    assert [rival._replace(seen) for rival in rivals[1:]] == [True, False, False]
    clock.now += SECONDS + 0.1
    seen = rivals[0].read_holding()
    assert seen is not None
    rivals[1].renew()  # in the last moment
    assert not rivals[2]._replace(seen)
    seen = rivals[0].read_holding()
    assert seen is not None
    with patch.object(Process, "is_dead", lambda process: process == seen.process):
        assert [rival._replace(seen) for rival in rivals[2:]] == [True, False]


# -------------------------------------------------------------------------------------------- processes that have ended


def _holder(engine: Engine) -> "subprocess.Popen[str]":
    """Start a process that takes the lease on ingest and keeps it; it says so on a line."""
    program = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from pipeline.settings.tree import load\n"
        "from pipeline.store.database.engine import open_store\n"
        "from pipeline.store.processes.leases import Lease\n"
        "store = open_store(*load(Path('.'), {'TURNOUT_STORE__URL': sys.argv[1]}))\n"
        "Lease(store, 'ingest', 'main', 600).acquire()\n"
        "print('held', flush=True)\n"
        "time.sleep(600)\n"
    )
    command = [sys.executable, "-c", program, store_url(engine)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


@pytest.mark.proves("G90")
def test_after_a_kill_the_next_driver_starts_at_once(engine: Engine) -> None:
    """A restart after SIGKILL does not wait: of this machine's processes it is known that they ended, reaped or not."""
    heir = Lease(engine, "ingest", "main", SECONDS)
    with _holder(engine) as holder:
        with pytest.raises(Refused, match=f"process {holder.pid} on "):
            heir.acquire()
        os.kill(holder.pid, signal.SIGSTOP)
        with pytest.raises(Refused):  # it only stands still
            heir.acquire()
        os.kill(holder.pid, signal.SIGKILL)
        os.waitid(os.P_PID, holder.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and its parent has not heard of it
        heir.acquire()
    heir.release()
    with _holder(engine) as holder:
        holder.kill()
        holder.wait()
        heir = Lease(engine, "ingest", "main", SECONDS)
        heir.acquire()
    assert heir.epoch == 4


def test_a_pid_that_is_used_again_is_not_taken_for_the_holder(engine: Engine) -> None:
    """A living process with the holder's pid, which started at another moment, is another process."""
    this = Process.this()
    assert this.started is not None
    assert not this.is_dead()
    Lease(engine, "group", "a", SECONDS, Process(this.host, this.pid_namespace, this.pid, this.started - 1)).acquire()
    Lease(engine, "group", "a", SECONDS).acquire()


@pytest.mark.parametrize("place", [None, "another boot or container"])
def test_of_processes_elsewhere_nobody_claims_to_know(engine: Engine, place: str | None) -> None:
    """A pid of another machine, another boot or another container is not ours to judge: its lease is waited for."""
    Lease(engine, "group", "a", SECONDS, Process("host", place, 2**22 + 1, 1)).acquire()
    with pytest.raises(Refused, match="on host"):
        Lease(engine, "group", "a", SECONDS).acquire()


# ------------------------------------------------------------------------------------------------- held while it runs


def test_a_lease_is_renewed_whatever_keeps_its_driver_busy(engine: Engine) -> None:
    """It does not run out during a long start, pass or stop: a thread renews it, and a clean end gives it back."""
    renewed = threading.Event()
    renew = Lease.renew

    def noted(lease: Lease) -> None:
        renew(lease)
        renewed.set()

    with patch.object(Lease, "renew", noted), leased(engine, Store(lease_seconds=0.3), "group", "a") as lease:
        assert lease is not None
        before = lease.read_holding()
        assert renewed.wait(10)
        after = lease.read_holding()
    assert before is not None
    assert after is not None
    assert before.expires_at < after.expires_at
    assert "lease" not in {thread.name for thread in threading.enumerate()}
    Lease(engine, "group", "a", SECONDS, elsewhere(2)).acquire()


def test_a_driver_hears_that_it_was_replaced(engine: Engine) -> None:
    """The thread that renews tells a driver by its next `check` that another process has taken over."""
    with leased(engine, Store(lease_seconds=0.3), "group", "a") as lease:
        assert lease is not None
        lease.check()
        with engine.begin() as connection:
            connection.execute(update(leases).values(token="another's", epoch=leases.c.epoch + 1))
        (keeper,) = [thread for thread in threading.enumerate() if thread.name == "lease"]
        keeper.join(10)
        with pytest.raises(LeaseLost, match="no longer drives group a"):
            lease.check()


def test_a_store_that_is_away_does_not_end_a_driver(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    """Renewals that the store does not answer are told and tried again; only another holder ends a driver."""
    reported = threading.Event()
    with leased(engine, Store(lease_seconds=0.3), "group", "a") as lease:
        assert lease is not None
        with engine.begin() as connection:
            connection.execute(text("alter table leases rename to away"))
        with patch("pipeline.store.processes.leases._log.warning", side_effect=lambda *_: reported.set()):
            assert reported.wait(10)
        lease.check()
        with engine.begin() as connection:
            connection.execute(text("alter table away rename to leases"))
        lease.renew()
    assert not caplog.records


def test_leases_can_be_turned_off(engine: Engine, tmp_path: Path) -> None:
    """Without leases two drivers of one name may run: correctness never depends on them."""
    settings, _ = load(tmp_path, {"TURNOUT_STORE__LEASES": "false"})
    with leased(engine, settings.store, "group", "a") as one, leased(engine, settings.store, "group", "a") as two:
        assert one is two is None
    with engine.connect() as connection:
        assert connection.scalar(select(func.count()).select_from(leases)) == 0
    with pytest.raises(Refused, match=r"store\.leases: expected true or false, got 'off'"):
        load(tmp_path, {"TURNOUT_STORE__LEASES": "off"})


@pytest.mark.parametrize("kind", ["ingest", "group"])
def test_a_store_that_never_had_the_lease_gets_it(engine: Engine, kind: str) -> None:
    """A standby from before this driver's start lacks the row: nobody holds it, so the driver goes on; one alone."""
    register_group(engine, "a", placing())
    one, other = (Lease(engine, kind, "a", SECONDS, elsewhere(number)) for number in (77, 78))
    one.acquire()
    with engine.begin() as connection:
        connection.execute(delete(leases))
    one.renew()
    assert one.epoch == 2
    with pytest.raises(Refused, match="process 77"):
        other.acquire()
    with engine.begin() as connection:
        connection.execute(delete(leases))
    other.acquire()
    one.renew()  # it may be one from before the copy, which does not live
    other.renew()
    with pytest.raises(LeaseLost, match="process 78"):
        one.renew()


def test_a_lease_whose_row_is_gone_is_lost(engine: Engine) -> None:
    """With a group its lease is removed, and its driver ends with a sentence."""
    lease = group_lease(engine, "a")
    with engine.begin() as connection:
        connection.execute(delete(leases))
    with pytest.raises(LeaseLost, match="no longer drives group a"):
        lease.renew()


# ------------------------------------------------------------------------------------------------- as a state machine


class LeaseMachine(RuleBasedStateMachine):
    """Several processes want one lease, renew it, give it back, die and come again, while the store's clock goes on."""

    def __init__(self) -> None:
        super().__init__()
        self.engine = create_engine("sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False})
        self.clock = StoreClock(self.engine)
        leases.create(self.engine)
        self.dead: set[int] = set()
        self.patch = patch.object(Process, "is_dead", lambda process: process.pid in self.dead)
        self.patch.start()
        self.leases: dict[int, Lease] = {}  # the newest process of each of the rivals
        self.until: dict[int, float] = {}  # up to when each believes to have the lease
        self.pids = 0
        self.highest = 0

    def teardown(self) -> None:
        self.patch.stop()
        self.engine.dispose()

    @initialize()
    def begin(self) -> None:
        for rival in range(3):
            self._come(rival)

    def _come(self, rival: int) -> None:
        self.pids += 1
        self.leases[rival] = Lease(self.engine, "group", "a", SECONDS, elsewhere(self.pids))
        self.until[rival] = 0.0

    def _holders(self) -> list[int]:
        return [rival for rival, until in self.until.items() if until > self.clock.now]

    @rule(rival=st.integers(0, 2))
    def acquire(self, rival: int) -> None:
        lease, others = self.leases[rival], set(self._holders()) - {rival}
        try:
            lease.acquire()
        except LeaseLost:  # it had the lease once, and asks as if it still had
            raise AssertionError("only a renewal loses a lease") from None
        except Refused:
            assert others, "refused, though nobody had the lease"
            return
        assert not others, "taken from somebody who had it"
        assert lease.epoch >= self.highest
        self.highest = lease.epoch
        self.until[rival] = self.clock.now + SECONDS

    @rule(rival=st.integers(0, 2))
    def renew(self, rival: int) -> None:
        lease, others = self.leases[rival], set(self._holders()) - {rival}
        before = lease.read_holding()
        try:
            lease.renew()
        except LeaseLost:
            assert before == lease.read_holding(), "a stale holder has changed the lease"
            assert lease.epoch == 0 or others, "lost, though nobody had the lease"
            self.until[rival] = 0.0
            return
        assert not others, "a stale holder has renewed"
        assert lease.epoch >= self.highest
        self.highest = lease.epoch
        self.until[rival] = self.clock.now + SECONDS

    @rule(rival=st.integers(0, 2))
    def release(self, rival: int) -> None:
        self.leases[rival].release()
        self.until[rival] = 0.0

    @rule(rival=st.integers(0, 2))
    def die(self, rival: int) -> None:
        self.dead.add(self.leases[rival]._process.pid)
        self._come(rival)

    @rule(seconds=st.sampled_from([0, 1, 10, 29, 30, 60]))
    def wait(self, seconds: int) -> None:
        self.clock.now += seconds + 0.013  # so that no sum of a few is a lease's time exactly, where rounding decides

    @invariant()
    def never_two_holders(self) -> None:
        assert len(self._holders()) <= 1

    @invariant()
    def the_store_says_the_same(self) -> None:
        with self.engine.connect() as connection:
            rows = connection.execute(text("select token, expires_at from leases")).all()
        now = self.clock.now + 0.001  # a day as a number has these digits
        living = {lease._token: rival for rival, lease in self.leases.items()}
        holders = [living[token] for token, expires_at in rows if expires_at > now and token in living]
        assert holders == self._holders()


@pytest.mark.proves("G91")
def test_never_two_holders_and_no_stale_one_renews() -> None:
    """Whatever rivals do and whenever they die: one holder at a time, growing epochs, no stale renewal, no false no."""
    run_state_machine_as_test(
        LeaseMachine, settings=hypothesis_settings(max_examples=40, stateful_step_count=25, deadline=None)
    )
