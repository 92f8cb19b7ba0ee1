import re
from collections import Counter
from itertools import combinations
from pathlib import Path

import pytest

import app
import grants
import listeners
import pipeline
import protos
from tests.checkout import ROOT

SOURCES = {
    "requirements.lock": ("requirements.in", "requirements-app.in", "requirements-edge.in", "requirements-local.in"),
    "requirements-app.lock": ("requirements.in", "requirements-app.in"),
    "requirements-dev.lock": ("requirements-dev.in",),
    "requirements-s3.lock": ("requirements-s3.in",),
}
LOCKS = tuple(SOURCES)
LISTS = sorted(file.name for file in ROOT.glob("requirements*.in"))


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


def stated(file: str) -> dict[str, str]:
    """Return what a list requires, by name; empty where any version will do."""
    text = (ROOT / file).read_text("utf-8")
    return {
        canonical(name): version
        for name, version in re.findall(r"^([a-z][\w.-]*)(?:\[.*?\])?(.*)$", text, re.MULTILINE)
    }


def test_each_version_stands_in_one_list() -> None:
    """A version is changed at one place, and what pip installs cannot depend on which list was read."""
    assert {"requirements.in", "requirements-glue.in"} < set(LISTS)
    places = [name for file in LISTS for name, version in stated(file).items() if version]
    assert {name for name in places if places.count(name) > 1} == set()


@pytest.mark.parametrize(("source", "lock"), [(source, lock) for lock, lists in SOURCES.items() for source in lists])
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


def test_the_app_is_locked_as_a_laptop_is() -> None:
    """A Databricks App installs a part of what the tests ran with, without Spark and without its tools."""
    whole, app = locked("requirements.lock"), locked("requirements-app.lock")
    assert app.items() <= whole.items()
    assert app.keys() & {"delta-spark", "grpcio", "grpcio-tools", "py4j", "pyspark", "setuptools", "tqdm"} == set()


def test_setuptools_ends_the_lock() -> None:
    """The launcher installs the lock's end first, because pyspark is built with the setuptools that stands there."""
    assert list(locked(LOCKS[0]))[-1] == "setuptools"


@pytest.mark.parametrize("file", [*LOCKS, *LISTS, "pipeline/platforms/local/ivysettings.xml"])
def test_no_download_address_is_written_down(file: str) -> None:
    """Where things come from is the user's own client configuration."""
    assert "://" not in (ROOT / file).read_text("utf-8")
    assert not re.search(
        r"^\s*--(extra-)?(index-url|find-links|trusted-host)", (ROOT / file).read_text("utf-8"), re.MULTILINE
    )


def test_packages_are_those_of_this_checkout() -> None:
    """Short package names do not pick up somebody else's code."""
    assert {Path(str(each.__file__)).parent.parent for each in (app, grants, listeners, pipeline, protos)} == {ROOT}


CLASS = re.compile(r"^class (\w+)", re.MULTILINE)
SHARED_NAMES = frozenset(
    {
        "Absent", "Action", "Alerts", "Change", "Databricks", "Decoder", "Demux", "Field", "Found", "Framing",
        "Game", "GameTable", "Gate", "Given", "Group", "Held", "Identity", "Ingest", "Kind", "Known", "Need",
        "Onboarding", "Opened", "Point", "ReferenceDecoder", "Roles", "Schemas", "Seen", "Settled", "Sources",
        "Step", "Storage", "Union", "Version", "Waiting", "Writer",
    }
)  # fmt: skip
"""Public classes of the product that have a namesake in another module. Names may only leave this list."""


def test_a_class_has_a_name_of_its_own() -> None:
    """A name means one thing: who reads `Reading` or `Need` need not look up which one it is."""
    files = [path for package in (app, grants, listeners, pipeline) for path in Path(package.__path__[0]).rglob("*.py")]
    names = Counter(name for path in files for name in CLASS.findall(path.read_text("utf-8")))
    assert {name for name, count in names.items() if count > 1 and name[0] != "_"} - SHARED_NAMES == set()
