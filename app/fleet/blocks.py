"""The cells of the status grid: a block per group, in which a game keeps its place while it is there.

Pure.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from app import formatting
from app.fleet.incidents import reason
from app.look.grid import Block, Cell
from pipeline.signals.incidents import Incident
from pipeline.store.fleet import Fleet, GameRow

_LONGEST: Final = 120  # characters of a note
_WELL: Final = frozenset({"RUNNING", "PAUSED"})


def blocks(
    fleet: Fleet, rows: Sequence[GameRow], loads: Mapping[str, str], incidents: Sequence[Incident], *, stale: bool
) -> list[Block]:
    """Return the groups by name, those without a game left out; a filter hides cells, and no trouble from a head."""
    titles = {key: each.finding.title for each in incidents if each.ended_at is None for key in each.games}
    cells: dict[str | None, list[Cell]] = {}
    for row in sorted(rows, key=lambda row: (row.group is None, row.group or "", row.game.casefold(), row.game_key)):
        note = titles.get(row.game_key) or reason(row) or ""
        since = row.verdict.since
        cells.setdefault(row.group, []).append(
            Cell(row.game_key, row.game, row.verdict.status, since, formatting.shown(note, _LONGEST) if note else "")
        )
    return [
        Block(
            "no group" if group is None else f"group {formatting.shown(group, 40)}",
            _well([row for row in fleet.rows if row.group == group], stale=stale),
            "" if group is None else loads.get(group, f"load {formatting.UNKNOWN_VALUE}"),
            members,
        )
        for group, members in cells.items()
    ]


def summary(fleet: Fleet, *, stale: bool) -> str:
    """Say the grid in a sentence, for people who do not see it."""
    if stale:
        return f"One cell per game, by group. Nothing is known of {formatting.count(len(fleet.rows))} games."
    return f"One cell per game, by group. {fleet.judgement.headline}."


def _well(members: Sequence[GameRow], *, stale: bool) -> str:
    """Return how many of a group are as they should be: running, or paused on purpose."""
    if stale:
        return f"{formatting.count(len(members))} unknown"
    well = sum(row.verdict.status in _WELL for row in members)
    busy = sum(not row.in_trouble for row in members) - well
    said = f"{formatting.count(well)} well"
    if well < len(members):
        said = f"{formatting.count(well)} of {formatting.count(len(members))} well"
    return f"{said}, {formatting.count(busy)} on the way" if busy else said
