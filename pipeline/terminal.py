"""Where commands print: nothing in a name, a reason or an error acts on a terminal, or hides in it."""

import io
import logging
import os
import sys

import click

from pipeline.errors import Transient
from pipeline.names import plain


def say(line: str, *, err: bool = False) -> None:
    """Print one line; control, direction and other invisible characters are escaped, line breaks among them."""
    _print(plain(line), err=err)


def say_lines(text: str, *, err: bool = False) -> None:
    """Print lines that are one text already: as `say`, but their line breaks stand."""
    _print(_plain_lines(text), err=err)


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


def _plain_lines(text: str) -> str:
    return "\n".join(plain(line) for line in text.split("\n"))
