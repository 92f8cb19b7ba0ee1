"""The ledger of access: what was done is kept once, what has failed is not held to be given."""

from collections.abc import Sequence

import pytest
from sqlalchemy import Engine

from grants.applying import ledger
from grants.catalog import Change
from grants.model import Securable
from grants.planning.change_set import ChangeSet
from grants.planning.entitlements import NOTHING, AccessIntent, Entitlement, ManagedGrant
from pipeline.base.errors import Refused
from pipeline.store import operations
from pipeline.store.database.states import OperationState
from pipeline.store.operations import Operation, OperationConflict, change, submit

CATALOG, SCHEMA = Securable(("turnout",)), Securable(("turnout", "games"))
KEY, OTHER = "chess_aaaaaaaaaaaa", "go_bbbbbbbbbbbb"
ANN = "Ann@example.com"
TABLE, TABLE_2 = Securable((*SCHEMA.path, KEY)), Securable((*SCHEMA.path, OTHER))
USE = (Change(CATALOG, ANN, ("USE_CATALOG",)), Change(SCHEMA, ANN, ("USE_SCHEMA",)))
FOR_GOOD, FOR_NOW = Entitlement(ANN, KEY, None, "1"), Entitlement(ANN, KEY, 2e9, "1")
BOTH = Entitlement(ANN, OTHER, None, "2")
GIVES = ChangeSet((*USE, Change(TABLE, ANN, ("SELECT",)), Change(TABLE_2, ANN, ("SELECT",))), made=(FOR_GOOD, BOTH))


def operation(engine: Engine) -> Operation:
    return change(
        engine, submit(engine, operations.Intent("access", ("reader:ann",), "bob", "because")), OperationState.RUNNING
    )


def carried_out(
    engine: Engine, planned: ChangeSet, failed: Sequence[int] = (), intents: Sequence[AccessIntent] = ()
) -> Operation:
    """Do as the executor does; `failed` are the numbers of changes that the catalog does not take."""
    mine = operation(engine)
    ledger.write(engine, mine, planned)
    for item in ledger.items(engine, mine.operation_id):
        ledger.mark(engine, mine, item.number, "failed" if item.number in failed else "applied", "")
    ledger.keep(engine, mine, ledger.done(engine, mine.operation_id), intents)
    return change(engine, mine, OperationState.SUCCEEDED)


def test_what_was_given_is_held_with_its_terms(engine: Engine) -> None:
    """Each entitlement has reason and ticket of its wish, and all that was given for it is turnout's to take."""
    done = carried_out(engine, GIVES, intents=[AccessIntent(ANN, KEY, read=True, reason="numbers", ticket="T-1")])
    assert [(each.game_key, each.reason, each.ticket) for each in ledger.held(engine)] == [
        (KEY, "numbers", "T-1"),
        (OTHER, "because", ""),
    ]
    assert ledger.change_set(engine, done.operation_id) == GIVES
    assert ledger.managed(engine).given == {
        ManagedGrant(CATALOG, "ann@example.com", "USE_CATALOG"),
        ManagedGrant(SCHEMA, "ann@example.com", "USE_SCHEMA"),
        ManagedGrant(TABLE, "ann@example.com", "SELECT"),
        ManagedGrant(TABLE_2, "ann@example.com", "SELECT"),
    }


@pytest.mark.parametrize(("failed", "held"), [((3,), [OTHER]), ((4,), [KEY]), ((2, 3, 4), []), ((1, 2, 3, 4), [])])
@pytest.mark.proves("G118")
def test_what_rests_on_a_failed_change_is_not_held(engine: Engine, failed: Sequence[int], held: list[str]) -> None:
    """An entitlement whose SELECT or USE_* the catalog did not take was not given; the others were."""
    carried_out(engine, GIVES, failed)
    assert [each.game_key for each in ledger.held(engine)] == held
    assert len(ledger.managed(engine).given) == 4 - len(failed)


def test_what_could_not_be_taken_is_still_held(engine: Engine) -> None:
    """A revoke that failed leaves the entitlement, so that nobody believes it gone."""
    carried_out(engine, GIVES)
    takes = ChangeSet(
        (Change(TABLE, ANN, remove=("SELECT",)), Change(TABLE_2, ANN, remove=("SELECT",))), (), (FOR_GOOD, BOTH)
    )
    carried_out(engine, takes, failed=(1,))
    assert [each.game_key for each in ledger.held(engine)] == [KEY]
    assert ManagedGrant(TABLE, "ann@example.com", "SELECT") in ledger.managed(engine).given


def test_a_term_that_ends_and_one_that_does_not_live_side_by_side(engine: Engine) -> None:
    """A temporary entitlement and a permanent one of its cell leave each other alone, also when one ends."""
    carried_out(engine, ChangeSet(made=(FOR_GOOD,)))
    carried_out(engine, ChangeSet(made=(FOR_NOW,)))
    assert ledger.managed(engine).entitlements == {FOR_GOOD, FOR_NOW}
    carried_out(engine, ChangeSet(ended=(FOR_NOW,)))
    assert ledger.managed(engine).entitlements == {FOR_GOOD}
    assert [each.ended_at is None for each in ledger.history(engine, KEY)] == [True, False]


def test_what_is_kept_twice_is_kept_once(engine: Engine) -> None:
    """A controller that was killed after it wrote keeps nothing double when it comes again."""
    mine = operation(engine)
    ledger.write(engine, mine, GIVES)
    for item in ledger.items(engine, mine.operation_id):
        ledger.mark(engine, mine, item.number, "applied", "")
    for _ in range(2):
        ledger.write(engine, mine, ChangeSet())
        ledger.keep(engine, mine, ledger.done(engine, mine.operation_id), ())
    assert len(ledger.history(engine, KEY)) == 1
    assert len(ledger.items(engine, mine.operation_id)) == 4


def test_an_executor_that_was_overtaken_writes_nothing(engine: Engine) -> None:
    """One that stood still while another went on changes nothing of what that one wrote."""
    mine = operation(engine)
    ledger.write(engine, mine, GIVES)
    change(engine, mine, OperationState.VERIFYING)
    with pytest.raises(OperationConflict):
        ledger.mark(engine, mine, 1, "failed", "late")
    with pytest.raises(OperationConflict):
        ledger.keep(engine, mine, GIVES, ())
    assert ledger.items(engine, mine.operation_id)[0].state == "planned"
    assert ledger.managed(engine) == NOTHING


def test_changes_come_back_as_they_were_written(engine: Engine) -> None:
    """Names with quotes, unicode and line breaks are data: a change set is read back as the very one it was."""
    hostile = "Robert'); DROP TABLE students;--\n\u202e\"`"
    planned = ChangeSet(
        (Change(TABLE, hostile, ("SELECT",), ("BROWSE",)),), (Entitlement(hostile, KEY, 1.5, "1"),),
        adopted=frozenset({ManagedGrant(TABLE, hostile, "SELECT")}), brought=frozenset({(hostile, KEY)}),
    )  # fmt: skip
    mine = operation(engine)
    ledger.write(engine, mine, planned)
    assert ledger.change_set(engine, mine.operation_id) == planned
    assert ledger.items(engine, mine.operation_id)[0].change == planned.changes[0]


def test_an_operation_that_planned_nothing_says_so(engine: Engine) -> None:
    """To take back what never came so far is refused with a sentence."""
    with pytest.raises(Refused, match="not planned any"):
        ledger.done(engine, operation(engine).operation_id)
