"""The families of errors: `Refused` tells a person the fix, `Transient` may be retried, `Conflict` lost a race."""


class Refused(Exception):
    """A request, name or setting that turnout cannot accept; the message has the reason and the fix."""


class Transient(Exception):
    """An outside failure that may pass; the caller retries with a budget."""


class Unclear(Transient):
    """No answer came: whether the request took effect is not known."""


class StorageError(OSError):
    """An object store does not serve; the message has the place and the reason. Files of a machine raise OSError."""


class Conflict(Exception):
    """Another writer has changed the base of a change since it was read; nothing of the change was written.

    Each subclass names the thing that changed. The caller reads again, and then retries, refuses or finds the change
    done. No handler catches this class, so that a conflict over one thing never passes for one over another.
    """


def is_panic(error: BaseException) -> bool:
    """Return whether a library written in Rust panicked: its exception is a BaseException, known by its name only."""
    return type(error).__name__ == "PanicException"


def first_line(error: Exception) -> str:
    """Return the first line of a library's error, or its class; the lines below are its stack or a statement.

    For an error of SQLAlchemy, its driver's message.
    """
    return next(iter(str(getattr(error, "orig", None) or error).splitlines()), type(error).__name__)
