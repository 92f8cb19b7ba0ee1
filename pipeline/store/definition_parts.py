"""Parts of schemas' definitions in the control store: each once, by its hash. Rows are added, never changed."""

import hashlib
from collections.abc import Collection, Sequence
from typing import Final

from sqlalchemy import Connection, insert, select

from pipeline.base.errors import Refused
from pipeline.store.database.tables import definition_parts

_PER_QUERY: Final = 10_000  # databases limit the parameters of a statement
_DIGEST: Final = 32  # bytes


def write_parts(connection: Connection, parts: Sequence[bytes]) -> bytes:
    """Add the parts that the store lacks; return their hashes, one after the other. The caller holds the lock."""
    by_digest = {hashlib.sha256(part).digest(): part for part in parts}
    held = read_parts(connection, by_digest)
    if added := [{"digest": digest, "content": by_digest[digest]} for digest in by_digest.keys() - held.keys()]:
        connection.execute(insert(definition_parts), added)
    return b"".join(hashlib.sha256(part).digest() for part in parts)


def read_parts(connection: Connection, digests: Collection[bytes]) -> dict[bytes, bytes]:
    """Return those of these parts that the store has, by hash."""
    wanted, found = sorted(digests), dict[bytes, bytes]()
    query = select(definition_parts.c.digest, definition_parts.c.content)
    for start in range(0, len(wanted), _PER_QUERY):
        rows = connection.execute(query.where(definition_parts.c.digest.in_(wanted[start : start + _PER_QUERY])))
        found |= {bytes(row.digest): bytes(row.content) for row in rows}
    return found


def digests_of(listed: bytes) -> list[bytes]:
    """Return the hashes that a schema lists."""
    return [listed[start : start + _DIGEST] for start in range(0, len(listed), _DIGEST)]


def joined(listed: bytes, parts: dict[bytes, bytes]) -> bytes:
    """Return a definition from its parts.

    Raises:
        Refused: the store lacks one.
    """
    digests = digests_of(listed)
    if missing := [each.hex() for each in digests if each not in parts]:
        raise Refused(f"The control store lacks a part of a schema, {missing[0]}. Restore the store from a backup.")
    return b"".join(parts[each] for each in digests)
