"""Many grants that are over at once: few operations, and none that waits for another game's."""

import time
from collections.abc import Sequence

import pytest
from sqlalchemy import insert, select, update

from grants.applying import ledger, proposals
from grants.applying.expiries import submit_expired
from grants.catalogs.embedded import Embedded
from grants.planning.entitlements import AccessIntent
from pipeline.base.errors import Refused
from pipeline.base.names import game_key
from pipeline.control.operations.executor import tick
from pipeline.control.roles import CONTROLLER
from pipeline.health.facts.placing import placing
from pipeline.store.database.tables import entitlements
from pipeline.store.games import record_seen
from pipeline.store.operations import list_operations, submit
from tests.unit.grants.access_world import ANN, BOB, CHESS, GO, House


def over(house: House, *cells: tuple[str, str]) -> None:
    """Give these cells for an hour, and let that be over."""
    house.do(*(AccessIntent(who, key, True, time.time() + 3600, "numbers") for who, key in cells))
    with house.world.engine.begin() as connection:
        connection.execute(update(entitlements).values(expires_at=time.time() - 1))


def games(house: House, amount: int) -> Sequence[str]:
    names: dict[str, str] = {game_key(f"Game {number}"): f"Game {number}" for number in range(amount)}
    record_seen(house.world.engine, names, 1, placing())
    for key in names:
        house.make_table(key)
    house.rounds()
    return sorted(names)


@pytest.mark.proves("G268")
def test_games_of_a_principal_that_are_over_together_end_together(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twelve games of a principal are one operation with one read of the directory; each principal has its own."""
    keys = games(house, 12)
    over(house, *((ANN, key) for key in keys), (BOB, keys[0]))
    read: list[str] = []
    directory = Embedded.directory
    monkeypatch.setattr(Embedded, "directory", lambda self: read.append("") or directory(self))  # type: ignore[func-returns-value]
    house.steward._submit_expired()
    house.steward._submit_expired()
    house.finish()
    own = [each for each in list_operations(house.world.engine) if each.actor == CONTROLLER]
    assert sorted((len(each.targets), each.state) for each in own) == [(1, "succeeded"), (12, "succeeded")]
    assert len(read) == 2
    tables = house.catalog.tables(house.schema)
    assert not any(house.catalog.probe(ANN, tables[key]).reads for key in keys)


@pytest.mark.proves("G268")
def test_a_game_that_is_refused_keeps_no_other_open(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """A game whose plan is refused waits alone: the others of the same operation end."""
    for key in (CHESS, GO):
        house.make_table(key)
    house.rounds()
    over(house, (ANN, CHESS), (ANN, GO))
    propose = proposals.propose

    def without_chess(paths, seen, intents):  # type: ignore[no-untyped-def]
        if any(each.key == CHESS for each in intents):
            raise Refused("The grants on chess were not read.")
        return propose(paths, seen, intents)

    monkeypatch.setattr("grants.applying.proposals.propose", without_chess)
    house.steward._submit_expired()
    deadline = time.monotonic() + 30
    while len(ledger.held(house.world.engine)) == 2 and time.monotonic() < deadline:
        tick(house.world, house.steward.kinds)
    assert [each.game_key for each in ledger.held(house.world.engine)] == [CHESS]
    (waiting,) = list_operations(house.world.engine, only_open=True)
    tables = house.catalog.tables(house.schema)
    assert [house.catalog.probe(ANN, tables[key]).reads for key in (CHESS, GO)] == [True, False]
    monkeypatch.undo()
    house.steward._executor._tries.forget(waiting.operation_id)
    assert house.finish().state == "succeeded"
    assert house.catalog.probe(ANN, tables[CHESS]).reads is False


@pytest.mark.proves("G268")
def test_a_look_submits_a_bounded_number(house: House) -> None:
    """However many grants are over, a look at them keeps the controller's loop for a few operations only."""
    house.make_table(CHESS)
    house.rounds()
    over(house, (ANN, CHESS))
    engine = house.world.engine
    with engine.begin() as connection:
        row = dict(connection.execute(select(entitlements)).mappings().one())
        del row["entitlement_id"]
        connection.execute(insert(entitlements), [{**row, "principal": f"p{each}@example.com"} for each in range(119)])
    before, counts = len(list_operations(engine, limit=1_000)), []
    for _ in range(4):
        submit_expired(engine, house.schema)
        counts.append(len(list_operations(engine, limit=1_000)) - before)
    assert counts == [50, 100, 120, 120]


@pytest.mark.proves("G268")
def test_a_revoke_that_is_still_looked_for_is_no_expiry(house: House) -> None:
    """While a person's operation waits to see its revoke, the controller does not begin one of its own."""
    house.make_table(CHESS)
    house.rounds()
    house.do(AccessIntent(ANN, CHESS, True, reason="numbers"))
    world = house.world
    house.server.trouble(deaf=CHESS)
    revoke = [AccessIntent(ANN, CHESS, False, reason="over")]
    prepared = proposals.prepare(world.engine, house.catalog, world.settings.access, world.paths, revoke)
    submit(world.engine, prepared.to_intent("eve", "over"))
    deadline = time.monotonic() + 30
    while all(each.revoked_at is None for each in ledger.held(world.engine)) and time.monotonic() < deadline:
        tick(world, house.steward.kinds)
    submit_expired(world.engine, house.schema)
    assert [each.revoked_at is None for each in ledger.held(world.engine)] == [False]
    assert CONTROLLER not in {each.actor for each in list_operations(world.engine)}
    house.server.trouble()
    house.steward._stop.set()
