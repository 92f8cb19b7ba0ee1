"""How long a source is usually without a row: outages of ingest are not its silence."""

from pipeline.health.incidents.gaps import Commit, longest_gap

STEADY = [(2.0 * number, 400) for number in range(60)]


def newest_first(*commits: tuple[float, int] | Commit) -> list[Commit]:
    return sorted((Commit(*each) for each in commits), key=lambda each: -each.at)


def bursts(number: int, every: float, waited: float | None) -> list[Commit]:
    """Return commits of a source that comes now and then: one with many rows, then few; and how long they waited."""
    sizes = (20_000, 800, 300, 200, 100)
    starts = [(burst * every + 5.0 * place, rows) for burst in range(number) for place, rows in enumerate(sizes)]
    return [Commit(at, rows, None if waited is None else at - waited) for at, rows in starts]


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


def test_a_source_that_comes_in_bursts_has_its_gaps() -> None:
    """Rows that came late in a gap had not waited for ingest; where their age says nothing, the rhythm does."""
    assert longest_gap(newest_first(*bursts(3, 600, waited=5.0))) == 580.0
    for waited in (None, 590.0):
        assert longest_gap(newest_first(*bursts(20, 600, waited))) == 580.0
        assert longest_gap(newest_first(*bursts(3, 600, waited))) == 5.0, "two are no rhythm"


def test_an_outage_of_ingest_is_no_gap_of_a_source_in_bursts() -> None:
    """A longer gap after which old rows came is still ingest's."""
    before, after = bursts(20, 600, waited=5.0), bursts(20, 600, waited=5.0)
    late = [Commit(each.at + 20_000, each.rows, each.oldest_at and each.oldest_at + 20_000) for each in after]
    caught_up = Commit(19_900.0, 90_000, 12_000.0)
    assert longest_gap(newest_first(*before, caught_up, *late)) == 580.0
