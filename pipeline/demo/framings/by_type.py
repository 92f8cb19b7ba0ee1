"""Plain JSON documents that name no schema: each record is one, with its game, event type, id, time and content.

turnout reads them with `settings` and registers the shapes of their content.
"""

import json
from typing import Any, Final

from pipeline.base.errors import Refused
from pipeline.demo.framings.framing import FRAMED, Framed
from pipeline.demo.samples.sample import Sample

BY_TYPE: Final = "type"
FIELDS: Final = {"game": "game", "type": "type", "event_id": "id", "event_time": "at", "payload": "data"}
"""The envelope's paths, as in `source.envelope_fields`."""


class TypeFraming:
    """Names each payload by its event type alone."""

    def introduce(self, version: int, sample: Sample) -> None:
        """Do nothing: nobody registers a schema."""

    def framed(self, game: str, version: int, sample: Sample, event: Any) -> Framed:  # noqa: ARG002 - a version has no name
        """Return a document behind its event type."""
        return Framed(FRAMED, sample.message.encode(), sample.encode(event))

    def joined(self, framed: Framed) -> bytes:
        """Return the document without its event type, which stands in the record."""
        return framed.body

    def unknown(self, game: str, framed: Framed, chance: int) -> Framed:  # noqa: ARG002 - no game has such a type
        """Return the payload under an event type that no rule accepts."""
        return framed._replace(head=f"nobody.Accepts{chance % 3}".encode())


def document(game: str, event_type: str, content: bytes, event_id: str, time: int) -> bytes:
    """Return a record; `time` is in microseconds since 1970. Without content it has no field of it."""
    names = json.dumps({"game": game, "type": event_type, "id": event_id, "at": time // 1000}, ensure_ascii=False)
    return names.encode() if not content else names[:-1].encode() + b', "data": ' + content + b"}"


def settings() -> dict[str, str]:
    """Return the variables of a source with such documents."""
    fields = {f"TURNOUT_SOURCE__ENVELOPE_FIELDS__{name.upper()}": path for name, path in FIELDS.items()}
    return {"TURNOUT_SOURCE__ENVELOPE": "json", "TURNOUT_SOURCE__FRAMING": BY_TYPE, **fields}


def require_json(formats: tuple[str, ...]) -> None:
    """Check the formats of games whose documents name no schema.

    Raises:
        Refused: one is not JSON.
    """
    if formats != ("json",):
        raise Refused("Only JSON documents name no schema. Use --framing type with --formats json.")
