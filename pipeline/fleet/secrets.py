"""Finds secrets in plain text in a definition of the bundle, which plans and the journal show.

A value counts as a secret by its own look, or by a name that says so where names are free: variables and confs.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

_FREE: Final = re.compile(
    r"(?:^|\.)(?:spark_conf|spark_env_vars|env_vars|properties|tags|custom_tags|options|custom_settings)"
    r"\.(.+)"
)
"""What lies below has names that people choose; elsewhere `key` and `secret` are fields of requests."""

_NAME: Final = re.compile(
    r"SECRET|PASS(?![A-Za-z])|PASSW|PGPASS|TOKEN|CREDENTIAL|HEADERS|JAAS|(?:^|[^A-Za-z])(?:API_?)?KEY(?:$|[^A-Za-z])",
    re.IGNORECASE,
)
_VALUE: Final = re.compile(
    r"dapi[0-9a-f]{32}|dose[0-9a-f]{32}|AKIA[0-9A-Z]{16}|ASIA[0-9A-Z]{16}|-----BEGIN|://[^/\s:@]+:[^/\s@]+@"
    r"|(?i:(?:password|passwd|secret|token|api[-_]?key|jaas\.config)[\"']?\s*[=:]\s*(?!\s*[\"']?\{\{secrets/)\S)"
    r"|(?i:\b(?:bearer|basic)\s+[\w.~+/-]{6})"
)
_OF_SCOPE: Final = "{{secrets/"


def plain_secrets(definition: Mapping[str, Any]) -> Iterator[str]:
    """Yield what has a secret in plain text, as clauses without the secret."""
    for path, text in _texts(definition):
        free = _FREE.search(path)
        is_named = free is not None and _NAME.search(free[1]) is not None
        is_named = is_named or (path.rpartition(".")[2].isupper() and _NAME.search(path.rpartition(".")[2]) is not None)
        is_reference = _OF_SCOPE in text or text.startswith("${")
        if _VALUE.search(text) or (is_named and text and not is_reference):
            yield f"{path} has a secret in plain text; name a secret of a scope"
    config = definition.get("config", {})
    for each in config.get("env", []) if isinstance(config, Mapping) else ():
        if _NAME.search(str(each.get("name", ""))) and "value" in each:
            yield f"variable {each['name']} has a secret in plain text; use value_from"


def _texts(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for key, each in value.items():
            yield from _texts(each, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list):
        for number, each in enumerate(value):
            yield from _texts(each, f"{path}[{number}]")
    elif isinstance(value, str | int | float):
        yield path, str(value)
