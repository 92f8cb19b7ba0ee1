"""Chooses the games that the Fleet page lists, their order, and a name for each that no other game has.

Pure. Worst first is by status, then by when it began; healthy games stand by name, so that no number moves a row.
"""

import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from app import formatting
from listeners.status import Status
from pipeline.health.facts.fleet import GameRow

NO_GROUP: Final = "(no group)"
"""Stands for the group of games that have none."""

SORTS: Final[Mapping[str, str]] = {"worst": "worst first", "name": "by name", "backlog": "oldest backlog first"}
"""The orders there are, by their name in the URL."""

# Letters that look like those of the Latin alphabet: names that differ by them alone get their keys beside them.
_ALIKE: Final = str.maketrans(
    "\u0410\u0412\u0415\u041a\u041c\u041d\u041e\u0420\u0421\u0422\u0425\u0430\u0435\u0456\u0458\u043e"
    "\u0440\u0441\u0443\u0445\u0455\u0391\u0392\u0395\u0396\u0397\u0399\u039a\u039c\u039d\u039f\u03a1"
    "\u03a4\u03a5\u03a7\u03bf\u03bd\u03c1",
    "ABEKMHOPCTXaeijopcyxsABEZHIKMNOPTYXovp",
)

_DOT: Final = "·"  # between a name and its key


@dataclass(frozen=True, slots=True)
class Choice:
    """The filters and the order that a person chose; nothing chosen means all."""

    statuses: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()
    text: str = ""
    trouble: bool = False
    sort: str = "worst"


def chosen(rows: Sequence[GameRow], choice: Choice, involved: frozenset[str] = frozenset()) -> list[GameRow]:
    """Return the games that pass, in the chosen order; `involved` are those of open incidents, also if they run."""
    text = choice.text.strip().casefold()
    passing = [
        row
        for row in rows
        if (not choice.statuses or row.verdict.status in choice.statuses)
        and (not choice.groups or (row.group or NO_GROUP) in choice.groups)
        and (row.in_trouble or row.game_key in involved or not choice.trouble)
        and (not text or text in formatting.shown(row.game).casefold() or text in row.game_key)
    ]
    if choice.sort == "name":
        return sorted(passing, key=_by_name)
    if choice.sort == "backlog":
        return sorted(passing, key=lambda row: (-_lag(row), *_by_name(row)))
    return sorted(passing, key=lambda row: _worst_first(row, involved))


def counts(rows: Sequence[GameRow]) -> dict[str, int]:
    """Return how many games are in each status that occurs, worst first."""
    counted = Counter(row.verdict.status for row in rows)
    return {status: counted[status] for status in reversed(Status) if counted[status]}


def labels(rows: Sequence[GameRow]) -> dict[str, str]:
    """Return a unique text for each game by its key: its name, with the key where names look alike."""
    shown = {row.game_key: formatting.shown(row.game, 60) for row in rows}
    exact = {row.game_key: row.game for row in rows}
    looks = {key: _look(name) for key, name in shown.items()}
    often = Counter(looks.values())
    plain = {
        key
        for key, name in shown.items()
        if often[looks[key]] == 1 and _DOT not in name and name == exact[key]  # nobody can take another one's text
    }
    return {key: name if key in plain else f"{name} {_DOT} {key}" for key, name in shown.items()}


def _look(name: str) -> str:
    """Return what a name looks like: the same for names that people take for one another."""
    return "".join(unicodedata.normalize("NFKC", name).translate(_ALIKE).casefold().split())


def _worst_first(row: GameRow, involved: frozenset[str]) -> tuple[int, bool, float, str, str]:
    since, in_trouble = row.verdict.since, row.in_trouble
    # Only trouble is ordered by time: when it began does not change, and an unknown beginning comes last.
    began = (since if since is not None else float("inf")) if in_trouble else 0.0
    severity = row.verdict.status.severity
    if row.game_key in involved and not in_trouble:
        severity = Status.AT_RISK.severity - 1
    return (-severity, row.game_key not in involved, began, *_by_name(row))


def _by_name(row: GameRow) -> tuple[str, str]:
    return row.game.casefold(), row.game_key


def _lag(row: GameRow) -> float:
    """Return the backlog to order by; an unknown one comes first, as it may be any."""
    return float("inf") if row.lag_seconds is None else row.lag_seconds
