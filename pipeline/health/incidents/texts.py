"""The texts of findings: names and messages escaped and cut, what a cause is not, findings with titles. Pure."""

from collections.abc import Sequence
from typing import Final

from pipeline.base.names import plain
from pipeline.base.texts import some_are
from pipeline.health.incidents.causes import Action, Finding
from pipeline.health.incidents.evidence import Evidence, GameWindow, GroupWindow
from pipeline.store.database.states import Cause

MAX_NAME: Final = 40
_MAX_TEXT: Final = 200


def of_game(  # noqa: PLR0913 - the parts of a finding
    cause: Cause, pattern: str, window: GameWindow, evidence: Sequence[str], excludes: tuple[str, ...],
    action: Action | None, runbook: str | None, *, scope: str = "", is_fact: bool = False, past: str | None = None,
) -> Finding:  # fmt: skip
    """Return a finding about one game, with {} for its name in the title's pattern, and in that of its past."""
    title = pattern.replace("{}", name_of(window), 1)
    return Finding(cause, title, tuple(evidence), excludes, action, runbook, pattern, scope, is_fact, past=past)


def of_group(  # noqa: PLR0913 - the parts of a finding
    cause: Cause, title: str, group: GroupWindow, evidence: Sequence[str], all_of: Evidence,
    runbook: str, *, restarts: bool = True, is_fact: bool = False, past: str | None = None,
) -> Finding:  # fmt: skip
    """Return a finding about all games of a group, with its restart as the next action, or else a move."""
    name = group.seen.name
    others = [each for each in all_of.groups.values() if each.seen.name != name]
    ill = sum(each.troubled > 0 or not each.seen.liveness.is_live for each in others)
    evidence = [*evidence, f"{group.games} games in the group"]
    excludes = source_is_well(all_of)
    if ill:
        which = "the other group" if len(others) == 1 else f"{ill:,} of {len(others):,} other groups"
        which = f"all {len(others):,} other groups" if ill == len(others) > 1 else which
        evidence.append(f"{which} {'is' if ill == 1 else 'are'} in trouble, too")
    elif others:
        well = "the other group is" if len(others) == 1 else f"the {len(others):,} other groups are"
        excludes = (f"{well} well", *excludes)
    restart = Action("Restart group…", "groups", {"steer": name, "do": "restart"})
    action = restart if restarts else Action("Plan a move…", "groups", {"steer": name})
    return of_all(
        cause, title, (*evidence, *source_trouble(all_of)), excludes, action, runbook, scope=f"group {name}",
        is_fact=is_fact, past=past,
    )  # fmt: skip


def of_all(  # noqa: PLR0913 - the parts of a finding
    cause: Cause, title: str, evidence: Sequence[str], excludes: tuple[str, ...],
    action: Action | None, runbook: str | None, *, scope: str, is_fact: bool = False, past: str | None = None,
) -> Finding:  # fmt: skip
    """Return a finding whose title names no game."""
    return Finding(cause, title, tuple(evidence), excludes, action, runbook, title, scope, is_fact, past=past)


def name_of(window: GameWindow) -> str:
    """Return a game's name for a text: escaped, and cut when long."""
    return cut(window.seen.game, MAX_NAME)


def neighbours(window: GameWindow, group: GroupWindow | None, evidence: Evidence) -> tuple[str, ...]:
    """Return that the other games of its group are well, as what a cause is not; of a game alone, that the source is.

    Nothing where some are not well: that is no evidence against a shared cause, and `troubled_neighbours` says it.
    """
    if group is None or group.games < 2:
        return source_is_well(evidence)
    if _troubled_others(window, group):
        return ()
    others = group.games - 1
    return (f"its {others:,} {'neighbour is' if others == 1 else 'neighbours are'} well",)


def troubled_neighbours(window: GameWindow, group: GroupWindow | None) -> tuple[str, ...]:
    """Return how many of the other games of its group are in trouble, as evidence; nothing where none is."""
    ill = 0 if group is None else _troubled_others(window, group)
    if group is None or not ill:
        return ()
    return (f"{some_are(ill, group.games - 1, 'neighbour')} in trouble, too",)


def _troubled_others(window: GameWindow, group: GroupWindow) -> int:
    """Return how many of the other games of its group are in trouble of their own."""
    seen = window.seen
    return group.troubled - (seen.in_trouble and not seen.waits_for_ingest)


def source_is_well(evidence: Evidence) -> tuple[str, ...]:
    """Return that the source is well, as what a cause is not; nothing where it is late or unknown."""
    said = {"level": "the source is level", "behind": "the source is nearly level"}
    condition = evidence.source.seen.condition
    return (said[condition],) if condition in said else ()


def source_trouble(evidence: Evidence) -> tuple[str, ...]:
    """Return that the source is late or unknown, as evidence; nothing where it is well."""
    return () if source_is_well(evidence) else (f"the source is {evidence.source.seen.condition}",)


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
