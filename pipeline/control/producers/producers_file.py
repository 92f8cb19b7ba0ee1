"""The file of the edge's producers: reads it whole or refuses it with every problem and its line, and writes it."""

import datetime as dt
import re
from typing import Any, Final

import yaml

from pipeline.base import yaml_nodes
from pipeline.base.errors import Refused
from pipeline.base.names import MAX_NAME_BYTES, is_game_name
from pipeline.base.problems import Problems, shown
from pipeline.base.yaml_nodes import line_of
from pipeline.store.edge_producers import EdgeProducer

VERSION: Final = 1
_EMPTY: Final = f"The file of producers is empty: it needs at least 'version: {VERSION}' and 'producers: []'."
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")
_HASH: Final = re.compile(r"[0-9a-f]{64}")
_FIELDS: Final = ("name", "token_sha256", "certificate", "games", "prefixes", "expires", "events_per_second")
_NAMED: Final = re.compile(  # as `pipeline.edge.callers` names a certificate: exact, a host in small letters
    r"uri:[a-z][a-z0-9+.-]*:[!-~]{1,2000}|dns:[a-z0-9_]([a-z0-9_.-]{0,251}[a-z0-9_])?|cn:[^\x00-\x1f\x7f]{1,64}"
)
_ALL: Final = "all"  # games
_MOST_RATE: Final = 10_000_000
_MOMENT: Final = re.compile(r"\d{4}-\d{2}-\d{2}(T\d{2}:\d{2}(:\d{2})?Z)?")


def parse(text: str) -> tuple[EdgeProducer, ...]:
    """Return the producers of a file.

    Raises:
        Refused: naming everything that is wrong, each with its line.
    """
    problems = Problems("the file of producers")
    root = yaml_nodes.composed(text, problems)
    problems.refuse()
    if root is None:
        raise Refused(_EMPTY)
    producers = _ProducerNodes(problems).producers(root)
    problems.refuse()
    return producers


def render(producers: tuple[EdgeProducer, ...]) -> str:
    """Return producers as the text of a file that `parse` reads back, without revoked ones."""
    document = {"version": VERSION, "producers": [tree(each) for each in producers if not each.revoked]}
    text: str = yaml.safe_dump(document, sort_keys=False, allow_unicode=False, width=110)
    return text.removesuffix("\n")


def tree(producer: EdgeProducer) -> dict[str, Any]:
    """Return a producer as its file has it, without what it leaves at the default."""
    fields: dict[str, Any] = {"name": producer.name}
    if producer.token_sha256:
        fields["token_sha256"] = producer.token_sha256
    if producer.certificate:
        fields["certificate"] = producer.certificate
    if "" in producer.prefixes:
        fields["games"] = _ALL
    else:
        lists = {"games": list(producer.games), "prefixes": list(producer.prefixes)}
        fields |= {name: values for name, values in lists.items() if values}
    if producer.expires_at is not None:
        fields["expires"] = f"{dt.datetime.fromtimestamp(producer.expires_at, dt.UTC):%Y-%m-%dT%H:%M:%SZ}"
    if producer.events_per_second is not None:
        fields["events_per_second"] = producer.events_per_second
    return fields


class _ProducerNodes:
    """Makes producers of nodes; what does not fit is noted and left out."""

    def __init__(self, problems: Problems) -> None:
        self._problems = problems
        self._lines: dict[tuple[str, str], int] = {}  # each name and hash, and the line it is in

    def producers(self, root: yaml.Node) -> tuple[EdgeProducer, ...]:
        fields = yaml_nodes.fields(root, "the file of producers", ("version", "producers"), self._problems)
        version, listed = fields.get("version"), fields.get("producers")
        if version is None or getattr(version, "value", None) != str(VERSION):
            self._problems.add(line_of(version or root), f"write version: {VERSION}; this turnout supports no other")
        if listed is None:
            self._problems.add(line_of(root), "producers is missing; write producers: [] if nobody may send")
            return ()
        if isinstance(listed, yaml.SequenceNode) and not listed.value:
            return ()
        return tuple(self._producer(each) for each in yaml_nodes.items(listed, "producers", self._problems))

    def _producer(self, node: yaml.Node) -> EdgeProducer:
        fields = yaml_nodes.fields(node, "a producer", _FIELDS, self._problems)
        if isinstance(node, yaml.MappingNode) and "name" not in fields:
            self._problems.add(line_of(node), "name is missing")
        if fields and not fields.keys() & {"token_sha256", "certificate"}:
            self._problems.add(line_of(node), "token_sha256 and certificate are missing; give one of them, or both")
        if fields and not fields.keys() & {"games", "prefixes"}:
            self._problems.add(line_of(node), "games and prefixes are missing; name what the producer may send")
        rate, games = fields.get("events_per_second"), fields.get("games")
        is_all = isinstance(games, yaml.ScalarNode) and games.value == _ALL
        return EdgeProducer(
            name=self._matching(fields.get("name"), "name", _NAME, "1 to 40 letters, digits, '.', '_' and '-'"),
            token_sha256=self._matching(
                fields.get("token_sha256"), "token_sha256", _HASH, "the 64 digits that `producers token` prints"
            ),
            certificate=self._matching(
                fields.get("certificate"), "certificate", _NAMED, "uri:spiffe://…, dns:host.example or cn:name"
            ),
            games=() if is_all else self._names(games, "game"),
            prefixes=("",) if is_all else self._names(fields.get("prefixes"), "prefix"),
            expires_at=self._moment(fields.get("expires")),
            events_per_second=None
            if rate is None
            else yaml_nodes.number(rate, "events_per_second", _MOST_RATE, self._problems),
        )

    def _matching(self, node: yaml.Node | None, what: str, pattern: re.Pattern[str], rule: str) -> str:
        text = "" if node is None else yaml_nodes.text(node, what, self._problems) or ""
        if node is None or not text:
            return ""
        if not pattern.fullmatch(text):
            self._problems.add(line_of(node), f"{shown(text)} is no {what}; use {rule}")
        elif (first := self._lines.setdefault((what, text), line_of(node))) != line_of(node):
            self._problems.add(line_of(node), f"the {what} {shown(text)} is already in line {first}; keep one")
        return text

    def _names(self, node: yaml.Node | None, what: str) -> tuple[str, ...]:
        names = dict[str, None]()
        for item in [] if node is None else yaml_nodes.items(node, f"{what}s", self._problems):
            name = yaml_nodes.text(item, f"a {what}", self._problems)
            if name is None:
                continue
            if not is_game_name(name):
                self._problems.add(line_of(item), f"a {what} has 1 to {MAX_NAME_BYTES} bytes without NUL")
            names[name] = None
        return tuple(names)

    def _moment(self, node: yaml.Node | None) -> float | None:
        text = None if node is None else yaml_nodes.text(node, "expires", self._problems)
        if node is None or text is None:
            return None
        try:
            if not _MOMENT.fullmatch(text):
                raise ValueError(text)
            return dt.datetime.fromisoformat(text.removesuffix("Z")).replace(tzinfo=dt.UTC).timestamp()
        except ValueError:
            self._problems.add(line_of(node), "expires must be a day or a time in UTC, such as 2027-01-31T12:00:00Z")
            return None
