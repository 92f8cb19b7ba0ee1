"""A source is silent once it brings nothing for longer than it ever does at this time."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.health.verdicts.liveness import Liveness
from pipeline.health.verdicts.quiet import (
    FEW_SECONDS,
    GAP_TIMES,
    LEAST_GAPS,
    LEAST_SECONDS,
    Quiet,
    UsualGap,
    usual_gap,
)
from pipeline.health.verdicts.source import judge_quiet, judge_source
from pipeline.store.rows import SourceGap
from pipeline.store.source_gaps import joined, slot_of
from tests.unit.health.verdicts.judgement_world import INGEST, LEVEL, NOW, Given
from tests.unit.health.verdicts.quiet_world import BEAT, BEGIN, DAY, HOUR, MINUTE, Measured, Pause, Silent, replay

PAUSES = (
    Pause(2 * DAY + 10 * HOUR, 4 * MINUTE),
    Pause(3 * DAY + 15 * HOUR, 10 * MINUTE),
    Pause(3 * DAY + 15.6 * HOUR, 10 * MINUTE),  # as long as the one before: known
    Pause(4 * DAY + 15.1 * HOUR, 11 * MINUTE),  # at the same time of the next day: known
    Pause(4 * DAY + 9 * HOUR, 20 * MINUTE, is_ingest=True),
    Pause(5 * DAY + 18 * HOUR, 90.0),
)
NEW = {0: "day 2", 1: "day 3", 5: "day 5"}


def said(silences: list[Silent], begin: float, end: float) -> list[Silent]:
    return [each for each in silences if begin <= each.began_at - BEGIN < end]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.proves("G210")
def test_a_week_has_one_silence_for_each_pause_that_is_new(seed: int) -> None:
    """A night, a lull and each pause are silence when they come for the first time, and nothing else is.

    Nights with a few rows are shorter gaps than those without: the longest of all so far is new.
    """
    measured = Measured()
    replay(Random(seed), PAUSES, measured)
    silences = measured.silences
    for number in NEW:
        (found,) = said(silences, PAUSES[number].at, PAUSES[number].at + 30)
        assert found.after <= 30, "with a reader's look every five seconds more"
        silences.remove(found)
    (lull,) = said(silences, 12 * HOUR, 14 * HOUR)
    assert lull.basis == "within the last hour"
    nights = [each for each in silences if not 7 * HOUR < each.began_at % DAY < 22 * HOUR]
    assert nights[0].began_at < BEGIN + DAY
    assert all(each.is_longest for each in nights), "without rows in between a night is a new pause once more"
    assert [lull, *nights] == silences


def test_the_first_day_says_the_last_hour_and_later_ones_the_time_of_day() -> None:
    """The basis is named: seven days are told by the days that are known, a young source by its last gaps."""
    measured = Measured()
    replay(Random(1), (Pause(9 * HOUR, 120.0), Pause(3 * DAY + 9 * HOUR, 500.0)), measured, days=5)
    young, later = (said(measured.silences, day * DAY + 9 * HOUR, day * DAY + 9 * HOUR + 30)[0] for day in (0, 3))
    assert (young.basis, later.basis) == ("within the last hour", "at this time of day on 3 of the last 7 days")
    hourly = [SourceGap(BEGIN + HOUR * number, 3_590.0, 1) for number in range(21)]
    usual = usual_gap(hourly, BEGIN + 21 * HOUR, BEAT)
    assert usual == UsualGap(3_590.0, "of its last 20", 3 * 3_590.0)
    assert usual.text == "its longest gap of its last 20 was 60 min"


def test_few_gaps_say_little() -> None:
    """Of fewer than twenty gaps the limit is five minutes at least, and three times a gap of a day: one file a day."""
    four = SourceGap(NOW - 600, 4.0, LEAST_GAPS - 1)
    assert usual_gap([four], NOW, BEAT) == UsualGap(4.0, "within the last hour", 300.0)
    assert usual_gap([four._replace(number=LEAST_GAPS)], NOW, BEAT) == UsualGap(4.0, "within the last hour", 12.0)
    assert usual_gap([], NOW, BEAT) is None
    assert not Quiet(9_999.0, None).is_silent
    daily = [SourceGap(NOW - day * DAY, DAY - 30, 1) for day in range(1, 8)]
    usual = usual_gap(daily, NOW, BEAT)
    assert usual is not None
    assert usual.limit == 3 * (DAY - 30)


def test_a_source_with_a_file_a_day_is_well_between_two() -> None:
    """Nothing is missing half an hour after the file, so no headline, page or alert says that nothing arrives."""
    came = NOW - 1_800
    daily = [SourceGap(came - day * DAY, DAY - 30, 1) for day in range(1, 8)]
    reading = replace(LEVEL, quiet_since=came)
    ingest = replace(INGEST, started_at=NOW - DAY)
    found = Given(source=reading, newest_bronze_at=came, gaps=daily, ingest=ingest).judge()
    assert (found.headline, found.quiet_since, found.source.silent_after) == ("1 stream healthy", None, 3 * (DAY - 30))


gaps = st.lists(
    st.tuples(st.floats(0, 9 * DAY), st.floats(0, 12 * HOUR), st.integers(1, 40)).map(
        lambda each: SourceGap(NOW - each[0], each[1], each[2])
    ),
    max_size=30,
)


@given(gaps=gaps, beat=st.sampled_from([1.0, 5.0, 30.0]), order=st.randoms())
def test_the_limit_is_three_times_the_longest_and_above_two_measurements(
    gaps: list[SourceGap], beat: float, order: Random
) -> None:
    """Only gaps before this one count, in any order, and no gap of a usual length is silence."""
    found = usual_gap(gaps, NOW, beat)
    order.shuffle(gaps)
    later = [SourceGap(NOW + 1, 9 * HOUR, 99)]
    assert usual_gap([*gaps, *later], NOW, beat) == found
    if found is None:
        return
    assert found.limit in {max(least, 2 * beat, GAP_TIMES * found.seconds) for least in (LEAST_SECONDS, FEW_SECONDS)}
    assert found.seconds in {each.seconds for each in gaps}
    assert not Quiet(found.seconds, found).is_silent
    assert Quiet(found.limit + 1, found).is_silent


@given(
    steady=st.floats(0, 60), length=st.floats(10, 8 * HOUR), measured=st.floats(0, 0.999), day=st.integers(0, 7),
    shift=st.floats(-19 * MINUTE, 19 * MINUTE),
)  # fmt: skip
def test_a_pause_is_silence_once(steady: float, length: float, measured: float, day: int, shift: float) -> None:
    """A pause is no silence within the hour after it, nor near its time of day on seven days, as long as it may be."""
    slots = {slot_of(at): SourceGap(at, steady, 100) for at in (NOW - 1_200 - number * HOUR for number in range(200))}
    seen = max(0.0, length - measured * BEAT)  # the last measurement is up to a heartbeat before its end
    slot = slot_of(NOW)
    slots[slot] = joined(slots.get(slot), NOW, seen)
    again = NOW + day * DAY + shift if day else NOW + length + 60 * abs(shift) / MINUTE
    usual = usual_gap([*slots.values()], again, BEAT)
    assert usual is not None
    is_near = day > 0 or again - NOW <= HOUR
    assert not is_near or not Quiet(length, usual).is_silent


def test_only_a_level_source_in_which_nothing_waits_can_be_silent() -> None:
    """Rows that wait or are unknown, and time before ingest's start, are no silence; the measurement's time ends it."""
    live = Liveness("running", NOW - 600, None)
    known = [SourceGap(NOW - 900, 4.0, 99)]

    def quiet(**changed: object) -> Quiet | None:
        reading = replace(replace(LEVEL, quiet_since=NOW - 100), **changed)  # type: ignore[arg-type]
        return judge_quiet(reading, judge_source(reading, live, NOW, 15.0), known, live, BEAT)

    found = quiet()
    assert found == Quiet(98.0, UsualGap(4.0, "within the last hour", 12.0))
    assert found.is_silent
    assert [quiet(rows=3), quiet(rows=None), quiet(age_seconds=None), quiet(quiet_since=None)] == [None] * 4
    measured = replace(LEVEL, quiet_since=NOW - 100)
    came = judge_quiet(measured, judge_source(measured, live, NOW, 15.0), known, live, BEAT, NOW - 1)
    assert came == Quiet(0.0, found.usual), "bronze got a row since it was measured"
    young = Liveness("running", NOW - 10, None)
    reading = replace(LEVEL, quiet_since=NOW - 100)
    restarted = judge_quiet(reading, judge_source(reading, young, NOW, 15.0), known, young, BEAT)
    assert restarted == Quiet(8.0, found.usual)


def test_the_headline_says_a_silent_source_and_what_is_usual() -> None:
    """Seconds after the usual gap the headline has it, with the basis, and the source's state says so to pages."""
    reading = replace(LEVEL, quiet_since=NOW - 40, quiet_seconds=38.0)
    told = Given(source=reading, newest_bronze_at=NOW - 40, gaps=(SourceGap(NOW - 900, 4.0, 99),)).judge()
    said = "nothing has arrived for 38 s, its longest gap within the last hour was 4 s"
    assert told.headline == f"1 stream level with bronze; {said}"
    assert (told.source.silent_after, told.source.quiet is not None and told.source.quiet.is_silent) == (12.0, True)
    assert told.quiet_since == NOW - 40, "the last row came then, whenever that is asked"
    usual = Given(source=reading, newest_bronze_at=NOW - 400, gaps=(SourceGap(NOW - 900, 400.0, 99),)).judge()
    assert usual.headline == "1 stream healthy", "a night is no news"
    stopped = Given(source=reading, ingest=replace(INGEST, state="stopped")).judge()
    assert stopped.source.quiet is None
