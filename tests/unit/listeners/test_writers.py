"""Guards that a minute is a whole one only where nobody can hold a further report of it."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from listeners.minutes.writers import Writers

NOW = 1_767_600_000.0  # a whole hour

Spans = Mapping[str, tuple[int, int]]


def rows(spans: Spans, group: str = "a") -> pa.Table:
    """Return a row for each minute from the first to the last one of each writer, counted from NOW."""
    said = [(writer, minute) for writer, (first, last) in spans.items() for minute in range(first, last + 1)]
    at = pa.array([datetime.fromtimestamp(NOW + 60 * minute, UTC) for _, minute in said], pa.timestamp("us", "UTC"))
    writers = pa.array([writer for writer, _ in said]).dictionary_encode()
    return pa.table({"writer": writers, "minute": at, "cluster_group": [group] * len(said)})


def partial(spans: Spans, group: str = "a", until: int = 9, slot_seconds: int = 60) -> Sequence[int]:
    writers = Writers()
    writers.add(rows(spans, group))
    found = writers.partial(NOW, slot_seconds, 10, NOW + 60 * (until + 1))
    return found[group].nonzero()[0].tolist() if group in found else []


@pytest.mark.parametrize(
    ("spans", "expected"),
    [
        pytest.param({"one": (0, 9)}, [], id="a driver that goes on"),
        pytest.param({"one": (0, 5), "two": (5, 9)}, [], id="ended by itself: it writes the minute of its end"),
        pytest.param({"one": (0, 4), "two": (5, 9)}, [5], id="killed: the next driver reports a part of that minute"),
        pytest.param({"one": (0, 4), "two": (6, 9)}, [5, 6], id="killed before it wrote the minute that had ended"),
        pytest.param({"one": (0, 3), "two": (8, 9)}, [4, 5], id="what one holds is two minutes at most"),
        pytest.param({"one": (0, 7)}, [8, 9], id="it stands still: nobody knows yet what it holds"),
        pytest.param({"one": (0, 8)}, [9], id="it is late, or was killed"),
        pytest.param({"one": (0, 4), "two": (2, 9)}, [], id="two at once: the other one goes on"),
        pytest.param({"one": (0, 1), "two": (3, 4), "three": (6, 9)}, [2, 3, 5, 6], id="killed twice"),
    ],
)
def test_a_minute_is_partial_after_a_report_that_nobody_continues(spans: Spans, expected: list[int]) -> None:
    """A killed driver takes what it had not written with it, so sums of that minute are "at least" and no fact."""
    assert partial(spans) == expected
    assert partial({writer: spans[writer] for writer in reversed(list(spans))}) == expected, (
        "in whatever order they are read"
    )


def test_only_closed_minutes_are_partial_and_a_wide_slot_with_one_is() -> None:
    """The minute that has not been closed is not missing yet; a slot of six minutes is as whole as its minutes are."""
    assert partial({"one": (0, 7)}, until=8) == [8]
    assert partial({"one": (0, 7)}, until=7) == []
    assert partial({"one": (0, 7), "two": (8, 40)}, until=40, slot_seconds=360) == [1]


def test_groups_do_not_continue_each_other_and_old_writers_are_forgotten() -> None:
    """Another group's reports make no minute of this group whole; writers before the window take no room."""
    writers = Writers()
    writers.add(rows({"one": (0, 4)}, "a"))
    writers.add(rows({"two": (0, 9)}, "b"))
    writers.add(rows({"ingest": (0, 9)}), "ingest")
    assert set(writers.partial(NOW, 60, 10, NOW + 600)) == {"a"}
    writers.forget(NOW + 300)
    assert writers.partial(NOW, 60, 10, NOW + 600) == {}
    writers.add(rows({"three": (5, 9)}, "a"))
    assert writers.partial(NOW, 60, 10, NOW + 600) == {}, "the first reports of a window follow none"
    writers.add(rows({}))
