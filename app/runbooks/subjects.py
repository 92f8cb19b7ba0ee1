"""What a runbook is filled with: names of its link, of an incident, and of alerts that fire. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from app.runbooks.document import Runbook
from app.runbooks.filling import RunbookSubject, fill
from pipeline.health.incidents.incidents import Incident

PARAMS: Final = {
    "game": "GAME",
    "group": "GROUP",
    "edge": "EDGE",
    "derived": "DERIVED",
    "registry": "REGISTRY",
    "operation": "ID",
}
"""Parameters of the page's URL, and the words of runbooks that they are for."""

_SAME: Final = {"KEY": "GAME", "GAME_NAME": "GAME"}


@dataclass(frozen=True, slots=True)
class Known:
    """What is there: a link that names something else is reported. None: nobody can say what is there."""

    games: Mapping[str, str] | None  # names by key
    groups: Mapping[str, str | None]  # the group of each game
    operations: Sequence[str] = ()  # those that need a person, by the beginning of their ids


def words(runbook: Runbook) -> list[str]:
    """Return the parameters that a runbook's commands and its page need."""
    spans = (span for section in runbook.sections for block in section.blocks for span in block.spans)
    codes = [runbook.page, *(span.text for span in spans if span.kind == "code")]
    missing = {_SAME.get(word, word) for code in codes for word in fill(code, RunbookSubject()).missing}
    return [param for param, word in PARAMS.items() if word in missing]


def candidates(
    linked: Mapping[str, str], incident: Incident | None, alerts: Iterable[Mapping[str, str]], known: Known
) -> dict[str, list[str]]:
    """Return what each parameter may be for this incident, the first of it first; the link's own value before all.

    Args:
        linked: what the link names, by parameter.
        incident: the one that the link names.
        alerts: the subjects of those alerts of the runbook that fire or are pending.
        known: what is there.
    """
    found: dict[str, list[str]] = {param: [] for param in PARAMS}
    subjects = [linked, *([] if incident is None else _of_incident(incident)), *alerts]
    for subject in subjects:
        for param, value in subject.items():
            if param in found and value and value not in found[param] and _is_there(param, value, known):
                found[param].append(value)
    if not found["group"]:
        groups = (known.groups.get(key) for key in found["game"][:1])
        found["group"] = [each for each in groups if each is not None]
    found["operation"] = found["operation"] or list(known.operations)
    return found


def _of_incident(incident: Incident) -> list[Mapping[str, str]]:
    group = {} if incident.group is None else {"group": incident.group}
    return [{"game": key, **group} for key in incident.games] or [group]


def _is_there(param: str, value: str, known: Known) -> bool:
    return param != "game" or known.games is None or value in known.games
