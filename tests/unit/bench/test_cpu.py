import multiprocessing
import os
import signal

import pytest

from bench.cpu import ProcessStat, by_role, parse_busy, parse_stat, read_all, shared_out, total, tree

_TAIL = "0 0 0 0 0 0 0 0 0 10 20 3 4 20 0 7 0 5000 1000000 300 0"


def _stat(pid: int, parent: int, command: str = "java", ticks: int = 100) -> ProcessStat:
    return ProcessStat(pid, parent, command, ticks, threads=2, rss_pages=10)


def test_a_process_counts_its_own_time_and_that_of_its_ended_children() -> None:
    """Helper processes that Hadoop starts for a chmod live for milliseconds: their time must not be lost."""
    stat = parse_stat(f"42 (java) S 7 {_TAIL}")
    assert stat == ProcessStat(42, 7, "java", ticks=10 + 20 + 3 + 4, threads=7, rss_pages=300)


def test_a_command_may_hold_blanks_and_brackets() -> None:
    """The kernel puts a program's name in brackets as it is: fields are counted from the last one."""
    assert parse_stat(f"42 (a) (b c)) S 7 {_TAIL}").command == "a) (b c)"


@pytest.mark.parametrize("line", ["", "42 java S 7", "42 (java) S 7 1 2 3"])
def test_another_form_is_not_taken_for_a_process(line: str) -> None:
    """A line that cannot be understood is an error, never a process without CPU time."""
    with pytest.raises(ValueError, match="not a line"):
        parse_stat(line)


def test_a_tree_is_the_root_and_all_below_it() -> None:
    """A driver's cost is its Python, its JVM and the JVM's workers, and nobody else's."""
    machine = [_stat(1, 0), _stat(2, 1), _stat(3, 2), _stat(4, 3), _stat(9, 1)]
    assert {2, 3, 4} == {member.pid for member in tree(machine, 2)}
    assert tree(machine, 5) == []


def test_a_total_is_the_sum_in_seconds_and_bytes() -> None:
    """Clock ticks and pages never leave this module."""
    used = total([_stat(2, 1), _stat(3, 2)])
    assert used.cpu_seconds == pytest.approx(200 / os.sysconf("SC_CLK_TCK"))
    assert (20 * os.sysconf("SC_PAGE_SIZE"), 4, 2) == (used.rss_bytes, used.threads, used.processes)


def test_roles_add_up_to_the_tree() -> None:
    """No CPU second of a tree is without a role, and none has two."""
    members = [_stat(2, 1, "python", 5), _stat(3, 2, "java", 7), _stat(4, 3, "python", 11), _stat(5, 3, "chmod", 1)]
    ticks = os.sysconf("SC_CLK_TCK")
    assert by_role(members, 2) == {"driver": 5 / ticks, "jvm": 7 / ticks, "workers": 12 / ticks}


def test_waiting_is_not_being_busy() -> None:
    """Idle and I/O wait of the machine are nobody's CPU time."""
    ticks = os.sysconf("SC_CLK_TCK")
    assert parse_busy("cpu  10 20 30 4000 500 6 7 0 0 0") == pytest.approx((10 + 20 + 30 + 6 + 7) / ticks)


def test_a_fork_counts_only_what_it_has_written() -> None:
    """A fork that has written nothing adds less than half of what it seems to hold: workers are such forks."""
    child = multiprocessing.get_context("fork").Process(target=signal.pause)
    child.start()
    try:
        members = [each for each in read_all() if each.pid in {os.getpid(), child.pid}]
        alone, both = shared_out([each for each in members if each.pid == os.getpid()]), shared_out(members)
    finally:
        child.kill()
        child.join()
    assert len(members) == 2
    assert alone < both < 0.75 * total(members).rss_bytes
