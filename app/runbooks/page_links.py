"""Which page does what a runbook's command does, or shows what it prints. Pure.

Values go into the query of a link, never through a text that is parsed again.
"""

from collections.abc import Callable, Mapping
from typing import Final

from app.runbooks.filling import RunbookSubject
from app.runbooks.subjects import PARAMS
from pipeline.health.incidents.causes import Action

_Make = Callable[[RunbookSubject, str], Action | None]


def page_of(command: str, subject: RunbookSubject) -> Action | None:
    """Return the link for a command as the runbook has it, before its words are filled; None where no page does it."""
    program, _, rest = command.partition(" ")
    words = tuple(rest.split()[:2])
    if program != "turnout" or not words:
        return None
    make = _PAGES.get(" ".join(words)) or _PAGES.get(words[0])
    return None if make is None else make(subject, words[-1])


def _at(label: str, page: str, **query: str) -> _Make:
    return lambda _subject, _verb: Action(label, page, query)


def _group(subject: RunbookSubject, verb: str) -> Action | None:
    """Offer, for a group, what the command does to it."""
    if subject.group is None:
        return Action("Open groups", "groups")
    return Action(f"{verb.capitalize()} group…", "groups", {"steer": subject.group, "do": verb})


def _open_group(subject: RunbookSubject, _verb: str) -> Action | None:
    return Action("Open groups", "groups", {} if subject.group is None else {"steer": subject.group})


def _repair(subject: RunbookSubject, verb: str) -> Action | None:
    if subject.game is None:
        return Action("Open repairs", "repairs", {"repair": verb})
    return Action(f"{verb.capitalize()}…", "repairs", {"repair": verb, "games": subject.game})


def _move(subject: RunbookSubject, _verb: str) -> Action | None:
    return Action("Plan a move…", "groups", {} if subject.game is None else {"games": subject.game})


def _operation(subject: RunbookSubject, _verb: str) -> Action | None:
    if subject.operation is None:
        return Action("Open operations", "operations")
    return Action("Open operation", "operations", {"operation": subject.operation})


def _game(label: str, **query: str) -> _Make:
    """Lead to the page of the incident's game; nowhere where there is none."""

    def made(subject: RunbookSubject, _verb: str) -> Action | None:
        return None if subject.game is None else Action(label, "game", {"game": subject.game, **query})

    return made


def _schemas(subject: RunbookSubject, _verb: str) -> Action | None:
    return Action("Open schemas", "schemas", {} if subject.game is None else {"game": subject.game})


_PAGES: Final[Mapping[str, _Make]] = {
    "status": _at("Open fleet", "fleet"),
    "incidents": _at("Open fleet", "fleet"),
    "audit": _at("Open audit", "audit"),
    "groups": _open_group,
    **{f"groups {verb}": _group for verb in ("restart", "start", "stop", "drain")},
    "move": _move,
    "ops": _operation,
    "ops list": _at("Open operations", "operations"),
    "repair actions": _game("Open game"),
    **{f"repair {verb}": _repair for verb in ("retry", "replay", "rebuild")},
    "schemas": _schemas,
    "quarantine": _game("Look at refused rows", rows="refused"),
    "contracts": _game("Look at its contract", rows="contract"),
    "derived": _game("Look at derived streams", rows="derived"),
    "books": _at("Open books", "books"),
    "grants": _at("Open access", "access"),
}


def subject_query(row_id: str, query: Mapping[str, str | tuple[str, ...]]) -> dict[str, str]:
    """Return what a line of the page Fleet is about, for the link to its runbook.

    Args:
        row_id: names the incident, or the kind and the name of a process in trouble.
        query: of the line's button.
    """
    kind, _, name = row_id.partition("_")
    if kind == "incident":
        return {"incident": name}
    process, _, its_name = name.partition("_")
    if kind == "problem":
        return {process: its_name} if process in PARAMS else {}
    known = {"game": query.get("game"), "group": query.get("group")}
    return {param: value for param, value in known.items() if isinstance(value, str)}
