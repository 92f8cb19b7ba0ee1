"""Guards that the protocol keeps the laws of the data path in every order of its steps, and that no rule is idle.

`PROOF_STATES=N` lets the largest world be explored up to N states; see docs/protocol.md.
"""

import os
from dataclasses import replace

import pytest

from tests.model.explore import explore, render
from tests.model.laws import LAWS, Law, each_row_once
from tests.model.state import FOREIGN, NEVER, TYPED, Batch, Budget, Rules, Scenario

STATES = int(os.environ.get("PROOF_STATES", "40000"))

GOOD, LATER = 1, 2  # decoded by the first schema set, by the second
THEIRS, OTHERS = FOREIGN + 1, FOREIGN + 2  # of two writers of a foreign registry
ONE: Batch = {0: (GOOD,)}
REFUSED: Batch = {0: (LATER,)}

QUIET = Scenario((ONE, ONE), landed=1)
REPAIRED = Scenario((REFUSED,), landed=1, budget=Budget(schemas=1, attempts=1), repairs=(("rebuild", 0), ("replay", 0)))
REPLAYED_TWICE = Scenario((REFUSED,), landed=1, budget=Budget(schemas=1), repairs=(("replay", 0), ("replay", 0)))
REGISTERED = Scenario((ONE, REFUSED), landed=1, budget=Budget(schemas=1), repairs=(("rebuild", 0),), advances=False)
REFUSES_LANDED = {"rebuild_has_todays_schemas": False}
"""So that a rebuild refuses what is in its table, as it may otherwise only after an upgrade of the decoder."""
COMPACTED = replace(QUIET, kept_files=True, repairs=(("rebuild", 0), ("compaction", 0)))
RESET = Scenario((REFUSED,), landed=1, drivers=2, budget=Budget(schemas=1), repairs=(("rebuild", 0), ("removal", 0)))
HELD = Scenario(
    ({0: (GOOD,)}, {0: (THEIRS,)}), landed=1, writers=(1,), budget=Budget(crashes=1, outages=1), advances=False
)
HELD_IN_CHUNKS = replace(HELD, landed=2, batches=({0: (GOOD, THEIRS)}, {0: (GOOD,)}))
LIED_TO = replace(
    HELD_IN_CHUNKS, batches=({0: (THEIRS,)}, {0: (THEIRS,)}), drivers=2, assigned=(0,), budget=Budget(lies=1)
)
"""A second driver has no games; it only asks."""
UPLOADED = replace(HELD, batches=({0: (THEIRS,)}, {0: (THEIRS,)}), writers=(0,), budget=Budget(uploads=1, attempts=0))
UPLOADED_IN_REBUILD = replace(UPLOADED, landed=2, chunk_seqs=1, repairs=(("rebuild", 0),))
ACCEPTED = Scenario(({0: (TYPED,)}, {0: (TYPED, GOOD)}), landed=1, budget=Budget(schemas=1, crashes=1), advances=False)
WITHDRAWN = Scenario(
    ({0: (TYPED,)},),
    landed=1,
    schemas=2,
    budget=Budget(schemas=1, attempts=1),
    repairs=(("rebuild", 0), ("replay", 0)),
    advances=False,
)
"""A rebuild takes rows out of the table whose type was withdrawn, as it may otherwise only by `REFUSES_LANDED`."""
LARGEST = Scenario(
    ({0: (GOOD,), 1: (GOOD,), 2: (GOOD,)}, {0: (GOOD,)}, {1: (GOOD,)}, {2: (GOOD,)}),
    games=3,
    landed=4,
    drivers=2,
    budget=Budget(crashes=1, attempts=0),
    repairs=(("rebuild", 0),),
    any_order=False,
    advances=False,
)

WHOLE = {
    "a quiet game is heard of again": QUIET,
    "three seqs, a driver crashes and a commit fails": Scenario(
        (ONE, ONE, ONE), landed=1, budget=Budget(crashes=1, failures=1)
    ),
    "two games share a pass, a driver crashes": Scenario(
        ({0: (GOOD,), 1: (GOOD,)}, {0: (GOOD,)}, {1: (GOOD,)}), games=2, landed=2, budget=Budget(crashes=1)
    ),
    "catch-up takes turns, a driver crashes": Scenario(
        ({0: (GOOD,)}, {0: (GOOD,)}, {0: (GOOD,), 1: (GOOD,)}),
        games=2,
        landed=3,
        budget=Budget(crashes=1),
        chunk_seqs=1,
        advances=False,
    ),
    "two owners": Scenario((ONE, ONE), landed=2, drivers=2, advances=False),
    "a game moves to another driver": Scenario(
        (ONE, ONE), landed=2, drivers=2, assigned=(0,), budget=Budget(moves=1), advances=False
    ),
    "a query of its own, and back": Scenario((ONE, ONE), landed=1, budget=Budget(flips=2), advances=False),
    "rows refused and good share a seq, a schema comes late": Scenario(
        ({0: (GOOD, LATER, NEVER)}, {0: (LATER,)}), landed=2, budget=Budget(crashes=1, schemas=1), advances=False
    ),
    "a rebuild while rows come": replace(QUIET, repairs=(("rebuild", 0),), budget=Budget(crashes=1)),
    "two rebuilds": replace(QUIET, landed=2, repairs=(("rebuild", 0), ("rebuild", 0)), advances=False),
    "a schema is registered during a rebuild": REGISTERED,
    "two replays": REPLAYED_TWICE,
    "a replay beside a rebuild": replace(REPAIRED, advances=False),
    "a compaction beside a rebuild": COMPACTED,
    "ingest is killed between bronze and its checkpoint": Scenario(
        (ONE, ONE), ingest_steps=True, late_report=True, budget=Budget(crashes=1), advances=False
    ),
    "ingest goes on in a new generation": Scenario((ONE, ONE), landed=1, budget=Budget(adoptions=1)),
    "a game waits for a schema, its registry goes away, a driver crashes": HELD,
    "rows before a need share a pass with it": HELD_IN_CHUNKS,
    "two writers in one game, and another game that needs neither": Scenario(
        ({0: (THEIRS, OTHERS), 1: (GOOD,)}, {0: (GOOD, NEVER), 1: (GOOD,)}),
        games=2,
        landed=2,
        writers=(1, 0),
        budget=Budget(outages=1),
        advances=False,
        any_order=False,
    ),
    "two drivers ask a registry that lies": LIED_TO,
    "a schema is uploaded after its rows were refused, and they are replayed twice": replace(
        UPLOADED, landed=2, repairs=(("replay", 0), ("replay", 0))
    ),
    "a schema is uploaded during a rebuild": UPLOADED_IN_REBUILD,
    "a type is accepted while its rows come, a driver crashes": ACCEPTED,
    "a type is withdrawn beside a rebuild and a replay": WITHDRAWN,
    "a type is withdrawn and accepted again beside a rebuild and a removal": replace(
        WITHDRAWN, budget=Budget(schemas=2, attempts=1), repairs=(("rebuild", 0), ("removal", 0))
    ),
    "three games, four seqs, two owners of all, a crash": replace(LARGEST, repairs=()),
    "an older bronze is put back": Scenario((ONE, ONE, ONE), landed=2, budget=Budget(restores=1, adoptions=1)),
}
"""Worlds that are explored to their end."""


@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.proves("G168")
def test_no_order_of_steps_breaks_a_law(name: str) -> None:
    """Laws L1 to L7 and L12 to L15 hold in each state that can be reached, and a sample of them comes to rest whole."""
    found = explore(WHOLE[name], drain_every=11)
    assert found.broken is None, render(found)
    assert found.exhausted
    assert found.drained > found.states // 30


REMOVED: dict[str, tuple[dict[str, bool], Scenario, str, int]] = {
    "commits expect what the stream knows by then, and there are no claims": (
        {"commit_expects_split_position": False, "claims": False}, QUIET, "in its table 2 times", 5,
    ),
    "no compare-and-set": (
        {"compare_and_set": False}, Scenario((ONE,), landed=1, drivers=2), "in its table 2 times", 4,
    ),
    "no look at the chain": (
        {"chain_check": False}, replace(QUIET, budget=Budget(failures=1, crashes=1)), "is lost", 9,
    ),
    "quarantine is written after the commit": (
        {"quarantine_before_commit": False}, Scenario(({0: (NEVER,)},), landed=1), "is lost", 2,
    ),
    "the schema set is not pinned": (
        {"schema_pin": False},
        Scenario((REFUSED,), landed=1, budget=Budget(crashes=1, schemas=1)),
        "with another schema set", 5,
    ),
    "a pass takes a game whose chunk was cut short": (
        {"chunks_are_repeated_first": False},
        Scenario((REFUSED,), landed=1, budget=Budget(crashes=1, schemas=1)),
        "repeats a chunk with another schema set", 6,
    ),
    "a pass takes streams to be complete as far as bronze was counted as passed": (
        {"complete_as_far_as_read": False},
        Scenario((ONE, ONE, ONE), landed=1, budget=Budget(crashes=1)),
        "parks game 0 for a gap", 13,
    ),
    "a reset goes on with the same application id": ({"new_generation": False}, RESET, "is lost", 15),
    "a rebuild leaves the old application id as it is": (
        {"retire_old_generation": False}, replace(QUIET, repairs=(("rebuild", 0),)), "in its table 2 times", 12,
    ),
    "a rebuild does not look at the table's repairs": (
        {"rebuild_checks_repairs": False, **REFUSES_LANDED}, REPAIRED, "is lost", 17,
    ),
    "a rebuild does not look at quarantine's removals": (
        {"rebuild_checks_removals": False, **REFUSES_LANDED}, REPAIRED, "is lost", 17,
    ),
    "a rebuild does not read on when its stream went on": (
        {"rebuild_reads_on": False}, replace(QUIET, repairs=(("rebuild", 0),)), "readers of game 0 lose rows", 12,
    ),
    "a rebuild has the schema set of its beginning at its switch": (
        {"rebuild_has_todays_schemas": False}, REGISTERED, "readers of game 0 lose rows", 13,
    ),
    "a replay does not look at the table's repairs": (
        {"replay_checks_repairs": False}, REPLAYED_TWICE, "in its table 2 times", 12,
    ),
    "a replay does not look what is in the table": (
        {"replay_looks": False}, REPLAYED_TWICE, "in its table 2 times", 12,
    ),
    "a replay does not stop at the cursor": (
        {"replay_up_to_cursor": False},
        replace(REPLAYED_TWICE, repairs=(("replay", 0),)),
        "above its cursor", 7,
    ),
    "stale twins are removed without a look": (
        {"removal_looks": False}, Scenario((REFUSED,), landed=1, repairs=(("removal", 0),)), "is lost", 7,
    ),
    "a removal does not move the table's repair counter": (
        {"removal_moves_counter": False, **REFUSES_LANDED}, REPAIRED, "is lost", 15,
    ),
    "a removal does not look at quarantine's removals": (
        {"removal_checks_removals": False, **REFUSES_LANDED}, REPAIRED, "is lost", 17,
    ),
    "a compaction does not look whether its files are still there": (
        {"compaction_checks_files": False}, COMPACTED, "in its table 2 times", 14,
    ),
    "a batch that bronze has is landed again": (
        {"bronze_skips_landed_batch": False},
        Scenario((ONE,), ingest_steps=True, budget=Budget(crashes=1)),
        "seq 2 of bronze holds batch 1", 4,
    ),
    "an older bronze is accepted at the start": (
        {"bronze_compared_at_start": False},
        Scenario((ONE, ONE, ONE), landed=2, budget=Budget(restores=1)),
        "seq 2 of bronze holds batch 3", 3,
    ),
    "an adoption accepts an older bronze": (
        {"adoption_compares_bronze": False},
        Scenario((ONE, ONE, ONE), landed=2, budget=Budget(restores=1, adoptions=1)),
        "", 11,
    ),
    "a chunk goes past a row whose writer is not known": ({"rows_stop_before_a_need": False}, HELD, "is lost", 3),
    "a row whose writer is not known is refused": (
        {"unknown_writers_wait": False}, HELD, "L14: row (seq 2, pos 0) of game 0 is refused", 3,
    ),
    "all rows are decoded by the writer of the first": (
        {"each_row_by_its_own_writer": False}, replace(HELD, batches=({0: (THEIRS, OTHERS)},), writers=(1, 2)),
        "of another writer or answer", 14,
    ),
    "a game is not read while any need of it is open": (
        {"rows_before_a_need_land": False}, HELD, "L7: game 0 stays at cursor 0", 2,
    ),
    "a game that waits is read again and again": (
        {"games_that_wait_are_not_read": False}, HELD, "L7: after 500 steps", 2,
    ),
    "the newest answer of a registry counts": (
        {"the_first_schema_counts": False}, LIED_TO, "of another writer or answer", 11,
    ),
    "a registry that is away has no schema": ({"away_decides_nothing": False}, HELD, "L14: row", 12),
    "a rebuild has the writers of its beginning at its switch": (
        {"rebuild_has_todays_schemas": False}, UPLOADED_IN_REBUILD, "readers of game 0 lose rows", 24,
    ),
    "a rebuild does not look at the repairs of a table whose type is withdrawn": (
        {"rebuild_checks_repairs": False}, WITHDRAWN, "is lost", 15,
    ),
    "a rebuild does not look at quarantine's removals when a type is withdrawn": (
        {"rebuild_checks_removals": False}, WITHDRAWN, "is lost", 19,
    ),
    "a removal does not move the counter of a table whose type is withdrawn": (
        {"removal_moves_counter": False}, WITHDRAWN, "is lost", 13,
    ),
    "a rebuild has the types of its beginning at its switch": (
        {"rebuild_has_todays_schemas": False},
        replace(WITHDRAWN, budget=Budget(schemas=2, attempts=1)),
        "readers of game 0 lose rows", 9,
    ),
    "prev_seq does not go on over generations of ingest": (
        {"last_seqs_continue": False}, replace(QUIET, budget=Budget(adoptions=1)), "its rows before are of seq 1", 2,
    ),
}  # fmt: skip
"""A rule to leave out, where it matters, the law that breaks then, and the fewest steps to it."""


@pytest.mark.parametrize("name", REMOVED)
@pytest.mark.proves("G168")
def test_each_rule_left_out_breaks_a_law(name: str) -> None:
    """Every rule is needed: without it the shortest way to a broken law is found, in a known number of steps."""
    rules, scenario, sentence, steps = REMOVED[name]
    # A reset takes the cursor back, too, and a rebuild that refuses what is in the table takes it from readers.
    loses = not rules.get("new_generation", True) or (len(rules) > 1 and REFUSES_LANDED.items() <= rules.items())
    laws: tuple[Law, ...] = (each_row_once,) if loses else LAWS
    rests = sentence.startswith("L7: ")
    found = explore(replace(scenario, rules=Rules(**rules)), laws=laws, drain_every=int(rests))
    text = render(found)
    assert found.broken is not None, text
    assert sentence in found.broken, text
    assert len(found.trace) - 1 == steps, text


@pytest.mark.parametrize("rule", ["commit_expects_split_position", "claims"])
@pytest.mark.proves("G168")
def test_of_two_protections_against_doubled_rows_either_is_enough(rule: str) -> None:
    """Law L4: rows are not doubled while commits expect the split's position, nor while a stream has one reader."""
    found = explore(replace(QUIET, budget=Budget(crashes=1, failures=1), rules=Rules(**{rule: False})))
    assert found.broken is None, render(found)
    assert found.exhausted


def test_a_counter_example_reads_as_a_story() -> None:
    """A broken law is told as the steps that lead to it, each with what it changed."""
    rules = Rules(commit_expects_split_position=False, claims=False)
    text = render(explore(replace(QUIET, rules=rules)))
    for part in (
        "L5: row (seq 1, pos 0) of game 0 is in its table 2 times",
        "driver 0 begins a pass over seqs 1 to 1",
        "driver 0 claims and splits its chunk",
        "its cursor goes from 0 to 1",
        "rows [(1, 0), (1, 0)]",
    ):
        assert part in text, text


@pytest.mark.timeout(0)
@pytest.mark.proves("G168")
def test_the_largest_world_holds_as_far_as_it_is_explored() -> None:
    """Laws L1 to L7 and L12 for three games, four seqs, two owners of all of them, a crash anywhere and a rebuild."""
    found = explore(LARGEST, max_states=STATES, drain_every=997)
    assert found.broken is None, render(found)
    assert found.exhausted or found.states >= STATES
    print(f"{found.states} states, {found.transitions} steps, exhausted: {found.exhausted}")  # noqa: T201 - the proof's size
