"""Random worlds by volume; a few of each kind are in the quick tests, which these call."""

import pytest

from tests.tables.dedupe_laws import require_the_original
from tests.tables.replay_laws import require_any_order_adds_up
from tests.unit.grants.observing.resolver_model import require_what_a_slow_model_says

pytestmark = pytest.mark.timeout(1800)


def test_two_hundred_orders_of_passes_and_repairs_add_up(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Law L5 after every step: each row at or below the cursor is in the table or in quarantine, once."""
    require_any_order_adds_up(tmp_path_factory, orders=200)


def test_a_table_that_was_doubled_in_a_hundred_ways_becomes_the_original_one(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """However often and across which files rows were doubled, what stays is the table without any doubling."""
    require_the_original(tmp_path_factory, doublings=100)


@pytest.mark.parametrize("emulated", [False, True])
def test_the_resolver_says_what_a_slow_model_says_of_five_thousand_hierarchies(emulated: bool) -> None:
    """Every answer is the one of trying all that was not read as forbidden and as allowed."""
    require_what_a_slow_model_says(range(5_000), emulated=emulated)
