"""How long a source is usually without a row: outages of ingest are not its silence."""

from pipeline.signals.gaps import longest_gap

STEADY = [(2.0 * number, 400) for number in range(60)]


def newest_first(*commits: tuple[float, int]) -> list[tuple[float, int]]:
    return sorted(commits, reverse=True)


def test_the_longest_gap_is_that_of_the_source() -> None:
    """A night without a row is a gap of the source; a few commits say nothing."""
    later = [(700.0 + at, rows) for at, rows in STEADY]
    assert longest_gap(newest_first(*STEADY, *later)) == 700.0 - STEADY[-1][0]
    assert longest_gap(newest_first(*STEADY[:10])) is None


def test_rows_that_waited_for_ingest_are_no_silence() -> None:
    """After a frozen ingest the source is silent as soon as before: also where it first ends its old batch."""
    later = [(190.0 + at, rows) for at, rows in STEADY]
    at_once = newest_first(*STEADY, (180.0, 12_000), *later)
    after_its_batch = newest_first(*STEADY, (180.0, 400), (184.0, 12_000), *later)
    assert longest_gap(at_once) == 10.0
    assert longest_gap(after_its_batch) == 6.0


def test_a_source_of_single_batches_has_its_gaps() -> None:
    """Hourly batches of different sizes are an hour apart."""
    batches = [(3600.0 * number, 1_000 + 100 * (number % 7)) for number in range(40)]
    assert longest_gap(newest_first(*batches)) == 3600.0
