"""Guards that what people read is plain English: the words of a private dialect stay out of texts and documents."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import click
import pytest

from pipeline.cli.lazy import LazyCommand
from pipeline.cli.main import cli
from tests.checkout import ROOT

PACKAGES = ("app", "grants", "listeners", "pipeline")
DOCS = ROOT / "docs"
PAGES = sorted({*ROOT.glob("*.md"), *DOCS.glob("*.md"), *DOCS.glob("runbooks/*.md")} - {DOCS / "plan.md"})
DIALECT: Final = re.compile(
    r"\b(told|shall|somebody|whoever|nobody who|anew|is so|comes? to|came to|asked for|by hand of|tells? of|telling"
    r"|so long|so many)\b",
    re.IGNORECASE,
)
"""Say export, report, grant, request, retry, again, an operator, should instead."""

GRAMMAR: Final = re.compile(
    r"""\b(?:for|by|from|to|with|at|than)\ who\b                              # for those who
    | (?<!the\ )(?<!only\ )\bones?\ (?:that|which|who)\b                    # the noun
    | \b[Ii]t\ (?:is|was)\ (?:not\ |only\ )?(?:the|a|an|its|their)\ [^.,;:]{1,50}?\ (?:that|who|which)\b
    | \b(?:is|are|was|were)\ (?:to\ be|said|wanted|asked|made\ known|taken\ (?:for|back|forth)|held\ to)\b
    | \b(?:table|row|column)s?\ (?:says?|said|tells?|speaks?|hears?|knows?)\b
    | \b(?:checkpoint|log|store)s?\ (?:tells?|speaks?|hears?|knows?)\b
    | \b(?:it|that|which|who)\ (?:is|was)\ none\b""",
    re.VERBOSE,
)
"""Make the component the subject, and one clause enough."""

SUBJECT: Final = re.compile(r"(?:^|[.!;] )(?:[Ww]hat|[Ww]ho)\b(?![^.;!?]*\?)[^.;!?]*[.;!]")
"""A sentence whose subject is a clause, where text is made of sentences."""

RIDDLE: Final = re.compile(
    r"""\b[Ss]o\ (?:long|many|much|few)\b                            # the number and its unit
    | \b(?:of|by|from|after|below|above)\ so\b
    | \A(?:Of|By|In|As|To|For|That|Those)\b                        # a noun first: what the value is
    | \bwho\ acts\b
    | \ATell\b                                                        # return, print, report""",
    re.VERBOSE,
)
"""A docstring names what it is about, with number and unit where it is one."""

CEILINGS: Final = {
    "docs": 0,
    "docs/decisions": 0,
    "docs/runbooks": 0,
    "app": 0,
    "grants": 0,
    "listeners": 0,
    "pipeline": 0,
    "tests": 473,
}
"""Sentences of each room that still have this grammar. A number may only fall."""

CODE: Final = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
COMMENT: Final = re.compile(r"(?:^|\s)(#\s.*)")
SPAN: Final = re.compile(r"`[^`\n]*`")
TEST: Final = re.compile(r"^ *def test_(\w+)", re.MULTILINE)
PART: Final = re.compile(r"\n\s*\n|\n(?=[-*|#] |\d+\. )|^[-*|#]+ ", re.MULTILINE)


@cache
def strings(path: Path) -> tuple[tuple[int, str, bool], ...]:
    """Return line and text of each string of a module, and whether it is a docstring, also of a constant."""
    tree = ast.parse(path.read_text("utf-8"))
    alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    return tuple(
        (node.lineno, node.value, id(node) in alone)
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and text of each string of a module that is no docstring."""
    yield from ((line, text) for line, text, is_docstring in strings(path) if not is_docstring)


def docstrings(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and text of each docstring of a module, also of its constants, on one line each."""
    yield from (
        (line, SPAN.sub("", " ".join(text.split()))) for line, text, is_docstring in strings(path) if is_docstring
    )


def comments(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and text of each comment behind code or on a line of its own."""
    for line, text in enumerate(path.read_text("utf-8").splitlines(), 1):
        if found := COMMENT.search(text):
            yield line, found[1]


@pytest.mark.parametrize("package", PACKAGES)
def test_docstrings_are_plain_english(package: str) -> None:
    """Who reads the code reads the same words as who reads a page; names of code in backquotes are not prose."""
    found = [
        f"{path.relative_to(ROOT)}:{line}: {match.group(0)!r}"
        for path in sorted((ROOT / package).rglob("*.py"))
        for line, text in docstrings(path)
        if (match := DIALECT.search(text))
    ]
    assert found == []


@pytest.mark.parametrize("package", PACKAGES)
def test_texts_are_plain_english(package: str) -> None:
    """Pages, errors, logs and help use the words an SRE says aloud."""
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text[:80]!r}"
        for path in sorted((ROOT / package).rglob("*.py"))
        for line, text in texts(path)
        if " " in text and DIALECT.search(text)
    ]
    assert found == []


@pytest.mark.parametrize("package", [*PACKAGES, "bench"])
def test_docstrings_are_no_riddles(package: str) -> None:
    """A constant has its number and unit, a value its noun: nobody guesses what "of so many" is."""
    found = [
        f"{path.relative_to(ROOT)}:{line}: {match.group(0)!r}"
        for path in sorted((ROOT / package).rglob("*.py"))
        for line, text in [*docstrings(path), *comments(path)]
        if (match := RIDDLE.search(text))
    ]
    assert found == []


def helps(command: click.Command, name: str) -> Iterator[tuple[str, str]]:
    """Yield the help of a command and of all below it, and of their options."""
    command = command.command if isinstance(command, LazyCommand) else command
    yield name, command.help or ""
    yield from ((f"{name} {option.opts[0]}", getattr(option, "help", None) or "") for option in command.params)
    for below, each in getattr(command, "commands", {}).items():
        yield from helps(each, f"{name} {below}")


def test_help_is_plain_english() -> None:
    """`--help` is the first page that a newcomer reads."""
    assert [name for name, text in helps(cli, "turnout") if DIALECT.search(text)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_documents_are_plain_english(page: Path) -> None:
    """Documents use the same words; names of tests and code are not prose."""
    prose = SPAN.sub("", CODE.sub("", page.read_text("utf-8")))
    assert sorted({match.group(0) for match in DIALECT.finditer(prose)}) == []


def first_paragraph(docstring: str) -> str:
    return SPAN.sub("_", " ".join(docstring.strip().partition("\n\n")[0].split()))


def prose(room: str) -> Iterator[tuple[str, str, bool]]:
    """Yield place and text of what people read in a room, and whether it is made of sentences."""
    folder = ROOT / room
    for path in sorted({*folder.glob("*.md"), *(ROOT.glob("*.md") if room == "docs" else ())}):
        if path.name not in {"plan.md", "CHANGELOG.md"}:
            written = CODE.sub("", path.read_text("utf-8").partition("\n<!-- generated -->\n")[0])
            yield from ((path.name, SPAN.sub("_", " ".join(part.split())), True) for part in PART.split(written))
    is_test = room == "tests"
    for path in sorted(folder.rglob("*.py")):
        for line, text, is_docstring in strings(path):
            if " " in text and (is_docstring or not is_test):
                yield f"{path.relative_to(ROOT)}:{line}", first_paragraph(text), is_test or not is_docstring
        for name in TEST.findall(path.read_text("utf-8")) if is_test else ():
            yield f"{path.relative_to(ROOT)}: test_{name}", name.replace("_", " ") + ".", True


@pytest.mark.parametrize("room", CEILINGS)
def test_sentences_say_who_does_what(room: str) -> None:
    """Each sentence has a component as its subject and says what it does."""
    found = [
        f"{place}: {match.group(0)!r}"
        for place, text, has_sentences in prose(room)
        for pattern in (GRAMMAR, *([SUBJECT] if has_sentences else []))
        for match in pattern.finditer(text)
    ]
    assert len(found) <= CEILINGS[room], "\n".join(found)


def test_the_grammar_is_seen() -> None:
    """The check finds what it is for, and leaves good English alone."""
    for text in ("Rows of one that died", "a text for who reads it", "It is the lease that keeps it", "as is wanted"):
        assert GRAMMAR.search(text), text
    assert SUBJECT.search("Fine. What was granted stays.")
    for text in ("What is a problem?", "The driver reads what it needs.", "Who may read"):
        assert not SUBJECT.search(text), text
    for text in ("the only one that runs", "it is possible that it fails", "where that is None", "The log says so."):
        assert not GRAMMAR.search(text), text


def test_riddles_are_seen() -> None:
    """The check finds what it is for, and leaves good English alone."""
    for text in ("Kept for so long.", "Of the page, by name", "Return who acts."):
        assert RIDDLE.search(text), text
    for text in ("Seconds that it is kept.", "Ofcom", "The person who acted.", "Also of those"):
        assert not RIDDLE.search(text), text


def test_the_dialect_is_seen() -> None:
    """The check finds what it is for."""
    assert DIALECT.search("what is asked for waits")
    assert not DIALECT.search("Confirming twice submits one operation.")
