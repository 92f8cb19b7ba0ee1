"""Observations of a source's ends, and the pairs that are kept of them."""

from hypothesis import given
from hypothesis import strategies as st

from pipeline.data.ingest.through.watch import EndsSeen, ThroughWatch, clock_floor, is_shorter, withdrawn_by
from pipeline.lake.delta.through import MOST, ThroughPair, closing_seq, joined, thinned
from pipeline.store.sources import AcceptedGap

HOUR = 3600.0


def test_an_observation_counts_once_the_next_one_is_made() -> None:
    """L8: a partition that an observation missed counts with the end that the next one sees."""
    watch = ThroughWatch()
    watch.add(EndsSeen(1.0, {"t": {0: 5}}))
    assert watch.passed({"t": {0: 5}}) is None, "nobody knows yet what it missed"
    watch.add(EndsSeen(2.0, {"t": {0: 6, 1: 3}, "u": {0: 0}}))
    assert watch.passed({"t": {0: 5, 1: 2}}) is None, "the new partition's end is not reached"
    found = watch.passed({"t": {0: 5, 1: 3}})
    assert found == EndsSeen(1.0, {"t": {0: 5, 1: 3}, "u": {0: 0}})
    assert [each.at for each in watch.waiting] == [2.0]


def test_several_sources_pass_together() -> None:
    """L8: the least complete source decides, also a table beside a topic."""
    watch = ThroughWatch()
    for at in (1.0, 2.0):
        watch.add(EndsSeen(at, {"topic": {0: 5}, "table": {0: 2}}))
    assert watch.passed({"topic": {0: 9}, "table": {0: 1}}) is None
    assert watch.passed({"topic": {0: 5}}) is None
    found = watch.passed({"topic": {0: 5}, "table": {0: 2}})
    assert found is not None
    assert found.at == 1.0


def test_observations_that_wait_are_bounded() -> None:
    """L8: an ingest that is hours behind keeps some of its observations, the oldest and the newest among them."""
    watch = ThroughWatch()
    for number in range(5_000):
        watch.add(EndsSeen(float(number), {"t": {0: number}}))
    assert len(watch.waiting) <= 256
    assert (watch.waiting[0].at, watch.waiting[-1].at) == (0.0, 4_999.0)
    found = watch.passed({"t": {0: 2_500}})
    assert found is not None
    assert found.at <= 2_500


def test_a_source_that_ends_before_its_place_has_lost_records() -> None:
    """L1: an end below the place of bronze, and a vanished topic, are no ends to pass."""
    assert is_shorter({"t": {0: 4}}, {"t": {0: 5}})
    assert is_shorter({}, {"t": {0: 5}})
    assert not is_shorter({"t": {0: 5, 1: 9}}, {"t": {0: 5}})


def test_a_clock_that_goes_back_is_noticed() -> None:
    """L8: a step back counts from the least time that the clock can have shown; delays and steps ahead do not count."""
    assert clock_floor((100.0, 10.0), 105.0, 15.0) is None
    assert clock_floor((100.0, 10.0), 175.0, 15.0) is None
    assert clock_floor((100.0, 10.0), 105.0, 12.0) is None
    assert clock_floor((100.0, 10.0), 104.0, 15.0) == 99.0
    assert clock_floor((100.0, 10.0), 40.0, 15.0) == 35.0


def test_records_that_were_lost_after_they_were_read_make_times_void() -> None:
    """L1: where a person accepts that a source lost records which ingest had read, times after them count no more."""
    pair = ThroughPair(7, 50.0, '{"t": {"0": 9}}')
    gap = AcceptedGap(2, "t", 0, 8, 8, "truncated", "me", 60.0)
    assert withdrawn_by(pair, (), [(gap, 7)]) == "truncated"
    assert withdrawn_by(pair, (), [(gap, 6)]) is None, "it was written after the gap"
    assert withdrawn_by(ThroughPair(7, 50.0, '{"t": {"0": 8}}'), (), [(gap, 7)]) is None
    unread = AcceptedGap(2, "t", 0, 8, 8, "retention", "me", 60.0)
    assert withdrawn_by(pair, (), [(unread, 7)]) is None


@given(st.data())
def test_thinned_pairs_take_no_game_back(data: st.DataObject) -> None:
    """L8: fewer pairs never say more of any game, and say the same of each that is behind."""
    pairs: tuple[ThroughPair, ...] = ()
    at, seq = 0.0, 0
    for _ in range(data.draw(st.integers(1, 60))):
        at += data.draw(st.sampled_from([1.0, 5.0, HOUR, 400 * HOUR]))
        seq += data.draw(st.sampled_from([0, 1, 3]))
        pairs = joined(pairs, ThroughPair(seq, at, ""))
    unread = data.draw(st.lists(st.integers(0, seq + 2), max_size=3))
    kept = thinned(pairs, at + 1, unread)

    def time_of(following: int, some: tuple[ThroughPair, ...]) -> float:
        return max((pair.at for pair in some if pair.seq < following), default=0.0)

    for following in range(seq + 3):
        assert time_of(following, kept) <= time_of(following, pairs)
        assert following not in unread or time_of(following, kept) == time_of(following, pairs)
    assert kept[-1] == pairs[-1]


def test_a_day_keeps_its_closing_seq() -> None:
    """L8: a day that is closed a month later has the closing seq that it had at once."""
    pairs: tuple[ThroughPair, ...] = ()
    moments = [day * 24 * HOUR + 2 * HOUR for day in range(1, 30)]
    for minute in range(30 * 24 * 60):
        pairs = (*pairs, ThroughPair(minute, minute * 60.0, ""))
        if len(pairs) > MOST:
            pairs = thinned(pairs, minute * 60.0, [], moments)
    assert [closing_seq(pairs, moment) for moment in moments] == [int(moment / 60) for moment in moments]


def test_ten_years_of_pairs_stay_few() -> None:
    """L8: pairs are kept for ever, and stay few, as the distance of two grows with their age."""
    ten_years = 10 * 365 * 24 * HOUR
    pairs = tuple(ThroughPair(number, number * ten_years / 200_000, "") for number in range(200_000))
    recent = tuple(ThroughPair(300_000 + number, ten_years + 5 * number, "") for number in range(2_000))
    kept = thinned(pairs + recent, ten_years + 10_000, [])
    assert len(kept) < MOST - 400, "and leave room for the ends of 400 days"
