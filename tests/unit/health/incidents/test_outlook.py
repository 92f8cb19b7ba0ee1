"""The estimate of when a backlog is level: right as often as it says, and silent where nobody can know."""

from random import Random

import pytest

from pipeline.health.incidents.evidence import Point
from pipeline.health.incidents.memory import Memory
from pipeline.health.incidents.outlook import Outlook, look_ahead
from pipeline.health.incidents.shared import is_falling
from tests.unit.health.incidents.queue_world import NOW, game, look

STEP = 5.0


def drain(seed: int) -> tuple[list[Point], float] | None:
    """Return what was seen of an outage's drain up to some moment, and in how many seconds it was level then.

    Its speed wanders about a mean that passes and neighbours disturb, and each look sees a batch early or late.
    """
    random = Random(seed)
    age, at, speed = random.uniform(150, 2_000), 0.0, random.uniform(0.4, 5.0)
    noise, memory = random.uniform(0.1, 0.6), random.uniform(0.0, 0.8)
    points, wander = [Point(0.0, age)], 0.0
    while age > 0:
        wander = memory * wander + random.gauss(0, noise)
        age -= STEP * speed * (1 + wander)
        at += STEP
        points.append(Point(at, max(0.0, age + random.uniform(-2.5, 2.5))))
    whole = points[-1].at
    seen_at = random.uniform(60.0, whole)
    seen = [each for each in points if each.at <= seen_at]
    return (seen, whole - seen[-1].at) if len(seen) > 1 and whole > 90 else None


def held(seeds: range) -> tuple[int, int, int]:
    """Return in how many outages the band held, in how many there was one, and how many there were."""
    bands = hits = all_of = 0
    for seed in seeds:
        outage = drain(seed)
        if outage is None:
            continue
        all_of += 1
        trend, left = outage
        found = look_ahead(trend)
        if found is not None:
            bands += 1
            hits += found.soonest <= left <= found.latest
    return hits, bands, all_of


@pytest.mark.proves("G211")
def test_the_band_holds_in_four_of_five_outages() -> None:
    """Over 600 replayed outages the band holds in 75 to 85 of 100, and most outages have one."""
    hits, bands, all_of = held(range(600))
    assert 0.75 <= hits / bands <= 0.85, f"{hits} of {bands}"
    assert bands >= 0.6 * all_of, f"{bands} of {all_of}"


@pytest.mark.parametrize(
    "ages",
    [
        [],
        [300.0] * 40,
        [300.0 + 5 * number for number in range(40)],
        [None if number == 39 else 400.0 - 5 * number for number in range(40)],
        [400.0 - 5 * number for number in range(10)],
        [100_000.0 - number for number in range(60)],
        [400.0 - 3 * number + 120 * (number % 16 < 8) for number in range(60)],
    ],
    ids=["nothing", "level", "rising", "unknown", "45 seconds", "days", "to and fro"],
)
@pytest.mark.proves("G211")
def test_where_nobody_can_know_there_is_no_outlook(ages: list[float | None]) -> None:
    """No estimate is made from a backlog that does not fall, not long or not steadily enough, or is unknown."""
    assert look_ahead([Point(STEP * number, age) for number, age in enumerate(ages)]) is None


def test_only_the_fall_counts() -> None:
    """A backlog that rose before it fell is estimated from the fall."""
    rise, fall = [100.0 + 5 * number for number in range(40)], [300.0 - 10 * number for number in range(16)]
    found = look_ahead([Point(STEP * number, age) for number, age in enumerate([*rise, *fall])])
    assert found is not None
    assert found.seconds == pytest.approx(75, abs=8)


def test_the_sentence_has_minutes_and_the_band() -> None:
    """The sentence is short, and says the band only where it is one."""
    assert Outlook(240, 170, 340).sentence() == "level in about 4 min at this rate (3 to 6)"
    assert Outlook(240, 235, 245).sentence() == "level in about 4 min at this rate"
    assert Outlook(30, 20, 50).sentence() == "level in less than a minute at this rate"


@pytest.mark.parametrize("heartbeat_seconds", [0.5, 1.0, 2.4, 5.0, 20.1, 30.0])
def test_a_trend_is_one_at_each_allowed_heartbeat(heartbeat_seconds: float) -> None:
    """However often a look comes, a backlog that falls is seen to fall, with an outlook, in bounded memory."""
    memory, trend = Memory(), tuple[Point, ...]()
    for number in range(int(400 / heartbeat_seconds)):
        seconds = number * heartbeat_seconds * 1.01
        late = game(status="LAGGING", backlog_seconds=600 - seconds)
        trend = memory.remember(look(late, now=NOW + seconds)).games["chess"].trend
    assert is_falling(trend)
    assert look_ahead(trend) is not None
    assert len(trend) <= 128
    assert trend[-1] == Point(NOW + seconds, 600 - seconds), "the newest look counts"
