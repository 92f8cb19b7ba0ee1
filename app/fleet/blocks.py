"""The cells of the status grid: a block per group, in which a game keeps its place while it is there.

Pure.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from app import formatting
from app.components.group_load import why_unknown
from app.fleet.incidents import reason
from app.look.grid import Block, GridCell
from app.look.tokens import Tone
from app.state.situations import counted, situation
from listeners.status import Status
from pipeline.health.facts.fleet import Fleet, GameRow
from pipeline.health.headlines.standings import Situation
from pipeline.health.incidents.incidents import Incident

_LONGEST: Final = 120  # characters of a note


def blocks(
    fleet: Fleet, rows: Sequence[GameRow], loads: Mapping[str, str], incidents: Sequence[Incident], *, stale: bool
) -> list[Block]:
    """Return the groups by name, those without a game left out; a filter hides cells, and no trouble from a head."""
    known = situation(fleet, incidents)
    opened = known.incident_of
    cells: dict[str | None, list[GridCell]] = {}
    for row in sorted(rows, key=lambda row: (row.group is None, row.group or "", row.game.casefold(), row.game_key)):
        incident = opened.get(row.game_key)
        note = (incident.finding.title if incident is not None else reason(row)) or ""
        mark = _mark(row, known)
        since = row.verdict.since if mark is None or incident is None else incident.since
        said = formatting.shown(note, _LONGEST) if note else ""
        cells.setdefault(row.group, []).append(GridCell(row.game_key, row.game, row.verdict.status, since, said, mark))
    return [
        Block(
            "no group" if group is None else f"group {formatting.shown(group, 40)}",
            _well([row for row in fleet.rows if row.group == group], known, stale=stale),
            "" if group is None else _load(fleet, group, loads.get(group, "")),
            members,
        )
        for group, members in cells.items()
    ]


def _load(fleet: Fleet, group: str, said: str) -> str:
    """Return a group's load; that of a driver which does not run yet, or no more, is not known, whatever was read."""
    return said if said and not why_unknown(fleet, group, 0.0) else f"load {formatting.UNKNOWN_VALUE}"


def summary(fleet: Fleet, made: Sequence[Block], *, stale: bool) -> str:
    """Say the grid in a sentence, for people who do not see it."""
    if stale:
        return f"One cell per game, by group. Nothing is known of {formatting.count(len(fleet.rows))} games."
    marked = sum(cell.mark is not None for block in made for cell in block.cells)
    more = f" {formatting.count(marked)} of the running ones in an open incident." if marked else ""
    return f"One cell per game, by group. {fleet.judgement.streams(is_calm=not marked)}.{more}"


def _mark(row: GameRow, known: Situation) -> Tone | None:
    """Return the tone of a game whose stream runs, and which is not well, such as by an incident of refused rows."""
    return known.severity_of(row) if row.verdict.status == Status.RUNNING else None


def _well(members: Sequence[GameRow], known: Situation, *, stale: bool) -> str:
    """Return how many of a group are as they should be."""
    return f"{formatting.count(len(members))} unknown" if stale else counted(members, known).words
