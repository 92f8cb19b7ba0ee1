"""A driver that reports again writes what has changed, and the store has the same as if it wrote all."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from sqlalchemy import Engine, delete, event, select, update

from listeners.sample import Lane, StreamState
from pipeline.store.database.tables import drivers, streams
from pipeline.store.processes.drivers import StreamReports, start_driver
from tests.unit.store.reports_world import write_streams

KEYS = ("chess", "go", "idle")


@pytest.fixture
def reports(engine: Engine) -> StreamReports:
    """A driver of group a that has reported all streams once."""
    start_driver(engine, "group", "a", None)
    made = StreamReports(engine)
    made.write(states())
    return made


def states(**refused: int) -> list[StreamState]:
    return [
        StreamState(key, "a", Lane.RUN, "RUNNING", 0.0, 1, None, 0.0, None, None, 0, 0, None, 0.0,
                    refused={"malformed_payload": refused[key]} if key in refused else {})
        for key in KEYS
    ]  # fmt: skip


def rows(engine: Engine) -> dict[str, tuple[str, str | None, float]]:
    columns = streams.c
    with engine.connect() as connection:
        found = connection.execute(select(columns.game_key, columns.group_name, columns.refused, columns.updated_at))
        return {key: (group, refused, at) for key, group, refused, at in found}


@pytest.fixture
def written(engine: Engine) -> Iterator[list[int]]:
    """The sizes of what is inserted into `streams`."""
    sizes: list[int] = []

    def note(_connection: object, _cursor: object, text: str, given: object, _context: object, many: bool) -> None:
        if text.startswith("INSERT INTO streams"):
            sizes.append(len(given) if many and isinstance(given, list) else 1)

    event.listen(engine, "before_cursor_execute", note)
    yield sizes
    event.remove(engine, "before_cursor_execute", note)


def test_an_unchanged_stream_gets_its_new_time_alone(
    engine: Engine, reports: StreamReports, written: list[int]
) -> None:
    """Law L8: the row of an idle game is not written again, and it is as fresh as that of the others."""
    before = rows(engine)
    reports.write(states(chess=3))
    after = rows(engine)
    assert written == [1]
    assert {key: row[:2] for key, row in after.items()} == {
        "chess": ("a", '{"malformed_payload": 3}'), "go": ("a", None), "idle": ("a", None),
    }  # fmt: skip
    (at,) = {row[2] for row in after.values()}
    assert at > max(row[2] for row in before.values())
    reports.write(states())
    assert rows(engine)["chess"][1] is None


def forget(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(delete(streams).where(streams.c.game_key == "idle"))


def restore(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(update(streams).values(updated_at=7.0, refused='{"old": 1}'))


def move(engine: Engine) -> None:
    write_streams(
        engine, [replace(each, group="b", refused={"theirs": 1}) for each in states() if each.game_key == "idle"]
    )


@pytest.mark.parametrize("disturb", [forget, restore, move])
def test_a_report_replaces_rows_that_others_changed(
    engine: Engine, reports: StreamReports, disturb: Callable[[Engine], None]
) -> None:
    """A report stands as a whole, also where rows of streams that have not changed are gone, older or another's."""
    disturb(engine)
    reports.write(states())
    found = rows(engine)
    assert {key: row[:2] for key, row in found.items()} == dict.fromkeys(KEYS, ("a", None))
    assert len({row[2] for row in found.values()}) == 1


def test_a_stream_that_was_given_away_is_no_longer_reported(engine: Engine, reports: StreamReports) -> None:
    """The time in the row of a game that this driver let go stays, so that it does not look watched."""
    before = rows(engine)["idle"]
    for _ in range(2):
        reports.write([each for each in states() if each.game_key != "idle"])
    after = rows(engine)
    assert after["idle"] == before
    assert after["go"][2] > before[2]


def test_a_driver_that_was_replaced_reports_nothing(engine: Engine, reports: StreamReports) -> None:
    """Last words of a process do not touch the rows that its successor writes, in any form."""
    with engine.begin() as connection:
        connection.execute(update(drivers).values(pid=1))
    before = rows(engine)
    for said in (states(), states(chess=1), states()):
        reports.write(said)
    assert rows(engine) == before
