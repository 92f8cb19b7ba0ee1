"""Guards the one line that says why a driver's query or a game's commit failed."""

import json
from pathlib import Path

import pytest

from pipeline.base.reasons import innermost

# As Spark 4.2 and Delta wrote them, with fewer frames of the JVM, and paths and ids made up.
FAILURES = json.loads((Path(__file__).parent / "failures.json").read_text("utf-8"))


@pytest.mark.parametrize(("text", "reason"), [(each["text"], each["reason"]) for each in FAILURES],
                         ids=[each["case"] for each in FAILURES])  # fmt: skip
def test_a_reason_names_the_innermost_cause(text: str, reason: str) -> None:
    """Of stacks within stacks the line of the cause counts: never a frame, a heading or the query's description."""
    assert innermost(text) == reason


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no reason given"),
        ("\n \n", "no reason given"),
        ("the table is not readable", "the table is not readable"),
        ("Traceback (most recent call last):", "Traceback (most recent call last):"),
        ("pipeline.base.errors.Refused: This is another bronze.", "This is another bronze."),
        ("x\nCaused by: java.io.EOFException", "x"),
        ("[STREAM_FAILED] the first\n\tat a.b\nCaused by: a.B: the second\n\tat c", "a.B: the second"),
        (
            "Caused by: a.PythonException: Traceback (most recent call last):\n  File x\n\nKeyError: 'seq'\n\n\tat a.b",
            "KeyError: 'seq'",
        ),
        ("y" * 1000, "y" * 500),
    ],
)
def test_a_reason_is_always_one_short_line(text: str, reason: str) -> None:
    """A text without a stack is its own reason, and no text has none."""
    assert innermost(text) == reason
