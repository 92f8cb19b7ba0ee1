"""Where commands print: nothing in a name, a reason or an error acts on a terminal, or hides in it."""

import io
import json
import logging
import math
import os
import sys
from collections.abc import Mapping
from typing import Final

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


def output_failed(error: OSError) -> Transient | None:
    """Return what to say of an error of click's own printing, such as of help; None of any other error."""
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    is_printing = frame is not None and frame.tb_frame.f_code is click.echo.__code__
    return _unwritable(error) if is_printing and not isinstance(error, BrokenPipeError) else None


def _print(text: str, *, err: bool) -> None:
    try:
        click.echo(text, err=err)
    except BrokenPipeError:  # click ends the command quietly
        raise
    except OSError as error:
        if err:
            raise Transient(_UNWRITABLE.format(error.strerror)) from error
        raise _unwritable(error) from error


_UNWRITABLE: Final = "The output cannot be written: {}. Send it to another place."


def _unwritable(error: OSError) -> Transient:
    """Return what to say where standard output cannot be written; what is left in its buffer would fail at the end."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return Transient(_UNWRITABLE.format(error.strerror))


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
