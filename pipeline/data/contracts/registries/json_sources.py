"""JSON Schemas as registries keep them, with the schemas that they refer to put into one text."""

import json
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urljoin

from pipeline.base.errors import Refused
from pipeline.base.names import shown

_OTHERS: Final = "referenced schemas"  # among the definitions of the whole


def bundled(main: str, references: Mapping[str, str], message: str | None) -> tuple[bytes, str]:
    """Return a schema that needs no others, and the event type that it describes.

    That is its title, or `message` where it has none. Each schema that it refers to becomes one of its definitions.

    Raises:
        Refused: a text is no JSON, or is nested too deep; or nothing names the event type.
    """
    try:
        schema = _parsed(main)
        title = schema.get("title", message)
        if not isinstance(title, str) or not title:
            raise Refused("The schema has no title, which names its event type. Give it one.")
        title.encode("utf-8")
        if not references:
            return main.encode("utf-8"), title
        others = {name: _parsed(text) for name, text in references.items()}
        whole = _Bundling(frozenset(others)).of(schema, "", _base(schema))
        inner = {name: _Bundling(frozenset(others)).of(each, name, _base(each)) for name, each in others.items()}
        definitions = whole.get("$defs", {})
        if not isinstance(definitions, dict):
            raise Refused("The schema's definitions are no object.")
        bundle = {**whole, "$defs": {**definitions, _OTHERS: inner}}
        return json.dumps(bundle, separators=(",", ":")).encode("utf-8"), title
    except RecursionError as error:
        raise Refused("The schema is nested too deep.") from error
    except UnicodeEncodeError as error:
        raise Refused("The schema's text is no Unicode.") from error


def _parsed(text: str) -> dict[str, Any]:
    try:
        schema = json.loads(text)
    except ValueError as error:
        raise Refused(f"The schema's text is no JSON: {error}") from error
    if not isinstance(schema, dict):
        raise Refused("The schema's payloads are no objects, so they have no columns.")
    return schema


def _base(schema: Mapping[str, Any]) -> str:
    base = schema.get("$id", schema.get("id", ""))
    return base if isinstance(base, str) else ""


class _Bundling:
    """Rewrites references to other schemas into references to definitions."""

    def __init__(self, names: frozenset[str]) -> None:
        self._names = names

    def of(self, part: Any, name: str, base: str) -> Any:
        """Return a part of the schema with this name, empty for the main one, whose identity is `base`."""
        if isinstance(part, list):
            return [self.of(each, name, base) for each in part]
        if not isinstance(part, dict):
            return part
        made = {key: self.of(value, name, base) for key, value in part.items()}
        if isinstance(reference := part.get("$ref"), str):
            made["$ref"] = self._reference(reference, name, base)
        return made

    def _reference(self, reference: str, name: str, base: str) -> str:
        address, _, pointer = reference.partition("#")
        if address and address != base:
            found = next((each for each in (address, urljoin(base, address)) if each in self._names), None)
            if found is None:
                found = next(
                    (each for each in sorted(self._names) if urljoin(base, each) == urljoin(base, address)), None
                )
            if found is None:
                raise Refused(f"The schema refers to {shown(address)}, which is not among its references.")
            name = found
        if not name:
            return f"#{pointer}"
        key = name.replace("~", "~0").replace("/", "~1").replace("%", "%25")
        return f"#/$defs/{_OTHERS}/{key}{pointer}"
