"""A flood of unknown names by volume; the few of them are in `tests/spark/test_cardinality.py`."""

from typing import Any

import pytest

from tests.spark.test_cardinality import require_a_flood_costs_nothing


@pytest.mark.timeout(900)
def test_a_hundred_thousand_names_cost_nothing_that_grows(world: Any) -> None:
    """G10, C8, C9: 100,000 names cost no table, no series, no memory; a registered game among them loses nothing."""
    require_a_flood_costs_nothing(world, 100_000)
