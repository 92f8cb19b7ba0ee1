"""The output contracts of one game, as its page shows them.

Every query raises `Refused` where the control store cannot be read.
"""

from dataclasses import dataclass, replace

from pipeline.api.environment import OpenEnvironment
from pipeline.base.names import GameKey
from pipeline.data.contracts.promised import by_definition
from pipeline.data.contracts.registry import LocalRegistry
from pipeline.data.output_contracts.freshness import freshness_of
from pipeline.data.output_contracts.rules import Action, ContractRule, OutputContract, by_game, label, loads
from pipeline.store.database.engine import reading
from pipeline.store.output_contracts import read_contracts

__all__ = ["Action", "ContractRule", "GameContracts", "OutputContract", "freshness_of", "label", "of_game"]


@dataclass(frozen=True, slots=True)
class GameContracts:
    """What the rows of a game's table promise their readers."""

    contracts: tuple[OutputContract, ...]  # with the rules of definitions that they switch on
    actor: str  # who applied the contracts in force; empty: none ever were
    applied_at: float  # Unix seconds
    unchecked: tuple[str, ...] = ()  # rules in definitions that it switches on, and that are not translated


@reading()
def of_game(environment: OpenEnvironment, key: str, name: str) -> GameContracts:
    """Read the contracts in force of a game, by its key and exact name."""
    applied = read_contracts(environment.engine)
    own = by_game(loads(applied.contracts), {GameKey(key): name}).get(GameKey(key), ())
    if all(each.protovalidate == "off" for each in own):
        return GameContracts(own, applied.actor, applied.applied_at)
    schemas = LocalRegistry(environment.engine, environment.paths.bronze).snapshot()
    given = [[*by_definition(schemas, GameKey(key), each)] for each in own]
    unchecked = dict.fromkeys(said for each in given for _, _, listed in each for said in listed)
    whole = [
        replace(contract, rules=(*contract.rules, *(rule for _, rules, _ in each for rule in rules)))
        for contract, each in zip(own, given, strict=True)
    ]
    return GameContracts(tuple(whole), applied.actor, applied.applied_at, tuple(unchecked))
