"""Values that are wider than the schema their game has registered."""

import pytest

from pipeline.data.contracts.formats.protobuf.decoder import Decoder
from pipeline.data.contracts.registrations import Registration
from pipeline.data.contracts.registry import LocalRegistry
from pipeline.settings.tree import load
from pipeline.store.database.engine import open_store
from tests.unit.data.contracts.definition_world import Fields, bundle, define
from tests.unit.data.contracts.formats.protobuf.event_world import message_class, payloads, schema


@pytest.mark.proves("B7")
def test_b7_a_narrower_schema_shares_the_column_and_the_plan_says_what_can_be_cut(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """B7: wide and narrow rows each have their writer's value; only a row that names the wrong version would be cut."""
    registry = LocalRegistry(open_store(*load(tmp_path_factory.mktemp("env"), {})))
    wide: dict[str, Fields] = {"M": {"n": (1, "int64")}}
    narrow: dict[str, Fields] = {"M": {"n": (1, "int32")}}
    registry.register("chess", "t.M", bundle(define(wide)))
    plan = registry.plan(Registration("chess", "t.M", bundle(define(narrow))))
    assert [str(step) for step in plan.steps] == [
        "n: its type changed from int64 to int32; a row that names the wrong version would have a wrong value"
    ]
    for given, number in ((wide, 2**40), (narrow, -(2**31))):
        content = message_class(schema(given))(n=number).SerializeToString()
        assert Decoder(schema(given)).decode(payloads(content)).batch.to_pylist() == [{"n": number}]


@pytest.mark.parametrize("number", [2**31, -(2**31) - 1, 2**40 + 7])
@pytest.mark.proves("B7")
def test_b7_a_wider_value_is_what_every_reader_of_the_format_makes_of_it(number: int) -> None:
    """B7: where only the narrow schema is known, the format itself cuts the number; both parsers agree on the rest."""
    wide, narrow = schema({"M": {"n": (1, "int64")}}), schema({"M": {"n": (1, "int32")}})
    content = message_class(wide)(n=number).SerializeToString()
    plain = message_class(narrow).FromString(content).n
    assert Decoder(narrow).decode(payloads(content)).batch.to_pylist() == [{"n": plain}]
    assert plain != number
