"""Where commands print: nothing in a name, a reason or an error acts on a terminal, or hides in it."""

import io
import json
import logging
import math
import os
import sys
from collections.abc import Mapping

import click

from pipeline.errors import Transient
from pipeline.names import plain


def say(line: str, *, err: bool = False) -> None:
    """Print one line; control, direction and other invisible characters are escaped, line breaks among them."""
    _print(plain(line), err=err)


def say_lines(text: str, *, err: bool = False) -> None:
    """Print lines that are one text already: as `say`, but their line breaks stand."""
    _print(_plain_lines(text), err=err)


def say_json(value: object) -> None:
    """Print one line of JSON as every parser reads it.

    NaN and the infinities, which JSON has no numbers for, are the strings of protobuf's JSON mapping: "NaN",
    "Infinity", "-Infinity". What JSON has no type for, such as a time, is its text.
    """
    _print(plain(json.dumps(_finite(value), default=str, allow_nan=False)), err=False)


def escape_what_cannot_be_encoded() -> None:
    """Let what the output's encoding lacks be printed as escapes: what has changed something must not fail."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # None where it is closed
            stream.reconfigure(errors="backslashreplace")


class PlainFormatter(logging.Formatter):
    """Formats a log record as `say_lines` prints."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record's text, with a traceback below it."""
        return _plain_lines(super().format(record))


def _print(text: str, *, err: bool) -> None:
    try:
        click.echo(text, err=err)
    except BrokenPipeError:  # click ends the command quietly
        raise
    except OSError as error:
        if not err and sys.stdout is not None:  # what is left in its buffer would fail again at the end
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise Transient(f"The output cannot be written: {error.strerror}. Send it to another place.") from error


def _finite(value: object) -> object:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Mapping):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return value


def _plain_lines(text: str) -> str:
    return "\n".join(plain(line) for line in text.split("\n"))
