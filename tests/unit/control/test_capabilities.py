"""What can be done for a game: possible, or one sentence why not and what is nearest instead."""

import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.base.errors import Refused
from pipeline.control.capabilities import Capability, read_facts, repairs
from pipeline.control.operations.facts import GameFacts
from pipeline.health.facts.placing import placing
from pipeline.store.assignments import retire
from pipeline.store.database.states import OperationState
from pipeline.store.games import register_group
from pipeline.store.operations import Intent, change, submit
from pipeline.store.processes.drivers import start_driver
from pipeline.store.stream_control import StreamControl, record_failures
from tests.tables.repair_world import CHESS, broken, early, good, make_world

DEADLY = {"refused_for": "kills_worker"}
FULL = StreamControl(failures=2, failure_class="transient", evidence="OSError: [Errno 27] File too large")
PARKED = StreamControl(parked_at=1.0, failures=3, failure_class="poison")
WELL = GameFacts(
    game_key="chess_1", game="Chess", group="a", lane="RUN", decision=StreamControl(), retired=False, has_schema=True,
    has_table=True, quarantined={"unknown_schema": 3, "malformed_payload": 1}, silence=None, backend="local",
    neighbours=4, busy=None, took_seconds={},
)  # fmt: skip
"""Runs in a group that is started from here, with refused rows."""


def named(facts: GameFacts, name: str) -> Capability:
    return next(each for each in repairs(facts) if each.name == name)


@pytest.mark.parametrize(
    ("facts", "possible"),
    [
        (WELL, {"replay", "dedupe", "rebuild", "restart"}),
        (replace(WELL, decision=PARKED, lane="QUARANTINED"), {"retry", "replay", "dedupe", "rebuild", "restart"}),
        (replace(WELL, decision=StreamControl(failures=1)), {"retry", "replay", "dedupe", "rebuild", "restart"}),
        (replace(WELL, decision=FULL), {"retry", "restart"}),
        (replace(WELL, decision=replace(FULL, failures=0)), {"replay", "dedupe", "rebuild", "restart"}),
        (
            replace(WELL, decision=replace(PARKED, desired="paused")),
            {"retry", "replay", "dedupe", "rebuild", "restart"},
        ),
        (replace(WELL, quarantined={}), {"dedupe", "rebuild", "restart"}),
        (replace(WELL, quarantined=None), {"replay", "dedupe", "rebuild", "restart"}),
        (replace(WELL, quarantined={"kills_worker": 2}), {"dedupe", "rebuild", "restart"}),
        (
            replace(WELL, quarantined={"kills_worker": 2, "unknown_schema": 1}),
            {"replay", "dedupe", "rebuild", "restart"},
        ),
        (replace(WELL, quarantined={"kills_worker": 2}, rows=DEADLY), {"replay", "dedupe", "rebuild", "restart"}),
        (replace(WELL, has_schema=False), {"restart"}),
        (replace(WELL, has_table=False), {"replay", "restart"}),
        (replace(WELL, backend="none"), {"replay", "dedupe", "rebuild"}),
        (replace(WELL, backend="none", decision=PARKED), {"retry", "replay", "dedupe", "rebuild"}),
        (replace(WELL, silence="its driver is stopped", decision=PARKED), {"replay", "dedupe", "rebuild", "restart"}),
        (replace(WELL, group=None, backend=None, silence=None, decision=PARKED), {"replay", "dedupe", "rebuild"}),
        (replace(WELL, retired=True, group=None, backend=None, decision=PARKED), set()),
        (replace(WELL, busy="move 4f1d2a3b by ann", decision=PARKED), set()),
    ],
)
@pytest.mark.proves("G108")
def test_what_is_possible_and_what_is_not(facts: GameFacts, possible: set[str]) -> None:
    """The gentlest comes first; what is not possible has one sentence why, and all say what they touch."""
    found = repairs(facts)
    assert tuple(each.name for each in found) == ("retry", "replay", "dedupe", "rebuild", "restart")
    assert {each.name for each in found if each.possible} == possible
    for each in found:
        assert (each.why_not is None) == each.possible
        assert each.alternative is None or not each.possible
        assert all(text.endswith(".") for text in (each.why_not or ".", each.touches, each.estimate))


@pytest.mark.parametrize(
    ("facts", "name", "why_not", "instead"),
    [
        (replace(WELL, decision=FULL), "replay", "Its commits fail for lack of space.", "retry"),
        (replace(WELL, decision=FULL), "rebuild", "Its commits fail for lack of space.", "retry"),
        (replace(WELL, decision=FULL), "dedupe", "Its commits fail for lack of space.", "retry"),
        (WELL, "retry", "There is no failure to try again after, and its lane is RUN.", "restart"),
        (replace(WELL, lane=None, backend="none"), "retry", "and nothing was reported about it.", None),
        (
            replace(WELL, silence="its driver is stopped"),
            "retry",
            "Group a cannot take it up: its driver is",
            "restart",
        ),
        (replace(WELL, group=None, backend=None), "retry", "No group carries it yet", None),
        (replace(WELL, quarantined={}, decision=PARKED), "replay", "Quarantine holds no row of it.", "retry"),
        (replace(WELL, quarantined={}), "replay", "Quarantine holds no row of it.", None),
        (replace(WELL, quarantined={}, rows=DEADLY), "replay", "Quarantine holds no such row of it.", None),
        (replace(WELL, quarantined={"kills_worker": 1}), "replay", "--quarantine-reason kills_worker", None),
        (replace(WELL, has_schema=False, decision=PARKED), "replay", "No schema is registered", "retry"),
        (replace(WELL, has_schema=False, decision=PARKED), "rebuild", "No schema is registered", "retry"),
        (replace(WELL, has_table=False), "rebuild", "It has no table yet.", "replay"),
        (replace(WELL, backend="none", decision=PARKED), "restart", "turnout does not start group a", "retry"),
        (replace(WELL, backend="none"), "restart", "do it there, or let the controller run it", "rebuild"),
        (replace(WELL, group=None, backend=None), "restart", "No group carries it yet", "rebuild"),
        (replace(WELL, retired=True, group=None), "rebuild", "It is retired", "restore"),
        (replace(WELL, busy="move 4f1d2a3b by ann"), "replay", "an open operation now: move 4f1d2a3b by ann", None),
    ],
)
@pytest.mark.proves("G108")
def test_why_not_and_what_instead(facts: GameFacts, name: str, why_not: str, instead: str | None) -> None:
    """A refusal names its reason, and the nearest thing that is allowed now, or none."""
    found = named(facts, name)
    assert why_not in str(found.why_not)
    assert (found.alternative.name if found.alternative else None) == instead
    assert found.alternative is None or instead == "restore" or named(facts, str(instead)).possible


def test_what_it_touches_and_how_long_it_takes_is_told() -> None:
    """Unknown is said to be unknown, and a time says where it comes from."""
    assert "4 rows in quarantine" in named(WELL, "replay").touches
    assert "its rows in quarantine and counts them" in named(replace(WELL, quarantined=None), "replay").touches
    assert "It and the 4 other games of group a stand still" in named(WELL, "restart").touches
    assert (named(WELL, "rebuild").seconds, "nobody knows" in named(WELL, "rebuild").estimate) == (None, True)
    known = named(replace(WELL, took_seconds={"rebuild": 12.5}), "rebuild")
    assert (known.seconds, known.estimate) == (
        12.5,
        "As long as its last rebuild, from the request until its effect was seen.",
    )


def test_the_facts_are_what_is_there(tmp_path: Path) -> None:
    """Store, table and quarantine are looked at; what was not counted is unknown, and what nobody knows is refused."""
    made = make_world(tmp_path)
    register_group(made.engine, "a", placing())
    made.ingest(good(1), early(2), broken())
    made.split()
    start_driver(made.engine, "group", "a", None)
    now = time.time()
    facts = read_facts(made.engine, made.paths, CHESS.key, now)
    assert (facts.group, facts.backend, facts.silence, facts.neighbours, facts.busy) == ("a", "none", None, 0, None)
    assert (facts.has_schema, facts.has_table, facts.retired) == (True, True, False)
    assert facts.quarantined == {"unknown_schema": 1, "malformed_payload": 1}
    assert read_facts(made.engine, made.paths, CHESS.key, now, count=False).quarantined is None
    assert "silent for 199 s" in str(read_facts(made.engine, made.paths, CHESS.key, now + 199).silence)
    record_failures(made.engine, {CHESS.key: PARKED})
    for target in (f"game:{CHESS.key}", "group:a"):
        begun = submit(made.engine, Intent("rebuild", (target,), "ann"))
        facts = read_facts(made.engine, made.paths, CHESS.key, now)
        assert (facts.busy or facts.group_busy, facts.decision) == (f"rebuild {begun.operation_id[:8]} by ann", PARKED)
        change(made.engine, begun, OperationState.SUCCEEDED)
    facts = read_facts(made.engine, made.paths, CHESS.key, now)
    assert facts.busy is None
    assert 0 <= facts.took_seconds["rebuild"] < 60
    with made.engine.begin() as connection:
        retire(connection, {CHESS.key: 1})
    facts = read_facts(made.engine, made.paths, CHESS.key, now)
    assert (facts.retired, facts.group, facts.backend) == (True, None, None)
    with pytest.raises(Refused, match="No such game: go"):
        read_facts(made.engine, made.paths, "go", now)


def test_a_page_can_ask_without_spark() -> None:
    """The dashboard never loads Spark: nor does what it asks here."""
    code = "import sys, pipeline.control.capabilities; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
