"""Requirements of the wheel: enough for its code, and nothing that a Databricks runtime must keep."""

import ast
import sys
import zipfile
from collections.abc import Iterator
from email.message import Message
from email.parser import Parser
from importlib.metadata import PackageNotFoundError, distribution, packages_distributions

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from pipeline.platforms.databricks.deploy.build import build_wheel
from tests.checkout import ROOT
from tests.packaging.runtime import KEPT, REPLACED, RUNTIME

OURS = {"app", "docs", "grants", "listeners", "pipeline", "protos", "tests"}
TOOLS = {"protos.generate"}
"""Modules that run in a checkout alone."""
ON_A_LAPTOP = {"moto", "werkzeug"}
"""The demo imports these for servers that `./turnout setup --s3` installs."""


@pytest.fixture(scope="module")
def metadata(tmp_path_factory: pytest.TempPathFactory) -> Message:
    """Build the wheel and read what it says of itself."""
    wheel = build_wheel(ROOT, tmp_path_factory.mktemp("wheel")).path
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (each for each in archive.namelist() if each.endswith(".dist-info/METADATA"))
        return Parser().parsestr(archive.read(name).decode())


def required(metadata: Message, extra: str = "") -> list[Requirement]:
    found = (Requirement(each) for each in metadata.get_all("Requires-Dist", []))
    return [each for each in found if _applies(each, {extra})]


def closure(roots: list[Requirement], *, on_runtime: bool = False) -> Iterator[Requirement]:
    """Yield requirements and all that they require, as what is installed here says; on a runtime less is installed."""
    waiting, seen = list(roots), set[str]()
    while waiting:
        each = waiting.pop()
        yield each
        if str(each) not in seen and not (on_runtime and fits_runtime(each)):
            seen.add(str(each))
            try:
                below = map(Requirement, distribution(each.name).requires or [])
            except PackageNotFoundError:
                continue
            waiting += [inner for inner in below if _applies(inner, {"", *each.extras})]


def fits_runtime(requirement: Requirement) -> bool:
    """Return whether a runtime has this in a fitting version, so that pip leaves it alone."""
    version = RUNTIME.get(canonicalize_name(requirement.name))
    return version is not None and requirement.specifier.contains(version)


def _applies(requirement: Requirement, extras: set[str]) -> bool:
    environment = {str(key): str(value) for key, value in default_environment().items()}
    marker = requirement.marker
    return marker is None or any(marker.evaluate({**environment, "extra": extra}) for extra in extras)


def imported(*packages: str) -> Iterator[tuple[str, str]]:
    """Yield each foreign module that ours import, at the top or inside a function, with the module that does."""
    for file in (each for package in packages for each in (ROOT / package).rglob("*.py")):
        module = ".".join(file.relative_to(ROOT).with_suffix("").parts)
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for name in (each.partition(".")[0] for each in names):
                if name not in OURS | sys.stdlib_module_names:
                    yield name, module


def uncovered(names: set[str], *packages: str) -> set[str]:
    """Return what these packages import and none of the distributions has."""
    owners = packages_distributions()
    return {
        f"{name} in {module}"
        for name, module in imported(*packages)
        if module not in TOOLS and not {canonicalize_name(each) for each in owners.get(name, [name])} & names
    }


def names_of(requirements: Iterator[Requirement]) -> set[str]:
    return {canonicalize_name(each.name) for each in requirements}


def test_the_wheel_requires_nothing_that_spark_of_a_runtime_is_made_of(metadata: Message) -> None:
    """On a cluster pip must not put another PySpark, Delta or pyarrow over the runtime's."""
    core = names_of(iter(required(metadata)))
    assert {"alembic", "confluent-kafka", "deltalake", "duckdb", "obstore", "psycopg", "ptars", "sqlalchemy"} < core
    assert core & (KEPT - {"protobuf"}) == set()
    assert all(fits_runtime(each) for each in required(metadata) if each.name == "protobuf")


def test_of_a_runtimes_packages_only_known_ones_are_replaced(metadata: Message) -> None:
    """Requirements of the wheel and its libraries are there in a fitting version, or known to be installed anew."""
    needs = {each for each in closure(required(metadata), on_runtime=True) if not fits_runtime(each)}
    replaced = names_of(iter(needs)) & RUNTIME.keys()
    assert replaced == REPLACED
    assert replaced & KEPT == set()


def test_every_import_is_required_or_of_the_runtime(metadata: Message) -> None:
    """On a cluster no import fails: each module of a job is the wheel's, a requirement's or the runtime's."""
    beside = ON_A_LAPTOP | names_of(iter(required(metadata, "edge")))  # no edge runs on a cluster
    there = names_of(closure(required(metadata))) | RUNTIME.keys() | beside
    assert uncovered(there, "grants", "listeners", "pipeline", "protos") == set()


def test_every_import_of_the_dashboard_is_of_the_app(metadata: Message) -> None:
    """An app gets no runtime: what pages and grants import comes with the wheel's core and the extra app."""
    there = names_of(closure([*required(metadata), *required(metadata, "app")]))
    assert uncovered(there, "app", "grants") == set()
    assert there & {"pyspark", "delta-spark", "grpcio-tools"} == set()


def test_an_edge_needs_the_extra_edge_alone(metadata: Message) -> None:
    """A machine with an edge, or a producer in Python, gets no Spark, no dashboard and no compiler."""
    there = names_of(closure([*required(metadata), *required(metadata, "edge")]))
    assert uncovered(there, "pipeline/edge") == set()
    assert there & {"pyspark", "delta-spark", "streamlit", "grpcio-tools"} == set()


def test_a_laptop_gets_everything(metadata: Message) -> None:
    """The extra local brings what a runtime or an app would, and the compiler of .proto files."""
    local = names_of(iter(required(metadata, "local")))
    assert names_of(iter(required(metadata, "app"))) | {"pyspark", "delta-spark", "grpcio-tools"} < local
    there = names_of(closure([*required(metadata), *required(metadata, "local"), *required(metadata, "glue")]))
    assert uncovered(there | ON_A_LAPTOP, "app", "grants", "listeners", "pipeline", "protos") == set()
