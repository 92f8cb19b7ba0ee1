"""Reads the bytes of a payload for the reference decoder, and refuses those that no writer writes."""

from collections.abc import Iterator
from io import BytesIO

from fastavro.io.binary_decoder import BinaryDecoder

from pipeline.data.contracts.decoded import MAX_PAYLOAD_BYTES, Undecodable


def malformed(detail: str) -> Undecodable:
    """Return the refusal of bytes that no writer writes."""
    return Undecodable("malformed_payload", detail)


class StrictBytes(BinaryDecoder):
    """Reads bytes for fastavro, and refuses those that no writer of the schema writes."""

    def __init__(self, payload: bytes, most_weightless: int = MAX_PAYLOAD_BYTES) -> None:
        """Begin at a payload's first byte; `most_weightless` is the most items without bytes."""
        BinaryDecoder.__init__(self, BytesIO(payload))
        self._weightless, self._most_weightless = 0, most_weightless

    def place(self) -> int:
        """Return the number of bytes that were read."""
        return int(self.fo.tell())

    def _take(self, size: int) -> bytes:
        content: bytes = self.fo.read(size)
        if len(content) < size:
            raise EOFError("the payload ends too early")
        return content

    def _number(self, bits: int) -> int:
        """Read a zigzag number of 32 or 64 bits, in no more bytes than such a number can need."""
        result, most = 0, -(-bits // 7)
        for index in range(most):
            byte = self._take(1)[0]
            result += (byte % 128) << (7 * index)
            if byte < 128:
                break
        else:
            raise malformed("a number of too many bytes")
        if result >= 2**bits:
            raise malformed("a number beyond its range")
        return -(result // 2) - 1 if result % 2 else result // 2

    def read_long(self) -> int:
        """Read a zigzag number of 64 bits."""
        return self._number(64)

    def read_int(self) -> int:
        """Read a zigzag number of 32 bits."""
        return self._number(32)

    def read_index(self) -> int:
        """Read the number of a branch."""
        number = self._number(32)
        if number < 0:
            raise malformed("a negative index")
        return number

    def read_enum(self) -> int:
        """Read the number of a symbol."""
        return self.read_index()

    def read_boolean(self) -> bool:
        """Read a byte of 0 or 1."""
        byte = self._take(1)[0]
        if byte not in {0, 1}:
            raise malformed("a boolean that is neither 0 nor 1")
        return bool(byte)

    def read_bytes(self) -> bytes:
        """Read a length and that many bytes."""
        size = self._number(64)
        if size < 0:
            raise malformed("a negative length")
        return self._take(min(size, MAX_PAYLOAD_BYTES + 1))

    def read_array_start(self) -> None:
        """Do nothing: `iter_array` reads the blocks."""

    def iter_array(self) -> Iterator[None]:
        """Yield once before each item of an array."""
        while (items := self._number(64)) != 0:
            stated = None
            if items < 0:
                items, stated = -items, self._number(64)
            start = self.place()
            for index in range(items):
                before = self.place()
                yield
                if self.place() == before:
                    self._weightless += 1
                    if self._weightless + items - index - 1 > self._most_weightless:
                        raise malformed("too many items without bytes")
            if stated is not None and self.place() - start != stated:
                raise malformed("a block of another size than stated")
