"""Where a record's game and its event type are named: in its envelope, or beside it. Pure, vectorised."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

import pyarrow as pa

from pipeline.data.contracts.envelopes.envelope import Opened, Records
from pipeline.data.contracts.envelopes.headers import header_values
from pipeline.data.contracts.envelopes.texts import texts
from pipeline.data.contracts.profile import SourceProfile

Routing = Callable[[Records, Opened, str], pa.StringArray]
"""Returns each record's game, null without one; the last argument is what follows the colon in `header:NAME`."""


def routed(records: Records, opened: Opened, routing: str) -> pa.StringArray:
    """Return the names of the records' games, not checked, by a profile's routing."""
    kind, _, argument = routing.partition(":")
    return ROUTINGS[kind](records, opened, argument)


def event_types(records: Records, opened: Opened, profile: SourceProfile) -> pa.StringArray | None:
    """Return the event type of each record, not checked, null without one; None if the profile has no place for it."""
    kind, _, argument = profile.event_type.partition(":")
    if kind == "header":
        return ROUTINGS[kind](records, opened, argument)
    return opened.batch.column("type") if "type" in dict(profile.fields) else None


def _field(records: Records, opened: Opened, argument: str) -> pa.StringArray:  # noqa: ARG001 - see Routing
    return opened.batch.column("game")


def _topic(records: Records, opened: Opened, argument: str) -> pa.StringArray:  # noqa: ARG001
    return records.topic


def _key(records: Records, opened: Opened, argument: str) -> pa.StringArray:  # noqa: ARG001
    return texts(records.key)


def _header(records: Records, opened: Opened, argument: str) -> pa.StringArray:  # noqa: ARG001
    return texts(header_values(records.headers, argument, len(records.value)))


def _game(records: Records, opened: Opened, argument: str) -> pa.StringArray:  # noqa: ARG001
    return pa.repeat(pa.scalar(argument, pa.string()), len(records.value))


ROUTINGS: Final[Mapping[str, Routing]] = MappingProxyType(
    {"field": _field, "topic": _topic, "key": _key, "header": _header, "game": _game}
)
"""Routings by the word before the colon in `SourceProfile.routing` and the setting `source.routing`."""
