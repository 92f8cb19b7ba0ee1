"""Fixtures of the Spark tests, and the figures of a soak, printed as those of the proofs by crashes are."""

from pathlib import Path

import pytest

from tests.faults.conftest import (  # noqa: F401 - hooks
    pytest_runtest_setup,
    pytest_runtest_teardown,
    pytest_terminal_summary,
)
from tests.spark.conftest import faults, world  # noqa: F401 - fixtures


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark this folder's tests, which run by parts only."""
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker("long")
