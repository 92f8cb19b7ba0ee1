"""Guards that the documents say what the code says: a document without a test would drift from it."""

import ast
import builtins
import re
import shlex
import threading
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from unittest.mock import Mock

import click
import pyarrow as pa
import pytest

from docs import generate
from docs.generate import commands
from grants.applying.executor import Executor
from listeners import families, metrics_schema
from listeners.bridge import families as bridge
from pipeline.control.controller import KINDS
from pipeline.data.ingest.sources.landing_log import LANDING
from pipeline.data.streams.writing.columns import OWN_COLUMNS
from pipeline.lake.delta.bronze import BRONZE
from pipeline.lake.delta.quarantine import QUARANTINE, REASONS
from pipeline.settings import parsing as setting_values
from pipeline.settings import tree as settings
from tests.checkout import ROOT
from tests.unit.repo.listed_metrics import listed_metrics

DOCS = ROOT / "docs"
PAGES = sorted(
    page for page in (*ROOT.glob("*.md"), *DOCS.glob("*.md"), *DOCS.glob("decisions/*.md")) if page.name != "plan.md"
)
PACKAGES = ("app", "grants", "listeners", "pipeline", "protos")
PLACE = re.compile(r"`((?:app|grants|listeners|pipeline|protos|tests)/[\w./]+\.\w+)(?:::(\w+))?`")


def page(name: str) -> str:
    return (DOCS / name).read_text("utf-8")


def entries(text: str, level: str = "##") -> dict[str, str]:
    """Return heading → what stands below it up to the next heading of the same or a higher level; none twice."""
    parts = re.split(rf"^(?=#{{1,{len(level)}}} )", text, flags=re.MULTILINE)
    found = [part.partition("\n") for part in parts if part.startswith(f"{level} ")]
    names = [head.removeprefix(f"{level} ").strip("`") for head, _, _ in found]
    assert len(names) == len(set(names)), f"a heading stands twice: {sorted(names)}"
    return {name: body for name, (_, _, body) in zip(names, found, strict=True)}


def table_rows(text: str) -> list[list[str]]:
    """Return the cells of every table row but the heads, without backticks."""
    rows = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in row] for row in rows]
    heads = {index - 1 for index, row in enumerate(cells) if set(row[0]) == {"-"}}
    return [row for index, row in enumerate(cells) if index not in heads and set(row[0]) != {"-"}]


# ------------------------------------------------------------------------------------------------------------ settings


def test_the_launchers_variables_are_told() -> None:
    """docs/settings.md names every variable that is not a setting."""
    assert (
        set(re.findall(r"^\| `(TURNOUT_\w+)`", page("settings.md"), re.MULTILINE)) == setting_values.RESERVED_VARIABLES
    )


def test_examples_of_settings_are_accepted(tmp_path: Path) -> None:
    """Every TOML example of the documents can be copied into a settings file."""
    examples = [
        found
        for each in PAGES
        for found in re.findall(r"^ *```toml\n(.*?)^ *```", each.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    ]
    assert examples
    for example in examples:
        tomllib.loads(example)
        (tmp_path / "turnout.toml").write_text(example, "utf-8")
        settings.load(tmp_path, {})


# ------------------------------------------------------------------------------------------------------------ commands


def options(command: click.Command) -> set[str]:
    return {param.opts[-1] for param in command.params if isinstance(param, click.Option)}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_command_lines_can_be_typed(path: Path) -> None:
    """Every turnout command line of a document names a command and options that exist."""
    known = dict(commands())
    for line in re.findall(r"^\s*\./turnout (.+)$", path.read_text("utf-8"), re.MULTILINE):
        words = shlex.split(line.partition("#")[0])
        if words[0] in {"setup", "test", "test-faults", "test-soak"}:  # the launcher's own
            continue
        named = (f"turnout {' '.join(words[:count])}" for count in (1, 2, 3))
        name = next((each for each in named if each in known), None)
        assert name is not None, line
        assert {word for word in words if word.startswith("--")} <= options(known[name]) | {"--help"}, line


# ------------------------------------------------------------------------------------------------------------- metrics


def test_every_metric_has_an_entry_with_type_labels_and_unit() -> None:
    """docs/metrics.md names exactly the families a process can tell, each with type, labels and unit."""
    spelled = set()
    for module, prefix in ((families, ""), (bridge, "metrics_serve_")):
        source = Path(str(module.__file__)).read_text("utf-8")
        found = re.findall(r"""_(?:counter|gauge)\(\s*"(\w+)"|Family\(\s*f"\{(?:PREFIX|_SERVE)\}(\w+)""", source)
        spelled |= {families.PREFIX + prefix + (a or b) for a, b in found}
    reported = listed_metrics()
    assert spelled == {name.removesuffix("_total") for name in reported}
    text = entries(page("metrics.md"), "###")
    assert sorted(reported) == sorted(text)
    for name, (kind, labels) in reported.items():
        first = text[name].strip().splitlines()[0]
        said = re.fullmatch(r"(\w+)\. Labels: (.+?)\. Unit: (.+)\.", first)
        assert said is not None, f"{name}: {first}"
        assert (kind, labels) == (said[1].lower(), tuple(re.findall(r"`(\w+)`", said[2]))), name


# ---------------------------------------------------------------------------------------------------------------- data

_TYPES = {
    pa.string(): "string",
    pa.int64(): "long",
    pa.int32(): "int",
    pa.float64(): "double",
    pa.bool_(): "boolean",
    pa.binary(): "binary",
    pa.date32(): "date",
    pa.timestamp("us", "UTC"): "timestamp",
    pa.map_(pa.string(), pa.int64()): "map of string to long",
    pa.map_(pa.string(), pa.float64()): "map of string to double",
    pa.list_(metrics_schema.QUERY): (
        "list of struct of query: string, input_rows: long, durations: map of string to long"
    ),
    pa.list_(metrics_schema.TYPE): "list of struct of event_type: string, rows: long, refused: long",
    pa.list_(pa.int32()): "list of int",
    BRONZE.field("headers").type: "list of struct of key: string, value: binary",
}
_TABLES = {
    "Landing": LANDING,
    "Bronze": BRONZE,
    "Game tables": OWN_COLUMNS,
    "Quarantine": QUARANTINE,
    **{f"Metrics: {table.name}": table.schema for table in metrics_schema.TABLES},
}


@pytest.mark.parametrize("table", _TABLES)
def test_every_column_has_a_line(table: str) -> None:
    """docs/data.md names each column of each table with its type, in order, and says what it means."""
    rows = table_rows(entries(page("data.md"))[table])
    assert [[field.name, _TYPES[field.type]] for field in _TABLES[table]] == [
        [row[0].strip("`"), row[1]] for row in rows
    ]
    assert all(row[2] for row in rows)


def test_every_reason_is_explained() -> None:
    """docs/data.md says what each reason code means."""
    rows = table_rows(entries(page("data.md"))["Reasons"])
    assert list(REASONS) == [row[0].strip("`") for row in rows]


# ----------------------------------------------------------------------------------- map, walk, promises, decisions


def raised(tree: ast.AST) -> Iterator[str]:
    """Yield the names that docstrings list under Raises."""
    kinds = ast.FunctionDef | ast.ClassDef | ast.Module
    for node in ast.walk(tree):
        section = re.search(
            r"^Raises:\n((?: +.*\n?)+)", (isinstance(node, kinds) and ast.get_docstring(node)) or "", re.MULTILINE
        )
        yield from re.findall(r"^    (\w+):", section.group(1), re.MULTILINE) if section else ()


def test_what_docstrings_say_is_raised_exists() -> None:
    """An exception that was renamed is renamed where callers read of it."""
    texts = {path: path.read_text("utf-8") for package in PACKAGES for path in (ROOT / package).rglob("*.py")}
    ours = {name for text in texts.values() for name in re.findall(r"^ *class (\w+)", text, re.MULTILINE)}
    wrong = []
    for path in (path for path, text in texts.items() if "Raises:" in text):
        tree = ast.parse(texts[path])
        imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
        known = ours | set(dir(builtins)) | {each.asname or each.name for node in imports for each in node.names}
        wrong += [f"{path.relative_to(ROOT)}: {name}" for name in raised(tree) if name not in known]
    assert wrong == []


def folders() -> set[str]:
    """Return every folder with modules that people wrote; migrations are one with the store."""
    files = [path.relative_to(ROOT) for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    by_people = [path for path in files if path.stem != "__init__" and not re.search(r"_pb2(_grpc)?$", path.stem)]
    return {str(path.parent) for path in by_people if "migrations" not in path.parts}


def test_the_map_names_every_folder() -> None:
    """docs/walk.md has one line per folder of the program, none twice, and none that does not exist."""
    named = [row[0].strip("`") for row in table_rows(entries(page("walk.md"))["Map"])]
    assert len(named) == len(set(named))
    assert sorted(folders()) == sorted(named)


def test_planes_are_in_their_order() -> None:
    """docs/walk.md has the planes of `pipeline` in the order that import-linter checks."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    (planes,) = [each["layers"] for each in contracts if each["id"] == "planes"]
    named = [row[0].replace("`", "").replace(", ", " | ") for row in table_rows(entries(page("walk.md"))["Planes"])]
    assert named == [each.strip("()") for each in planes]


@cache
def functions(path: Path) -> frozenset[str]:
    tree = ast.parse(path.read_text("utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef))


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_named_files_and_tests_exist(path: Path) -> None:
    """A file or test that a document names is there."""
    for file, function in PLACE.findall(path.read_text("utf-8")):
        assert (ROOT / file).exists(), file
        assert not function or function in functions(ROOT / file), f"{file}::{function}"


@pytest.mark.parametrize("walk", ["How a record travels", "How a click travels", "How a grant travels"])
def test_every_step_of_a_walk_has_a_place_and_a_guard(walk: str) -> None:
    """A step of a walk names a module and a test."""
    for step, where, guard in table_rows(entries(page("walk.md"))[walk]):
        assert PLACE.search(where), step
        assert all(function for _, function in PLACE.findall(guard)), step
        assert PLACE.search(guard), step


def test_steps_are_documented_by_the_names_that_people_see() -> None:
    """What `ops show` and the page Operations list is what the documents explain."""
    lines = (page("steering.md") + page("access.md")).splitlines()
    explained = {name for line in lines if line.startswith("| ") for name in line[2:].partition(" | ")[0].split(", ")}
    access = Executor(Mock(), threading.Event()).kind()
    kinds = [access, *(KINDS[kind] for kind in ("move", "replay", "dedupe", "rebuild"))]
    assert {step.name for kind in kinds for step in kind.steps} <= explained


def test_every_promise_names_its_law_and_a_test() -> None:
    """A promise without a test that proves it is not one."""
    promises = re.findall(r"^- \*\*(G\d+)\*\*(.*?): ", page("guarantees.md"), re.MULTILINE)
    laws = dict(promises)
    assert laws
    assert len(laws) == len(promises), "one id for two promises"
    assert all(re.fullmatch(r"( \(L\d+(, L\d+)*\))?", each) for each in laws.values())
    assert sorted(laws) == sorted(each for each in generate.proven(ROOT / "tests") if each.startswith("G"))


def test_every_fault_has_a_line_and_a_test() -> None:
    """docs/faults.md has each fault once, in order; a test proves each one that applies."""
    outcomes = dict(re.findall(r"^- \*\*([ABDH]\d+): (?s:.*?)\.\*\* (.*)", page("faults.md"), re.MULTILINE))
    sections = {"A": 32, "B": 30, "D": 23}
    expected = [f"{section}{number}" for section, end in sections.items() for number in range(1, end)]
    expected += [f"H{number}" for number in (*range(1, 11), 13, 14)]  # of the app; the others come with a workspace
    assert list(outcomes) == expected
    applies = {name for name, outcome in outcomes.items() if not outcome.startswith("Does not apply")}
    assert applies == {each for each in generate.proven(ROOT / "tests") if not each.startswith("G")}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_no_row_of_a_table_is_long(path: Path) -> None:
    """Readers take in a table at a glance: longer texts are lists or sections."""
    lines = [] if path.name == "CHANGELOG.md" else path.read_text("utf-8").splitlines()
    assert [line for line in lines if line.startswith("|") and len(line) > 200] == []


ASSIGNED: frozenset[int] = frozenset()  # decisions of work under way; empty before a release


def test_decisions_are_numbered_and_short() -> None:
    """A decision is one page with context, decision and consequences; no number lacks but those of work under way."""
    found = sorted(DOCS.glob("decisions/*.md"))
    numbers = [int(path.name[:4]) for path in found]
    assert len(set(numbers)) == len(numbers)
    assert {*numbers, *ASSIGNED} == set(range(1, max(numbers) + 1))
    for path in found:
        text = path.read_text("utf-8")
        parts = re.findall(r"^(?:## |\*\*)(Context|Decision|Consequences)\b", text, re.MULTILINE)
        assert parts == ["Context", "Decision", "Consequences"], path.name
        assert len(text.split()) <= 450, f"{path.name} is longer than a page"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    """Links of the documents lead to files of this checkout, and no address but this machine's is written down."""
    text = path.read_text("utf-8")
    targets = re.findall(r"\]\(([^)#]+)", text)
    assert [target for target in targets if not (path.parent / target).exists()] == []
    assert re.findall(r"https?://(?!127\.0\.0\.1)\S+", text) == []
