"""The game of a live demo that nobody knows until it appears: the onboarding rule that makes it a game."""

from dataclasses import replace
from typing import Final

from sqlalchemy import Engine

from pipeline.base.actor import current_user
from pipeline.control.onboarding import rule_proposals, rules_file
from pipeline.demo.simulator import game_names
from pipeline.settings.tree import Settings
from pipeline.store.onboarding import onboarded_names
from pipeline.store.onboarding_rules import ALL_TYPES, OnboardingRule, read_rules

RULE: Final = "newcomer"
GROUP: Final = "b"
READERS: Final = ("analysts",)


def expect(settings: Settings, engine: Engine, games: int, seed: int, *, hostile: bool) -> str:
    """Apply a rule for the last game of a simulation, with a group, a priority, a policy and readers; say so.

    Raises:
        Refused: another person has applied rules at the same moment, or this user may not apply them.
    """
    name, rules = game_names(games, seed, hostile=hostile)[-1], read_rules(engine)
    given = OnboardingRule(
        RULE, prefixes=(name,), group=GROUP, priority="high", policies=(("incompatible", "side-column"),),
        readers=READERS, event_types=(ALL_TYPES,),
    )  # fmt: skip
    if name in onboarded_names(engine).values():
        return f"{name!r} is a game since an earlier run"
    others = [each for each in rules.rules if each.name != RULE]
    text = rules_file.render((*others, replace(given, changed_by=current_user())))
    planned = rule_proposals.plan(settings, engine, text, current_user())
    if planned.changes:
        rule_proposals.apply(settings, engine, planned, current_user(), "turnout demo")
    return f"{name!r} is no game until it appears; the onboarding rule {RULE} waits for it"
