"""Finds possible secrets in definitions of the bundle, and hides them in differences that commands print.

A value counts as a secret by its own look, or by a name that says so where names are free: variables, confs,
parameters. In what is shown it also does if the other side of a difference names a secret of a scope in its place.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

HIDDEN: Final = "(hidden)"

_FREE: Final = re.compile(
    r"(?:^|\.)(?:spark_conf|spark_env_vars|env_vars|environment_variables|properties|tags|custom_tags|options"
    r"|custom_settings|(?:\w+_)?(?:parameters|params))[.\[](.+)"
)
"""What lies below has names that people choose; elsewhere `key` and `secret` are fields of requests."""

_NAME: Final = re.compile(
    r"SECRET|PASS(?![A-Za-z])|PASSW|PGPASS|TOKEN|CREDENTIAL|HEADERS|JAAS|(?:^|[^A-Za-z])(?:API_?)?KEY(?:$|[^A-Za-z])",
    re.IGNORECASE,
)
_VALUE: Final = re.compile(
    r"dapi[0-9a-f]{32}|dose[0-9a-f]{32}|AKIA[0-9A-Z]{16}|ASIA[0-9A-Z]{16}|-----BEGIN|://[^/\s:@]+:[^/\s@]+@"
    r"|(?i:(?:password|passwd|secret|token|api[-_]?key|jaas\.config)[\"']?\s*[=:]\s*(?!\s*[\"']?\{\{secrets/)\S)"
    r"|(?i:\b(?:bearer|basic)\s+[\w.~+/-]{6})|\beyJ[\w-]{8,}\."
)
_OF_SCOPE: Final = "{{secrets/"
_REFERENCE: Final = re.compile(r"\{\{secrets/[^{}]*\}\}")
_RANDOM: Final = re.compile(r"(?=\D*\d)(?=[^a-z]*[a-z])(?=[^A-Z]*[A-Z])[A-Za-z0-9+=_~][A-Za-z0-9+/=_~-]{19,}")
"""A word as keys are made: long, and letters of both cases and digits in it."""


def plain_secrets(definition: Mapping[str, Any]) -> Iterator[str]:
    """Yield what has a secret in plain text, as clauses without the secret."""
    for path, text in _texts(definition):
        is_reference = _OF_SCOPE in text or text.startswith("${")
        if _VALUE.search(text) or (_is_named(path) and text and not is_reference):
            yield f"{path} has a secret in plain text; name a secret of a scope"
    config = definition.get("config", {})
    for each in config.get("env", []) if isinstance(config, Mapping) else ():
        if _NAME.search(str(each.get("name", ""))) and "value" in each:
            yield f"variable {each['name']} has a secret in plain text; use value_from"


def hide(path: str, value: Any, other: Any) -> Any:
    """Return one side of a difference at a path without what may be a secret; `other` is the other side.

    Where the other side names a secret of a scope, only what both sides have is shown, and references.
    """
    texts = {text for _, text in _texts(other)}
    return _hidden(path, value, texts if any(_OF_SCOPE in each for each in texts) else None)


def _hidden(path: str, value: Any, known: set[str] | None) -> Any:
    if isinstance(value, Mapping):
        return {key: _hidden(f"{path}.{key}", each, known) for key, each in value.items()}
    if isinstance(value, list):
        return [
            HIDDEN if _is_of_option(value[number - 1 : number], each) else _hidden(below, each, known)
            for number, (below, each) in enumerate(_elements(value, path))
        ]
    if value is None or isinstance(value, bool) or _REFERENCE.fullmatch(str(value)):
        return value
    text = str(value)
    is_secret = _VALUE.search(text) or _is_named(path) or (known is not None and text not in known)
    return HIDDEN if is_secret or (_FREE.search(path) and _RANDOM.fullmatch(text)) else value


def _is_of_option(before: list[Any], value: Any) -> bool:
    """Return whether a word of a command stands after an option whose name says secret."""
    is_option = bool(before) and isinstance(before[0], str) and before[0].startswith("-") and "=" not in before[0]
    return is_option and _NAME.search(before[0]) is not None and isinstance(value, str)


def _is_named(path: str) -> bool:
    """Return whether the name of a value says secret, where names are free."""
    if path.endswith(("].name", "].key")):
        return False  # it is the name
    free, last = _FREE.search(path), path.rpartition(".")[2]
    return (free is not None and _NAME.search(free[1]) is not None) or (
        last.isupper() and _NAME.search(last) is not None
    )


def _texts(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for key, each in value.items():
            yield from _texts(each, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list):
        for below, each in _elements(value, path):
            yield from _texts(each, below)
    elif isinstance(value, str | int | float):
        yield path, str(value)


def _elements(values: list[Any], path: str) -> Iterator[tuple[str, Any]]:
    """Yield the elements of a list, each with its path, by its name if it has one."""
    for number, each in enumerate(values):
        named = each if isinstance(each, Mapping) else {}
        yield f"{path}[{named.get('name', named.get('key', number))}]", each
