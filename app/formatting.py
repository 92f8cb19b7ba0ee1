"""Turns values into the words, glyphs and colours a person reads; every page spells them here.

Pure: no Streamlit, no clock. What is unknown is a dash, never 0.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal

from listeners.status import Status
from pipeline.api.audit import AccessChange
from pipeline.api.operations import OperationState, OperationWords
from pipeline.base.texts import (
    UNKNOWN_VALUE,
    age,
    clock,
    cores,
    count,
    duration,
    exact,
    first_lines,
    game_text,
    join_limited,
    moment,
    principal_text,
    rate,
    visible,
)

__all__ = [
    "DRIVER_TONES",
    "OPERATION_TONES",
    "STATUS_STYLES",
    "UNKNOWN_VALUE",
    "StatusStyle",
    "Tone",
    "access_text",
    "age",
    "clock",
    "cores",
    "count",
    "driver_text",
    "duration",
    "escaped",
    "exact",
    "game_text",
    "moment",
    "operation_text",
    "operation_title",
    "principal_text",
    "rate",
    "shown",
    "status_text",
    "step_text",
    "target_text",
    "targets_text",
]

Tone = Literal["well", "late", "risk", "bad", "busy", "blind", "plain"]
"""How a thing is: what a colour means, whatever the theme."""

_QUIET, _BUSY, _WATCH, _LATE, _BLIND, _BROKEN = "#88888855", "#56B4E9", "#F0E442", "#E69F00", "#CC79A7", "#D55E00"
_MARKDOWN: Final = re.compile(r"([\\`*_{}\[\]()<>#+\-.!|~$:&@=^\"'/])")
_LINKED: Final = re.compile(r"(?i)(?=@)|(?<=http)(?=s?://)|(?<=www)(?=\.)")  # where Markdown sees an e-mail or a URL
_NOTHING: Final = ":small[]"  # an empty element
_COMMAND: Final = re.compile(r"`((?:turnout|kill|databricks|producers|--) [^`\n]+)`")  # as errors and advice quote one
_LONGEST: Final = 300


@dataclass(frozen=True, slots=True)
class StatusStyle:
    """How one status is shown: a glyph and a word always, a colour (Okabe-Ito) for trouble only.

    Glyphs are of the dashboard's own font: others would be drawn differently on each machine.
    """

    glyph: str
    word: str
    tone: Tone
    colour: str
    ink: str  # colour of a glyph that stands on `colour`


STATUS_STYLES: Final[Mapping[str, StatusStyle]] = MappingProxyType(
    {
        Status.RUNNING: StatusStyle("●", "running", "well", _QUIET, "#888888"),
        Status.PAUSED: StatusStyle("‖", "paused", "plain", _QUIET, "#888888"),
        Status.STARTING: StatusStyle("…", "starting", "busy", _BUSY, "#111111"),
        Status.BACKFILLING: StatusStyle("«", "backfilling", "busy", _BUSY, "#111111"),
        Status.CATCHING_UP: StatusStyle("»", "catching up", "busy", _BUSY, "#111111"),
        Status.AT_RISK: StatusStyle("△", "at risk", "risk", _WATCH, "#111111"),
        Status.LAGGING: StatusStyle("▲", "lagging", "late", _LATE, "#111111"),
        Status.UNKNOWN: StatusStyle("?", "unknown", "blind", _BLIND, "#111111"),
        Status.MISSING: StatusStyle("○", "missing", "blind", _BLIND, "#111111"),
        Status.STALLED: StatusStyle("■", "stalled", "bad", _BROKEN, "#111111"),
        Status.FAILED: StatusStyle("✗", "failed", "bad", _BROKEN, "#111111"),
        Status.CRASH_LOOP: StatusStyle("▼", "crash loop", "bad", _BROKEN, "#111111"),
    }
)


_OPERATIONS: Final[Mapping[str, str]] = MappingProxyType(
    {
        OperationState.PLANNED: "○ planned",
        OperationState.RUNNING: "» running",
        OperationState.VERIFYING: "» verifying",
        OperationState.NEEDS_HUMAN: "▲ needs a person",
        OperationState.SUCCEEDED: "✓ succeeded",
        OperationState.FAILED: "✗ failed",
        OperationState.CANCELLED: "– cancelled",
    }
)
_STEPS: Final[Mapping[str, str]] = MappingProxyType({"running": "… waits", "done": "✓ done", "failed": "✗ failed"})


_DRIVERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "not_started": "○ never started",
        "starting": "… starting",
        "running": "● running",
        "stopped": "○ stopped",
        "failed": "✗ failed",
        "dead": "✗ dead",
        "unknown": "? unknown",
    }
)


DRIVER_TONES: Final[Mapping[str, Tone]] = MappingProxyType(
    {
        "not_started": "plain",
        "starting": "busy",
        "running": "well",
        "stopped": "plain",
        "failed": "bad",
        "dead": "bad",
        "unknown": "blind",
    }
)
OPERATION_TONES: Final[Mapping[str, Tone]] = MappingProxyType(
    {
        OperationState.PLANNED: "plain",
        OperationState.RUNNING: "busy",
        OperationState.VERIFYING: "busy",
        OperationState.NEEDS_HUMAN: "late",
        OperationState.SUCCEEDED: "well",
        OperationState.FAILED: "bad",
        OperationState.CANCELLED: "plain",
    }
)


def driver_text(state: str) -> str:
    """Return glyph and word of a driver's judged state."""
    return _DRIVERS[state]


def operation_text(state: str) -> str:
    """Return glyph and words of an operation's state; one this version does not know is shown as it is."""
    return _OPERATIONS.get(state) or f"? {shown(state, 20)}"


def operation_title(words: OperationWords, names: Mapping[str, str]) -> str:
    """Return what people call an operation: `drain of group b`, not its kind and all of its games."""
    return f"{shown(words.verb, 24)} of {targets_text(words.about, names)}"


def step_text(state: str) -> str:
    """Return glyph and word of a step's state."""
    return _STEPS.get(state) or f"? {shown(state, 20)}"


def target_text(target: str, names: Mapping[str, str]) -> str:
    """Return a target (game:KEY or group:NAME) by the name people know it by."""
    kind, _, name = target.partition(":")
    if kind == "game":
        return shown(names.get(name, name), 60)
    if kind == "reader":
        return shown(name, 60)
    return f"{shown(kind, 20)} {shown(name, 60)}"


def targets_text(targets: Sequence[str], names: Mapping[str, str], most: int = 3) -> str:
    """Name the first few targets, and how many more there are; a dash where none is given."""
    if not targets:
        return UNKNOWN_VALUE
    return join_limited(targets, most, lambda target: target_text(target, names))


def access_text(changes: Sequence[AccessChange], names: Mapping[str, str], most: int = 3) -> str:
    """Say the first few changes of access, and how many more there are."""
    return "; ".join(first_lines(changes, most, lambda change: shown(change.sentence(names), 200)))


def status_text(status: str) -> str:
    """Return glyph and word of a status, so that it is readable without colour."""
    return f"{STATUS_STYLES[status].glyph} {STATUS_STYLES[status].word}"


def shown(text: str, longest: int = _LONGEST) -> str:
    """Return a text as `visible` does, with the commands in it as they are typed: no page draws their backticks."""
    return visible(_COMMAND.sub(r"\1", text), longest)


def escaped(text: str) -> str:
    """Return a foreign text that Markdown shows letter by letter, for the places that know nothing but Markdown.

    Links are made of what looks like one after backslashes and entities are resolved, so an empty element stands in it,
    which is neither seen nor copied.
    """
    return _NOTHING.join(_MARKDOWN.sub(r"\\\1", part) for part in _LINKED.split(shown(text)))
