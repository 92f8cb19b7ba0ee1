"""Guards that a driver's CPU time is that of all its processes, never decreases, and is unknown where nobody knows."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from listeners import process_cpu
from listeners.minutes.fold import Minutes
from listeners.process_cpu import TreeCpu, tree_cpu_seconds
from listeners.sample import CpuUse, ProcessMinute

NOW = 1_767_600_000.0  # a whole minute


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="this system has no /proc")
def test_the_time_of_children_counts_while_they_run_and_after_they_have_ended() -> None:
    """A driver works in its JVM and in workers: what a child used is in the tree, also once it is gone."""
    spins = "import time\nwhile time.process_time() < 0.2: pass\nprint(flush=True)\ninput()"
    before = tree_cpu_seconds(os.getpid())
    assert before is not None
    with subprocess.Popen([sys.executable, "-c", spins], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        running, own = tree_cpu_seconds(), tree_cpu_seconds(child.pid)
        child.communicate(b"\n")
    ended = tree_cpu_seconds()
    assert running is not None
    assert own is not None
    assert ended is not None
    assert own >= 0.19
    assert running >= before + 0.19
    assert ended >= running


def test_a_look_has_what_was_used_since_the_last_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lost child takes its time along: then nothing was used, and the total does not decrease."""
    clock = iter([10.0, 15.0, 20.0, 25.0, 30.0, 35.0])
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    reads: Iterator[float | None] = iter([100.0, 102.0, 90.0, 91.0, None, 92.0])
    cpu = TreeCpu(lambda: next(reads))
    assert cpu.look(NOW) == CpuUse(NOW - 5, NOW, 2.0)
    assert cpu.look(NOW) == CpuUse(NOW - 5, NOW, 0.0)
    assert cpu.look(NOW) == CpuUse(NOW - 5, NOW, 1.0)
    assert (cpu.look(NOW), cpu.look(NOW), cpu.total) == (None, None, 103.0)


def test_a_child_that_ends_while_the_tree_is_read_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its parent was read before it inherited, so 40 s are missing in one look: they were counted while it ran."""
    clock = iter([10.0, 15.0, 20.0, 25.0, 30.0])
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    reads = iter([100.0, 150.0, 111.0, 152.0, 153.0])
    cpu = TreeCpu(lambda: next(reads))
    used = [cpu.look(NOW) for _ in range(4)]
    assert [None if each is None else each.cpu_seconds for each in used] == [50.0, 0.0, 2.0, 1.0]
    assert cpu.total == 153.0


def test_a_system_without_proc_knows_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unknown is not 0: there is no total and no look."""
    monkeypatch.setattr(process_cpu, "_PROC", tmp_path / "proc")
    cpu = TreeCpu()
    assert (cpu.total, cpu.look(NOW), tree_cpu_seconds()) == (None, None, None)


def test_a_span_is_shared_among_its_minutes() -> None:
    """A heartbeat that came late leaves no minute without its share, and none with that of others."""
    minutes = Minutes("group", "a", is_whole=True)
    minutes.add_cpu(CpuUse(NOW + 50, NOW + 130, 8.0))
    minutes.add_cpu(CpuUse(NOW + 130, NOW + 135, 1.5))
    assert len(minutes) == 3
    assert not minutes.close(NOW + 64)
    assert minutes.close(NOW + 65) == [ProcessMinute(NOW, "group", "a", 1.0, 10.0, is_whole=True)]
    assert minutes.release() == [
        ProcessMinute(NOW + 60, "group", "a", 6.0, 60.0, is_whole=True),
        ProcessMinute(NOW + 120, "group", "a", 2.5, 15.0, is_whole=True),
    ]
