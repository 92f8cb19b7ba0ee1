"""Verdicts of the real protovalidate on messages of `ruled.proto`; `record_verdicts.py` wrote them."""

import base64
import json
import zlib
from pathlib import Path
from typing import Any, Final

from pipeline.data.contracts.formats.protobuf.messages import canonical
from pipeline.data.contracts.schemas import Schema

_RECORDED: Final[dict[str, Any]] = json.loads((Path(__file__).parent / "verdicts.json").read_text())
DEFINITION: Final = zlib.decompress(base64.b64decode(_RECORDED["definition"]))


def schema_of(name: str) -> Schema:
    return Schema(1, "protobuf", f"ruled.{name}", canonical(f"ruled.{name}", DEFINITION))


def recorded() -> list[tuple[Schema, list[tuple[bytes, bool]]]]:
    """Return each message with its payloads, and whether protovalidate finds each right."""
    return [
        (schema_of(name), [(base64.b64decode(each), word == "right") for word in found for each in found[word]])
        for name, found in _RECORDED["verdicts"].items()
    ]
