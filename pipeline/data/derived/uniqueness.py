"""Which silver tables check that a column is unique, as output contracts promise: they leave second rows out."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from sqlalchemy import Engine

from pipeline.base.names import shown
from pipeline.base.texts import age, join_limited
from pipeline.data.contracts.event_types import event_type
from pipeline.data.derived.definitions import Definition, SilverDefinition, loads
from pipeline.data.output_contracts.rules import OutputContract
from pipeline.data.output_contracts.rules import loads as contracts_of
from pipeline.store.derived import read_in_force
from pipeline.store.output_contracts import read_contracts


@dataclass(frozen=True, slots=True)
class UniqueCheck:
    """A promise that a column is unique in a game's rows of an event type, and what checks it."""

    contract: str
    column: str
    type: str | None  # None: of each event type with a silver table
    silver: SilverDefinition | None  # None: nothing checks it,
    obstacle: str = ""  # for this reason

    def line(self, left_out: int | None) -> str:
        """Return it with the second rows that its silver table has left out, None: unknown; raw texts are in it."""
        said = f"{self.contract}: {self.column} is unique{'' if self.type is None else f' in {shown(self.type)}'}"
        if self.silver is None:
            return f"{said}: NOT CHECKED: {self.obstacle}"
        table = f"silver {self.silver.name}"
        if left_out is None:
            return f"{said}: how many second rows {table} has left out is not known: see `turnout derived list`"
        within = f"within {age(self.silver.within)} of the first"
        if not left_out:
            return f"{said}: {table} has left out no second row {within}"
        rows = "row" if left_out == 1 else "rows"
        return f"{said}: NOT UNIQUE: {table} has left out {left_out:,} second {rows} {within}"


def unique_checks(
    contracts: Iterable[OutputContract], game: str, definitions: Iterable[Definition]
) -> Iterator[UniqueCheck]:
    """Yield what checks each promise of uniqueness for a game, by the definitions of derived streams in force."""
    own = [each for each in definitions if isinstance(each, SilverDefinition) and each.game == game]
    for contract in contracts:
        if contract.unique is None or not contract.is_for(game):
            continue
        for name in contract.event_types or (None,):
            of_type = [each for each in own if name is None or _is_of(each, name)]
            found = [each for each in of_type if each.within is not None and each.id == contract.unique]
            for silver in found:
                yield UniqueCheck(contract.name, contract.unique, name, silver)
            if not found:
                yield UniqueCheck(contract.name, contract.unique, name, None, _obstacle(of_type, contract.unique, name))


def read_unique_by(engine: Engine, games: Iterable[str]) -> dict[str, list[str]]:
    """Return the contracts in force that each silver table checks a promise of, by its name; `games` are exact names.

    Raises:
        Refused: the control store cannot be read.
    """
    contracts = [each for each in contracts_of(read_contracts(engine).contracts) if each.unique is not None]
    found: dict[str, list[str]] = {}
    if contracts:
        definitions = loads(read_in_force(engine))
        for each in (check for game in games for check in unique_checks(contracts, game, definitions)):
            if each.silver is not None and each.contract not in found.setdefault(each.silver.name, []):
                found[each.silver.name].append(each.contract)
    return found


def _obstacle(of_type: list[SilverDefinition], column: str, name: str | None) -> str:
    if not of_type:
        return "the game has no silver table" if name is None else "no silver table names this type"
    one = "silver " if len(of_type) == 1 else "none of the silver tables "
    does = f"does not compare rows by {column}" if len(of_type) == 1 else f"compares rows by {column}"
    return f"{one}{join_limited([each.name for each in of_type])} {does}"


def _is_of(silver: SilverDefinition, name: str) -> bool:
    """Return whether a silver table is of an event type; either may have its last segment alone."""
    if silver.type is None:
        return False
    own = event_type(silver.type)
    return own == name or (("." not in own or "." not in name) and own.rsplit(".", 1)[-1] == name.rsplit(".", 1)[-1])
