"""What documents that nobody declared lack: a superset of their event type, or a newer one. Pure.

A task that meets such a document reports a need of the registry `SHAPES`, whose writer names the event type and the
superset that the task had. It is answered by a newer superset of that type, never by the same one.
"""

from typing import Final

SHAPES: Final = "shapes"
"""Stands in needs where others have the generation of a registry."""

UNNAMED: Final = "document"
"""The event type of documents that name none, in a game without any type."""


def writer_of(name: str, version: int) -> bytes:
    """Return the writer of a need.

    Args:
        name: the event type, without versions of its package; empty where documents name none.
        version: that of the superset by which a task did not read them; 0 for none.
    """
    return name.encode() + b"\0" + str(version).encode()


def of_writer(writer: bytes) -> tuple[str, int]:
    """Return the event type and the version of a need's writer."""
    name, _, version = writer.rpartition(b"\0")
    return name.decode(), int(version)
