"""Helpers of tests lie in modules without tests."""

import ast
import re

from tests.checkout import ROOT

MAYBE = re.compile(r"^ *(from tests(.*|.*\([^)]*)|import .*)\btest_", re.MULTILINE)  # few: to parse all takes seconds


def modules_named(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [each.name for each in node.names]
    if isinstance(node, ast.ImportFrom):
        return [f"{node.module}.{each.name}" for each in node.names]
    return []


def test_no_module_imports_from_tests() -> None:
    """A helper that two modules use lies in neither's tests: a test can be moved, cut and made long alone."""
    wrong = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in (ROOT / "tests").rglob("*.py")
        if MAYBE.search(text := path.read_text("utf-8"))
        for node in ast.walk(ast.parse(text))
        for name in modules_named(node)
        if name.startswith("tests.") and any(part.startswith("test_") for part in name.split("."))
    }
    assert set() == wrong
