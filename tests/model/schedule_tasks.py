"""Runs tasks one at a time, as a strategy chooses, and switches between them only at points: one thread, one order.

A task belongs to a process, which can be ended at any point of any of its tasks. What product code takes from
`threading`, `time` and `concurrent.futures` is given here with the same meaning, on a clock of our own.
"""

import itertools
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, Self

from greenlet import getcurrent, greenlet  # type: ignore[import-untyped] # comes with SQLAlchemy, without types

START: Final = 1_800_000_000.0  # by the clock of a schedule, Unix seconds


class Crash(BaseException):
    """The process of this task has ended: no product code catches it, and nothing it does afterwards is done."""


class Stuck(Exception):
    """A schedule does not come to its end."""


@dataclass
class Process:
    """A process that ends at once when it is killed."""

    name: str
    alive: bool = True
    store_is_away: bool = False  # its statements to the control store fail
    tasks: list["Task"] = field(default_factory=list)


class Task:
    """One thread of a process."""

    def __init__(self, name: str, process: Process, body: Callable[[], object], hub: greenlet) -> None:
        self.name, self.process = name, process
        self.condition: Callable[[], bool] | None = None  # what it waits for
        self.wake_at: float | None = None
        self.ended = False
        self.error: BaseException | None = None
        self.trace = ""
        self.at = "start"  # the point at which it stands
        self.steps = 0
        self.batch: Any = None  # of a query: the one it runs
        self._body = body
        self.glet = greenlet(self._run, hub)

    def _run(self) -> None:
        try:
            self._body()
        except Crash:
            pass
        except Exception as error:  # noqa: BLE001 - told by the oracle
            self.error, self.trace = error, traceback.format_exc()
        finally:
            self.ended = True


class Strategy(Protocol):
    """Chooses who goes on."""

    def pick(self, ready: Sequence[Task], current: Task | None, step: int) -> Task:
        """Return one of the tasks that can go on."""
        ...


class Scheduler:
    """All tasks of one schedule."""

    def __init__(self, strategy: Strategy, tick_seconds: float, max_steps: int) -> None:
        self.hub = getcurrent()
        self.tasks: list[Task] = []
        self.current: Task | None = None
        self.now, self.step = START, 0
        self.segments: list[tuple[str, int]] = []  # who went on, for how many points
        self.trace: list[tuple[str, str]] = []  # who came to which point
        self._strategy, self._tick, self._max_steps = strategy, tick_seconds, max_steps
        self.failed: list[Task] = []
        self.published = 0  # how often a commit was: who waits for one looks again when it has changed
        self._doomed: list[Process] = []
        self._chosen: Task | None = None  # who goes on next
        self._names: dict[str, int] = {}

    def spawn(self, name: str, body: Callable[[], object], process: Process | None = None) -> Task:
        """Begin a task, in the process of the current one if none is given."""
        if process is None:
            assert self.current is not None
            process = self.current.process
        number = self._names[name] = self._names.get(name, 0) + 1
        task = Task(name if number == 1 else f"{name}#{number}", process, body, self.hub)
        process.tasks.append(task)
        self.tasks.append(task)
        return task

    def kill(self, process: Process) -> None:
        """End a process at the points where its tasks stand; called by a task of another one."""
        self._doomed.append(process)
        self.point("kill")

    def point(self, name: str) -> None:
        """Let others go on, when a task is what comes here."""
        if name == "after_publish_commit":
            self.published += 1
        task = self.current
        if task is None or getcurrent() is not task.glet:
            return
        self._leave(task, name)

    def wait(self, condition: Callable[[], bool], timeout: float | None = None, name: str = "wait") -> bool:
        """Stand still until a condition holds, at most `timeout` seconds; return whether it holds."""
        task = self.current
        if task is None or getcurrent() is not task.glet:
            return condition()
        task.condition = condition
        task.wake_at = None if timeout is None else self.now + timeout
        try:
            self._leave(task, name)
        finally:
            task.condition = task.wake_at = None
        return condition()

    def sleep(self, seconds: float) -> None:
        task = self.current
        if task is None or getcurrent() is not task.glet:
            return
        task.wake_at = self.now + seconds
        try:
            self._leave(task, "sleep")
        finally:
            task.wake_at = None

    def _leave(self, task: Task, name: str) -> None:
        if not task.process.alive:
            raise Crash
        task.at = name
        self.trace.append((task.name, name))
        if not self._stays(task):
            self.hub.switch()
        if not task.process.alive:
            raise Crash

    def _stays(self, task: Task) -> bool:
        """Return whether the running task goes on, without the cost of a switch; else choose who does."""
        if self._doomed or self.step >= self._max_steps:
            return False
        self.current = None  # what conditions look at is no point
        ready = self._ready()
        self.current = task
        if ready:
            chosen = self._strategy.pick(ready, task, self.step)
            if chosen is task:
                self._count(task)
                return True
            self._chosen = chosen
        return False

    def _ready(self) -> list[Task]:
        now = self.now
        return [
            task
            for task in self.tasks
            if (task.condition is None if task.wake_at is None else task.wake_at <= now)
            or (task.condition is not None and task.condition())
        ]

    def run(self, at_rest: Callable[[], bool]) -> None:
        """Let tasks go on until nothing is to be done and `at_rest` says that this is the end.

        Raises:
            Stuck: none can go on ever again, or it takes too many steps.
        """
        while True:
            chosen, self._chosen = self._chosen, None
            if chosen is None and (ready := self._ready()):
                chosen = self._strategy.pick(ready, self.current, self.step)
            if chosen is not None:
                self._resume(chosen)
                continue
            if at_rest():
                return
            times = [task.wake_at for task in self.tasks if not task.ended and task.wake_at is not None]
            if not times:
                stand = "; ".join(f"{task.name} at {task.at}" for task in self.tasks if not task.ended)
                raise Stuck(f"nobody can go on: {stand}")
            self.now = max(self.now, min(times))

    def _count(self, task: Task) -> None:
        self.step += 1
        self.now += self._tick
        task.steps += 1
        if self.current is task and self.segments:
            self.segments[-1] = (task.name, self.segments[-1][1] + 1)
        else:
            self.segments.append((task.name, 1))

    def _resume(self, task: Task) -> None:
        self._count(task)
        if self.step > self._max_steps:
            raise Stuck(f"no end within {self._max_steps} steps; {task.name} at {task.at}")
        self.current = task
        task.glet.switch()
        if task.ended:
            self.trace.append((task.name, "end"))
            self.tasks.remove(task)
            self.current = None
            if task.error is not None:
                self.failed.append(task)
        while self._doomed:
            self._end(self._doomed.pop())

    def _end(self, process: Process) -> None:
        process.alive = False
        for task in process.tasks:
            if not task.ended:
                self.current = task
                if task.glet:  # one that has not begun has nothing to unwind
                    task.glet.throw(Crash)
                task.ended = True
                self.tasks.remove(task)
        self.current = None

    def end_all(self) -> None:
        """End whatever still runs, so that nothing is left of this schedule."""
        for process in {id(task.process): task.process for task in self.tasks}.values():
            self._end(process)


# What product code takes from the standard library.


class ScheduledLock:
    """As `threading.Lock`."""

    def __init__(self, scheduler: Scheduler, *, reentrant: bool = False) -> None:
        self._scheduler, self._reentrant = scheduler, reentrant
        self._owner: object = None
        self._depth = 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        me = self._scheduler.current or self
        if self._reentrant and self._owner is me:
            self._depth += 1
            return True
        limit = (None if timeout < 0 else timeout) if blocking else 0.0
        if not self._scheduler.wait(lambda: self._depth == 0, limit, "lock"):
            return False
        self._owner, self._depth = me, 1
        return True

    def release(self) -> None:
        self._depth -= 1
        if self._depth == 0:
            self._owner = None

    def locked(self) -> bool:
        return self._depth > 0

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class Event:
    """As `threading.Event`."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler, self._set = scheduler, False

    def set(self) -> None:
        self._set = True

    def clear(self) -> None:
        self._set = False

    def is_set(self) -> bool:
        return self._set

    def wait(self, timeout: float | None = None) -> bool:
        return self._scheduler.wait(lambda: self._set, timeout, "event")


class Thread:
    """As `threading.Thread`."""

    def __init__(
        self,
        scheduler: Scheduler,
        target: Callable[..., object],
        args: tuple[Any, ...] = (),
        name: str = "thread",
        daemon: bool | None = None,
    ) -> None:
        del daemon
        self._scheduler, self._target, self._args, self._name = scheduler, target, args, name
        self._task: Task | None = None

    def start(self) -> None:
        process = self._scheduler.current.process if self._scheduler.current else None
        assert process is not None
        self._task = self._scheduler.spawn(f"{process.name}.{self._name}", lambda: self._target(*self._args))

    def join(self, timeout: float | None = None) -> None:
        task = self._task
        if task is not None:
            self._scheduler.wait(lambda: task.ended, timeout, "join")

    def is_alive(self) -> bool:
        return self._task is not None and not self._task.ended


class Threading:
    """As the module `threading`, as far as the data path uses it."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def Lock(self) -> "ScheduledLock":  # noqa: N802
        return ScheduledLock(self._scheduler)

    def RLock(self) -> "ScheduledLock":  # noqa: N802
        return ScheduledLock(self._scheduler, reentrant=True)

    def Event(self) -> Event:  # noqa: N802
        return Event(self._scheduler)

    def Thread(self, target: Callable[..., object], **more: Any) -> Thread:  # noqa: N802
        return Thread(self._scheduler, target, **more)

    def get_ident(self) -> int:
        return id(self._scheduler.current)

    def current_thread(self) -> object:
        return self._scheduler.current


class Clock:
    """As the module `time`."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def time(self) -> float:
        return self._scheduler.now

    monotonic = perf_counter = time

    def time_ns(self) -> int:
        return int(self._scheduler.now * 1e9)

    def sleep(self, seconds: float) -> None:
        self._scheduler.sleep(seconds)


class Pool:
    """As `ThreadPoolExecutor`, as far as `map` goes."""

    def __init__(self, scheduler: Scheduler, threads: int = 4, **_: Any) -> None:
        self._scheduler, self._threads = scheduler, threads

    def map(self, body: Callable[..., Any], *columns: Iterable[Any]) -> Iterator[Any]:
        calls = list(zip(*columns, strict=False))
        caller = self._scheduler.current
        if len(calls) <= 1 or caller is None:
            return iter([body(*call) for call in calls])
        results: list[Any] = [None] * len(calls)
        waiting = iter(range(len(calls)))

        def work() -> None:
            for number in waiting:
                results[number] = body(*calls[number])

        count = min(self._threads, len(calls))
        workers = [self._scheduler.spawn(f"{caller.name}/{number}", work) for number in range(count)]
        self._scheduler.wait(lambda: all(worker.ended for worker in workers), name="pool")
        for worker in workers:
            if worker.error is not None:
                raise worker.error
        return iter(results)

    def shutdown(self, wait: bool = True, **_: Any) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class Names:
    """As the module `uuid`, but the same names again in the same order."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)

    def uuid4(self) -> "Name":
        return Name(next(self._numbers))


class Name:
    """As a `UUID`."""

    def __init__(self, number: int) -> None:
        self.hex = f"{number:032x}"

    def __str__(self) -> str:
        return f"{self.hex[:8]}-{self.hex[8:12]}-{self.hex[12:16]}-{self.hex[16:20]}-{self.hex[20:]}"
