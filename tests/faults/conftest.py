"""Fixtures of the proof by crashes: those of the Spark tests; and its figures, which are printed at the end."""

import pytest

from tests.spark.conftest import faults, world  # noqa: F401 - fixtures


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what the proofs counted."""
    told = [each for each in terminalreporter.getreports("passed") if each.when == "call" and each.capstdout.strip()]
    if told:
        terminalreporter.section("figures")
    for report in told:
        terminalreporter.write_line(report.nodeid.rpartition("::")[2])
        for line in report.capstdout.strip().splitlines():
            terminalreporter.write_line(f"    {line}")
