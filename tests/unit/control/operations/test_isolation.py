"""Who is suspected of having killed a group's driver: pure, so each law is a case."""

import json

import pytest

from pipeline.control.operations.isolation import intent, suspects
from pipeline.store.assignments import GameAssignment
from pipeline.store.groups import Group
from pipeline.store.processes.runs import Run

NOW = 10_000.0


def death(ago: float, *games: str, died: bool = True, text: str | None = None) -> Run:
    active_games = text if text is not None else json.dumps(games)
    return Run(int(ago), "a", "p", NOW - ago - 1, None, NOW - ago, died, "killed", active_games)


def unknown(ago: float) -> Run:
    return Run(int(ago), "a", "p", NOW - ago - 1, None, NOW - ago, died=True, exit_message="killed")


def assignment(key: str, cursor: int | None = 3, last: int = 9) -> GameAssignment:
    return GameAssignment(key, key.upper(), "a", 1, "a", last, "a", 0.0, "RUN", cursor, None)


ALL = {key: assignment(key) for key in "abcd"}

CASES = {
    "one death is an accident": ([death(1, "b")], ALL, []),
    "who was in hand at both is a suspect": ([death(1, "b", "c"), death(9, "a", "c")], ALL, ["c"]),
    "of several half are taken out": ([death(1, "a", "b", "c", "d"), death(9, "b", "c", "d")], ALL, ["b"]),
    "nobody in common, nobody suspected": ([death(1, "a"), death(9, "b")], ALL, []),
    "who has no rows to come killed nobody": ([death(1, "c"), death(9, "c")], {**ALL, "c": assignment("c", 9)}, []),
    "a game never committed is a suspect": ([death(1, "c"), death(9, "c")], {**ALL, "c": assignment("c", None)}, ["c"]),
    "a run that was asked to end is no death": ([death(1, "c"), death(9, "c", died=False)], ALL, []),
    "long ago is forgotten": ([death(1, "c"), death(1801, "c")], ALL, []),
    "only the two newest deaths count": ([death(1, "c", "d"), death(9, "c", "b"), death(20, "c")], ALL, ["c"]),
    "who has left since may be to blame": ([death(1, "c"), death(9, "c", "gone")], ALL, []),
    "a death of which nothing is known says nothing": ([death(1, "c"), unknown(5), death(9, "c")], ALL, ["c"]),
    "one known death is an accident": ([death(1, "c"), unknown(5)], ALL, []),
    "one that is alone stays": ([death(1, "c"), death(9, "c")], {"c": assignment("c")}, []),
}


@pytest.mark.parametrize(("ended", "carried", "expected"), CASES.values(), ids=CASES.keys())
@pytest.mark.proves("D14")
def test_who_is_suspected(ended: list[Run], carried: dict[str, GameAssignment], expected: list[str]) -> None:
    """Each case is its own sentence."""
    assert suspects(ended, carried, NOW) == expected


def test_one_death_asks_once() -> None:
    """The same death asks for one operation, into a group whose name nobody has."""
    ended = [death(1, "c"), death(9, "c")]
    submitted = intent(Group("a"), ended, ALL, ["a", "solo-1"], NOW)
    assert submitted is not None
    assert submitted.preview == {"c": ["a", "solo-2", 1]}
    assert submitted.idempotency_key == "isolate-run-1"
    assert intent(Group("b"), ended, ALL, ["a"], NOW) is None, "the games are another group's"
