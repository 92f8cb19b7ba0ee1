"""Error texts that several repairs share."""

from pipeline.base.errors import Refused, first_line


def unreadable(key: str, error: Exception) -> Refused:
    """Return why a game's table cannot be opened: the first line of the error, and the fix."""
    return Refused(
        f"The table of {key} cannot be opened: {first_line(error)}. Repair its Delta log, then try again. If the log "
        f"is damaged, run `turnout repair rebuild {key}`."
    )
