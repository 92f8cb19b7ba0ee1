"""Where tests lie, and that their helpers lie in modules without tests."""

import ast
import re
from collections.abc import Iterator
from contextlib import suppress

from tests.checkout import ROOT

MAYBE = re.compile(r"^ *(from tests(.*|.*\([^)]*)|import .*)\btest_", re.MULTILINE)  # few: to parse all takes seconds
RUN = "asyncio." + "run("  # where edge_world gives it to a thread, no bracket follows
OWN_ROOMS = {"bench", "control/model", "repo"}  # of no package: scripts, the model of steering, the checkout as a whole


def modules_named(text: str) -> Iterator[str]:
    """Yield what a module imports, and what programs in its texts do, which it starts as processes."""
    if not MAYBE.search(text):
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{each.name}" for each in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            with suppress(SyntaxError):  # prose
                yield from modules_named(node.value)


def test_no_module_imports_from_tests() -> None:
    """A helper that two modules use lies in neither's tests: a test can be moved, cut and made long alone."""
    wrong = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in (ROOT / "tests").rglob("*.py")
        for name in modules_named(path.read_text("utf-8"))
        if name.startswith("tests.") and any(part.startswith("test_") for part in name.split("."))
    }
    assert set() == wrong


def test_no_test_runs_a_loop_in_its_own_thread() -> None:
    """A test passes in whatever order: those of the browser leave a running loop in the thread of all tests."""
    calls = {str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("*.py") if RUN in path.read_text("utf-8")}
    assert calls == set()


def test_unit_tests_mirror_the_packages() -> None:
    """The path of a room is the path of its tests, so a room that moves takes them along."""
    unit, homes = ROOT / "tests" / "unit", (ROOT, ROOT / "pipeline")
    rooms = {str(path.parent.relative_to(unit)) for path in unit.rglob("test_*.py") if path.parent != unit}
    assert set() == {each for each in rooms - OWN_ROOMS if not any((home / each).is_dir() for home in homes)}
    loose = {path.name.removeprefix("test_") for path in unit.glob("test_*.py")}
    assert set() == {each for each in loose if not (ROOT / "pipeline" / each).exists()}
