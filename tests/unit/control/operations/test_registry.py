"""Every kind of operation has one whole definition."""

import subprocess
import sys
from collections.abc import Iterator

import pytest

from pipeline.base import extensions
from pipeline.base.errors import Refused
from pipeline.control.operations import registry
from pipeline.control.roles import Role
from pipeline.store.database.states import OperationKind
from tests.processes.heavy_modules import HEAVY


@pytest.mark.parametrize("kind", OperationKind)
def test_a_kind_has_one_definition(kind: OperationKind) -> None:
    """A kind without its own definition would take another role and other steps."""
    found = registry.find(kind)
    assert found is not None
    assert found.kind == kind
    inverse = None if found.inverse is None else registry.find(found.inverse)
    back = None if inverse is None else inverse.inverse
    assert back in {None, kind} or (kind, back) == ("onboard", "restore"), "undone twice, it is as it was"


def test_an_alternative_is_an_offer() -> None:
    """Cards name only offers that exist."""
    for offers in (registry.offers_of_game(), registry.offers_of_group()):
        assert {other for _, offer in offers.values() for other in offer.instead} <= offers.keys()


def test_a_kind_that_touches_no_table_loads_no_library_of_tables() -> None:
    """A pause waits for the control store, and not for the libraries of repairs."""
    code = (
        "import sys\nfrom pipeline.control import gate, proposals\nfrom pipeline.control.operations import registry\n"
        "registry.find('pause'), registry.find('move'), gate.role_of('set a priority')\nprint(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert HEAVY & set(done.stdout.split()) == set()


@pytest.fixture
def nothing_known() -> Iterator[None]:
    """Let the registry look again."""
    registry.find.cache_clear()
    yield
    registry.find.cache_clear()


@pytest.mark.usefixtures("nothing_known")
def test_access_needs_its_role_where_turnout_runs_from_its_source_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Databricks App installs no package: a mover would count as an access admin there."""
    monkeypatch.setattr(extensions, "entry_points", lambda **_: ())
    assert registry.role_of(OperationKind.ACCESS) == Role.ACCESS_ADMIN


@pytest.mark.usefixtures("nothing_known")
def test_a_kind_whose_extension_is_not_found_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """No role is taken for the one that the missing definition has."""
    monkeypatch.setattr(extensions, "registered", lambda _: [])
    with pytest.raises(Refused, match="no definition of operation access"):
        registry.role_of(OperationKind.ACCESS)
    assert registry.role_of("of a newer version") == Role.MOVER
