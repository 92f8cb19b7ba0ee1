"""The next task at each point: random, by random priorities that change a few times (PCT), or as was written down."""

import random
from collections.abc import Sequence

from tests.model.schedule_tasks import Task

Segments = Sequence[tuple[str, int]]
"""The tasks that went on, and for how many points."""


class Uniform:
    """Anybody who can, with the same chance; with `stay` the running one goes on that often."""

    def __init__(self, draw: random.Random, stay: float = 0.0) -> None:
        self._draw, self._stay = draw, stay

    def pick(self, ready: Sequence[Task], current: Task | None, step: int) -> Task:
        del step
        if len(ready) == 1:
            return ready[0]
        if current is not None and self._stay and current in ready and self._draw.random() < self._stay:
            return current
        return ready[int(self._draw.random() * len(ready))]


class Priorities:
    """The one of the highest priority; at a few points the running one gets the lowest (Burckhardt et al., PCT).

    An order of d constraints among k steps of n tasks is found with a chance of at least 1/(n k^(d-1)).
    """

    def __init__(self, draw: random.Random, changes: int, steps: int) -> None:
        self._draw = draw
        self._changes = {draw.randrange(1, steps) for _ in range(changes)}
        self._priorities: dict[str, float] = {}

    def pick(self, ready: Sequence[Task], current: Task | None, step: int) -> Task:
        if step in self._changes and current is not None:
            self._priorities[current.name] = -float(step)
        for task in ready:
            if task.name not in self._priorities:
                self._priorities[task.name] = self._draw.random()
        return max(ready, key=lambda task: self._priorities[task.name])


class Written:
    """As was written down; a task that cannot go on loses the rest of a segment. Afterwards the running one goes on."""

    def __init__(self, segments: Segments) -> None:
        self._segments, self._at = list(segments), 0
        self._left = self._segments[0][1] if self._segments else 0

    def pick(self, ready: Sequence[Task], current: Task | None, step: int) -> Task:
        del step
        while self._at < len(self._segments):
            name = self._segments[self._at][0]
            found = next((task for task in ready if task.name == name), None)
            if found is not None and self._left:
                self._left -= 1
                return found
            self._at += 1
            self._left = self._segments[self._at][1] if self._at < len(self._segments) else 0
        if current is not None and current in ready:
            return current
        return ready[0]
