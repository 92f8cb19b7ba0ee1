"""When batches begin, by looks that come now and then."""

from itertools import pairwise

import pytest

from pipeline.data.pacing import Pace

LOOK = 0.1


def run(trigger: float, every: float, phase: float = 0.0, seconds: float = 200.0) -> tuple[list[float], list[float]]:
    """Return when batches begin over commits of a period, and how long the newest commit of each had waited.

    A look comes each tenth of a second, in turn on time and 30 ms late.
    """
    pace, read = Pace(trigger, LOOK), 0
    begun: list[float] = []
    waited: list[float] = []
    for number in range(round(seconds / LOOK)):
        now = number * LOOK + (0.03 if number % 2 else 0.0)
        there = max(0, int((now - phase) / every + 1e-9) + 1)
        if there > read and pace.is_due(now):
            newest = phase + (there - 1) * every
            pace.begun(now, there - read, now - newest)
            begun, waited, read = [*begun, now], [*waited, now - newest], there
    return begun, waited


@pytest.mark.parametrize("every", [1.0, 0.5])
@pytest.mark.parametrize("phase", [0.0, 0.25, 0.5, 0.75])
def test_batches_follow_commits_whose_rhythm_is_theirs(every: float, phase: float) -> None:
    """No row waits for half a trigger all the time, and there is no batch more for it once they are in step."""
    begun, waited = run(1.0, every, phase)
    assert max(waited[12:]) < 0.25
    assert begun[-1] - begun[12] == pytest.approx(len(begun) - 13, abs=0.2)


@pytest.mark.parametrize(("trigger", "every"), [(5.0, 2.0), (1.0, 0.15), (2.0, 0.75)])
def test_batches_are_a_trigger_apart_on_average(trigger: float, every: float) -> None:
    """Commits of another rhythm, and looks that come late, make batches neither more nor fewer."""
    begun, _ = run(trigger, every)
    assert (begun[-1] - begun[0]) / (len(begun) - 1) == pytest.approx(trigger, rel=0.05)


@pytest.mark.parametrize("every", [0.1, 0.3, 1.0, 1.7])
def test_batches_are_never_much_closer(every: float) -> None:
    """A batch that began late is not followed by several at once."""
    begun, _ = run(1.0, every)
    assert min(after - before for before, after in pairwise(begun)) > 0.75
