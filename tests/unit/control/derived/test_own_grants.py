"""A silver or gold table that is granted by itself shows no more after a change of definitions."""

from dataclasses import replace

import pytest

from pipeline.base.errors import Refused
from pipeline.control.derived.own_grants import require_no_more_shown, require_own_games
from pipeline.data.derived.definitions import Aggregate, Definition, GoldDefinition, SilverDefinition

SOLD = SilverDefinition("sold", "Chess", "Sold", mask=(("email", "hash"), ("user.phone", "drop")))
HOURS = GoldDefinition("hours", SOLD, 3600, (Aggregate("n", "count"),), ("item",))
GRANTED = {"silver__sold": 2, "gold__hours": 1}


@pytest.mark.parametrize(
    ("then", "more"),
    [
        (replace(SOLD, game="Go"), "rows of another game"),
        (replace(SOLD, type="Left"), "rows of another game or event type"),
        (replace(SOLD, mask=SOLD.mask[:1]), "user.phone"),
        (replace(SOLD, mask=(("email", "drop"), ("user.phone", "hash"))), "user.phone"),
        (replace(HOURS, silver=replace(SOLD, mask=())), "email, user.phone"),
        (replace(HOURS, by=("item", "email")), "other aggregates"),
        (replace(HOURS, aggregates=(Aggregate("n", "max", "email"),)), "other aggregates"),
    ],
)
def test_a_change_that_shows_more_is_refused_while_the_table_is_granted_by_itself(then: Definition, more: str) -> None:
    """A mask that goes, or other rows or aggregates, need the grants revoked first; without such grants they do not."""
    before: list[Definition] = [SOLD, HOURS]
    with pytest.raises(Refused, match=rf"{then.kind}__{then.name} is granted by itself to . principals.*{more}"):
        require_no_more_shown(before, [then], GRANTED)
    require_no_more_shown(before, [then], {"silver__other": 1})


@pytest.mark.parametrize(
    "then",
    [
        replace(SOLD, within=60, own_grants=True),
        replace(SOLD, mask=(("email", "drop"), ("user", "drop"), ("zip", "hash"))),
        replace(HOURS, lateness=0),
    ],
)
def test_a_change_that_shows_no_more_passes(then: Definition) -> None:
    """Further and stronger masks, and what decides about duplicates or lateness, change for readers nothing to see."""
    require_no_more_shown([SOLD, HOURS], [then], GRANTED)


def test_a_name_that_returns_waits_until_old_grants_are_revoked() -> None:
    """A table that was not in force a moment ago takes over no grant that was made for an earlier one of its name."""
    with pytest.raises(Refused, match="silver__sold was another table, of which 2 grants are not revoked yet"):
        require_no_more_shown([HOURS], [SOLD, HOURS], GRANTED)
    require_no_more_shown([SOLD, HOURS], [], GRANTED)


@pytest.mark.parametrize("then", [replace(SOLD, game="Go"), replace(HOURS, silver=replace(SOLD, game="Go"))])
@pytest.mark.parametrize(
    "past", [[[SOLD, HOURS]], [[], [SOLD, HOURS]], [[], [SOLD, HOURS], [replace(SOLD, game="Go")]]]
)
def test_a_name_stays_with_its_game(then: Definition, past: list[list[Definition]]) -> None:
    """Readers of a game never get older versions of a table that show rows of another game."""
    with pytest.raises(Refused, match=f"{then.name} was a {then.kind} table of 'Chess', .* table of 'Go' another name"):
        require_own_games(past, [then])
    require_own_games(past, [replace(SOLD, mask=()), replace(HOURS, by=()), replace(SOLD, name="go", game="Go")])


def test_a_name_stays_with_the_new_name_of_its_game() -> None:
    """A rename of a game, which applies definitions itself, decides for later files."""
    require_own_games([[replace(SOLD, game="Go")], [SOLD]], [replace(SOLD, game="Go")])
