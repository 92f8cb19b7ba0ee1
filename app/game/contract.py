"""The output contract of a game as rows of a table: what each rule promises, what it does, how many rows broke it.

Pure. Every text of a rule goes through `formatting.shown`.
"""

from collections.abc import Mapping
from typing import Final

from app import formatting
from app.look.tokens import Tone
from pipeline.api.contracts import Action, ContractRule, GameContracts, OutputContract, freshness_of, label
from pipeline.base.texts import join_limited
from pipeline.health.facts.fleet import GameRow
from pipeline.health.verdicts.freshness import FreshnessPart

ACTIONS: Final[Mapping[Action, str]] = {"warn": "△ warn", "quarantine": "◆ quarantine", "stop": "■ stop"}
TONES: Final[Mapping[str, Tone]] = {ACTIONS["warn"]: "plain", ACTIONS["quarantine"]: "risk", ACTIONS["stop"]: "late"}

_SHOWN: Final = 6  # allowed values
_LONGEST: Final = 80


def table(found: GameContracts, broken: Mapping[str, int] | None) -> list[dict[str, object]]:
    """Return a row for each rule, those that rows broke first; `broken` has their numbers, None: nobody knows."""
    rules = [(contract, rule) for contract in found.contracts for rule in contract.rules]
    if broken is not None:
        rules.sort(key=lambda each: -broken.get(label(*each), 0))
    return [_row(contract, rule, broken) for contract, rule in rules]


def freshness(found: GameContracts, row: GameRow, now: float) -> list[str]:
    """Return a line for each part of the promises of freshness; `now` is Unix seconds by the store's clock."""
    return [
        formatting.shown(f"{_glyph(part)} {verdict.promise.contract}: {part.text}", 2 * _LONGEST)
        for verdict in freshness_of(found.contracts, row, now)
        for part in verdict.parts
    ]


def _glyph(part: FreshnessPart) -> str:
    return "▲" if not part.is_kept else "✓" if part.is_known else formatting.UNKNOWN_VALUE


def promise(rule: ContractRule) -> str:
    """Return what a column's values are, in words."""
    said = ["never null"] if rule.required else []
    said += [] if rule.type is None else [rule.type]
    said += _between(rule.min, rule.max, "")
    said += [] if rule.pattern is None else [f"matches {rule.pattern}"]
    said += [f"one of {join_limited([str(each) for each in rule.allowed], _SHOWN)}"] if rule.allowed else []
    said += [f"none of {join_limited([str(each) for each in rule.forbidden], _SHOWN)}"] if rule.forbidden else []
    said += _between(rule.min_length, rule.max_length, " long")
    return formatting.shown(" · ".join(said), 2 * _LONGEST)


def _between(least: object, most: object, unit: str) -> list[str]:
    if least is None and most is None:
        return []
    if least is not None and most is not None:
        return [f"{least} to {most}{unit}"]
    return [f"at least {least}{unit}" if most is None else f"at most {most}{unit}"]


def _row(contract: OutputContract, rule: ContractRule, broken: Mapping[str, int] | None) -> dict[str, object]:
    name = label(contract, rule)
    types = join_limited(contract.event_types, _SHOWN)
    return {
        "Rule": formatting.shown(name, _LONGEST),
        "Column": formatting.shown(rule.column, _LONGEST),
        "Promise": promise(rule),
        "Action": [ACTIONS[rule.action]],
        "Rows that break it": formatting.UNKNOWN_VALUE if broken is None else formatting.count(broken.get(name, 0)),
        "Event types": formatting.shown(types, _LONGEST) if types else "all",
        "Readers": formatting.shown(join_limited(contract.readers, _SHOWN), _LONGEST),
    }
