"""Fixtures of the unit tests, for those that need a process beside them."""

from tests.unit.conftest import (  # noqa: F401 - fixtures
    _impatient,
    engine,
    house,
    opening,
    postgres,
    pytest_generate_tests,
    store,
)
