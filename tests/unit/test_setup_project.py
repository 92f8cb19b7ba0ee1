import re
from itertools import combinations
from pathlib import Path

import pytest

import app
import grants
import listeners
import pipeline
import protos

ROOT = Path(__file__).parents[2]
LOCKS = ("requirements.lock", "requirements-dev.lock", "requirements-s3.lock")


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name.partition("[")[0]).lower()


def locked(file: str) -> dict[str, str]:
    text = (ROOT / file).read_text("utf-8")
    return {canonical(name): version for name, version in re.findall(r"^([\w.\[\]-]+)==(\S+)", text, re.MULTILINE)}


@pytest.mark.parametrize("file", LOCKS)
def test_every_locked_package_has_hashes(file: str) -> None:
    """Nothing is installed whose bytes were not locked."""
    text = (ROOT / file).read_text("utf-8")
    blocks = re.split(r"^(?=[a-z])", text, flags=re.MULTILINE)[1:]
    assert len(blocks) == len(locked(file)) > 0
    assert [block.splitlines()[0] for block in blocks if "--hash=sha256:" not in block] == []


@pytest.mark.parametrize(("source", "lock"), [(file.replace(".lock", ".in"), file) for file in LOCKS])
def test_lock_answers_what_is_asked_for(source: str, lock: str) -> None:
    """A changed requirement cannot be forgotten in the lock."""
    calls = re.findall(r"^([a-z][\w.\[\]-]*)(?:==(\S+))?", (ROOT / source).read_text("utf-8"), re.MULTILINE)
    answers = locked(lock)
    assert calls
    assert {name: answers.get(canonical(name)) for name, _ in calls if canonical(name) not in answers} == {}
    assert {name: answers[canonical(name)] for name, pin in calls if pin and answers[canonical(name)] != pin} == {}


def test_no_lock_moves_a_package_of_another() -> None:
    """What is tested is what runs, and set-ups of one environment follow each other in any order."""
    for first, second in combinations([locked(file) for file in LOCKS], 2):
        both = first.keys() & second.keys()
        assert {name: (first[name], second[name]) for name in both if first[name] != second[name]} == {}


def test_setuptools_ends_the_lock() -> None:
    """The launcher installs the lock's end first, because pyspark is built with the setuptools that stands there."""
    assert list(locked(LOCKS[0]))[-1] == "setuptools"


@pytest.mark.parametrize(
    "file", [*LOCKS, "requirements.in", "requirements-dev.in", "requirements-s3.in", "pipeline/setup/ivysettings.xml"]
)
def test_no_download_address_is_written_down(file: str) -> None:
    """Where things come from is the user's own client configuration."""
    assert "://" not in (ROOT / file).read_text("utf-8")
    assert not re.search(
        r"^\s*--(extra-)?(index-url|find-links|trusted-host)", (ROOT / file).read_text("utf-8"), re.MULTILINE
    )


def test_packages_are_those_of_this_checkout() -> None:
    """Short package names do not pick up somebody else's code."""
    assert {Path(str(each.__file__)).parent.parent for each in (app, grants, listeners, pipeline, protos)} == {ROOT}
