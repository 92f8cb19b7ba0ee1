"""YAML as nodes that know their lines: what they hold is checked by their readers, and nothing is ever made of it.

Anchors, aliases, tags and deep nesting are refused before anything is composed, so a small text stays small.
"""

from collections.abc import Collection
from typing import Any, Final

import yaml
from yaml.reader import Reader

from pipeline.base.problems import Lines, Problems, shown

MAX_BYTES: Final = 1_000_000
_MAX_DEPTH: Final = 10
_LOADER: Final = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader


def composed(text: str, problems: Problems) -> yaml.Node | None:
    """Return the one document of a text; None where there is none or a problem was found."""
    if len(text) > MAX_BYTES or len(text.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        problems.add(1, f"the file is longer than {MAX_BYTES:,} bytes; use groups and patterns instead of lists")
        return None
    odd = Reader.NON_PRINTABLE.search(text)
    if odd is not None:
        problems.add(Lines(text).at(odd.start()), f"{odd[0]!r} is not allowed in YAML; write it as an escape in quotes")
        return None
    try:
        if not _plain(text, problems):
            return None
        return yaml.compose(text, Loader=_LOADER)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = ", ".join(part for part in (error.context, error.problem) if part)
        last = max(len(text.splitlines()), 1)  # libyaml takes the end of a text for a line of its own
        problems.add(min(_line(mark), last), f"this is not valid YAML: {problem}")
    except yaml.YAMLError as error:  # the reader's, which know no line
        problems.add(1, f"this is not valid YAML: {error}")
    return None


def line_of(node: yaml.Node) -> int:
    """Return the line a node begins in, counted from 1."""
    return _line(node.start_mark)


def fields(node: yaml.Node, what: str, known: Collection[str], problems: Problems) -> dict[str, yaml.Node]:
    """Return a mapping's values by key; other keys than the known ones, and doubled ones, are problems."""
    if not isinstance(node, yaml.MappingNode):
        problems.add(line_of(node), f"{what} must be a mapping with {', '.join(known)}")
        return {}
    values: dict[str, yaml.Node] = {}
    for key, value in node.value:
        name = str(key.value) if isinstance(key, yaml.ScalarNode) else "a list or mapping"
        if name not in known:
            problems.add(line_of(key), f"{shown(name)} is not a field of {what}; use {', '.join(known)}")
        elif name in values:
            problems.add(line_of(key), f"{what} has {name} twice; keep one")
        else:
            values[name] = value
    return values


def text(node: yaml.Node, what: str, problems: Problems) -> str | None:
    """Return a scalar exactly as it is written, so that the game 2048 and the group no need no quotes."""
    if not isinstance(node, yaml.ScalarNode):
        problems.add(line_of(node), f"{what} must be a text")
    elif node.tag.endswith(":null") or not node.value.strip():
        problems.add(line_of(node), f"{what} is empty")
    elif "\0" in node.value:
        problems.add(line_of(node), f"{what} contains a NUL character")
    else:
        return str(node.value)
    return None


def items(node: yaml.Node, what: str, problems: Problems) -> list[yaml.Node]:
    """Return the items of a list that has some."""
    if isinstance(node, yaml.SequenceNode) and node.value:
        return list(node.value)
    problems.add(line_of(node), f"{what} must be a list with at least one item")
    return []


def truth(node: yaml.Node, what: str, problems: Problems) -> bool | None:
    """Return true or false; YAML's yes, on and their like are problems, as are texts."""
    if isinstance(node, yaml.ScalarNode) and node.tag.endswith(":bool") and node.value in {"true", "false"}:
        return bool(node.value == "true")
    problems.add(line_of(node), f"{what} must be true or false")
    return None


def number(node: yaml.Node, what: str, limit: int, problems: Problems) -> int | None:
    """Return a whole number from 1 to `most`, written in plain digits."""
    if isinstance(node, yaml.ScalarNode) and node.tag.endswith(":int"):
        digits = node.value
        if digits.isascii() and digits.isdigit() and not digits.startswith("0") and len(digits) <= len(str(limit)):
            value = int(digits)
            if value <= limit:
                return value
    problems.add(line_of(node), f"{what} must be a whole number from 1 to {limit:,}")
    return None


def _plain(text: str, problems: Problems) -> bool:
    """Return whether a text has no anchors, aliases or tags and is not deep; each that is there is a problem."""
    depth, plain = 0, True
    for event in yaml.parse(text, Loader=_LOADER):
        line = _line(event.start_mark)
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > _MAX_DEPTH:
                problems.add(line, f"this is nested deeper than {_MAX_DEPTH} levels; write it flatter")
                return False
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if isinstance(event, yaml.NodeEvent) and event.anchor is not None:
            problems.add(line, f"the anchor or alias {shown(event.anchor)} is not supported; write out its content")
            plain = False
        if isinstance(event, yaml.ScalarEvent | yaml.CollectionStartEvent) and event.tag is not None:
            problems.add(line, f"the tag {shown(event.tag)} is not supported; leave it out")
            plain = False
    return plain


def _line(mark: Any) -> int:
    """Return a mark's line, counted from 1; libyaml and PyYAML have each a class of their own for it."""
    return 1 if mark is None else int(mark.line) + 1
