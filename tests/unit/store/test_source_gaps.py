"""How long nothing waits in the source is measured, kept for eight days, and judged by every reader alike."""

import time
from functools import partial

import pytest
from sqlalchemy import Engine, insert, update

from pipeline.health.facts.controller_metrics import read_controller_metrics
from pipeline.health.facts.fleet import read_fleet
from pipeline.store.database.report_tables import source_gaps
from pipeline.store.database.tables import bronze_commits, drivers
from pipeline.store.processes.drivers import heartbeat, start_driver
from pipeline.store.reports import backlog_in, write_backlog
from pipeline.store.rows import SourceGap
from pipeline.store.source_gaps import KEPT_SECONDS, gaps_in, joined, keep_gap, slot_of


class Source:
    """A source whose commits and measurements came `ago` seconds ago, as the store has only its own clock."""

    def __init__(self, engine: Engine) -> None:
        self.engine, self.seq = engine, 0
        self.write = partial(write_backlog, engine, age_seconds=0.0, peak_seconds=0.0, limit_seconds=60.0, reason=None)

    def commit(self, ago: float) -> None:
        self.seq += 1
        row = {"seq": self.seq, "rows": 9, "refused": 0, "committed_at": time.time() - ago}
        with self.engine.begin() as connection:
            connection.execute(insert(bronze_commits).values(row))

    def gaps(self) -> list[SourceGap]:
        with self.engine.connect() as connection:
            return gaps_in(connection)

    def quiet(self) -> float | None:
        with self.engine.connect() as connection:
            reading = backlog_in(connection)
        return None if reading is None or reading.quiet_since is None else round(reading.quiet_seconds)


def test_a_gap_is_what_was_measured_before_the_next_commit(engine: Engine) -> None:
    """Rows that wait are no gap, nor what nobody measured: a stopped or slow ingest is not its source's silence."""
    source = Source(engine)
    source.write(rows=0)
    assert (source.quiet(), source.gaps()) == (None, []), "nothing was ever committed"
    source.commit(ago=1_300)
    source.write(rows=0)
    assert source.quiet() == 1_300
    source.write(rows=7)
    source.write(rows=None)
    assert (source.quiet(), source.gaps()) == (1_300, []), "it lasts until something has come"
    source.commit(ago=500)
    source.write(rows=None)
    assert source.gaps() == [], "what waits is not known"
    source.write(rows=4)
    assert source.quiet() == 0
    source.commit(ago=1)
    source.write(rows=4)
    assert [(round(each.seconds), each.number) for each in source.gaps()] == [(1_300, 1), (0, 1)]


def test_ten_minutes_keep_their_longest_gap_and_go_after_eight_days(engine: Engine) -> None:
    """The number of gaps grows with each, and a week of one commit a second stays below 1,200 rows."""
    now = 1_800_000_000.0
    assert slot_of(now) * 600 == now
    with engine.begin() as connection:
        for began_at, seconds in ((now, 3.0), (now + 4, 9.0), (now + 14, 2.0), (now + 700, 1.0)):
            keep_gap(connection, began_at, seconds, now + 701)
        assert gaps_in(connection) == [SourceGap(now + 4, 9.0, 3), SourceGap(now + 700, 1.0, 1)]
        keep_gap(connection, now + KEPT_SECONDS, 1.0, now + KEPT_SECONDS + 900)
        assert [each.began_at for each in gaps_in(connection)] == [now + 700, now + KEPT_SECONDS]
    assert joined(None, now, 3.0) == SourceGap(now, 3.0, 1)


@pytest.mark.proves("G210")
def test_readers_judge_silence_from_what_is_kept(engine: Engine) -> None:
    """The headline, the page's source and the exported limit come from one judgement of the same rows."""
    start_driver(engine, "ingest", "main", None)
    heartbeat(engine, "ingest", "main", "running", 1)
    source, now = Source(engine), time.time()
    source.commit(ago=40)
    source.write(rows=0)
    with engine.begin() as connection:
        connection.execute(
            insert(source_gaps).values(slot=slot_of(now - 900), began_at=now - 900, seconds=4, number=30)
        )
        connection.execute(update(drivers).values(started_at=now - 600))
    fleet = read_fleet(engine)
    quiet = fleet.judgement.source.quiet
    assert quiet is not None
    assert (round(quiet.seconds), quiet.is_silent) == (40, True)
    assert read_controller_metrics(engine, fleet).source_silent_after == 12.0
    source.write(rows=1)
    fleet = read_fleet(engine)
    assert (fleet.judgement.source.quiet, read_controller_metrics(engine, fleet).source_silent_after) == (None, None)
