"""The profile of a source: how its records are routed and packed. Plain data, immutable, numbered by the control store.

Rows of bronze carry the number of their profile; null is the profile of turnout's own wrapper with turnout's own ids.
"""

import base64
import json
from dataclasses import dataclass, fields
from typing import Any, Final

from pipeline.base.errors import Refused

SCHEMA_ID_HEADER: Final = "__value_schema_id"
"""The header in which confluent-kafka 2.16 puts a schema's GUID."""


@dataclass(frozen=True, slots=True)
class SourceProfile:
    """How one source's records are routed, packed and framed."""

    envelope: str = "wrapper"  # wrapper, protobuf, avro, json or none
    # Where the game's name is: field (of the envelope), topic, key, header:NAME, or game:NAME for all records
    routing: str = "field"
    # Where the schema is named: wrapper (its field schema_id), confluent, glue, topic or game (one schema each), or
    # type (the game's JSON Schemas of the event type that the envelope names)
    framing: str = "wrapper"
    registry: str | None = None  # the generation of the registry that gave the ids; None: turnout itself
    headers: tuple[str, ...] = (SCHEMA_ID_HEADER,)  # that may hold a schema's GUID; the first present one counts
    message: str | None = None  # protobuf payloads whose framing has no index path: the message's full name
    # Of an envelope that is not turnout's: its definition, message, and the paths of game, payload, schema_id,
    # event_time, event_id, producer_id, sequence and type in it (those it has), sorted by name
    definition: bytes = b""
    definition_message: str = ""
    fields: tuple[tuple[str, str], ...] = ()
    event_type: str = "field"  # where the framing type finds it: field (of the envelope, or none), or header:NAME
    time_unit: str = "ms"  # of json: what its event time is, in s, ms, us or ns since 1970, or a text of rfc3339
    undeclared: str = "register"  # of the framing type: documents without a schema are registered, or quarantine


WRAPPER: Final = SourceProfile()
"""The profile without a number."""


def dumps(profile: SourceProfile) -> str:
    """Return the JSON of a profile, one text for equal profiles: what the store and bronze's table properties hold."""
    values = {name: getattr(profile, name) for name in _KINDS}
    values |= {"definition": base64.b64encode(profile.definition).decode(), "fields": dict(sorted(profile.fields))}
    values = {name: value for name, value in values.items() if name not in _LATER or value != _LATER[name]}
    return json.dumps(values, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def loads(text: str) -> SourceProfile:
    """Return the profile of a JSON.

    Raises:
        Refused: the text is none that `dumps` of this version wrote.
    """
    try:
        values = _checked(json.loads(text))
        values["definition"] = base64.b64decode(values["definition"], validate=True)
    except (TypeError, ValueError, RecursionError) as error:
        raise Refused(
            "A profile of a source cannot be read: another version of turnout wrote it, or it is damaged. Start the "
            "newest version."
        ) from error
    values |= {"headers": tuple(values["headers"]), "fields": tuple(sorted(values["fields"].items()))}
    return SourceProfile(**values)


def _checked(values: Any) -> dict[str, Any]:
    values = {**_LATER, **values} if isinstance(values, dict) else values
    if not isinstance(values, dict) or values.keys() != _KINDS.keys():
        raise ValueError("other keys than a profile has")
    for name, value in values.items():
        if not isinstance(value, _KINDS[name]):
            raise TypeError(f"{name} has another type")
        inside = [*value, *value.values()] if isinstance(value, dict) else value
        if isinstance(inside, list) and not all(isinstance(each, str) for each in inside):
            raise ValueError(f"{name} holds more than texts")
    return values


_LATER: Final[dict[str, Any]] = {"event_type": "field", "time_unit": "ms", "undeclared": "register"}
"""Field that profiles of earlier versions lack → their value, with which a profile's text is what it was."""
_LISTS: Final = {"headers": list, "fields": dict}
_KINDS: Final[dict[str, Any]] = {
    each.name: _LISTS.get(each.name, str | None if each.default is None else str) for each in fields(SourceProfile)
}
"""Field → the type of its value in JSON."""
