"""Onboarding rules for tests, applied without a file."""

from typing import Any

from sqlalchemy import Engine

from pipeline.store.onboarding_rules import OnboardingRule, RuleSet, apply, read_rules


def rule(*names: str, name: str = "test", **more: Any) -> OnboardingRule:
    """Return a rule for exact names, and with `prefixes` for those that begin so."""
    return OnboardingRule(name, names, changed_by="ann", **more)


def rule_set(*rules: OnboardingRule) -> RuleSet:
    """Return rules as if they were in force."""
    return RuleSet(1, rules)


def give_rules(engine: Engine, *rules: OnboardingRule) -> RuleSet:
    """Apply rules in place of all others."""
    return apply(engine, rules, read_rules(engine).number, "ann", "for a test")
