"""Rows of a source table."""

from protos.turnout.v1.wrapper_pb2 import Wrapper


def wrappers(first: int, count: int = 3) -> list[bytes]:
    """Return wrappers of a game that is not onboarded: each goes into bronze and into quarantine."""
    return [
        Wrapper(game="g", schema_id=1, payload=b"\x08\x01", event_id=str(n)).SerializeToString()
        for n in range(first, first + count)
    ]
