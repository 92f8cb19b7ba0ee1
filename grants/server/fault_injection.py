"""What a real catalog does that hurts, as switches: a client that works with all of them works with Databricks."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from pipeline.errors import Refused


@dataclass(frozen=True, slots=True)
class Troubles:
    """Which troubles the embedded catalog makes; the default is none.

    `every` counts requests of all callers; 0 is never.
    """

    lag_seconds: float = 0.0  # reads of permissions show what was so long ago; enforcement is never late
    page_rows: int = 150  # most rows of one page
    empty_pages: bool = False  # before each page comes an empty one that says there is more
    unknown_privileges: bool = False  # every assignment carries a privilege that nobody knows
    other_casing: bool = False  # privileges, types and principals come in another casing than they were given
    busy_every: int = 0  # these requests get 429 with Retry-After
    retry_after_seconds: int = 1
    failing_every: int = 0  # these get 500, and nothing is done
    lost_every: int = 0  # these are done, and get 500 all the same
    slow_every: int = 0  # these are done `slow_seconds` late
    slow_seconds: float = 30.0


def troubles_from(raw: Mapping[str, Any]) -> Troubles:
    """Return the troubles a JSON object names.

    Raises:
        Refused: an unknown name, another type than the switch has, or a negative number.
    """
    known = {each.name: type(getattr(Troubles(), each.name)) for each in fields(Troubles)}
    values: dict[str, Any] = {}
    for name, value in raw.items():
        kind = known.get(name)
        if kind is None:
            raise Refused(f"{name!r} is no trouble; there are {', '.join(known)}.")
        fits = isinstance(value, (int, float)) and not isinstance(value, bool) if kind is float else type(value) is kind
        if not fits or (kind is not bool and not 0 <= value < float("inf")):
            raise Refused(f"{name} is to be a {kind.__name__}, not negative; it is {value!r}.")
        values[name] = kind(value)
    return Troubles(**values)
