"""The output contracts of one game, as its page shows them.

Every query raises `Refused` where the control store cannot be read.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from pipeline.api.environment import OpenEnvironment
from pipeline.base.names import GameKey
from pipeline.data.contracts.promised import by_definition
from pipeline.data.contracts.registry import LocalRegistry
from pipeline.data.derived.definitions import loads as definitions_of
from pipeline.data.derived.uniqueness import unique_checks
from pipeline.data.output_contracts.freshness import freshness_of
from pipeline.data.output_contracts.rules import Action, ContractRule, OutputContract, by_game, label, loads
from pipeline.health.verdicts.derived import left_out
from pipeline.store.database.engine import reading
from pipeline.store.derived import read_in_force, read_streams
from pipeline.store.output_contracts import read_contracts
from pipeline.store.processes.leases import store_time

__all__ = ["Action", "ContractRule", "GameContracts", "OutputContract", "freshness_of", "label", "of_game"]


@dataclass(frozen=True, slots=True)
class GameContracts:
    """What the rows of a game's table promise their readers."""

    contracts: tuple[OutputContract, ...]  # with the rules of definitions that they switch on
    actor: str  # who applied the contracts in force; empty: none ever were
    applied_at: float  # Unix seconds
    unchecked: tuple[str, ...] = ()  # rules in definitions that it switches on, and that are not translated
    unique: tuple[str, ...] = ()  # a line for each promise that a column is unique; raw texts are in it


@reading()
def of_game(environment: OpenEnvironment, key: str, name: str) -> GameContracts:
    """Read the contracts in force of a game, by its key and exact name."""
    applied = read_contracts(environment.engine)
    own = by_game(loads(applied.contracts), {GameKey(key): name}).get(GameKey(key), ())
    unique = tuple(_unique(environment, own, name))
    if all(each.protovalidate == "off" for each in own):
        return GameContracts(own, applied.actor, applied.applied_at, unique=unique)
    schemas = LocalRegistry(environment.engine, environment.paths.bronze).snapshot()
    given = [[*by_definition(schemas, GameKey(key), each)] for each in own]
    unchecked = dict.fromkeys(said for each in given for _, _, listed in each for said in listed)
    whole = [
        replace(contract, rules=(*contract.rules, *(rule for _, rules, _ in each for rule in rules)))
        for contract, each in zip(own, given, strict=True)
    ]
    return GameContracts(tuple(whole), applied.actor, applied.applied_at, tuple(unchecked), unique)


def _unique(environment: OpenEnvironment, contracts: tuple[OutputContract, ...], name: str) -> Iterator[str]:
    if any(each.unique is not None for each in contracts):
        streams, now = read_streams(environment.engine), store_time(environment.engine)
        for each in unique_checks(contracts, name, definitions_of(read_in_force(environment.engine))):
            yield each.line(None if each.silver is None else left_out(streams.get(each.silver.name), now))
