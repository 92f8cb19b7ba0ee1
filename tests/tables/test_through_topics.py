"""The times of `turnout wait` over a topic in memory, against an oracle that knows all records."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from types import SimpleNamespace

import pytest

from pipeline.data.ingest.sources import topic_backlog
from tests.kafka.ends_contract import require_ends
from tests.kafka.fake_topic import FakeTopic
from tests.tables.repair_world import make_world
from tests.tables.through_world import GAMES, Taken, ThroughWorld, random_step, rest, store_clock, trial


@contextmanager
def asked(topic: FakeTopic) -> Iterator[None]:
    """Let the product's clients ask a topic in memory."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(topic_backlog, "AdminClient", lambda _options: topic)
        yield


def test_the_fake_topic_ends_as_a_broker_says() -> None:
    """L8: the topic in memory holds the contract that the real broker's topic holds."""
    topic = FakeTopic(Random(1))
    with asked(topic):
        require_ends(topic, topic.backlog())


def trials(root: Path, seed: int, number: int) -> None:
    """Wait for times again and again in one world; then all rests."""
    random = Random(seed)
    topic = FakeTopic(random)
    with asked(topic), store_clock() as clock:
        world = make_world(root)
        run = ThroughWorld(world, clock, topic)
        topic.is_late, topic.meanwhile = True, lambda: arrive(run, random)
        for _ in range(number):
            for _ in range(5):
                step(run, topic, random)
            run.records = [each for each in run.records if is_there(run, topic, each.place)]
            trial(run, random)
        topic.meanwhile = lambda: None
        for partition in range(len(topic.logs)):
            if topic.has_open(partition):
                topic.end_transaction(partition, commit=random.random() < 0.5)
        run.records = [each for each in run.records if is_there(run, topic, each.place)]
        run.beat()
        run.beat()  # metadata are at most one question old
        rest(run)
        world.engine.dispose()


def test_a_partition_that_an_observation_missed_counts_for_it(tmp_path: Path) -> None:
    """L8: a record on a partition that metadata did not show yet holds back the time at which the source took it."""
    topic = FakeTopic(Random(1))
    with asked(topic), store_clock() as clock:
        run = ThroughWorld(make_world(tmp_path), clock, topic)
        for game in GAMES:
            run.split(game)
        topic.add_partition()
        number = len(topic.logs) - 1
        topic.send(number)
        run.records.append(Taken(clock.wall, (1, number, 0), GAMES[0]))
        clock.tick(1.0)
        with pytest.MonkeyPatch.context() as patch:  # the broker answers with the metadata of before
            patch.setattr(topic, "is_late", True)
            patch.setattr(topic, "_random", SimpleNamespace(choice=lambda found: found[0]))
            run.beat()
        clock.tick(1.0)
        for _ in range(2):
            run.beat()
            run.require_true()
            assert not run.waits(GAMES[0], clock.wall - 2.0), "its record is not landed"
        run.land(9)
        run.split(GAMES[0])
        for _ in range(2):
            clock.tick(1.0)
            run.beat()
        run.require_true()
        assert run.waits(GAMES[0], clock.wall - 1.0)
        run.world.engine.dispose()


def is_there(run: ThroughWorld, topic: FakeTopic, place: object) -> bool:
    return place in run.seq_of or topic.is_record(place)


def arrive(run: ThroughWorld, random: Random) -> None:
    """Let records come while ingest asks, also on a partition that is new since."""
    topic = run.source
    assert isinstance(topic, FakeTopic)
    if random.random() < 0.2:
        if len(topic.logs) < 5 and random.random() < 0.3:
            topic.add_partition()
        run.clock.tick(0.01)
        run.produce(random.choice(GAMES))


def step(run: ThroughWorld, topic: FakeTopic, random: Random) -> None:
    """Do one thing at random, also what only a topic has."""
    number = random.randrange(len(topic.logs))
    match random.choice(
        ["other"] * 9 + ["open", "end", "end", "end", "partition"] + ["recreate"] * (random.random() < 0.3)
    ):
        case "open":
            topic.begin_transaction(number, 0)
            run.produce(random.choice(GAMES))
        case "end" if topic.has_open(number):
            topic.end_transaction(number, commit=random.random() < 0.6)
            run.records = [each for each in run.records if is_there(run, topic, each.place)]
        case "partition" if len(topic.logs) < 5:
            topic.add_partition()
        case "recreate":
            recreate(run, topic, random)
        case _:
            random_step(run, random)


def recreate(run: ThroughWorld, topic: FakeTopic, random: Random) -> None:
    """Let the topic be deleted and made again, unnoticed for two heartbeats, until a person adopts it."""
    run.beat()
    topic.recreate(random.choice([1, 2]))
    run.records = [each for each in run.records if each.place in run.seq_of]  # the unread ones are an accepted gap
    run.clock.tick(1.0)
    run.produce(*GAMES)
    assert not run.beat(), "another topic's ends are none of this one's"
    run.clock.tick(5.0)
    assert not run.beat()
    topic.adopt()
    run.start()


@pytest.mark.parametrize("seed", range(2))
def test_wait_on_a_topic_is_what_an_oracle_says(tmp_path: Path, seed: int) -> None:
    """L8: quiet partitions, transactions, new partitions and topics make no time say that a missing record is there."""
    trials(tmp_path, seed, 5)


@pytest.mark.long
@pytest.mark.timeout(1500)
def test_wait_on_a_topic_is_what_an_oracle_says_1000_times(tmp_path: Path) -> None:
    """L8: the same in 1,000 trials."""
    for seed in range(50):
        trials(tmp_path / str(seed), 1_000 + seed, 20)
        shutil.rmtree(tmp_path / str(seed))
