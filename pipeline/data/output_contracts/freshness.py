"""Which games output contracts promise to be fresh, and whether they are, by the fleet as the control store has it."""

from collections.abc import Iterable, Iterator

from sqlalchemy import Engine

from pipeline.data.output_contracts.rules import OutputContract, loads
from pipeline.health.facts.fleet import Fleet, GameRow
from pipeline.health.verdicts.freshness import FreshnessPromise, FreshnessVerdict
from pipeline.store.output_contracts import read_contracts


def read_freshness(engine: Engine, fleet: Fleet) -> tuple[FreshnessVerdict, ...]:
    """Judge each promise of freshness of the contracts in force; retired games are left out.

    Raises:
        Refused: the control store cannot be read.
    """
    contracts = [each for each in loads(read_contracts(engine).contracts) if each.freshness is not None]
    rows = (row for row in fleet.rows if contracts and not row.is_retired)
    return tuple(verdict for row in rows for verdict in freshness_of(contracts, row, fleet.read_at))


def freshness_of(contracts: Iterable[OutputContract], row: GameRow, now: float) -> Iterator[FreshnessVerdict]:
    """Yield the verdict on each promise that is for a game; `now` is Unix seconds by the store's clock."""
    for each in contracts:
        promised = each.freshness
        if promised is not None and each.is_for(row.game):
            promise = FreshnessPromise(each.name, promised.within, promised.newest_within, each.readers)
            yield FreshnessVerdict(
                promise, row.game_key, row.game, row.discovered_at, row.through_at, row.record_after, now
            )
