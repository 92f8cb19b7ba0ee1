"""Output contracts for the games of onboarding rules."""

import pytest

from pipeline.base.errors import Refused
from pipeline.control.output_contracts.rule_names import bound, outdated
from pipeline.data.output_contracts.rules import ContractRule, OutputContract, RuleNames, dumps, loads
from pipeline.store.onboarding_rules import OnboardingRule, RuleSet

RULES = RuleSet(
    rules=(
        OnboardingRule("a", names=("Chess",), prefixes=("a/", "a/b/c/")),
        OnboardingRule("b", names=("a/own",), prefixes=("a/b/",)),
        OnboardingRule("json", prefixes=("j/",), formats=("json",)),
    )
)
CONTRACT = OutputContract("sales", rules=(ContractRule("p", "p", min=0),), by_rules=(RuleNames("a"),))


def test_a_contract_is_for_the_names_that_its_rule_is_for() -> None:
    """A contract and the onboarding rule agree about every name: the exact one counts, then the longest prefix."""
    (made,) = bound([CONTRACT], RULES)
    names = ("Chess", "a/x", "a/own", "a/b/x", "a/b/c/x", "a/b/c", "a", "j/x", "Go")
    for name in names:
        match = RULES.match(name)
        assert made.is_for(name) == (match is not None and match.rule.name == "a"), name
    assert loads(dumps([made])) == (made,)


def test_a_changed_rule_is_named_and_an_unknown_one_refused() -> None:
    """A contract keeps the names it was applied with, so a pinned number means one thing; a person learns of it."""
    (made,) = bound([CONTRACT], RULES)
    assert list(outdated([made], RULES)) == []
    assert list(outdated([made], RuleSet())) == [
        "The output contract sales keeps the names of rule a until contracts are applied again."
    ]
    for rule, said in (("A", "No such onboarding rule: A"), ("json", "is for names of some formats")):
        with pytest.raises(Refused, match=said):
            bound([OutputContract("c", by_rules=(RuleNames(rule),))], RULES)
