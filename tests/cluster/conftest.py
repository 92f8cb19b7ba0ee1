"""Marks the tests of a cluster, which run by parts only."""

from pathlib import Path

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark this folder's tests as long."""
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker("long")
