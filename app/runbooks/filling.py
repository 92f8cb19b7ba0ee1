"""Fills a runbook's words with the names of one incident, so that its commands can be pasted. Pure.

Names are hostile. In a command stands a game's key, never its name, but where the command takes no key; every value is
quoted for a POSIX shell. A value with letters that nobody sees is not filled in: a terminal may act on them before the
shell reads the quotes.
"""

import re
import shlex
from dataclasses import dataclass
from typing import Final

from app import formatting
from app.runbooks.document import is_command

_NAMED: Final = " --env-dir DIR"
_TOKEN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")

_FIELDS: Final = {
    "DIR": "folder",
    "<env-dir>": "folder",
    "GAME": "game",
    "KEY": "game",
    "GAME_NAME": "game_name",
    "GROUP": "group",
    "EDGE": "edge",
    "DERIVED": "derived",
    "REGISTRY": "registry",
    "ID": "operation",
}
"""What a runbook says for a name of the incident, and the field of `RunbookSubject` that has it."""

CHOICES: Final = ("WHY", "FILE", "DAY", "N", "HOST:PORT", "MESSAGE", "TYPE", "OTHER_GROUP", "FOLDER")
"""What a runbook says for what a person chooses."""

_WORD: Final = re.compile(r"<env-dir>|\b(?:DIR|GAME_NAME|GAME|KEY|GROUP|EDGE|DERIVED|REGISTRY|ID)\b")
_CHOICE: Final = re.compile(rf"(?<![\w-])(?:{'|'.join(CHOICES)})(?![\w:])")
_ANY_LETTERS: Final = frozenset({"folder", "game_name"})


@dataclass(frozen=True, slots=True)
class RunbookSubject:
    """What one incident is about; None is not known, or not of this incident."""

    folder: str | None = None  # of the environment
    game: str | None = None  # its key
    game_name: str | None = None
    group: str | None = None
    edge: str | None = None
    derived: str | None = None
    registry: str | None = None
    operation: str | None = None  # the beginning of its id

    def value(self, word: str) -> str | None:
        """Return what stands for a word of a runbook; None where it is not known, or cannot be seen whole."""
        field = _FIELDS[word]
        value: str | None = getattr(self, field)
        if value is None or formatting.exact(value, len(value) + 2) != value:
            return None
        return value if field in _ANY_LETTERS or _TOKEN.fullmatch(value) else None


@dataclass(frozen=True, slots=True)
class Filled:
    """Code with the names of an incident."""

    text: str
    missing: tuple[str, ...]  # words of which nothing is known, which stand there still
    choices: tuple[str, ...]  # words for what a person chooses


def fill(code: str, subject: RunbookSubject, *, names_environment: bool = True) -> Filled:
    """Return code with the incident's names, quoted where it is a command.

    With `names_environment` a command of turnout names the environment, else it does not.
    """
    quoted, missing = is_command(code), []
    if quoted and code.startswith("turnout "):
        code = code.replace(_NAMED, "") + (_NAMED if names_environment else "")
    choices = tuple(dict.fromkeys(_CHOICE.findall(code))) if quoted else ()

    def filled(found: re.Match[str]) -> str:
        value = subject.value(found[0])
        if value is None:
            missing.append(found[0])
            return found[0]
        return shlex.quote(value) if quoted else value

    text = _WORD.sub(filled, code)
    return Filled(text, tuple(dict.fromkeys(missing)), choices)
