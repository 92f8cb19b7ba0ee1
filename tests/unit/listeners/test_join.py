"""Guards the joining of pass results and progresses."""

from hypothesis import given
from hypothesis import strategies as st

from listeners.join import Joiner, Pass
from listeners.sample import PassResult, Progress


def result(batch_id: int, run_id: str = "run", frontier_seq: int = 0) -> PassResult:
    return PassResult("eu-1", run_id, batch_id, 10.0, 11.0, frontier_seq, ())


def progress(batch_id: int, run_id: str = "run") -> Progress:
    return Progress("turnout-demux-eu-1", "query", run_id, batch_id, "2026-01-05T10:20:30.123Z", 5, {})


@given(
    results=st.sets(st.tuples(st.sampled_from("ab"), st.integers(0, 5))),
    progresses=st.sets(st.tuples(st.sampled_from("ab"), st.integers(0, 5))),
    data=st.data(),
)
def test_the_order_of_arrival_does_not_matter(
    results: set[tuple[str, int]], progresses: set[tuple[str, int]], data: st.DataObject
) -> None:
    """Whatever arrives first, each result comes out once, with its progress exactly if there was one."""
    arrivals = [(True, key) for key in sorted(results)] + [(False, key) for key in sorted(progresses)]
    joiner, out = Joiner(patience_seconds=60), list[Pass]()
    for now, (is_result, (run_id, batch_id)) in enumerate(data.draw(st.permutations(arrivals))):
        if is_result:
            out += joiner.add_result(result(batch_id, run_id), float(now))
        else:
            out += joiner.add_progress(progress(batch_id, run_id), float(now))
    out += joiner.expire(1_000.0)
    expected = {key: progress(key[1], key[0]) if key in progresses else None for key in results}
    assert expected == {(reported.result.run_id, reported.result.batch_id): reported.progress for reported in out}
    assert len(results) == len(out)
    assert len(joiner) == 0


def test_a_lonely_result_waits_exactly_its_patience() -> None:
    """A result without progress is released after patience_seconds, not before."""
    joiner = Joiner(patience_seconds=10)
    assert list(joiner.add_result(result(1), 100.0)) == []
    assert list(joiner.expire(109.9)) == []
    assert list(joiner.expire(110.0)) == [Pass(result(1), None)]


def test_overdue_results_leave_with_any_arrival() -> None:
    """No timer is needed while events come: each arrival releases what is overdue."""
    joiner = Joiner(patience_seconds=10)
    joiner.add_result(result(1), 0.0)
    assert list(joiner.add_progress(progress(9), 20.0)) == [Pass(result(1), None)]


def test_an_older_runs_progress_is_not_this_runs() -> None:
    """A batch that was repeated after a restart has a new run id and is not joined to the old one's progress."""
    joiner = Joiner(patience_seconds=10)
    joiner.add_progress(progress(1, "old"), 0.0)
    assert list(joiner.add_result(result(1, "new"), 1.0)) == []


def test_memory_is_bounded_and_no_result_is_lost() -> None:
    """Beyond the capacity the oldest result is released alone, and progresses of other queries are forgotten."""
    joiner = Joiner(patience_seconds=1e9, capacity=10)
    out = [reported for batch in range(100) for reported in joiner.add_result(result(batch), 0.0)]
    for batch in range(100):
        joiner.add_progress(progress(batch, "foreign"), 0.0)
    assert len(joiner) == 20
    assert [reported.result.batch_id for reported in (*out, *joiner.release())] == list(range(100))


def test_a_result_told_twice_is_not_lost() -> None:
    """Two results under one key both come out."""
    joiner = Joiner(patience_seconds=10)
    out = [*joiner.add_result(result(1, frontier_seq=5), 0.0), *joiner.add_result(result(1, frontier_seq=6), 0.0)]
    out += joiner.add_progress(progress(1), 0.0)
    assert out == [Pass(result(1, frontier_seq=5), None), Pass(result(1, frontier_seq=6), progress(1))]
