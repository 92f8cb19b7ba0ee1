"""Opens many protobuf messages at once, and finds the bad ones among them without paying for each good one."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from google.protobuf import message_factory
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError
from ptars import HandlerPool, PtarsConfig

from pipeline.contracts.messages import shown
from pipeline.contracts.mistyped import Mistyped
from pipeline.contracts.together import Together
from pipeline.errors import Refused

MAX_DETAIL: Final = 500
"""Most characters of a refusal's detail."""

_CONFIG: Final = PtarsConfig(
    timestamp_unit="us",
    duration_unit="us",
    time_unit="us",
    list_nullable=True,
    map_nullable=True,
    list_value_nullable=True,
    map_value_nullable=True,
    enum_repr="string",
    list_value_name="element",
)

Rows = npt.NDArray[np.int64]


class Refusal(NamedTuple):
    """Why one row was not decoded."""

    row: int  # index in the array that was given
    reason: str  # a reason code of quarantine
    detail: str  # one line, at most MAX_DETAIL characters


@dataclass(frozen=True, slots=True)
class Parsed:
    """What became of an array of messages."""

    batch: pa.RecordBatch  # the good ones, in order
    rows: Rows  # where they stood in the array
    bad: tuple[tuple[int, str], ...]  # the index of each other one, and the parser's sentence


class Parser:
    """Opens messages of one definition.

    A message is bad exactly when either of two parsers refuses it on its own; its neighbours never matter. The plain
    parser looks at every message first (about 2 microseconds each), because the Arrow parser alone is not safe: it
    follows nested unknown groups without limit until the process dies, takes tags beyond 32 bits, and fails a whole
    array without saying where.
    """

    def __init__(self, message: Descriptor, *, check_wire_types: bool = False) -> None:
        """Prepare for a message's definition.

        With `check_wire_types`, bytes in which a field, at any depth, has another wire type than its definition are
        bad: the parsers would take such a field for an unknown one and give its default. Keys and plain values of maps
        are not looked at, as the parsers do not tell what they left out of an entry.

        Raises:
            Refused: the Arrow parser cannot read such messages.
        """
        self._class: Any = message_factory.GetMessageClass(message)
        try:
            self._handler: Any = HandlerPool([message.file], config=_CONFIG).get_for_message(message)
            self.schema: pa.Schema = self._handler.schema()
        except BaseException as error:
            if not _is_failure(error):
                raise
            sentence = one_line(str(error))
            raise Refused(
                f"Messages {shown(message.full_name)} cannot become columns: {sentence}. Change the definition."
            ) from error
        self._together = Together(message)
        self._mistyped = Mistyped(message) if check_wire_types else None

    def parse(self, messages: pa.BinaryArray, *, known_good: bool = False) -> Parsed:
        """Open an array of messages, none of which may be null.

        `known_good` spares the first look: only for the very bytes that this parser found good before.
        """
        everything = np.arange(len(messages), dtype=np.int64)
        bad = {} if known_good else self._plain_failures(messages)
        good: list[pa.RecordBatch] = []
        self._bisect(messages, _without(everything, bad), bad, good)
        return Parsed(_joined(good, self.schema), _without(everything, bad), tuple(sorted(bad.items())))

    def rewritten(self, messages: pa.BinaryArray) -> pa.BinaryArray:
        """Return good messages as the plain parser writes them: each field once."""
        parse = self._class.FromString
        return pa.array([parse(content).SerializeToString() for content in messages.to_pylist()], pa.binary())

    def _attempt(self, messages: pa.BinaryArray) -> pa.RecordBatch | str:
        """Return the messages as columns, or the parser's sentence when at least one is bad."""
        try:
            return self._handler.array_to_record_batch(messages)
        except BaseException as error:
            if not _is_failure(error):
                raise
            return one_line(str(error))

    def _plain_failures(self, messages: pa.BinaryArray) -> dict[int, str]:
        """Return which messages the plain parser refuses, each with its sentence."""
        suspects = self._together.suspects(messages, nothing_unknown=self._mistyped is not None)
        failures = {row: self._plain_failure(messages[row].as_py()) for row in suspects}
        return {row: failure for row, failure in failures.items() if failure is not None}

    def _plain_failure(self, content: bytes) -> str | None:
        """Return why the plain parser refuses a message, None when it does not."""
        try:
            parsed = self._class.FromString(content)
        except DecodeError as error:
            return one_line(str(error))
        return None if self._mistyped is None else self._mistyped.find(parsed)

    def _bisect(self, messages: pa.BinaryArray, rows: Rows, bad: dict[int, str], good: list[pa.RecordBatch]) -> None:
        """Open the rows; halve what fails until each bad row stands alone. The two parsers rarely disagree."""
        if not len(rows):
            return
        batch = self._attempt(messages if len(rows) == len(messages) else messages.take(pa.array(rows)))
        if isinstance(batch, pa.RecordBatch):
            good.append(batch)
        elif len(rows) == 1:
            bad[int(rows[0])] = batch
        else:
            middle = len(rows) // 2
            self._bisect(messages, rows[:middle], bad, good)
            self._bisect(messages, rows[middle:], bad, good)


def one_line(text: str) -> str:
    """Return a parser's sentence as one printable line of at most MAX_DETAIL characters."""
    if text.isprintable():
        return text[:MAX_DETAIL]
    return "".join(char if char.isprintable() else " " for char in text)[:MAX_DETAIL]


def _is_failure(error: BaseException) -> bool:
    """Tell whether the Arrow parser failed; its panics derive from BaseException and are known by name only."""
    return isinstance(error, ValueError) or type(error).__name__ == "PanicException"


def _without(rows: Rows, bad: Mapping[int, str]) -> Rows:
    if not bad:
        return rows
    return np.setdiff1d(rows, np.fromiter(bad, dtype=np.int64, count=len(bad)), assume_unique=True)


def _joined(batches: list[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    return pa.concat_batches(batches) if batches else pa.RecordBatch.from_pylist([], schema=schema)
