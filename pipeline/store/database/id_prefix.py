"""Finds by the beginning of its id what a person names so: an operation, a request for access, a finding of drift."""

from collections.abc import Sequence
from typing import Any, Final, TypeVar

from sqlalchemy import Column, Engine, Row, select

from pipeline.base.errors import Refused

_T = TypeVar("_T")
_LONGER_THAN_ANY_ID: Final = 64


def read_by_prefix(engine: Engine, ids: Column[str], prefix: str, noun: str, hint: str) -> Row[Any]:
    """Return the row of a table whose id begins so.

    Raises:
        Refused: as of `only_one`.
    """
    prefix = prefix[:_LONGER_THAN_ANY_ID]  # a database takes no pattern of any length
    query = select(ids.table).where(ids.startswith(prefix, autoescape=True)).limit(2)
    with engine.connect() as connection:
        rows = connection.execute(query).all()
    return only_one(rows if prefix else (), prefix, noun, hint)


def only_one(found: Sequence[_T], prefix: str, noun: str, hint: str) -> _T:
    """Return the one whose id begins so; `hint` is the sentence that says where to look.

    Raises:
        Refused: there is none, or there are several.
    """
    if not found:
        raise Refused(f"No {noun} has the id {prefix!r}. {hint}")
    if len(found) > 1:
        raise Refused(f"Several {noun}s begin with {prefix!r}: give more characters.")
    return found[0]
