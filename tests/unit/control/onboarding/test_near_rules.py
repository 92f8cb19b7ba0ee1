"""Which rule a name nearly matches: evidence for the person who decides, never a right."""

import pytest

from pipeline.control.onboarding.near_rules import NearRules
from tests.onboarding_world import rule, rule_set

RULES = NearRules(
    rule_set(
        rule("Chess", "Go", name="classics", prefixes=("studio-a/",)),
        rule(name="seasons", prefixes=("season-2026/", "s/")),
    )
)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Chess", None),  # a rule matches
        ("studio-a/x", None),
        ("chess", "classics (name 'Chess')"),
        ("CH\u200bESS ", "classics (name 'Chess')"),
        ("Chess 2", "classics (name 'Chess')"),
        ("Studio-A/x", "classics (prefix 'studio-a/')"),
        ("studio-b/x", "classics (prefix 'studio-a/')"),
        ("season-2027/x", "seasons (prefix 'season-2026/')"),
        ("S/x", "seasons (prefix 's/')"),  # short, but whole
        ("go-kart", None),  # two letters say nothing
        ("stud", None),
        ("ludo", None),
        ("", None),
    ],
)
def test_the_rule_with_most_of_a_name_is_named(name: str, expected: str | None) -> None:
    """Case, width, blanks and invisible marks do not count; a rule that matches is no near one."""
    near = RULES.of(name)
    assert (None if near is None else str(near)) == expected
