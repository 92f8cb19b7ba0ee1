"""A streaming query's identity and its name: the one place that writes and parses query names.

Foreign query names are no error: a session may carry other queries, too.
"""

import re
from dataclasses import dataclass
from typing import Final, Literal, cast

QueryKind = Literal["ingest", "demux", "game"]

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_QUERY_NAME: Final = re.compile(rf"turnout-(ingest|demux|game)-({_NAME.pattern})")


@dataclass(frozen=True, slots=True)
class StreamId:
    """A query's kind and owner: an environment's ingest, a group's demux or one game's own query.

    Raises:
        ValueError: the name is not 1 to 64 letters, digits, '_' and '-' that start with a letter or digit.
    """

    kind: QueryKind
    name: str

    def __post_init__(self) -> None:
        if _NAME.fullmatch(self.name) is None:
            raise ValueError(f"{self.name!r} cannot be part of a query name: use 1 to 64 letters, digits, '_' and '-'")

    @property
    def query_name(self) -> str:
        """The name with which to start the query; `parse_query_name` parses it."""
        return f"turnout-{self.kind}-{self.name}"


def parse_query_name(text: str | None) -> StreamId | None:
    """Return the identity behind a query name, or None when the name is absent or foreign."""
    match = None if text is None else _QUERY_NAME.fullmatch(text)
    return None if match is None else StreamId(cast(QueryKind, match[1]), match[2])
