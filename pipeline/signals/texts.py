"""The texts of findings: names and messages escaped and cut, what a cause is not, findings with titles. Pure."""

from collections.abc import Sequence
from typing import Final

from pipeline.names import plain
from pipeline.signals.causes import Action, Cause, Finding
from pipeline.signals.evidence import Evidence, GameWindow, GroupWindow

MAX_NAME: Final = 40
_MAX_TEXT: Final = 200


def of_game(  # noqa: PLR0913 - the parts of a finding
    cause: Cause, pattern: str, window: GameWindow, evidence: Sequence[str], excludes: tuple[str, ...],
    action: Action | None, runbook: str | None, *, scope: str = "", is_fact: bool = False,
) -> Finding:  # fmt: skip
    """Return a finding about one game, with {} for its name in the title's pattern."""
    title = pattern.replace("{}", name_of(window), 1)
    return Finding(cause, title, tuple(evidence), excludes, action, runbook, pattern, scope, is_fact)


def of_group(
    cause: Cause, title: str, group: GroupWindow, evidence: Sequence[str], all_of: Evidence,
    runbook: str, *, label: str = "Restart group…", is_fact: bool = False,
) -> Finding:  # fmt: skip
    """Return a finding about all games of a group."""
    name = group.seen.name
    others = [each for each in all_of.groups.values() if each.seen.name != name]
    well = sum(not each.troubled and each.seen.liveness.is_live for each in others)
    excludes = (_others(well, len(others)),) if others else ()
    action = Action(label, "groups", {"steer": name})
    return of_all(
        cause, title, (*evidence, f"{group.games} games in the group"), (*excludes, source_text(all_of)), action,
        runbook, scope=f"group {name}", is_fact=is_fact,
    )  # fmt: skip


def _others(well: int, number: int) -> str:
    if well == number:
        return "the other group is well" if number == 1 else f"the {number} other groups are well"
    return f"{well} of {number} other groups {'is' if well == 1 else 'are'} well"


def of_all(
    cause: Cause, title: str, evidence: Sequence[str], excludes: tuple[str, ...],
    action: Action | None, runbook: str | None, *, scope: str, is_fact: bool = False,
) -> Finding:  # fmt: skip
    """Return a finding whose title names no game."""
    return Finding(cause, title, tuple(evidence), excludes, action, runbook, title, scope, is_fact)


def name_of(window: GameWindow) -> str:
    """Return a game's name for a text: escaped, and cut when long."""
    return cut(window.seen.game, MAX_NAME)


def neighbours(group: GroupWindow | None, evidence: Evidence) -> tuple[str, ...]:
    """Return how the other games of its group are, or else the source."""
    if group is None or group.games < 2:
        return (source_text(evidence),)
    others = group.games - 1
    ill = max(group.troubled - 1, 0)
    if not ill:
        noun = "neighbour is" if others == 1 else "neighbours are"
        return (f"its {others:,} {noun} well",)
    return (f"{others - ill:,} of its {others:,} neighbours are well",)


def source_text(evidence: Evidence) -> str:
    """Return how the source is."""
    condition = evidence.source.seen.condition
    return {"level": "the source is level", "behind": "the source is nearly level"}.get(
        condition, f"the source is {condition}"
    )


def times_usual(now: float | None, usual: float | None) -> str | None:
    """Return how many times the usual it is now; None where one is unknown."""
    return None if now is None or not usual else f"{now / usual:.1f} times the usual"


def percent(share: float) -> str:
    """Return a share for people."""
    return f"{share:.0%}" if share >= 0.01 else f"{share:.2%}"


def cut(text: str, most: int = _MAX_TEXT) -> str:
    """Return a foreign text on one line: escaped, and cut when long."""
    one_line = plain(" ".join(text.split()))
    return one_line if len(one_line) <= most else f"{one_line[: most - 1]}…"
