"""A runbook as its sections, steps and spans, of the little Markdown that docs/runbooks uses. Pure.

A test parses every runbook; what this cannot read would stand on the page letter by letter.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

_SPAN: Final = re.compile(r"`([^`]+)`|\[([^\]]+)\]\(([^)]+)\)")
_STEP: Final = re.compile(r"\d+\. ")
_RUNBOOK: Final = re.compile(r"(turnout[a-z]+)\.md")
_PAGE: Final = re.compile(r"Page of the dashboard: `([^`]+)`\.")


@dataclass(frozen=True, slots=True)
class RunbookSpan:
    """A piece of text; `target` is the name of a runbook that it leads to, None where it leads nowhere."""

    kind: Literal["text", "code"]
    text: str
    target: str | None = None


@dataclass(frozen=True, slots=True)
class RunbookBlock:
    """A paragraph, or a step of a numbered list."""

    spans: tuple[RunbookSpan, ...]
    number: int | None = None  # of a step, from 1


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a runbook below a heading."""

    title: str
    blocks: tuple[RunbookBlock, ...]


@dataclass(frozen=True, slots=True)
class Runbook:
    """A page of docs/runbooks."""

    title: str  # the name of its alert
    page: str  # of the dashboard, with KEY and GROUP for names: /game?game=KEY
    sections: tuple[Section, ...]


def parse(text: str) -> Runbook:
    """Return a runbook of its Markdown."""
    first, *parts = re.split(r"^## ", text, flags=re.MULTILINE)
    found = _PAGE.search(text)
    sections = []
    for part in parts:
        title, _, body = part.partition("\n")
        blocks = [each for each in _blocks(body) if not _PAGE.fullmatch(_plain(each))]
        sections.append(Section(title.strip(), tuple(blocks)))
    return Runbook(first.strip().removeprefix("# "), found[1] if found else "/", tuple(sections))


def commands(spans: Sequence[RunbookSpan]) -> Iterator[str]:
    """Yield the commands that stand in a text."""
    return (each.text for each in spans if each.kind == "code" and is_command(each.text))


def is_command(code: str) -> bool:
    """Return whether a piece of code is a command to run, not a path or a word."""
    return code.partition(" ")[0] in _PROGRAMS and " " in code


_PROGRAMS: Final = frozenset({"turnout", "fuser", "openssl", "promtool"})


def _blocks(body: str) -> Iterator[RunbookBlock]:
    number = 0
    for paragraph in re.split(r"\n\s*\n", body.strip()):
        lines: list[str] = []
        for line in paragraph.splitlines():
            if _STEP.match(line) and lines:
                number, block = _block(lines, number)
                yield block
                lines = []
            lines.append(line.strip())
        if lines:
            number, block = _block(lines, number)
            yield block


def _block(lines: Sequence[str], number: int) -> tuple[int, RunbookBlock]:
    text = " ".join(lines)
    if _STEP.match(text):
        return number + 1, RunbookBlock(tuple(_spans(_STEP.sub("", text, count=1))), number + 1)
    return number, RunbookBlock(tuple(_spans(text)))


def _spans(text: str) -> Iterator[RunbookSpan]:
    end = 0
    for found in _SPAN.finditer(text):
        if found.start() > end:
            yield RunbookSpan("text", text[end : found.start()])
        code, words, target = found.groups()
        if code is not None:
            yield RunbookSpan("code", code)
        else:
            runbook = _RUNBOOK.fullmatch(target)
            yield RunbookSpan("text", words, runbook[1] if runbook else None)
        end = found.end()
    if end < len(text):
        yield RunbookSpan("text", text[end:])


def _plain(block: RunbookBlock) -> str:
    return "".join(f"`{each.text}`" if each.kind == "code" else each.text for each in block.spans)
