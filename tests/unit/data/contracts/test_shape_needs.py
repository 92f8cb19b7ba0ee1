"""The writers of needs for undeclared documents."""

import pytest

from pipeline.data.contracts.shape_needs import of_writer, writer_of


@pytest.mark.parametrize("name", ["", "move", "level-up", "a\0b", "ünï\n", "acme.Joined"])
@pytest.mark.parametrize("version", [0, 1, 1000])
def test_a_need_carries_type_and_version_whatever_the_types_text(name: str, version: int) -> None:
    """A writer gives back the event type and the version that it was made of."""
    assert of_writer(writer_of(name, version)) == (name, version)
