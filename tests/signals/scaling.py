"""Makes an hour six seconds: every window, interval and `for:` of rules and configurations, by one factor."""

import os
import re
from typing import Any

import yaml

HOUR_SECONDS = int(os.environ.get("SIGNALS_HOUR_SECONDS", "6"))
"""How long an hour lasts: 6 seconds, or more on a machine that is busy with something else."""

FACTOR = 3_600 // HOUR_SECONDS
_UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION = re.compile(r"(\d+)(ms|[smhd])")
_RANGE = re.compile(r"\[(\d+(?:ms|[smhd]))\]")
_OFFSET = re.compile(r"\boffset (\d+(?:ms|[smhd]))")
_KEYS = {
    "for", "keep_firing_for", "interval", "scrape_interval", "evaluation_interval",
    "group_wait", "group_interval", "repeat_interval",
}  # fmt: skip


def milliseconds(text: str) -> int:
    found = _DURATION.fullmatch(text)
    assert found is not None, text
    return int(found[1]) * _UNITS[found[2]]


def scaled(text: str, factor: int = FACTOR) -> str:
    """Return a rules file or a configuration (YAML) with each duration divided, rounded up to milliseconds."""
    return yaml.safe_dump(_walk(yaml.safe_load(text), lambda each: f"{-(-milliseconds(each) // factor)}ms"))


def durations(text: str) -> list[int]:
    """Return each duration of a file in milliseconds, in its order."""
    found: list[int] = []

    def note(each: str) -> str:
        found.append(milliseconds(each))
        return each

    _walk(yaml.safe_load(text), note)
    return found


def rest(text: str) -> Any:
    """Return all that is no duration."""
    return _walk(yaml.safe_load(text), lambda _: "DURATION")


def _walk(node: Any, change: Any, key: str = "") -> Any:
    if isinstance(node, dict):
        return {name: _walk(value, change, name) for name, value in sorted(node.items())}
    if isinstance(node, list):
        return [_walk(each, change, key) for each in node]
    if key in _KEYS:
        return change(node)
    if key == "expr":
        ranged = _RANGE.sub(lambda found: f"[{change(found[1])}]", node)
        return _OFFSET.sub(lambda found: f"offset {change(found[1])}", ranged)
    return node
