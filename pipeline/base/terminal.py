"""Output of commands: names, reasons and errors can neither control a terminal nor hide text."""

import io
import json
import logging
import math
import os
import sys
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Final

import click

from pipeline.base.errors import Transient
from pipeline.base.names import plain


def say(line: str, *, err: bool = False) -> None:
    """Print one line; control, direction and other invisible characters are escaped, line breaks among them."""
    _print(plain(line), err=err)


def say_lines(text: str, *, err: bool = False) -> None:
    """Print a text of several lines: like `say`, with its line breaks."""
    _print(_plain_lines(text), err=err)


def say_json(value: object) -> None:
    """Print a value as one line of JSON that every parser reads: of a dataclass an object with its fields.

    NaN and the infinities, which JSON lacks, are the strings of protobuf's JSON mapping: "NaN", "Infinity",
    "-Infinity". Other types that JSON lacks, such as a time, are text.
    """
    _print(plain(json.dumps(rendered(value), default=str, allow_nan=False)), err=False)


def rendered(value: object) -> object:
    """Return a value in the types that JSON has; a field named like a keyword of Python has no `_` there."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name.rstrip("_"): rendered(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, Mapping):
        return {key: rendered(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [rendered(each) for each in value]
    return value


def escape_what_cannot_be_encoded() -> None:
    """Escape characters that the output's encoding lacks: a command that has changed something must not fail here."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # None when closed
            stream.reconfigure(errors="backslashreplace")


class PlainFormatter(logging.Formatter):
    """Formats a log record like `say_lines`."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record's text, with a traceback below it."""
        return _plain_lines(super().format(record))


def output_failed(error: OSError) -> Transient | None:
    """Return the message for an error of click's own printing, such as of help; None for other errors."""
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    is_printing = frame is not None and frame.tb_frame.f_code is click.echo.__code__
    return _unwritable(error) if is_printing and not isinstance(error, BrokenPipeError) else None


def _print(text: str, *, err: bool) -> None:
    try:
        click.echo(text, err=err)
    except BrokenPipeError:  # click exits without a message
        raise
    except OSError as error:
        if err:
            raise Transient(_UNWRITABLE.format(error.strerror)) from error
        raise _unwritable(error) from error


_UNWRITABLE: Final = "The output cannot be written: {}. Send it to another place."


def _unwritable(error: OSError) -> Transient:
    """Return the message for an unwritable standard output; unwritten output would fail again at the exit."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return Transient(_UNWRITABLE.format(error.strerror))


def _plain_lines(text: str) -> str:
    return "\n".join(plain(line) for line in text.split("\n"))
