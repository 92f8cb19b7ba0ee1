"""Fixtures of the unit tests, for those of the pages, which Streamlit draws without a browser."""

from tests.unit.conftest import (  # noqa: F401 - fixtures
    _impatient,
    engine,
    house,
    opening,
    postgres,
    pytest_generate_tests,
    store,
)
