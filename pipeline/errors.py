"""The two families of errors: `Refused` tells a person what to do, `Transient` may be tried again."""


class Refused(Exception):
    """A request, name or setting that cannot be accepted; the message says what and what to do."""


class Transient(Exception):
    """A failure outside of our control that may pass; the caller retries with a budget."""


def first_line(error: Exception) -> str:
    """Return the first line of what a library says: further ones are its own stack. Its class, if it says nothing."""
    return next(iter(str(error).splitlines()), type(error).__name__)
