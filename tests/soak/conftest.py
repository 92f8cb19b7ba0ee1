"""Fixtures of the Spark tests, and the figures of a soak, printed as those of the proofs by crashes are."""

from tests.faults.conftest import (  # noqa: F401 - hooks
    pytest_runtest_setup,
    pytest_runtest_teardown,
    pytest_terminal_summary,
)
from tests.spark.conftest import faults, world  # noqa: F401 - fixtures
