"""What is said where a repair cannot be done, by several of them."""

from pipeline.errors import Refused, first_line


def unreadable(key: str, error: Exception) -> Refused:
    """Return why a game's table cannot be opened: the first line of the error."""
    return Refused(
        f"The table of {key} cannot be opened: {first_line(error)}. Repair its Delta log, then try again. "
        f"Where the log is damaged, `turnout repair rebuild {key}` makes the table again."
    )
