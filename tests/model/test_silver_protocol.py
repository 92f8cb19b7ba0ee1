"""Guards that silver's protocol keeps its laws in every order of its steps, and that no rule of it is idle."""

from dataclasses import replace

import pytest

from tests.model.silver_spec import Commit, SilverRules, SilverState, explore

BEGIN = SilverState((Commit(((0, "x"),)),), landings=("x", "y"), kills=1)
WORLDS = {
    "rows come while two drivers carry it": BEGIN,
    "its game is rebuilt": replace(BEGIN, landings=("x",), changes=("rebuild",)),
    "a row is removed": replace(BEGIN, landings=("x",), changes=("removal",)),
    "its game is compacted and the log is cut": replace(BEGIN, landings=("x",), changes=("compaction", "cleanup")),
    "its definition changes": replace(BEGIN, landings=("x",), changes=("definition",)),
    "a power cut takes a commit": replace(BEGIN, landings=("y",), kills=0, changes=("power cut",)),
}


@pytest.mark.parametrize("name", WORLDS)
def test_silver_is_exact_at_each_version_in_every_order(name: str) -> None:
    """Laws L3 to L5, L7, L12 and L15 for silver: in every order of steps, kills and changes of a small world."""
    found = explore(WORLDS[name], SilverRules())
    assert found.broken is None, "\n".join((found.broken or "", *found.trace))
    assert found.states > 100


@pytest.mark.parametrize(
    ("rule", "name"),
    [
        ("compares", "rows come while two drivers carry it"),
        ("compares_generations", "its game is rebuilt"),
        ("sees_removals", "a row is removed"),
        ("asks", "its definition changes"),
        ("knows_commits", "a power cut takes a commit"),
        ("looks_again", "rows come while two drivers carry it"),
    ],
)
def test_without_a_rule_a_law_of_silver_breaks(rule: str, name: str) -> None:
    """Each rule of silver's protocol is needed: without it some order breaks a law."""
    assert explore(WORLDS[name], replace(SilverRules(), **{rule: False})).broken is not None
