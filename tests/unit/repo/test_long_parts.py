"""Every long test is in one part, and a part says where the code of its subject changed since it was green."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import hypothesis
import pytest
from hypothesis import strategies as st

from tests.checkout import ROOT
from tests.examples import ORDINARY, fewer_examples

ALL_LONG = ("faults", "soak", "cluster")  # folders whose tests are all long, by their conftest
LIMIT_MINUTES = 25

PYPROJECT = """
[tool.turnout.long-parts]
owners = { minutes = 1, tests = ["tests/test_owners.py"], subject = ["code/owners"] }
moves = { minutes = 2, tests = ["tests/test_moves.py"], subject = ["code/moves.py"] }
"""
PYTHON = """#!/bin/sh
echo "$@" >>"$0.calls"
for each; do case $each in --junit-xml=*) echo '<testcase ><testcase >' >"${each#--junit-xml=}" ;; esac; done
[ ! -e "$0.red" ]
"""
"""Stands for an interpreter with pytest, whose start takes seconds."""


def module_at(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    return module_at(ROOT / ".ci" / "long_parts.py")


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with two parts and their code, committed; pytest is a stub beside it."""
    for name in [each for each in os.environ if each.startswith(("GIT_", "PROOF_", "SOAK_", "DAY_"))]:
        monkeypatch.delenv(name)
    python = tmp_path / "python"
    python.write_text(PYTHON)
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    files = {
        "pyproject.toml": PYPROJECT,
        "tests/test_owners.py": "D = 1\n",
        "tests/test_moves.py": "E = 1\n",
        "code/owners/lease.py": "A = 1\n",
        "code/moves.py": "B = 1\n",
    }
    for name, text in files.items():
        (tmp_path / "home" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "home" / name).write_text(text)
    git(tmp_path / "home", "init", "-q")
    commit(tmp_path / "home")
    return tmp_path / "home"


def git(folder: Path, *arguments: str) -> None:
    who = ("-c", "user.name=ann", "-c", "user.email=ann@localhost", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True)


def commit(folder: Path) -> None:
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "all")


def warned(tool: ModuleType, checkout: Path) -> list[str]:
    return [line.partition(":")[0] for line in tool.warnings(checkout)]


def test_each_file_with_long_tests_is_in_one_part(tool: ModuleType) -> None:
    """Law of the tiers: what no part has is never run."""
    marked = {
        str(file.relative_to(ROOT))
        for file in (ROOT / "tests").rglob("test_*.py")
        if file.relative_to(ROOT).parts[1] in ALL_LONG or re.search(r"\bmark\.long\b", file.read_text("utf-8"))
    }
    listed = [test for part in tool.parts().values() if "marks" not in part for test in part["tests"]]
    assert sorted(listed) == sorted(marked)


@pytest.mark.parametrize(("most", "ordinary"), [(100, 25), (12, 5), (3, 3)])
def test_the_ordinary_run_tries_a_quarter_of_the_examples(most: int, ordinary: int) -> None:
    """A quarter is tried in each run, and all of them by the part `examples`, which has all folders with such tests."""
    tried = []

    @hypothesis.settings(max_examples=most, database=None)
    @hypothesis.given(st.integers())
    def tries(number: int) -> None:
        tried.append(number)

    fewer_examples(tries)
    tries()
    assert len(tried) == ordinary
    assert f"-m '{ORDINARY}'" in (ROOT / "turnout").read_text("utf-8")


def test_the_part_examples_has_all_tests_with_random_ones(tool: ModuleType) -> None:
    """The part has each folder with random examples, or their other three quarters would never run."""
    part = tool.parts()["examples"]
    assert part["marks"] == f"hypothesis and {ORDINARY}"
    found = {
        f"tests/{file.relative_to(ROOT).parts[1]}"
        for file in (ROOT / "tests").rglob("test_*.py")
        if re.search(r"^@given\(", file.read_text("utf-8"), re.MULTILINE)
    }
    assert found <= {*part["tests"], *(f"tests/{each}" for each in ALL_LONG)}


def test_each_part_has_a_subject_and_an_end(tool: ModuleType) -> None:
    """A path that is gone would never change; a part above 25 minutes is run by nobody."""
    for name, part in tool.parts().items():
        assert part["subject"], name
        assert not [path for path in part["subject"] if not (ROOT / path).exists()], name
        assert 0 < part["minutes"] <= LIMIT_MINUTES, name
    assert set(tool.results()) <= set(tool.parts())


def test_a_green_run_is_noted_until_its_subject_changes(tool: ModuleType, checkout: Path) -> None:
    """A note is of a commit: another part's code changes nothing, the part's own code and tests do."""
    assert warned(tool, checkout) == ["owners", "moves"]
    assert tool.run(["owners", "moves"], ["-k", "some"], checkout) == 0
    assert warned(tool, checkout) == ["owners", "moves"], "options may leave tests out"
    assert tool.run(["owners", "moves"], ["-q"], checkout) == 0
    assert warned(tool, checkout) == []
    (noted,) = [each for name, each in tool.results(checkout).items() if name == "owners"]
    assert noted["passed"] == 2
    calls = (checkout.parent / "python.calls").read_text()
    assert calls.count("-m pytest -m long ") == 4
    assert calls.endswith(" -q tests/test_moves.py\n")
    commit(checkout)
    (checkout / "code" / "owners" / "new.py").write_text("C = 1\n")
    commit(checkout)
    assert warned(tool, checkout) == ["owners"]
    (checkout / "tests" / "test_moves.py").write_text("E = 2\n")
    commit(checkout)
    assert warned(tool, checkout) == ["owners", "moves"]


@pytest.mark.parametrize("why", ["red", "uncommitted", "less"])
def test_a_run_that_proves_nothing_is_not_noted(
    tool: ModuleType, checkout: Path, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    """A failed run, code that no commit has, and a smaller amount leave the part as it was."""
    if why == "red":
        (checkout.parent / "python.red").touch()
    elif why == "uncommitted":
        (checkout / "code" / "owners" / "lease.py").write_text("A = 2\n")
    else:
        monkeypatch.setenv("PROOF_KILLS", "1")
    assert tool.run(["owners"], [], checkout) == (1 if why == "red" else 0)
    assert tool.results(checkout) == {}


def test_parts_that_are_not_there_are_named_with_those_that_are() -> None:
    """A run of no part lists all parts with their minutes."""
    command = [sys.executable, str(ROOT / ".ci" / "long_parts.py")]
    for words, said in (((), "name a part"), (("owners", "nobody"), "there is no part nobody")):
        done = subprocess.run([*command, *words], check=False, capture_output=True, text=True)
        assert done.returncode == 2
        assert said in done.stderr
        assert "owners" in done.stderr
