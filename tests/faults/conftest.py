"""Fixtures of the proof by crashes: those of the Spark tests; and its figures, which are printed at the end."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults import figures
from tests.spark.conftest import each_source, faults, world  # noqa: F401 - fixtures
from tests.storage.served import served

LONGEST_FIRST = (
    "test_random.py",
    "test_access_edits.py",
    "test_in_process.py",
    "test_owners.py",
    "test_sigkill.py",
    "test_steering.py",
    "test_control_model.py",
)
"""Files that begin first, a computing beside a waiting one; the others follow in order."""


@pytest.fixture(params=[False, True], ids=["folder", "bucket"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Yield the URL below which an environment's tables are, empty: in its folder."""
    if not request.param:
        yield ""
        return
    with served(tmp_path / "objects") as url:
        yield url


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let the long proofs begin first; other folders' tests keep their place before these."""
    here = Path(__file__).parent
    for item in items:
        if item.path.parent == here:
            item.add_marker("long")
    items.sort(key=lambda item: _rank(item.path.name) if item.path.parent == here else -1)


def _rank(file: str) -> int:
    return LONGEST_FIRST.index(file) if file in LONGEST_FIRST else len(LONGEST_FIRST)


def pytest_runtest_setup() -> None:
    """Count a test's figures from zero."""
    figures.begin()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Keep with the test's report what it recorded, while its fail-points still know what went off."""
    faults_of_test = getattr(item, "funcargs", {}).get("faults")
    if faults_of_test is not None:
        figures.record_faults(sum(faults_of_test.fired().values()))
    if found := figures.recorded():
        item.user_properties.append(("figures", found))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what the proofs said, then the table of what they counted."""
    kinds = ("passed", "failed", "error", "")  # the last one: set-up and teardown
    reports = [each for kind in kinds for each in terminalreporter.getreports(kind)]
    reported = [each for each in reports if each.passed and each.when == "call" and each.capstdout.strip()]
    if reported:
        terminalreporter.section("figures")
    for report in reported:
        terminalreporter.write_line(report.nodeid.rpartition("::")[2])
        for line in report.capstdout.strip().splitlines():
            terminalreporter.write_line(f"    {line}")
    if lines := figures.table(reports):
        terminalreporter.section("table of the proofs")
    for line in lines:
        terminalreporter.write_line(line)
