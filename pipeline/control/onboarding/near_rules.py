"""Which onboarding rule a name nearly matches: evidence for a person who decides about the name, never a right."""

from bisect import bisect_left
from dataclasses import dataclass
from itertools import takewhile
from typing import Final

from pipeline.data.ingest.onboarding import confusable_form
from pipeline.store.onboarding_rules import RuleSet

_LEAST: Final = 3  # letters that a name and a pattern must have in common


@dataclass(frozen=True, slots=True)
class NearRule:
    """A rule that a name misses, and the exact name or prefix of it that comes closest."""

    rule: str
    pattern: str
    is_prefix: bool

    def __str__(self) -> str:
        return f"{self.rule} ({'prefix' if self.is_prefix else 'name'} {self.pattern!r})"


class NearRules:
    """The names and prefixes of a set of rules, to be compared without case, width, blanks and invisible marks."""

    def __init__(self, rules: RuleSet) -> None:
        """Sort them, so that a look-up compares two of each kind."""
        found = [
            (confusable_form(pattern), NearRule(rule.name, pattern, is_prefix))
            for rule in rules.rules
            for patterns, is_prefix in ((rule.names, False), (rule.prefixes, True))
            for pattern in patterns
        ]
        self._rules = rules
        self._sorted = [sorted((each for each in found if each[1].is_prefix == kind), key=_order) for kind in (0, 1)]

    def of(self, name: str) -> NearRule | None:
        """Return the rule of which a name has the most letters in common, at least half of them.

        None where there is none, or where a rule matches the name.
        """
        if self._rules.match(name) is not None:
            return None
        form = confusable_form(name)
        best: tuple[int, NearRule] | None = None
        for known in self._sorted:
            place = bisect_left(known, form, key=lambda each: each[0])
            for pattern, near in known[max(0, place - 1) : place + 1]:  # no other one begins with more of its letters
                common = _common(pattern, form)
                whole = len(pattern) if near.is_prefix else max(len(pattern), len(form))
                is_near = 0 < common == whole or (common >= _LEAST and 2 * common >= whole)
                if is_near and (best is None or common > best[0]):
                    best = common, near
        return None if best is None else best[1]


def _common(first: str, second: str) -> int:
    """Return how many letters two texts have in common at their beginning."""
    pairs = zip(first, second, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _order(found: tuple[str, NearRule]) -> str:
    return found[0]
