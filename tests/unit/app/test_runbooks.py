"""Guards runbooks as pages: all of them are read, every command runs, and no name in one acts."""

import html
import re
import shlex
import subprocess
from itertools import chain
from pathlib import Path

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.runbooks import page_links, shelf, static, subjects
from app.runbooks.document import Runbook, RunbookSpan, commands, parse
from app.runbooks.filling import CHOICES, RunbookSubject, fill
from pipeline.base.names import game_key
from pipeline.cli.main import cli
from pipeline.settings.tree import load
from pipeline.store.database.engine import open_store
from tests.browser.seed import HOSTILE
from tests.checkout import ROOT

PAGES = {path.stem for path in (ROOT / "app" / "views").glob("*.py")}
ALL = sorted(shelf.texts())
NASTY = (
    "a'; touch pwned; '", "$(touch pwned)", "`touch pwned`", 'a" && touch pwned "', "a\ntouch pwned\n", "-rf", "a b",
    "\x03\ntouch pwned\n", "*", "~root", "a\\", "!!", "é x", "a\u202eb", "--help",
)  # fmt: skip


def subject(folder: Path | str = "/srv/env", game: str = "Chess") -> RunbookSubject:
    return RunbookSubject(str(folder), game_key(game), game, "a", "door-1", "sold", "main", "0a1b2c3d")


def spans(runbook: Runbook) -> list[RunbookSpan]:
    blocks = chain.from_iterable(section.blocks for section in runbook.sections)
    return [span for block in blocks for span in block.spans]


@pytest.mark.parametrize("name", ALL)
def test_each_runbook_is_read_whole(name: str) -> None:
    """Every word of the file stands on the page once, with four parts, numbered steps and no Markdown left."""
    text = shelf.texts()[name]
    runbook = parse(text)
    assert [each.title for each in runbook.sections] == ["Meaning", "Impact", "Diagnosis", "Mitigation"]
    shown = "".join(span.text for span in spans(runbook))
    assert not re.search(r"`|\]\(|^#|\*\*", shown)
    source = re.sub(r"\]\([^)]*\)|Page of the dashboard: `[^`]*`\.|[`\[#]|^\d+\. ", "", text, flags=re.MULTILINE)
    titles = " ".join([runbook.title, *(each.title for each in runbook.sections)])
    assert sorted(source.split()) == sorted((shown_words(runbook) + " " + titles).split())
    numbers = [[each.number for each in part.blocks if each.number] for part in runbook.sections]
    assert all(part == list(range(1, len(part) + 1)) for part in numbers)


def shown_words(runbook: Runbook) -> str:
    return " ".join(
        "".join(span.text for span in block.spans) for section in runbook.sections for block in section.blocks
    )


@pytest.mark.parametrize("name", ALL)
def test_each_runbook_leaves_no_name_open_and_links_pages_that_there_are(name: str) -> None:
    """With an incident's names no command has a word for a name; its links and its page exist."""
    runbook = parse(shelf.texts()[name])
    for span in spans(runbook):
        if span.kind == "code":
            filled = fill(span.text, subject())
            assert filled.missing == ()
            left = set(re.findall(r"\b[A-Z]{2,}(?:_[A-Z]+)*\b|<[a-z-]+>", filled.text)) - {*CHOICES, "HOST", "PORT"}
            assert not (left and span.text.startswith("turnout ")), left
        if span.target is not None:
            assert span.target in ALL
    for command in commands(spans(runbook)):
        action = page_links.page_of(command, subject())
        assert action is None or action.page in PAGES
    assert {*subjects.words(runbook)} <= subjects.PARAMS.keys()


def test_each_command_of_a_runbook_is_one(tmp_path: Path) -> None:
    """Filled in, click accepts every one: options exist, and no argument is missing."""
    open_store(*load(tmp_path, {})).dispose()
    (tmp_path / "file").write_text("x")
    values = {
        "WHY": "busy", "FILE": str(tmp_path / "file"), "DAY": "2026-11-29", "N": "2", "HOST:PORT": "127.0.0.1:4444",
        "MESSAGE": "a.B", "TYPE": "a.C", "OTHER_GROUP": "c", "FOLDER": "/old",
    }  # fmt: skip
    assert values.keys() == {*CHOICES}
    tried = 0
    for name in ALL:
        for command in commands(spans(parse(shelf.texts()[name]))):
            if command.startswith("turnout "):
                accept([values.get(each, each) for each in shlex.split(fill(command, subject(tmp_path)).text)[1:]])
                tried += 1
    assert tried > 100


def accept(arguments: list[str]) -> None:
    context, command = click.Context(cli, info_name="turnout"), None
    group: click.Group = cli
    while command is None:
        name = arguments.pop(0)
        found = group.get_command(context, name)
        assert found is not None, name
        if isinstance(found, click.Group):
            group, context = found, click.Context(found, parent=context, info_name=name)
        else:
            command = found
    command.make_context(command.name, arguments, context).close()


COMMANDS = (
    "turnout repair retry GAME --env-dir DIR",
    "turnout schemas register --game GAME_NAME --message MESSAGE FILE",
    "turnout groups run GROUP",
    "fuser -v DIR/control.db",
)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("name", [*NASTY, *HOSTILE])
def test_no_name_acts_in_a_shell(command: str, name: str, tmp_path: Path) -> None:
    """A pasted command is one command whose arguments are the names, whatever these are, or it is not offered."""
    hostile = RunbookSubject(name, name, name, name, name, name, name, name)
    filled = fill(command, hostile)
    assert "\n" not in filled.text
    assert "\x03" not in filled.text
    words = command.removesuffix(" --env-dir DIR").split()
    program = 'turnout() { printf "%s\\0" "$@"; }; fuser() { turnout "$@"; }; '
    found = subprocess.run(
        ["sh", "-c", program + filled.text], cwd=tmp_path, capture_output=True, check=True, timeout=20
    )
    got = found.stdout.decode().split("\0")[:-1]
    assert list(tmp_path.iterdir()) == []
    allowed = {*words, "--env-dir", "DIR", name, f"{name}/control.db"}
    assert {*got} <= allowed
    assert len(got) == len(words) - 1 + 2 * command.startswith("turnout ")


@given(st.text(), st.text())
def test_a_filled_command_is_split_as_its_words_were(folder: str, name: str) -> None:
    """Whatever letters a folder or a name has, the shell sees them as one argument each, or the word that was there."""
    words = ["turnout", "schemas", "register", "--game", "GAME_NAME", "--env-dir", "DIR"]
    filled = fill(" ".join(words), RunbookSubject(folder=folder, game_name=name))
    expected = [
        {"DIR": folder, "GAME_NAME": name}.get(each, each) if each not in filled.missing else each for each in words
    ]
    assert shlex.split(filled.text) == expected


def test_a_name_that_nobody_can_see_whole_is_not_filled_in() -> None:
    """A terminal acts on control characters before the shell reads quotes, and a hidden letter makes another game."""
    for name in ("Chess\x1b[2J", "Chess\n", "Che\u200bss", "Chess ", "\u202essehC"):
        assert fill("turnout x --game GAME_NAME", RunbookSubject("/e", game_name=name)).missing == ("GAME_NAME",)
    assert fill("turnout groups run GROUP", RunbookSubject("/e", group="a b")).missing == ("GROUP",)


def test_a_runbook_for_everybody_is_html_without_a_fleet() -> None:
    """The page of those without a token has its steps as a list, escaped words, and links to other runbooks only."""
    text = "# <b>X\n\n## Mitigation\n\n1. See [Y](turnoutgroupdown.md) & `a <i>`.\n2. [Z](../steering.md#x)\n"
    page = static.page(parse(text), "turnoutx")
    assert "<h1>&lt;b&gt;X</h1>" in page
    assert (
        '<ol start="1"><li>See <a href="/runbooks/turnoutgroupdown">Y</a> &amp; <code>a &lt;i&gt;</code>.</li>' in page
    )
    assert "<li>Z</li></ol>" in page
    assert "steering" not in page
    for name in ALL:
        assert html.unescape(static.page(parse(shelf.texts()[name]), name)).count("<script") == 0
