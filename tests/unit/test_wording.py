"""Guards that what people read is plain English: the words of a private dialect stay out of texts and documents."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click
import pytest

from pipeline.cli.lazy import LazyCommand
from pipeline.cli.main import cli

ROOT = Path(__file__).parents[2]
PACKAGES = ("app", "grants", "listeners", "pipeline")
DOCS = ROOT / "docs"
PAGES = sorted({*ROOT.glob("*.md"), *DOCS.glob("*.md"), *DOCS.glob("runbooks/*.md")} - {DOCS / "plan.md"})
DIALECT: Final = re.compile(
    r"\b(told|shall|somebody|whoever|nobody who|anew|is so|comes? to|came to|asked for|by hand of|tells? of|telling)\b",
    re.IGNORECASE,
)
"""Say export, report, grant, request, retry, again, an operator, should instead."""

CODE: Final = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
SPAN: Final = re.compile(r"`[^`\n]*`")


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and text of each string of a module that is no docstring."""
    tree = ast.parse(path.read_text("utf-8"))
    alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in alone:
            yield node.lineno, node.value


def docstrings(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and text of each docstring of a module, also of its constants, on one line each."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, SPAN.sub("", " ".join(node.value.value.split()))


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


def test_the_dialect_is_seen() -> None:
    """The check finds what it is for."""
    assert DIALECT.search("what is asked for waits")
    assert not DIALECT.search("Confirming twice submits one operation.")
