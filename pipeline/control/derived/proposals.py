"""Derived streams that a person applies: first what they would change, then the write.

Called by `turnout derived plan | apply`. They are written at once, without an operation, if nobody was faster; drivers
carry them from their next look on.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
from sqlalchemy import Engine

from pipeline.base.errors import Refused
from pipeline.base.names import shown
from pipeline.base.texts import first_lines, join_limited
from pipeline.control import gate
from pipeline.control.acts import DirectAct
from pipeline.control.derived import definition_file, own_grants
from pipeline.data.contracts.schemas import SchemaSet
from pipeline.data.derived.definitions import Definition, Entry, FlatRule, dumps, loads, loads_all
from pipeline.data.derived.kinds import columns
from pipeline.data.derived.rule_tables import plan_tables
from pipeline.data.streams.writing.columns import target_schema
from pipeline.settings.tree import Settings
from pipeline.store import derived
from pipeline.store.derived import (
    AppliedStreams,
    Planner,
    read_controls,
    read_definitions,
    read_granted,
    read_past,
    read_rule_tables,
)
from pipeline.store.operations import hash_of
from pipeline.store.rows import DerivedControl, RuleTable

_LISTED: Final = 50  # tables that rules make, or paused streams, of a plan's lines


@dataclass(frozen=True, slots=True, eq=False)
class DerivedProposal:
    """Derived streams as they would be, beside those that are in force."""

    seen: AppliedStreams
    entries: tuple[Entry, ...]
    lines: tuple[str, ...]  # for people; raw texts are in them
    plan_tables: Planner  # which tables the rules make

    @property
    def changes(self) -> bool:
        """Whether anything changes."""
        return dumps(self.entries) != self.seen.definitions

    @property
    def hash(self) -> str:
        """Return a hash of the definitions before and after."""
        return hash_of({"seen": self.seen.number, "derived": dumps(self.entries)})


def plan(settings: Settings, engine: Engine, schemas: SchemaSet, games: Collection[str], text: str) -> DerivedProposal:
    """Plan to replace the derived streams by those of a file's text; `games` has the names of all games.

    Raises:
        Refused: naming everything that is wrong with the file, or with what it names, or each table that would show
            its readers more.
    """
    seen, entries = read_definitions(engine), definition_file.parse(text)
    definitions = loads(dumps(entries))
    found: dict[str, pa.Schema] = {}
    problems: dict[str, None] = {}  # what a silver stream lacks, its gold streams lack too
    for each in definitions:
        try:
            if (of := _checked(each, schemas, games)) is not None:
                found[each.name] = of
        except Refused as refused:
            problems[str(refused)] = None
    if problems:
        raise Refused("\n".join(problems))
    before = loads(seen.definitions)

    def tables(applied: AppliedStreams, known: list[RuleTable]) -> list[RuleTable]:
        return plan_tables(applied.definitions, games, schemas, settings.derived, known)

    known = read_rule_tables(engine)
    then = tables(AppliedStreams(definitions=dumps(entries)), known)
    made, making = ([each.definition for each in some if each.definition is not None] for some in (known, then))
    own_grants.require_no_more_shown(
        [*before, *loads(_listed(made))], [*definitions, *loads(_listed(making))], read_granted(engine)
    )
    own_grants.require_own_games(map(loads, read_past(engine)), definitions)
    lines = [
        *_differences(loads_all(seen.definitions), entries), *_columns(before, definitions, found),
        *_limited(_tables(known, then)), *_refused(known, then, schemas), *_left_out(then),
    ]  # fmt: skip
    if not lines:
        lines = ["Nothing to change: these are in force."]
    in_force = [*(each.name for each in definitions), *(each.name for each in then if each.definition is not None)]
    lines += _limited(_paused(in_force, read_controls(engine)))
    return DerivedProposal(seen, entries, tuple(lines), tables)


def apply(settings: Settings, engine: Engine, proposal: DerivedProposal, actor: str, reason: str) -> AppliedStreams:
    """Write planned derived streams, with their audit entry.

    Raises:
        Refused: the actor has not the role for it, or gives no reason; or another person has applied some meanwhile.
            Or a table would show its readers more. Then nothing is written.
    """
    gate.permit(settings, engine, actor, DirectAct.CHANGE_DERIVED, reason)
    entries, seen = dumps(proposal.entries), proposal.seen.number
    return derived.apply(engine, entries, seen, actor, reason, proposal.plan_tables, _require_no_more_shown)


def _require_no_more_shown(before: str, then: str, granted: Mapping[str, int], past: Sequence[str]) -> None:
    own_grants.require_own_games(map(loads, past), loads(then))
    own_grants.require_no_more_shown(loads(before), loads(then), granted)


def _listed(trees: Iterable[str]) -> str:
    return f"[{','.join(trees)}]"


def _checked(definition: Definition, schemas: SchemaSet, games: Collection[str]) -> pa.Schema | None:
    """Return the columns that a definition's table has by the schemas of today, None where its game has no schema."""
    if definition.game not in games:
        kind = definition.kind.capitalize()
        raise Refused(f"{kind} {definition.name}: no game is named {shown(definition.game)}.")
    if not schemas.games.get(definition.game_key):
        return None
    return columns(definition, target_schema(schemas, definition.game_key), schemas)


def _differences(before: Sequence[Entry], then: Sequence[Entry]) -> Iterator[str]:
    was, now = {_label(each): each for each in before}, {_label(each): each for each in then}
    for name, each in now.items():
        tables, begin = ("its tables", "begin") if isinstance(each, FlatRule) else ("its table", "begins")
        if name not in was:
            yield f"+ {name}: {_said(each)}"
        elif was[name] != each:
            same = replace(was[name], own_grants=each.own_grants) == each  # which decides about no row
            news = "" if same else f"; {tables} {begin} a new generation"
            yield f"~ {name}: {_said(was[name])} → {_said(each)}{news}"
    for name, each in was.items():
        if name not in now:
            stay = "its tables stay, and get" if isinstance(each, FlatRule) else "its table stays, and gets"
            yield f"- {name}: {stay} no more rows"
    if [*was] != [*now] and was.keys() == now.keys():
        yield "The derived streams are in another order, which decides nothing."


def _columns(before: Sequence[Definition], then: Sequence[Definition], found: Mapping[str, pa.Schema]) -> Iterator[str]:
    """Yield a line with the columns of each table that is new or changes."""
    for each in then:
        if each in before:
            continue
        if each.name in found:
            yield f"{each.name} has the columns {', '.join(found[each.name].names)}"
        else:
            yield f"{each.name} waits: {shown(each.game)} has no schema yet"


def _tables(known: Sequence[RuleTable], then: Sequence[RuleTable]) -> Iterator[str]:
    """Yield a line for each table of a rule that is carried from then on, or no more."""
    carried = {each.name for each in known if each.definition is not None}
    for each in then:
        if each.definition is not None and each.name not in carried:
            yield f"+ {each.name}: of {shown(each.game)}, type {shown(each.type)}, by a rule"
        elif each.definition is None and each.name in carried:
            yield f"- {each.name}: its table stays, and gets no more rows, as {each.reason}"


def _limited(lines: Iterable[str]) -> list[str]:
    return first_lines(list(lines), _LISTED)


def _refused(known: Sequence[RuleTable], then: Sequence[RuleTable], schemas: SchemaSet) -> Iterator[str]:
    """Yield a line for each table of a rule that would stand still: the rule's other tables are made."""
    before = {each.definition for each in known}
    for each in then:
        if each.definition is None or each.definition in before:
            continue
        (definition,) = loads(f"[{each.definition}]")
        try:
            columns(definition, target_schema(schemas, definition.game_key), schemas)
        except Refused as refused:
            yield f"! {each.name} will stand still: {refused}"


def _paused(names: Iterable[str], controls: Mapping[str, DerivedControl]) -> Iterator[str]:
    """Yield a line for each stream that will get no rows, as its name is paused."""
    for name in names:
        control = controls.get(name)
        if control is not None and control.is_paused:
            why = f": {control.reason}" if control.reason else ""
            yield f"! {name} is paused by {control.paused_by}{why}; `turnout derived resume {name}` ends that"


def _left_out(then: Sequence[RuleTable]) -> Iterator[str]:
    by_reason: dict[tuple[str, str], list[str]] = {}
    for each in then:
        if not each.number:
            by_reason.setdefault((each.game, each.reason or ""), []).append(shown(each.type))
    for (game, reason), types in by_reason.items():
        yield f"! {shown(game)} gets no table for {join_limited(types, 10)}: {reason}"


def _label(entry: Entry) -> str:
    return f"rule {entry.name}" if isinstance(entry, FlatRule) else entry.name


def _said(entry: Entry) -> str:
    fields = {name: value for name, value in definition_file.tree(entry).items() if name != "name"}
    return "; ".join(f"{name} {value}" for name, value in fields.items())
