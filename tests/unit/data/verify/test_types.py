"""Which schemas of a game the check of values takes for another event type."""

from dataclasses import replace

import pytest
from sqlalchemy import Engine

from pipeline.data.contracts.policies import parse_policies
from pipeline.data.contracts.registry import LocalRegistry
from pipeline.data.contracts.schemas import Schema
from pipeline.data.verify.values import known_schemas
from tests.unit.data.contracts.registering_world import KEY, from_a_registry, proto, record, registration


def others(registry: LocalRegistry) -> list[str]:
    held = known_schemas(registry.snapshot(), KEY, "")
    return [each.schema.message for each in held.values() if each.reason == "other_type"]


def test_a_first_schema_that_is_let_in_last_is_no_other_type(engine: Engine) -> None:
    """Rows that landed as registered are never accused: the old name of a rename is the game's type, too (L5)."""
    first = record("acme.Joined", _player="string")
    renamed = record("acme.Entered", "acme.Joined", player="string")
    from_a_registry(engine, first, renamed, record("acme.Entered", player="string", team="string"))
    registry = LocalRegistry(engine)
    let_in = replace(registration(first, actor="ann"), policies=parse_policies(["name=side-column"]))
    registry.register_many([let_in])
    assert others(registry) == []


@pytest.mark.parametrize(
    "order",
    [
        (record("acme.Entered", "acme.Joined", player="string"), record("acme.Joined", player="string")),
        (record("acme.Entered", "acme.Joined", _player="string"), record("acme.Joined", player="string")),
    ],
)
def test_an_alias_joins_types_in_either_order(engine: Engine, order: tuple[Schema, ...]) -> None:
    """A type that only an alias names lands, so it is no other one; a third one is."""
    registry = LocalRegistry(engine)
    from_a_registry(engine, *order, proto("message Sold { string player = 1; }"))
    assert others(registry) == ["acme.Sold"]
