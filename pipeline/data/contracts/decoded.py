"""The outcome of decoding payloads, the same for every format."""

from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

MAX_PAYLOAD_BYTES: Final = 1024 * 1024
"""Largest payload that is decoded."""

MAX_DETAIL: Final = 500
"""Most characters of a refusal's detail."""

MAX_EXCERPT_FIELDS: Final = 40
"""Most fields of an excerpt."""

MAX_EXCERPT_VALUE: Final = 80
"""Most characters of a value in an excerpt."""

PAYLOAD: Final = "payload"
"""The wrapper's field with the payload; a field within it is written behind it, as `payload.price`."""

_MAX_FIELD: Final = 200  # characters of a field's path

Rows = npt.NDArray[np.int64]


class Refusal(NamedTuple):
    """Why one row was not decoded."""

    row: int  # index in the array that was given
    reason: str  # a reason code of quarantine
    detail: str  # one line, at most MAX_DETAIL characters
    field: str = ""  # that is wrong: of the wrapper, or of the payload as `payload.price`; empty where unknown


@dataclass(frozen=True, slots=True)
class Decoded:
    """The result of decoding an array of payloads."""

    batch: pa.RecordBatch  # the good ones, in order, with the decoder's `arrow_schema`
    rows: Rows  # their places in the array
    refused: list[Refusal]  # every other row, in order, but those that wait
    # Rows that wait for a newer schema of their event type, in order: of undeclared documents only
    uncovered: Rows = field(default_factory=lambda: np.empty(0, np.int64))
    # Of each good row the first version of its schema that decodes it; None: the schema has no versions
    versions: Rows | None = None


@dataclass(frozen=True, slots=True)
class Excerpt:
    """The fields of one payload as far as they decode, as text for a person; names and values may hold anything."""

    fields: tuple[tuple[str, str], ...]  # name and value, in the payload's order
    stopped: str | None  # why no further field follows; None: these are all


class Undecodable(Exception):
    """A payload that belongs in quarantine, by a reference decoder; `reason` is a reason code of docs/data.md."""

    def __init__(self, reason: str, detail: str) -> None:
        """Keep the reason and a line of explanation."""
        super().__init__(detail)
        self.reason = reason


def malformed(row: int, detail: str, path: str = "") -> Refusal:
    """Return the refusal of bytes that are not what their schema says; `path` names a field of them, where known."""
    return Refusal(row, "malformed_payload", detail, within_payload(path))


def within_payload(path: str) -> str:
    """Return how a field of a payload is named in a refusal. Its path may hold anything; an empty one is unknown."""
    if not path:
        return ""
    return one_line(f"{PAYLOAD}.{path}".encode(errors="replace").decode())[:_MAX_FIELD]


def one_line(text: str) -> str:
    """Return a parser's error as one printable line of at most MAX_DETAIL characters."""
    if text.isprintable():
        return text[:MAX_DETAIL]
    return "".join(char if char.isprintable() else " " for char in text)[:MAX_DETAIL]


def value_text(value: object) -> str:
    """Return a value as text of at most MAX_EXCERPT_VALUE characters; bytes as hex."""
    text = value[:MAX_EXCERPT_VALUE].hex(" ") if isinstance(value, bytes) else str(value)
    return text if len(text) <= MAX_EXCERPT_VALUE else f"{text[: MAX_EXCERPT_VALUE - 1]}…"
