"""Parses many protobuf messages at once, and finds the bad ones without a cost for each good one."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf import message_factory
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError

from pipeline.base.errors import Refused, is_panic
from pipeline.base.names import shown
from pipeline.data.contracts.columns import delta_schema
from pipeline.data.contracts.decoded import Rows, one_line
from pipeline.data.contracts.formats.protobuf.arrow_definition import for_arrow
from pipeline.data.contracts.formats.protobuf.batch_parser import BatchParser, runs
from pipeline.data.contracts.formats.protobuf.json_columns import JsonColumns
from pipeline.data.contracts.formats.protobuf.messages import with_distinct_names
from pipeline.data.contracts.formats.protobuf.mistyped import Flaw, Mistyped
from pipeline.data.contracts.formats.protobuf.pools import arrow_parser
from pipeline.data.contracts.schemas import Schema

_MAX_REWRITTEN: Final = 16_384  # parsed at once
_MAX_REWRITTEN_BYTES: Final = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Parsed:
    """The result of parsing an array of messages."""

    batch: pa.RecordBatch  # the good ones, in order
    rows: Rows  # their places in the array
    bad: tuple[tuple[int, Flaw], ...]  # the index of each other message, and why it is bad


class Parser:
    """Parses messages of one definition.

    A message is bad exactly when either of two parsers refuses it on its own; its neighbours never matter. The plain
    parser reads every message first (about 2 microseconds each), because the Arrow parser alone is not safe: it follows
    nested unknown groups without limit until the process dies, takes tags beyond 32 bits, and fails a whole array
    without naming the message.
    """

    def __init__(self, message: Descriptor, *, exact: bool = False) -> None:
        """Prepare for a message's definition.

        With `exact`, values follow the format's rules where the Arrow parser alone departs from them: it keeps both of
        two entries with one key, all members of a oneof, numbers outside of a closed enum, only the last of two times,
        and no value for an entry without one. So it gets the plain parser's serialisation wherever that differs from
        the input. And bytes in which a field, at any depth, has another wire type than its definition are bad: both
        parsers would treat such a field as unknown and return its default. Keys and plain values of maps are not
        checked for that, as the parsers do not report fields that they drop from an entry.

        Raises:
            Refused: the Arrow parser cannot read such messages.
        """
        self._class: Any = message_factory.GetMessageClass(message)
        try:
            read = for_arrow(message)
            self._kept, self._handler = arrow_parser(read)
            self._parsed_schema: Final[pa.Schema] = self._handler.schema()
        except BaseException as error:
            if not _is_failure(error):
                raise
            sentence = one_line(str(error))
            raise Refused(
                f"Messages {shown(message.full_name)} cannot become columns: {sentence}. Change the definition."
            ) from error
        self._json = None if read is message else JsonColumns(message, self._parsed_schema)
        self.schema: pa.Schema = self._parsed_schema if self._json is None else self._json.schema
        self._batch_parser = BatchParser(message)
        self._mistyped = Mistyped(message) if exact else None

    def parse(self, messages: pa.BinaryArray, *, known_good: bool = False) -> Parsed:
        """Parse an array of messages without nulls.

        `known_good` skips the first check: only for the very bytes that this parser found good before.
        """
        everything = np.arange(len(messages), dtype=np.int64)
        bad, rewritten = (dict[int, Flaw](), dict[int, bytes]()) if known_good else self._inspect_suspects(messages)
        good: list[pa.RecordBatch] = []
        for rows, contents in _pieces(messages, _without(everything, bad), rewritten):
            self._bisect(contents, rows, bad, good)
        batch, rows = _joined(good, self._parsed_schema), _without(everything, bad)
        if self._json is not None:
            batch, lacking = self._json.convert(batch)
            if lacking:
                bad |= {int(rows[place]): flaw for place, flaw in lacking.items()}
                kept = np.setdiff1d(np.arange(len(rows)), list(lacking), assume_unique=True)
                batch, rows = batch.take(pa.array(kept)), rows[kept]
        return Parsed(batch, rows, tuple(sorted(bad.items())))

    def plain(self, message: bytes) -> Any:
        """Return a good message as the plain parser reads it."""
        return self._class.FromString(message)

    def _attempt(self, messages: pa.BinaryArray) -> pa.RecordBatch | Flaw:
        """Return the messages as columns, or the parser's error when at least one is bad."""
        try:
            return self._handler.array_to_record_batch(messages)
        except BaseException as error:
            if not _is_failure(error):
                raise
            return Flaw(one_line(str(error)))

    def _inspect_suspects(self, messages: pa.BinaryArray) -> tuple[dict[int, Flaw], dict[int, bytes]]:
        """Return the messages that the plain parser refuses, each with its error, and the serialisation of others."""
        bad: dict[int, Flaw] = {}
        if self._mistyped is None:
            rewritten: dict[int, bytes] = {}
            suspects = list(self._batch_parser.find_bad(messages))
        else:
            rewritten, suspects = self._batch_parser.canonical(messages)
        for row in suspects:
            outcome = self._inspect(messages[row].as_py())
            if isinstance(outcome, Flaw):
                bad[row] = outcome
            else:
                rewritten[row] = outcome
        return bad, rewritten

    def _inspect(self, content: bytes) -> bytes | Flaw:
        """Return one message as the plain parser serialises it, or why it is bad."""
        try:
            parsed = self._class.FromString(content)
        except DecodeError as error:
            return Flaw(one_line(str(error)))
        if self._mistyped is None:
            return content
        try:
            wrong = self._mistyped.find(parsed)
        except UnicodeDecodeError as error:  # proto2 accepts a key that is not UTF-8 until it is read
            return Flaw(one_line(str(error)))
        if wrong is not None:
            return wrong
        self._class.DiscardUnknownFields(parsed)  # by the class: a field may have the name of a method
        written: bytes = self._class.SerializePartialToString(parsed)
        return written

    def _bisect(self, messages: pa.BinaryArray, rows: Rows, bad: dict[int, Flaw], good: list[pa.RecordBatch]) -> None:
        """Parse the messages of these rows; halve failing ranges until each bad one stands alone.

        The two parsers rarely disagree.
        """
        if not len(rows):
            return
        batch = self._attempt(messages)
        if isinstance(batch, pa.RecordBatch):
            good.append(batch)
        elif len(rows) == 1:
            bad[int(rows[0])] = batch
        else:
            middle = len(rows) // 2
            self._bisect(messages.slice(0, middle), rows[:middle], bad, good)
            self._bisect(messages.slice(middle), rows[middle:], bad, good)


@lru_cache(maxsize=4096)
def columns(schema: Schema) -> pa.Schema:
    """Return the columns of one schema's payloads.

    Raises:
        Refused: the definition has no form as columns.
    """
    parser = Parser(with_distinct_names(schema.message, schema.definition))
    return delta_schema(parser.schema)


def _is_failure(error: BaseException) -> bool:
    """Return whether the Arrow parser failed."""
    return isinstance(error, ValueError) or is_panic(error)


def _without(rows: Rows, bad: Mapping[int, Flaw]) -> Rows:
    if not bad:
        return rows
    return np.setdiff1d(rows, np.fromiter(bad, dtype=np.int64, count=len(bad)), assume_unique=True)


def _pieces(
    messages: pa.BinaryArray, rows: Rows, rewritten: Mapping[int, bytes]
) -> Iterator[tuple[Rows, pa.BinaryArray]]:
    """Yield these rows and their contents, in pieces: serialised again they may exceed the size of an array."""
    if not rewritten:
        yield rows, messages if len(rows) == len(messages) else messages.take(pa.array(rows))
        return
    lengths = pc.binary_length(messages).to_numpy(zero_copy_only=False).copy()
    lengths[list(rewritten)] = [len(content) for content in rewritten.values()]
    for part in runs(lengths[rows], _MAX_REWRITTEN, _MAX_REWRITTEN_BYTES):
        piece = rows[part.start : part.stop]
        changed = [row for row in piece.tolist() if row in rewritten]
        new = pa.array([rewritten[row] for row in changed], pa.binary())
        if len(changed) < len(piece):
            new = pc.replace_with_mask(messages.take(pa.array(piece)), pa.array(np.isin(piece, changed)), new)
        yield piece, new


def _joined(batches: list[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    return pa.concat_batches(batches) if batches else pa.RecordBatch.from_pylist([], schema=schema)
