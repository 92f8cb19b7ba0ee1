"""A kind of process is named once: other code iterates over the registries, or imports a name."""

import ast
import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Final, get_args

import pytest

from listeners import process_kinds
from pipeline.base.names import Backend
from pipeline.control.backends.starting import STARTING
from pipeline.store.backends import BACKENDS
from tests.checkout import ROOT

NAMES: Final = {"INGEST", "GROUP", "CONTROLLER", "MAINTENANCE"}
KINDS: Final = {getattr(process_kinds, name) for name in NAMES}
QUOTED: Final = re.compile(rf"""["']({"|".join(sorted(KINDS))})["']""")
ROOMS: Final = ("app", "grants", "listeners", "pipeline")
OWNERS: Final = ("listeners/process_kinds.py", "pipeline/health/kinds/", "pipeline/control/kinds.py")
COMPARING: Final = (*OWNERS, "listeners/", "pipeline/store/", "pipeline/demo/breaking/")
"""Where a name of a kind may be compared: in its own room, in rows, and in faults, whose targets are named so."""

OTHER_WORDS: Final = {
    "grants/": "a group of the catalog is a kind of principal",
    "app/access/": "a group of the catalog is a kind of principal",
    "listeners/stream_id.py": "a query may be ingest's",
    "pipeline/control/operations/definition.py": "an operation is about games or groups",
    "pipeline/demo/breaking/faults.py": "a fault hits a group, a driver or a game",
}


def literals(node: ast.AST) -> Iterator[str]:
    """Yield the texts in a node that are names of kinds."""
    for each in ast.walk(node):
        if isinstance(each, ast.Constant) and isinstance(each.value, str) and each.value in KINDS:
            yield each.value


def faults(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield lines in which a kind's literal is compared, listed as a `Literal`, or given or taken as `kind`."""
    for node in ast.walk(tree):
        parts: list[ast.AST] = []
        match node:
            case ast.Compare():
                parts = [each for each in (node.left, *node.comparators) if not isinstance(each, ast.Subscript)]
            case ast.MatchValue():
                parts = [node]
            case ast.Subscript(value=ast.Name("Literal")):
                parts = [node.slice]
            case ast.keyword(arg="kind"):
                parts = [node.value]
            case ast.AnnAssign(target=ast.Name("kind"), value=ast.expr() as value):
                parts = [value]
            case ast.arguments():
                pairs = [*zip(node.args[::-1], node.defaults[::-1], strict=False)]
                pairs += [(arg, value) for arg, value in zip(node.kwonlyargs, node.kw_defaults, strict=True) if value]
                parts = [value for arg, value in pairs if arg.arg == "kind"]
            case _:
                continue
        for part in parts:
            yield from ((getattr(part, "lineno", 0), f"the literal {name!r}") for name in literals(part))


def compared(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield lines that compare with a kind's name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            listed = [each.elts for each in node.comparators if isinstance(each, ast.Set | ast.List | ast.Tuple)]
            sides = (node.left, *node.comparators, *chain.from_iterable(listed))
            names = [each.id for each in sides if isinstance(each, ast.Name) and each.id in NAMES]
            yield from ((node.lineno, f"a comparison with {name}") for name in names)


def found_in(text: str, place: str) -> list[str]:
    spells = QUOTED.search(text) is not None and not place.startswith((*OWNERS, *OTHER_WORDS))
    imports = "listeners.process_kinds import" in text and not place.startswith(COMPARING)
    tree = ast.parse(text if spells or imports else "")
    found = [*(faults(tree) if spells else ()), *(compared(tree) if imports else ())]
    return [f"{place}:{line}: {what}" for line, what in found]


def test_no_code_asks_for_a_kind_of_process_but_the_rooms_that_own_it() -> None:
    """A further kind touches no other module: nothing compares with a kind, or spells one."""
    files = [path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))]
    places = [(path, path.relative_to(ROOT).as_posix()) for path in files]
    found = [each for path, place in places for each in found_in(path.read_text("utf-8"), place)]
    assert not found, "\n".join(found)


def asks_for_backend(tree: ast.AST) -> Iterator[int]:
    """Yield the lines that compare a backend with a text."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            sides = (node.left, *node.comparators)
            names = {getattr(each, "attr", getattr(each, "id", None)) for each in sides}
            texts = [each for side in sides for each in ast.walk(side) if isinstance(each, ast.Constant)]
            if "backend" in names and any(isinstance(each.value, str) for each in texts):
                yield node.lineno


def test_no_code_asks_for_a_backend_by_its_name() -> None:
    """A further backend is a value of `BACKENDS` and, where it starts something, of `STARTING`."""
    files = [path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))]
    texts = [(path, text) for path in files if "backend" in (text := path.read_text("utf-8"))]
    found = [f"{path.relative_to(ROOT)}:{line}" for path, text in texts for line in asks_for_backend(ast.parse(text))]
    assert not found, "\n".join(found)
    assert [*BACKENDS] == [*get_args(Backend)]
    assert {name for name, each in BACKENDS.items() if each.starts} == STARTING.keys()
    assert [*asks_for_backend(ast.parse('if group.backend not in {None, "none"}: pass'))] == [1]


def test_no_page_asks_for_a_kind_of_operation() -> None:
    """A page draws what an operation's definition says: a further kind touches no page."""
    found = []
    for path in sorted((ROOT / "app").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            sides = (node.left, *node.comparators) if isinstance(node, ast.Compare) else ()
            kinds = [
                each for each in sides if isinstance(each, ast.Attribute) and ast.unparse(each.value) == "OperationKind"
            ]
            found += [f"{path.relative_to(ROOT)}:{each.lineno}" for each in kinds]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "text",
    [
        'if each.kind == "group": pass',
        'x = kind in {"ingest", "group"}',
        'Kind = Literal["ingest", "edge"]',
        'start(kind="controller")',
        'def run(kind: str = "maintenance"): ...',
        'def run(*, kind: str = "maintenance"): ...',
        'class Run:\n    kind: str = "group"',
        'match kind:\n    case "group": pass',
        "from listeners.process_kinds import GROUP\nif kind == GROUP: pass",
    ],
)
def test_each_way_to_ask_for_a_kind_is_seen(text: str) -> None:
    """The check above finds every form."""
    assert len(found_in(text, str(Path("pipeline") / "any.py"))) >= 1
