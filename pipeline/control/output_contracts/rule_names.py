"""Output contracts for the games of onboarding rules: the names of a rule stand in the contract, as it was applied.

A pass reads them with the numbered contracts, so a changed rule changes no contract by itself; a plan says it.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from pipeline.base.errors import Refused
from pipeline.base.texts import join_limited, meant
from pipeline.data.output_contracts.rules import OutputContract, RuleNames
from pipeline.store.onboarding_rules import OnboardingRule, RuleSet


def bound(contracts: Iterable[OutputContract], rules: RuleSet) -> tuple[OutputContract, ...]:
    """Return contracts with the names that their onboarding rules are for now.

    Raises:
        Refused: a rule does not exist, or is for names of some formats only.
    """
    found = tuple(contracts)
    named = dict.fromkeys(of.rule for each in found for of in each.by_rules)
    for name in named:
        if name not in rules.by_name:
            near = meant(name, rules.by_name)
            raise Refused(f"No such onboarding rule: {name}.{near} `turnout games rules list` lists them.")
        if rules.by_name[name].formats:
            raise Refused(
                f"The onboarding rule {name} is for names of some formats, which no contract can tell by name."
            )
    now = {name: _names(rules.by_name[name], rules) for name in named}
    return tuple(replace(each, by_rules=tuple(now[of.rule] for of in each.by_rules)) for each in found)


def outdated(contracts: Iterable[OutputContract], rules: RuleSet) -> Iterator[str]:
    """Yield a sentence for each contract whose onboarding rules are for other names now, or are gone."""
    for each in contracts:
        known = {of.rule: _names(rules.by_name[of.rule], rules) for of in each.by_rules if of.rule in rules.by_name}
        if changed := [of.rule for of in each.by_rules if known.get(of.rule) != of]:
            of = f"rule{'' if len(changed) == 1 else 's'} {join_limited(changed)}"
            yield f"The output contract {each.name} keeps the names of {of} until contracts are applied again."


def _names(rule: OnboardingRule, rules: RuleSet) -> RuleNames:
    """Return the names of a rule by name, without those that a nearer rule has."""
    others = [each for each in rules.rules if each.name != rule.name and not each.formats]
    return RuleNames(
        rule.name,
        rule.names,
        rule.prefixes,
        tuple(sorted(name for each in others for name in each.names if name.startswith(rule.prefixes))),
        tuple(sorted(name for each in others for name in each.prefixes if name.startswith(rule.prefixes))),
    )
