"""The families of errors: `Refused` shows a person what to do, `Transient` may be retried, `Conflict` lost a race."""


class Refused(Exception):
    """A request, name or setting that cannot be accepted; the message says what and what to do."""


class Transient(Exception):
    """A failure outside of our control that may pass; the caller retries with a budget."""


class Conflict(Exception):
    """Another writer changed what a change was based on, since it was read; nothing of the change was written.

    Each subclass names what was changed. The caller reads again, and then retries, refuses or finds the change done;
    none is caught by this class, so that a conflict over one thing is never taken for one over another.
    """


def is_panic(error: BaseException) -> bool:
    """Tell whether a library written in Rust panicked: its exception is no Exception, and known by its name only."""
    return type(error).__name__ == "PanicException"


def first_line(error: Exception) -> str:
    """Return the first line of what a library says, or its class; below it are its own stack or a statement.

    An error of SQLAlchemy's says what its driver's says.
    """
    return next(iter(str(getattr(error, "orig", None) or error).splitlines()), type(error).__name__)
