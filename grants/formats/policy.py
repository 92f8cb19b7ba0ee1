"""`policy.yml`: who may read what, until when.

Values and decisions only: the text, the inventory of games and the time are arguments. See docs/access.md.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final, NamedTuple, get_args

import yaml

from grants.formats.expiry import parse_until, spelled_until
from grants.model import EVERYONE, PrincipalKind, folded
from pipeline.base import yaml_nodes
from pipeline.base.errors import Refused
from pipeline.base.problems import Problems, shown
from pipeline.base.texts import join_limited
from pipeline.base.yaml_nodes import line_of

VERSION: Final = 1
MAX_DAYS: Final = 90
"""How long a temporary grant may last at most where the policy does not say."""
MAX_CELLS: Final = 200_000
"""Games times principals that one policy may name: three times 500 games for 60 principals, and then some."""
MAX_PATTERNS: Final = 2_000
"""Different patterns of one policy; each is tried on every game."""

KINDS: Final[tuple[PrincipalKind, ...]] = get_args(PrincipalKind)
_SUBJECTS: Final = ("games", "derived", "derived_of")
"""What an entry may be about; one of these is needed."""

_PATTERN: Final = re.compile(r"[*?\[]")
_LONGEST_DAYS: Final = 3_650


class Written(NamedTuple):
    """A game as the policy writes it: its key, its exact name, or a pattern of names."""

    text: str
    line: int


@dataclass(frozen=True, slots=True)
class PolicyItem:
    """One item of `grants`: each of its principals reads each of its games and derived tables."""

    principals: tuple[str, ...]
    games: tuple[Written, ...]
    derived: tuple[Written, ...]  # names of silver and gold tables, or patterns of these, without their games
    derived_of: tuple[Written, ...]  # games, of which all silver and gold tables in force are meant
    until: int | None  # Unix seconds; from then on it is not wanted. None: for good
    reason: str
    ticket: str | None
    line: int


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy that was understood wholly."""

    entries: tuple[PolicyItem, ...]
    kinds: Mapping[str, PrincipalKind]  # folded principal → what the policy says it is; missing where it does not say
    allow_everyone: bool = False
    max_days: int = MAX_DAYS
    warnings: tuple[str, ...] = ()  # sentences for people, with line numbers


class KnownTable(NamedTuple):
    """A silver or gold table in force."""

    name: str
    game_key: str


NO_TABLES: Final[Mapping[str, KnownTable]] = {}


class PolicyCell(NamedTuple):
    """One principal may read one game, or one silver or gold table."""

    principal: str
    key: str
    until: int | None  # Unix seconds
    reason: str
    ticket: str | None


def parse(text: str, known_games: Mapping[str, str], known_tables: Mapping[str, KnownTable] = NO_TABLES) -> Policy:
    """Read a policy; `known_games` maps the keys of the inventory to names, `known_tables` those of derived tables.

    Raises:
        Refused: naming everything that is wrong, each with its line.
    """
    problems = Problems("the policy")
    root = yaml_nodes.composed(text, problems)
    problems.refuse()
    if root is None:
        raise Refused(f"The policy is empty: it needs at least 'version: {VERSION}' and 'grants: []'.")
    reading = _Reading(problems)
    policy = reading.policy(root)
    warnings = _resolved(policy, known_games, known_tables, problems)[1]
    problems.refuse()
    return Policy(policy.entries, policy.kinds, policy.allow_everyone, policy.max_days, tuple(warnings))


def check_until(policy: Policy, now: float) -> tuple[str, ...]:
    """Return a warning for each entry whose time is over; `now` is in Unix seconds.

    Raises:
        Refused: entries last longer than `max_days` from now.
    """
    problems = Problems("the policy")
    warnings = []
    for entry in policy.entries:
        if entry.until is None:
            continue
        if entry.until > now + policy.max_days * 86_400:
            problem = f"until {spelled_until(entry.until)} is more than {policy.max_days} days ahead"
            problems.add(entry.line, f"{problem}; name an earlier day, or raise max_days")
        elif entry.until <= now:
            warnings.append(f"line {entry.line}: it expired at {spelled_until(entry.until)} and grants nothing.")
    problems.refuse()
    return tuple(warnings)


def cells(
    policy: Policy, known_games: Mapping[str, str], known_tables: Mapping[str, KnownTable] = NO_TABLES
) -> list[PolicyCell]:
    """Return who may read what, each principal and game once, by principal and then game key.

    A principal is spelled as where it stands first. Entries whose time is over are in it: the caller has the clock.

    Raises:
        Refused: a game the policy names is not known any more, or two entries contradict each other now.
    """
    problems = Problems("the policy")
    resolved, _ = _resolved(policy, known_games, known_tables, problems)
    problems.refuse()
    return [resolved[cell] for cell in sorted(resolved)]


class _Reading:
    """Makes a policy of nodes; what does not fit is noted and left out."""

    def __init__(self, problems: Problems) -> None:
        self._problems = problems
        self._kinds: dict[str, PrincipalKind] = {}
        self._everyone: list[int] = []  # the lines that name everybody

    def policy(self, root: yaml.Node) -> Policy:
        fields = yaml_nodes.fields(
            root, "the policy", ("version", "allow_everyone", "max_days", "grants"), self._problems
        )
        if isinstance(root, yaml.MappingNode):
            self._version(root, fields.get("version"))
        everyone, days = fields.get("allow_everyone"), fields.get("max_days")
        allowed = yaml_nodes.truth(everyone, "allow_everyone", self._problems) if everyone is not None else False
        longest = yaml_nodes.number(days, "max_days", _LONGEST_DAYS, self._problems) if days is not None else MAX_DAYS
        entries = self._entries(root, fields.get("grants"))
        for line in [] if allowed else self._everyone:
            self._problems.add(line, f"'{EVERYONE}' means everybody; write allow_everyone: true to allow it")
        return Policy(entries, self._kinds, bool(allowed), longest or MAX_DAYS)

    def _version(self, root: yaml.Node, node: yaml.Node | None) -> None:
        if node is None:
            self._problems.add(line_of(root), f"version is missing; write version: {VERSION}")
        elif not (isinstance(node, yaml.ScalarNode) and node.tag.endswith(":int") and node.value == str(VERSION)):
            self._problems.add(line_of(node), f"version must be {VERSION}; this turnout supports no other")

    def _entries(self, root: yaml.Node, node: yaml.Node | None) -> tuple[PolicyItem, ...]:
        if node is None:
            if isinstance(root, yaml.MappingNode):
                self._problems.add(line_of(root), "grants is missing; write grants: [] if nobody may read anything")
            return ()
        if isinstance(node, yaml.SequenceNode) and not node.value:
            return ()
        return tuple(self._entry(item) for item in self._items(node, "grants"))

    def _entry(self, node: yaml.Node) -> PolicyItem:
        known = ("principals", *_SUBJECTS, "until", "reason", "ticket")
        fields = yaml_nodes.fields(node, "a grant", known, self._problems)
        needed = ("principals", "games", "reason") if fields.keys().isdisjoint(_SUBJECTS) else ("principals", "reason")
        for name in needed if isinstance(node, yaml.MappingNode) else ():
            if name not in fields:
                self._problems.add(line_of(node), f"{name} is missing")
        principals = (
            [self._principal(item) for item in self._items(fields["principals"], "principals")]
            if "principals" in fields
            else []
        )
        return PolicyItem(
            principals=tuple(dict.fromkeys(each for each in principals if each is not None)),
            games=self._written(fields.get("games"), "games", "a game"),
            derived=self._written(fields.get("derived"), "derived", "a table"),
            derived_of=self._written(fields.get("derived_of"), "derived_of", "a game"),
            until=self._until(fields.get("until")),
            reason=self._text(fields.get("reason"), "reason") or "",
            ticket=self._text(fields.get("ticket"), "ticket"),
            line=line_of(node),
        )

    def _written(self, node: yaml.Node | None, what: str, item: str) -> tuple[Written, ...]:
        listed = [] if node is None else self._items(node, what)
        texts = ((self._text(each, item), line_of(each)) for each in listed)
        return tuple(Written(text, line) for text, line in texts if text is not None)

    def _text(self, node: yaml.Node | None, what: str) -> str | None:
        return yaml_nodes.text(node, what, self._problems) if node is not None else None

    def _items(self, node: yaml.Node, what: str) -> list[yaml.Node]:
        return yaml_nodes.items(node, what, self._problems)

    def _principal(self, node: yaml.Node) -> str | None:
        named, kind = node, None
        if isinstance(node, yaml.MappingNode):
            fields = yaml_nodes.fields(node, "a principal", KINDS, self._problems)
            given = [(fields[each], each) for each in KINDS if each in fields]
            if len(given) != 1:
                self._problems.add(line_of(node), f"a principal is a name, or one of {', '.join(KINDS)} with a name")
                return None
            named, kind = given[0]
        name = self._text(named, "a principal")
        if name is None:
            return None
        if kind is not None and self._kinds.setdefault(folded(name), kind) != kind:
            other = self._kinds[folded(name)]
            self._problems.add(line_of(node), f"{shown(name)} is a {kind} here and a {other} above; keep one kind")
        if folded(name) == EVERYONE:
            self._everyone.append(line_of(node))
        return name

    def _until(self, node: yaml.Node | None) -> int | None:
        text = self._text(node, "until")
        if node is None or text is None:
            return None
        try:
            return parse_until(text)
        except Refused as refused:
            self._problems.add(line_of(node), f"until: {refused}")
            return None


def _resolved(
    policy: Policy, known_games: Mapping[str, str], known_tables: Mapping[str, KnownTable], problems: Problems
) -> tuple[dict[tuple[str, str], PolicyCell], list[str]]:
    """Return the cells by folded principal and key, and warnings about games; what contradicts is a problem."""
    keys_of = {name: key for key, name in known_games.items()}
    written = (each for entry in policy.entries for each in (*entry.games, *entry.derived, *entry.derived_of))
    patterns = {text for text, _ in written if _PATTERN.search(text)}
    if len(patterns) > MAX_PATTERNS:
        problem = f"the policy has {len(patterns):,} patterns; the limit is {MAX_PATTERNS:,}"
        problems.add(policy.entries[0].line, f"{problem}; write fewer and wider ones")
        return {}, []
    chosen = [_chosen(entry, known_games, keys_of, known_tables, problems) for entry in policy.entries]
    names = {**known_games, **{key: each.name for key, each in known_tables.items()}}
    named = sum(len(entry.principals) * len(keys) for entry, (keys, _) in zip(policy.entries, chosen, strict=True))
    if named > MAX_CELLS:
        problem = f"the policy has {named:,} pairs of game and principal; the limit is {MAX_CELLS:,}"
        problems.add(policy.entries[0].line, f"{problem}; use groups")
        return {}, []
    found: dict[tuple[str, str], tuple[PolicyCell, int]] = {}
    spelling: dict[str, str] = {}
    for entry, (keys, _) in zip(policy.entries, chosen, strict=True):
        against: dict[int, list[PolicyCell]] = {}  # line of another entry → the cells both name
        for principal in entry.principals:
            spelled = spelling.setdefault(folded(principal), principal)
            for key in keys:
                cell = PolicyCell(spelled, key, entry.until, entry.reason, entry.ticket)
                before, line = found.setdefault((folded(principal), key), (cell, entry.line))
                if before != cell:
                    against.setdefault(line, []).append(cell)
        for line, both in against.items():
            cells = join_limited(both, 1, lambda cell: f"{shown(names[cell.key])} for {shown(cell.principal)}")
            problem = f"{cells} is already in line {line}, with another until, reason or ticket"
            problems.add(entry.line, f"{problem}; keep one of them")
    return {place: cell for place, (cell, _) in found.items()}, [
        problem for _, warnings in chosen for problem in warnings
    ]


def _chosen(
    entry: PolicyItem,
    known_games: Mapping[str, str],
    keys_of: Mapping[str, str],
    known_tables: Mapping[str, KnownTable],
    problems: Problems,
) -> tuple[list[str], list[str]]:
    """Return the keys of an entry's games and tables, each once, and warnings."""
    games, warnings = _keys(entry.games, known_games, keys_of, problems)
    tables, more = _tables(entry.derived, known_tables, problems)
    warnings += more
    for each in entry.derived_of:
        keys, more = _keys([each], known_games, keys_of, problems)
        of_games = [key for key, table in known_tables.items() if table.game_key in keys]
        tables += of_games
        none = [f"line {each.line}: {shown(each.text)} has no silver or gold table in force."]
        warnings += more or (none if keys and not of_games else [])
    return list(dict.fromkeys((*games, *tables))), warnings


def _tables(
    written: Iterable[Written], known: Mapping[str, KnownTable], problems: Problems
) -> tuple[list[str], list[str]]:
    """Return the keys of silver and gold tables, and warnings."""
    keys_of = {each.name: key for key, each in known.items()}
    keys: list[str] = []
    warnings = []
    for text, line in written:
        if _PATTERN.search(text):
            matching = [key for name, key in keys_of.items() if fnmatchcase(name, text)]
            keys += matching
            warnings += [] if matching else [f"line {line}: the pattern {shown(text)} matches no silver or gold table."]
        elif text in keys_of:
            keys.append(keys_of[text])
        else:
            said = f"there is no silver or gold table {shown(text)} in force"
            problems.add(line, f"{said}; `turnout derived list` has their names")
    return keys, warnings


def _keys(
    written: Iterable[Written], known_games: Mapping[str, str], keys_of: Mapping[str, str], problems: Problems
) -> tuple[list[str], list[str]]:
    """Return the keys of games, each once, and warnings."""
    keys: dict[str, None] = {}
    warnings = []
    for text, line in written:
        named = keys_of.get(text)
        if _PATTERN.search(text):
            matching = [key for key, name in known_games.items() if fnmatchcase(name, text)]
            keys.update(dict.fromkeys(matching))
            if not matching:
                warnings.append(f"line {line}: the pattern {shown(text)} matches no game.")
            if named is not None:
                taken = f"{shown(text)} is read as a pattern though a game has exactly that name"
                warnings.append(f"line {line}: {taken}; if you mean that game, write its key {named}.")
        elif text in known_games:
            keys[text] = None
            if named not in {None, text}:
                taken = f"{text} is read as the key of {shown(known_games[text])}, but is also the name of another game"
                warnings.append(f"line {line}: {taken}; if you mean that one, write its key {named}.")
        elif named is not None:
            keys[named] = None
        else:
            problems.add(
                line, f"there is no game {shown(text)}; write its exact name, its key, or a pattern such as game_*"
            )
    return list(keys), warnings
