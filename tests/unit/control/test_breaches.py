"""Plans of schemas name the output contracts that they break, and the readers who rely on them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine

from pipeline.control.registering import proposals
from pipeline.control.registering.proposals import propose, review
from pipeline.control.registering.requests import SchemaRequest
from pipeline.data.contracts.policies import parse_policies
from pipeline.data.contracts.registry import Registration
from pipeline.data.output_contracts.rules import ContractRule, OutputContract, dumps
from pipeline.lake.storage.location import Location
from pipeline.lake.storage.places import located
from pipeline.settings.tree import Roles, Schemas, Settings
from pipeline.store import output_contracts
from tests.unit.data.contracts.definition_world import bundle, define

SETTINGS = Settings(roles=Roles(operators=("ann", "bob")))
PRICE = ContractRule("price", "price", "quarantine", required=True, min=0)
ITEM = ContractRule("item", "item", min_length=1)
CONTRACT = OutputContract("sales", ("Go",), rules=(PRICE, ITEM), readers=("BI", "daily revenue"))


@pytest.fixture
def bronze(tmp_path: Path) -> Location:
    return located(tmp_path / "bronze")


def schema(**fields: tuple[int, str]) -> Registration:
    policies = parse_policies(["incompatible=side-column"])
    return Registration("Go", "t.M", bundle(define({"M": fields})), policies)


FIRST = schema(price=(1, "int32"), item=(2, "string"))


def give(engine: Engine, *contracts: OutputContract) -> None:
    output_contracts.apply(engine, dumps(contracts), 0, "ann", "agreed")


def named(lines: Any) -> list[str]:
    return [each for each in lines if "sales" in each]


READERS = "Readers: 'BI', 'daily revenue'."


@pytest.mark.parametrize(
    ("later", "said"),
    [
        (schema(price=(1, "int64"), item=(2, "string"), more=(3, "string")), []),
        (
            schema(price=(1, "string"), item=(2, "string")),
            [f"! sales/price: 'price' would be missing: each new row would go to quarantine. {READERS}"],
        ),
        (schema(price=(1, "int32")), [f"! sales/item: 'item' would have no values. {READERS}"]),
        (
            schema(item=(2, "string")),
            [f"! sales/price: 'price' would be missing: each new row would go to quarantine. {READERS}"],
        ),
    ],
    ids=["benign", "retyped", "removed", "required and removed"],
)
def test_a_plan_names_the_readers_of_a_contract_that_it_breaks(
    engine: Engine, bronze: Location, later: Registration, said: list[str]
) -> None:
    """A field that a contract needs, removed or of another type, is named with its readers; a benign change is not."""
    proposals.register(SETTINGS, engine, bronze, FIRST, "ann")
    give(engine, CONTRACT)
    assert named(propose(SETTINGS, engine, bronze, later).lines) == said
    assert propose(SETTINGS, engine, bronze, later).lines[-1].startswith("plan ")
    give_two = replace(SETTINGS, schemas=Schemas(second_person=True))
    waiting = proposals.register(give_two, engine, bronze, later, "ann", "wanted")
    if isinstance(waiting, SchemaRequest):
        assert named(review(engine, bronze, waiting).lines) == said
    else:
        assert said == []


def test_a_first_schema_is_judged_by_the_contract_that_waits_for_it(engine: Engine, bronze: Location) -> None:
    """A contract by name or prefix can be older than its game: a type that does not suit a rule breaks it at once."""
    give(
        engine,
        replace(
            CONTRACT,
            games=(),
            prefixes=("G",),
            rules=(PRICE, replace(ITEM, action="stop", min_length=None, pattern="a")),
        ),
    )
    first = schema(price=(1, "int64"), item=(2, "bytes"))
    said = [f"! sales/item: 'item' would be binary: the first new row would stop the stream. {READERS}"]
    assert named(propose(SETTINGS, engine, bronze, first).lines) == said
