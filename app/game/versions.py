"""The last schema versions of a game in a line each: what changed, when, by whom, whether its rows land."""

from typing import Final

from app import formatting
from app.schemas import queries
from app.state.services import Environment
from pipeline.api.versions import GameVersions, Version
from pipeline.base.errors import Refused, first_line
from pipeline.base.texts import join_limited, short_moment

MOST: Final = 4
_WORDS: Final = 2  # changes that are said of a version


def lines(environment: Environment, game: GameVersions, now: float) -> list[tuple[str, str]]:
    """Return (version with its glyph, words) of the newest versions."""
    refusing = {each.version for each in game.quarantined}
    shown = []
    for place in range(len(game.versions) - 1, max(-1, len(game.versions) - 1 - MOST), -1):
        each = game.versions[place]
        before = game.versions[place - 1] if place else None
        by = "" if each.registered_by is None else f" by {formatting.shown(each.registered_by, 40)}"
        parts = [_change(environment, before, each), f"{_when(each.created_at, now)}{by}"]
        if each.version in refusing:
            parts.append("its rows are refused")
        glyph = "✗" if each.version in refusing else "✓"
        shown.append((f"{each.version} {glyph}", " · ".join(parts)))
    return shown


def _when(at: float, now: float) -> str:
    return f"{formatting.age(now - at)} ago" if now - at < 86_400 else short_moment(at, now)


def _change(environment: Environment, before: Version | None, each: Version) -> str:
    """Say what a version changed; where its definition cannot be read, why."""
    if before is None:
        return "first version"
    try:
        found = queries.comparison(environment, before, each)
    except Refused as refused:
        return formatting.shown(f"{queries.UNREADABLE}: {first_line(refused)}", 80)
    if not found.changes:
        return f"same fields as version {before.version}"  # such as one that is registered again, to another column
    return join_limited([str(step) for step in found.changes], _WORDS, lambda text: formatting.shown(text, 60))
