"""Onboarding rules that a person applies: first what they would change and for whom, then the write.

Called by `turnout games rules plan | apply` and by the page Games. They are written at once, without an operation, if
nobody was faster; games that exist are never touched.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from sqlalchemy import Engine

from pipeline.base.errors import Refused
from pipeline.base.texts import first_lines, join_limited
from pipeline.control import gate
from pipeline.control.acts import DirectAct
from pipeline.control.onboarding import rules_file
from pipeline.control.output_contracts.rule_names import outdated
from pipeline.control.roles import Role, require_current
from pipeline.data.ingest.formats_before import read_formats
from pipeline.data.ingest.pending import Waiting, pending
from pipeline.data.output_contracts.rules import loads
from pipeline.settings.tree import Settings
from pipeline.store import onboarding_rules
from pipeline.store.groups import read_groups
from pipeline.store.onboarding_rules import OnboardingRule, RuleSet, read_rules
from pipeline.store.operations import hash_of
from pipeline.store.output_contracts import read_contracts

_SHOWN: Final = 20


@dataclass(frozen=True, slots=True, eq=False)
class RulesProposal:
    """Rules as they would be, beside those that are in force."""

    seen: RuleSet
    rules: tuple[OnboardingRule, ...]
    lines: tuple[str, ...]  # for people; raw texts are in them
    coming: tuple[Waiting, ...]  # waiting names that become games with their next rows, and do not by today's rules
    changes_readers: bool  # games get readers by it that they do not get today

    @property
    def changes(self) -> bool:
        """Whether anything changes."""
        return self.rules != self.seen.rules

    @property
    def hash(self) -> str:
        """Return a hash of the rules before and after."""
        return hash_of({"seen": self.seen.number, "rules": rules_file.render(self.rules)})


def plan(settings: Settings, engine: Engine, text: str, actor: str) -> RulesProposal:
    """Plan to replace the rules by those of a file's text.

    Raises:
        Refused: naming everything that is wrong with the file; or a group of a rule does not exist.
    """
    seen, given = read_rules(engine), rules_file.parse(text)
    known = read_groups(engine)
    if missing := sorted({each.group for each in given if each.group is not None} - known.keys()):
        raise Refused(f"No such group: {join_limited(missing)}. Create it first: `turnout groups create {missing[0]}`.")
    before = seen.by_name
    same = {each.name: before[each.name] for each in given if _is_kept(each, before)}
    rules = tuple(same.get(each.name) or replace(each, changed_by=actor) for each in given)
    lines = tuple(_differences(seen.rules, rules))
    contracts = loads(read_contracts(engine).contracts)
    lines += tuple(outdated(contracts, RuleSet(rules=rules))) if lines else ()
    coming = tuple(_coming(settings, engine, rules)) if lines else ()
    gains = any(each.readers and each.name not in same for each in rules) or _gain_readers(seen, RuleSet(rules=rules))
    return RulesProposal(seen, rules, (*lines, *_effects(coming, changes=bool(lines))), coming, gains)


def apply(settings: Settings, engine: Engine, proposal: RulesProposal, actor: str, reason: str) -> RuleSet:
    """Write planned rules, with their audit entry.

    Raises:
        Refused: the actor has not the role for it, or gives no reason; a rule with readers is new, changed or for more
            names than today, and the actor is no access admin; or another person has applied rules meanwhile. Then
            nothing is written.
    """
    gate.permit(settings, engine, actor, DirectAct.CHANGE_RULES, reason)
    if proposal.changes_readers:
        require_current(settings, engine, actor, Role.ACCESS_ADMIN, "apply rules with readers")
    return onboarding_rules.apply(engine, proposal.rules, proposal.seen.number, actor, reason)


def _is_kept(rule: OnboardingRule, before: dict[str, OnboardingRule]) -> bool:
    return rule.name in before and before[rule.name].content == rule


def _gain_readers(before: RuleSet, then: RuleSet) -> bool:
    """Return whether names fall to a rule with readers who would not read them today, as another rule goes."""
    rules = (*before.rules, *then.rules)
    below = (f"{each}\0" for rule in rules for each in ("", *rule.prefixes))  # no name or prefix has NUL
    probes = {*(each for rule in rules for each in rule.names), *below}
    formats = {None, *(each for rule in rules for each in rule.formats)}
    return any(
        set(_readers(then, name, each)) - set(_readers(before, name, each)) for name in probes for each in formats
    )


def _readers(rules: RuleSet, name: str, payload_format: str | None) -> tuple[str, ...]:
    return () if (match := rules.match(name, payload_format)) is None else match.rule.readers


def _coming(settings: Settings, engine: Engine, rules: tuple[OnboardingRule, ...]) -> Iterator[Waiting]:
    formats = read_formats(settings, engine)
    today = {each.game for each in pending(engine, settings.onboarding, formats=formats).names if each.comes}
    then = pending(engine, settings.onboarding, rules=RuleSet(rules=rules), formats=formats).names
    return (each for each in then if each.comes and each.game not in today)


def _effects(coming: tuple[Waiting, ...], *, changes: bool) -> Iterator[str]:
    if not changes:
        yield "Nothing to change: these rules are in force."
        return
    yield from first_lines(
        coming, _SHOWN, lambda each: f"{each.game!r} ({each.rows:,} rows) becomes a game by {each.rule}"
    )
    yield f"{len(coming)} waiting names become games with their next rows. Games that exist stay as they are."


def _differences(before: Iterable[OnboardingRule], then: Iterable[OnboardingRule]) -> Iterator[str]:
    """Yield a line for each rule that is added, changed or removed."""
    was, now = ({each.name: _fields(each) for each in rules} for rules in (before, then))
    for name, fields in now.items():
        if name not in was:
            yield f"+ {name}: {'; '.join(f'{field} {value}' for field, value in fields.items())}"
        elif was[name] != fields:
            changed = [field for field in {**was[name], **fields} if was[name].get(field) != fields.get(field)]
            parts = (f"{each} {was[name].get(each, '-')} → {fields.get(each, '-')}" for each in changed)
            yield f"~ {name}: {'; '.join(parts)}"
    yield from (f"- {name}" for name in was if name not in now)
    if [*was] != [*now] and was.keys() == now.keys():
        yield "The rules are in another order, which decides nothing."


def _fields(rule: OnboardingRule) -> dict[str, str]:
    fields = rules_file.tree(rule)
    fields = {**fields.pop("match"), **{name: value for name, value in fields.items() if name != "name"}}
    return {name: ", ".join(map(str, each)) if isinstance(each, list) else str(each) for name, each in fields.items()}
