"""Finds in what Spark, the JVM and Python say of a failure the line that names its cause. Pure."""

import re
from collections.abc import Iterator, Sequence
from typing import Final

_LIMIT: Final = 500
_TRACEBACK: Final = "Traceback (most recent call last):"
_QUERY: Final = "=== Streaming Query ==="  # below it Spark describes the query, not the failure
_OURS: Final = re.compile(r"^pipeline\.errors\.\w+: ")  # what these say is a sentence for people


def innermost(text: str) -> str:
    """Return the line that names the innermost cause; the first line where there is no stack."""
    lines = text.partition(_QUERY)[0].splitlines()
    first = (line.strip() for line in lines if line.strip())
    cause = next(reversed([*_causes(lines)]), None) or next(first, "no reason given")
    return _OURS.sub("", cause)[:_LIMIT]


def _causes(lines: Sequence[str]) -> Iterator[str]:
    """Yield the line of each exception in stacks of Python and the JVM, one within the other, the outermost first."""
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
            if ": " in cause:  # a bare class, such as an EOFException below a worker that died, says less
                yield cause
