"""A flood of unknown names by volume; few of them are in `tests/spark/test_cardinality.py` and `tests/unit`."""

from pathlib import Path
from typing import Any

import pytest

from tests.spark.flood_world import require_a_flood_costs_nothing
from tests.unit.data.ingest.sketch_laws import require_names_cost_next_to_nothing


@pytest.mark.timeout(900)
@pytest.mark.proves("G85")
def test_a_hundred_thousand_names_cost_nothing_that_grows(world: Any) -> None:
    """G10, C8, C9: 100,000 names cost no table, no series, no memory; a registered game among them loses nothing."""
    require_a_flood_costs_nothing(world, 100_000)


@pytest.mark.proves("G85")
def test_a_million_names_cost_next_to_nothing(tmp_path: Path) -> None:
    """Goal G10: what ingest keeps after a million random names is as small as after fifty thousand."""
    require_names_cost_next_to_nothing(tmp_path, batches=21)
