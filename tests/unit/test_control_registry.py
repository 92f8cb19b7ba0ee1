"""Every kind of operation has one definition, and what it says of itself is whole."""

import subprocess
import sys

import pytest

from pipeline.control.operations import registry
from pipeline.store.states import OperationKind
from tests.processes.test_cli_lazy import HEAVY


@pytest.mark.parametrize("kind", OperationKind)
def test_a_kind_has_one_definition(kind: OperationKind) -> None:
    """A kind without a definition, or one listed under another's, would take another's role and steps."""
    found = registry.find(kind)
    assert found is not None
    assert found.kind == kind
    inverse = None if found.inverse is None else registry.find(found.inverse)
    assert inverse is None or inverse.inverse == kind, "undone twice, it is as it was"


def test_what_may_help_instead_is_offered() -> None:
    """A card that names something else to do names something that there is."""
    for offers in (registry.offers_of_game(), registry.offers_of_group()):
        assert {other for _, offer in offers.values() for other in offer.instead} <= offers.keys()


def test_a_kind_that_touches_no_table_loads_no_library_of_tables() -> None:
    """Who pauses a game waits for the control store, not for libraries that repairs need."""
    code = (
        "import sys\nfrom pipeline.control import gate, proposals\nfrom pipeline.control.operations import registry\n"
        "registry.find('pause'), registry.find('move'), gate.role_of('set a priority')\nprint(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert HEAVY & set(done.stdout.split()) == set()
