"""Finds impossible dates in parsed messages: the Arrow parser turns them into 1 January 1970."""

import datetime as dt
from collections.abc import Iterator
from typing import Any, Final

from google.protobuf.descriptor import Descriptor

from pipeline.data.contracts.formats.protobuf.fields import by_number, entry_of, struct_of

_DATE: Final = "google.type.Date"


def impossible_date(message: Descriptor, parsed: Any) -> str | None:
    """Return the field, at any depth, that holds an impossible date, None without one.

    A month or day of 0 means that only the year, or the year and the month, are known: the column has the first day.
    """
    for each in by_number(message):
        value = each if (entry := entry_of(each)) is None else entry.fields_by_name["value"]
        if value.message_type is None:
            continue
        for held in _held(parsed, each.name, repeated=each.is_repeated, by_key=entry is not None):
            if value.message_type.full_name == _DATE:
                if not _is_day(held):
                    return str(each.name)
            elif (inner := struct_of(each)) is not None and impossible_date(inner, held) is not None:
                return str(each.name)
    return None


def _held(parsed: Any, name: str, *, repeated: bool, by_key: bool) -> Iterator[Any]:
    if by_key:
        yield from getattr(parsed, name).values()
    elif repeated:
        yield from getattr(parsed, name)
    elif type(parsed).HasField(parsed, name):
        yield getattr(parsed, name)


def _is_day(date: Any) -> bool:
    try:
        dt.date(date.year, date.month or 1, date.day or 1)
    except (ValueError, OverflowError):
        return False
    return True
