"""All that is wrong with a text, collected with line numbers and reported in one refusal."""

from bisect import bisect_left
from typing import Final

from pipeline.base.errors import Refused
from pipeline.base.texts import first_lines

_MAX_SHOWN: Final = 50
_LONGEST: Final = 80


class Problems:
    """What is wrong with one text so far."""

    def __init__(self, subject: str) -> None:
        self._subject = subject
        self._found: list[tuple[int, str]] = []

    def add(self, line: int, sentence: str) -> None:
        """Note one problem; lines count from 1."""
        self._found.append((line, sentence))

    def refuse(self) -> None:
        """Raise all problems in the order of their lines.

        Raises:
            Refused: there are some.
        """
        if not self._found:
            return
        problems = sorted(set(self._found))
        shown = first_lines(problems, _MAX_SHOWN, lambda each: f"line {each[0]}: {each[1]}")
        listed = "\n".join(f"  - {each}" for each in shown)
        raise Refused(f"{len(problems)} problem(s) in {self._subject}, correct them there:\n{listed}")


class Lines:
    """Which line of a text a position is in."""

    def __init__(self, text: str) -> None:
        self._ends = [position for position, char in enumerate(text) if char == "\n"]

    def at(self, position: int) -> int:
        """Return the line, counted from 1."""
        return bisect_left(self._ends, position) + 1


def shown(text: str) -> str:
    """Return a text as a sentence shows it: in quotes, on one line, cut where it is long."""
    return repr(text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…")
