"""Finds the line that names the cause in the errors of Spark, the JVM and Python. Pure."""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

_LIMIT: Final = 500
_TRACEBACK: Final = "Traceback (most recent call last):"
_QUERY: Final = "=== Streaming Query ==="  # below it Spark describes the query, not the failure
_LATE_PLANNER: Final = "Python worker failed to connect back"
_OURS: Final = re.compile(r"^pipeline\.base\.errors\.\w+: ")  # their messages are sentences for people


def innermost(text: str) -> str:
    """Return the line that names the innermost cause; the first line without a stack."""
    lines = text.partition(_QUERY)[0].splitlines()
    first = (line.strip() for line in lines if line.strip())
    cause = next(reversed([*_causes(lines)]), None) or next(first, "no reason given")
    return _OURS.sub("", cause)[:_LIMIT]


def _causes(lines: Sequence[str]) -> Iterator[str]:
    """Yield the line of each exception in nested stacks of Python and the JVM, outermost first."""
    in_traceback = False
    for line in lines:
        if line.endswith(_TRACEBACK):
            in_traceback = True
        elif in_traceback:
            if line and not line[0].isspace():
                in_traceback = False
                yield line
        elif line.startswith((": ", "Caused by: ")):  # py4j begins the JVM's stack by a colon
            cause = line.partition(": ")[2].strip()
            if ": " in cause:  # a bare class, such as an EOFException below a dead worker, is less helpful
                yield cause


def passing(text: str) -> str | None:
    """Return the sentence of an error that another start of the query soon does not meet again, None for others."""
    if _LATE_PLANNER in text:
        return "Spark's planner of the source did not start within 10 s"
    return missing_commit(text)


def missing_commit(text: str) -> str | None:
    """Return the error of a log that has a commit but not one before it, None for other errors.

    Spark and delta-rs list a log. A listing of a log with several writers may show a commit and not yet the one before
    it: the next listing has both. A commit that is really missing gives the same error.
    """
    if listed := re.search(r"Versions \(([\d, ]+)\) are not contiguous", text):
        versions = [int(each) for each in listed[1].split(",")]
        seen = next((after for before, after in pairwise(versions) if after != before + 1), versions[-1])
        missing = versions[versions.index(seen) - 1] + 1
    elif named := re.search(r"cannot resume from version (\d+); transaction log starts at (\d+)", text):
        missing, seen = int(named[1]), int(named[2])
    elif found := re.search(r"but found gap: .*?\bversion: (\d+),.* -> .*\bversion: (\d+),", text, re.DOTALL):
        missing, seen = int(found[1]) + 1, int(found[2])
    else:
        return None
    return f"The log of a Delta table has commit {seen} but not commit {missing}"
