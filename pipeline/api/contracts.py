"""The output contracts of one game, as its page shows them.

Every query raises `Refused` where the control store cannot be read.
"""

from dataclasses import dataclass

from pipeline.api.environment import OpenEnvironment
from pipeline.base.names import GameKey
from pipeline.data.output_contracts.rules import Action, ContractRule, OutputContract, by_game, label, loads
from pipeline.store.database.engine import reading
from pipeline.store.output_contracts import read_contracts

__all__ = ["Action", "ContractRule", "GameContracts", "OutputContract", "label", "of_game"]


@dataclass(frozen=True, slots=True)
class GameContracts:
    """What the rows of a game's table promise their readers."""

    contracts: tuple[OutputContract, ...]
    actor: str  # who applied the contracts in force; empty: none ever were
    applied_at: float  # Unix seconds


@reading()
def of_game(environment: OpenEnvironment, key: str, name: str) -> GameContracts:
    """Read the contracts in force of a game, by its key and exact name."""
    applied = read_contracts(environment.engine)
    own = by_game(loads(applied.contracts), {GameKey(key): name}).get(GameKey(key), ())
    return GameContracts(own, applied.actor, applied.applied_at)
