"""The outcome of decoding payloads, the same for every format."""

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

MAX_PAYLOAD_BYTES: Final = 1024 * 1024
"""Largest payload that is decoded."""

MAX_DETAIL: Final = 500
"""Most characters of a refusal's detail."""

Rows = npt.NDArray[np.int64]


class Refusal(NamedTuple):
    """Why one row was not decoded."""

    row: int  # index in the array that was given
    reason: str  # a reason code of quarantine
    detail: str  # one line, at most MAX_DETAIL characters


@dataclass(frozen=True, slots=True)
class Decoded:
    """The result of decoding an array of payloads."""

    batch: pa.RecordBatch  # the good ones, in order, with the decoder's `arrow_schema`
    rows: Rows  # their places in the array
    refused: list[Refusal]  # every other row, in order


class Undecodable(Exception):
    """A payload that belongs in quarantine, by a reference decoder; `reason` is a reason code of docs/data.md."""

    def __init__(self, reason: str, detail: str) -> None:
        """Keep the reason and a line of explanation."""
        super().__init__(detail)
        self.reason = reason


def malformed(row: int, detail: str) -> Refusal:
    """Return the refusal of bytes that are not what their schema says."""
    return Refusal(row, "malformed_payload", detail)


def one_line(text: str) -> str:
    """Return a parser's error as one printable line of at most MAX_DETAIL characters."""
    if text.isprintable():
        return text[:MAX_DETAIL]
    return "".join(char if char.isprintable() else " " for char in text)[:MAX_DETAIL]
