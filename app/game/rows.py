"""The last rows of a game, no deeper than the viewer may see; `sight.py` decides that before anything is read."""

from dataclasses import dataclass

from app.game.sight import Sight, note_look, sight
from app.gate import Person
from app.state import services
from app.state.services import Environment, kept
from pipeline.api import rows
from pipeline.api.rows import MOST_ROWS, Depth, FoundRows, LastRow, LocalRegistry, RowKind

__all__ = ["MOST_ROWS", "LastRow", "LastRows", "last_rows"]


@dataclass(frozen=True, slots=True)
class LastRows:
    """The last rows of a game, newest first, read at one moment (Unix seconds)."""

    rows: tuple[LastRow, ...]
    complete: bool  # False: older files may hold more and were not read
    files: int  # that were read
    sight: Sight
    read_at: float


def last_rows(environment: Environment, key: str, kind: RowKind, limit: int, actor: Person) -> LastRows:
    """Read the last rows of a game for a person who looks, at most 10 s old.

    Raises:
        Refused: no such game is known, its rows or the control store cannot be read, or a look at values cannot be
            written into the audit log.
    """
    seen = sight(environment, key, kind, actor)
    note_look(environment, key, kind, actor, seen)
    found = _read(environment, key, kind, min(limit, MOST_ROWS), seen.depth)
    return LastRows(found.rows, found.complete, found.files, seen, found.read_at)


@kept(seconds=10, most=100)
def _read(environment: Environment, key: str, kind: RowKind, limit: int, depth: Depth) -> FoundRows:
    """Read them; a reading is kept for each depth apart."""
    return rows.read(services.opened(environment), _registry(environment), key, kind, limit, depth)


@kept()
def _registry(environment: Environment) -> LocalRegistry:
    return rows.open_registry(services.opened(environment))
