"""Guards the families of errors: every lost race is a `Conflict`, and each is caught by its own name."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy.exc import OperationalError

from grants.applying.requests import RequestConflict
from pipeline.base.errors import Conflict, Refused, first_line
from pipeline.control.registering.requests import SchemaRequestConflict
from pipeline.data.repair.rebuild import GenerationConflict
from pipeline.lake.delta.rewrite import RewriteConflict
from pipeline.lake.delta.table import TableConflict
from pipeline.store.assignments import AssignmentConflict
from pipeline.store.operations import OperationConflict
from pipeline.store.reopenings import ReopeningConflict
from tests.checkout import ROOT

FAMILY = {
    AssignmentConflict, GenerationConflict, OperationConflict, ReopeningConflict, RequestConflict, RewriteConflict,
    SchemaRequestConflict, TableConflict,
}  # fmt: skip


def trees() -> Iterator[tuple[Path, ast.AST]]:
    """Yield the modules of the product that name a conflict."""
    for package in ("app", "grants", "listeners", "pipeline"):
        for path in sorted((ROOT / package).rglob("*.py")):
            text = path.read_text("utf-8")
            if "Conflict" in text:
                yield path, ast.parse(text)


def test_every_conflict_is_of_the_family() -> None:
    """Every class that is named a conflict derives from `pipeline.base.errors.Conflict`."""
    nodes = (node for _, tree in trees() for node in ast.walk(tree))
    named = {node.name for node in nodes if isinstance(node, ast.ClassDef) and node.name.endswith("Conflict")}
    assert named == {"Conflict", *(each.__name__ for each in FAMILY)}
    assert all(issubclass(each, Conflict) for each in FAMILY)


def test_only_a_decided_request_is_shown_as_a_refusal() -> None:
    """The others are handled by their callers: as a `Refused` they would be shown to a person, and not retried."""
    assert {each for each in FAMILY if issubclass(each, Refused)} == {
        ReopeningConflict, RequestConflict, SchemaRequestConflict,
    }  # fmt: skip


def test_no_conflict_is_caught_for_another() -> None:
    """A handler that names the base would take a conflict over one thing for one over another."""
    wide = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.ExceptHandler) and node.type is not None
        for each in ast.walk(node.type)
        if isinstance(each, ast.Name) and each.id == "Conflict"
    ]
    assert wide == []


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("the first\nthe second"), "the first"),
        (ValueError(), "ValueError"),
        (OperationalError("SELECT 1", {}, Exception("database is locked\nhint")), "database is locked"),
    ],
)
def test_a_library_is_quoted_in_one_line(error: Exception, line: str) -> None:
    """Neither a library's stack nor a statement with its parameters reaches a person; something always does."""
    assert first_line(error) == line
