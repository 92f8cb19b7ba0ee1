"""The end of a grant: Unix seconds as people write and read them."""

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from pipeline.base.errors import Refused
from pipeline.base.problems import shown

_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_TIME: Final = re.compile(r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d(?::\d\d)?) ?(Z|z|[+-]\d\d:\d\d)?", re.ASCII)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DAY: Final = 86_400


def parse_until(text: str) -> int:
    """Return the Unix seconds of a date, which is its end in UTC, or of a date-time with zone.

    Raises:
        Refused: it is neither.
    """
    try:
        if _DATE.fullmatch(text):
            return _seconds(datetime.fromisoformat(text).replace(tzinfo=UTC) + timedelta(days=1))
        match = _TIME.fullmatch(text)
        if match is not None and match[3] is None:
            raise Refused(f"{shown(text)} has no time zone; add Z or an offset such as +02:00")
        if match is not None:
            return _seconds(datetime.fromisoformat(f"{match[1]}T{match[2]}{match[3].upper()}"))
    except (ValueError, OverflowError) as error:
        raise Refused(f"{shown(text)} is not an existing day") from error
    raise Refused(f"{shown(text)} is neither a date such as 2026-12-31 nor a time such as 2026-12-31T18:00:00Z")


def spelled_until(until: int) -> str:
    """Return Unix seconds as a policy has them: a date where it is the end of one in UTC, else a date-time.

    Raises:
        Refused: the calendar ends before.
    """
    try:
        moment = _EPOCH + timedelta(seconds=until)
        if until % _DAY == 0:
            return (moment - timedelta(days=1)).date().isoformat()
    except OverflowError as error:
        raise Refused(f"{until} seconds is outside the calendar; give Unix seconds.") from error
    return moment.replace(tzinfo=None).isoformat() + "Z"


def _seconds(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(seconds=1)
