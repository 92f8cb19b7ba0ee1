"""Output contracts that a person applies: first what they would change and which rows break them, then the write.

Called by `turnout contracts plan | apply`. They are written at once, without an operation, if nobody was faster; rows
that landed stay where they are.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, Engine

from pipeline.base.errors import Refused
from pipeline.base.names import GameKey, game_key, shown
from pipeline.base.texts import first_lines
from pipeline.control import gate
from pipeline.control.acts import DirectAct
from pipeline.control.operations.definition import describe_open
from pipeline.control.output_contracts import contract_file
from pipeline.control.output_contracts.newest import Breaks, count_breaks
from pipeline.control.output_contracts.rule_names import bound
from pipeline.data.contracts.event_types import event_type
from pipeline.data.contracts.promised import by_definition
from pipeline.data.contracts.schemas import SchemaSet
from pipeline.data.derived.definitions import loads as definitions_of
from pipeline.data.derived.uniqueness import unique_checks
from pipeline.data.output_contracts.masks import map_on_the_way
from pipeline.data.output_contracts.rules import LANDS, Action, OutputContract, by_game, dumps, label, loads
from pipeline.data.streams.writing.columns import target_schema
from pipeline.settings.tree import Paths, Settings
from pipeline.store import output_contracts
from pipeline.store.database.states import OperationKind
from pipeline.store.derived import read_in_force
from pipeline.store.games import known_names
from pipeline.store.onboarding_rules import read_rules
from pipeline.store.operations import hash_of, read_open
from pipeline.store.output_contracts import AppliedContracts, read_contracts

_MOVES: Final = frozenset(
    {OperationKind.MERGE_COLUMNS, OperationKind.PART_COLUMNS, OperationKind.NEST_TYPE, OperationKind.FLATTEN_TYPE}
)
"""The operations that look for rows which break a rule as they begin, and then rebuild the table."""

_SHOWN: Final = 20
_NOT_CHECKED: Final = "NOT CHECKED"
_MOST_GAMES: Final = 50  # whose rows a plan reads
_WHERE: Final[Mapping[Action, str]] = {
    "warn": "would be counted", "quarantine": "would go to quarantine", "stop": "would stop the stream",
}  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class ContractsProposal:
    """Contracts as they would be, beside those that are in force."""

    seen: AppliedContracts
    contracts: tuple[OutputContract, ...]
    lines: tuple[str, ...]  # for people; raw texts are in them
    breaks: Mapping[str, Breaks]  # by the exact name of a game with a new or changed contract
    refuses_most: tuple[str, ...]  # games more than half of whose newest rows a rule, or all together, would refuse
    stops: tuple[str, ...]  # games with a newest row that breaks a rule with which the next such row stops the stream

    @property
    def changes(self) -> bool:
        """Whether anything changes."""
        return self.contracts != loads(self.seen.contracts)

    @property
    def hash(self) -> str:
        """Return a hash of the contracts before and after."""
        return hash_of({"seen": self.seen.number, "contracts": dumps(self.contracts)})


def plan(engine: Engine, paths: Paths, schemas: SchemaSet, games: Mapping[str, str], text: str) -> ContractsProposal:
    """Plan to replace the contracts by those of a file's text; `games` has the name of each game by its key.

    Raises:
        Refused: naming everything that is wrong with the file, or the rules whose paths lead into a map; or an
            onboarding rule does not exist, or is by format.
    """
    seen, contracts = read_contracts(engine), bound(contract_file.parse(text), read_rules(engine))
    before = loads(seen.contracts)
    lines = tuple(_differences(before, contracts))
    changed = [each for each in contracts if each not in before]
    names = {GameKey(key): name for key, name in games.items()}
    every = by_game(changed, names)
    touched = {key: own for key, own in every.items() if key in names}
    _require_no_maps(schemas, names, touched)
    breaks = {
        names[key]: count_breaks(paths.table(key), key, schemas, own)
        for key, own in sorted(touched.items())[:_MOST_GAMES]
    }
    most = tuple(
        name
        for name, found in breaks.items()
        if 2 * found.refused > found.rows
        or any(2 * count > found.by_type[rule] for rule, count in found.broken.items() if found.actions[rule] != LANDS)
    )
    stops = tuple(name for name, found in breaks.items() if found.stopping)
    effects = tuple(_effects(breaks, len(touched))) if lines else ("Nothing to change: these are in force.",)
    silent = first_lines(tuple(_silent(changed, games.values(), breaks)), _SHOWN, str)
    named = {**{game_key(name): name for each in changed for name in each.games}, **names}  # also before a first row
    given = tuple(line for key, own in sorted(every.items()) for line in given_lines(schemas, key, named[key], own))
    given = tuple(sorted(given, key=lambda line: _NOT_CHECKED not in line))
    unique = tuple(_unchecked(engine, changed, sorted({*games.values(), *named.values()})))
    lines = (*lines, *first_lines(given, _SHOWN, str), *first_lines(unique, _SHOWN, str), *silent, *effects)
    return ContractsProposal(seen, contracts, lines, breaks, most, stops)


def apply(settings: Settings, engine: Engine, proposal: ContractsProposal, actor: str, reason: str) -> AppliedContracts:
    """Write planned contracts, with their audit entry.

    Raises:
        Refused: the actor has not the role for it, or gives no reason; another person has applied contracts
            meanwhile; or a game's columns are being merged or nested, which only looked at earlier ones. Then nothing
            is written.
    """
    gate.permit(settings, engine, actor, DirectAct.CHANGE_CONTRACTS, reason)
    before, names = loads(proposal.seen.contracts), known_names(engine)
    changed = [each for each in proposal.contracts if each not in before]

    def require_no_move(connection: Connection) -> None:
        for move in (each for each in read_open(connection) if each.kind in _MOVES):
            games = [names[key] for key in move.parameters["games"]]
            for each in (each for each in changed if any(map(each.is_for, games))):
                raise Refused(
                    f"The contract {each.name} is for {shown(games[0])}, whose columns are about to change: apply it "
                    f"once {describe_open(move)} has ended."
                )

    seen = proposal.seen.number
    return output_contracts.apply(engine, dumps(proposal.contracts), seen, actor, reason, require_no_move)


def given_lines(schemas: SchemaSet, key: GameKey, game: str, contracts: Iterable[OutputContract]) -> Iterator[str]:
    """Yield what contracts check of the rules in the newest definition of each event type of a game, and what not."""
    for each in contracts:
        said = f"{shown(game)}: {each.name} checks by protovalidate"
        found = [*by_definition(schemas, key, each)]
        if not found and each.protovalidate != "off":
            yield f"{said} nothing yet, as no definition has such rules"
        for name, rules, unchecked in found:
            if unchecked:
                yield f"{said} {name}: {_NOT_CHECKED}: {'; '.join(first_lines(unchecked, 50, shown))}"
            for rule in rules:
                besides = "" if rule.skip is None else f"; or {rule.skip!r}"
                yield f"{said} {name}: {_fields(contract_file.rule_tree(rule))}{besides}"


def break_lines(breaks: Mapping[str, Breaks]) -> Iterator[str]:
    """Yield a line for each rule that rows of a game break."""
    for name, found in breaks.items():
        if found.problem is not None:
            yield f"{shown(name)}: its table cannot be read: {found.problem}"
        for rule, count in sorted(found.broken.items(), key=lambda each: (-each[1], each[0])):
            rows = found.by_type[rule]
            where = _WHERE[found.actions[rule]]
            much = ", MORE THAN HALF" if 2 * count > rows else ""
            yield f"{shown(name)}: {count:,} of the newest {rows:,} rows {where} by {rule}{much}"


def _unchecked(engine: Engine, changed: Sequence[OutputContract], games: Iterable[str]) -> Iterator[str]:
    """Yield a line for each promise of uniqueness that no silver table checks."""
    if any(each.unique is not None for each in changed):
        definitions = definitions_of(read_in_force(engine))
        for game in games:
            found = (each for each in unique_checks(changed, game, definitions) if each.silver is None)
            yield from (f"{shown(game)}: {each.line(None)}" for each in found)


def _require_no_maps(
    schemas: SchemaSet, names: Mapping[GameKey, str], touched: Mapping[GameKey, Sequence[OutputContract]]
) -> None:
    found = dict[str, str]()  # one sentence for each rule
    for key, own in touched.items():
        columns = target_schema(schemas, key)
        structs = {event_type(schema.message): at.struct for schema, at in schemas.placed(key)}
        for contract, rule in ((each, rule) for each in own for rule in each.rules):
            of_types = [struct for name, struct in structs.items() if contract.covers(name)]
            maps = filter(None, (map_on_the_way(columns, rule, struct) for struct in of_types))
            if (inside := next(maps, None)) is not None:
                name, where = label(contract, rule), f"{shown(inside)} of {shown(names[key])}"
                found.setdefault(name, f"{name}: {where} is a map, and no rule can look into one")
    if found:
        listed = "; ".join(first_lines(tuple(found.values()), _SHOWN, str))
        raise Refused(f"{listed}. Name the map itself, or take the rule out.")


def _silent(changed: Iterable[OutputContract], games: Collection[str], breaks: Mapping[str, Breaks]) -> Iterator[str]:
    """Yield a line for each name in a contract by which it checks nothing today, as a mistyped one."""
    for each in changed:
        yield from (f"{each.name}: no game is named {shown(game)} yet" for game in each.games if game not in games)
        for name, found in breaks.items():
            if not found.rows or not each.is_for(name):
                continue
            if each.rules and not found.by_type[label(each, each.rules[0])]:
                yield f"{each.name}: none of the newest rows of {shown(name)} is of its event types"
                continue
            for rule in each.rules:
                if label(each, rule) not in found.present:
                    yield f"{label(each, rule)}: the newest rows of {shown(name)} have no column {shown(rule.column)}"


def _effects(breaks: Mapping[str, Breaks], games: int) -> Iterator[str]:
    yield from first_lines(tuple(break_lines(breaks)), _SHOWN, str)
    rows = sum(found.rows for found in breaks.values())
    if games > len(breaks):
        yield f"The contracts are for {games} games; the newest rows of the first {len(breaks)} were tried."
    yield f"{rows:,} newest rows of {len(breaks)} games were tried. Rows that landed stay where they are."


def _differences(before: Sequence[OutputContract], then: Sequence[OutputContract]) -> Iterator[str]:
    """Yield a line for each contract and rule that is added, changed or removed."""
    was, now = {each.name: each for each in before}, {each.name: each for each in then}
    for name, each in now.items():
        if name not in was:
            yield f"+ {name}: {_said(each)}"
            yield from (f"+ {label(each, rule)}: {_fields(contract_file.rule_tree(rule))}" for rule in each.rules)
        elif was[name] != each:
            yield from _changed(was[name], each)
    yield from (f"- {name}" for name in was if name not in now)
    if [*was] != [*now] and was.keys() == now.keys():
        yield "The contracts are in another order, which decides nothing."


def _changed(before: OutputContract, then: OutputContract) -> Iterator[str]:
    if _said(before) != _said(then):
        yield f"~ {then.name}: {_said(before)} → {_said(then)}"
    rules = [[of.rule for of in each.by_rules] for each in (before, then)]
    if rules[0] == rules[1] and before.by_rules != then.by_rules:
        yield f"~ {then.name}: its onboarding rules are for other names now"
    was = {rule.name: _fields(contract_file.rule_tree(rule)) for rule in before.rules}
    now = {rule.name: _fields(contract_file.rule_tree(rule)) for rule in then.rules}
    for name, fields in now.items():
        if name not in was:
            yield f"+ {then.name}/{name}: {fields}"
        elif was[name] != fields:
            yield f"~ {then.name}/{name}: {was[name]} → {fields}"
    yield from (f"- {then.name}/{name}" for name in was if name not in now)
    if was == now and [*was] != [*now]:
        yield f"The rules of {then.name} are in another order, which decides nothing."


def _said(contract: OutputContract) -> str:
    return _fields(
        {name: value for name, value in contract_file.tree(contract).items() if name not in {"name", "rules"}}
    )


def _fields(tree: Mapping[str, object]) -> str:
    parts = {name: _fields(value) if isinstance(value, Mapping) else value for name, value in tree.items()}
    return "; ".join(f"{name} {value}" for name, value in parts.items())
