"""Values that are wider than the schema their game has registered."""

import pytest

from pipeline.contracts.formats.protobuf.decoder import Decoder
from pipeline.contracts.registry import LocalRegistry
from pipeline.errors import Refused
from pipeline.settings import load
from pipeline.store.database.engine import open_store
from tests.unit.test_contracts_decode import message_class, payloads, schema
from tests.unit.test_contracts_messages import bundle, define


@pytest.mark.proves("B7")
def test_b7_a_narrower_schema_is_refused_at_registration(tmp_path_factory: pytest.TempPathFactory) -> None:
    """B7: a game that sends int64 cannot register the field as int32: its wider values would be cut in silence."""
    registry = LocalRegistry(open_store(*load(tmp_path_factory.mktemp("env"), {})))
    registry.register("chess", "t.M", bundle(define({"M": {"n": (1, "int64")}})))
    with pytest.raises(Refused, match="n: its type changed from int64 to int32"):
        registry.register("chess", "t.M", bundle(define({"M": {"n": (1, "int32")}})))
    assert registry.latest_version() == 1


@pytest.mark.parametrize("number", [2**31, -(2**31) - 1, 2**40 + 7])
@pytest.mark.proves("B7")
def test_b7_a_wider_value_is_what_every_reader_of_the_format_makes_of_it(number: int) -> None:
    """B7: where only the narrow schema is known, the format itself cuts the number; both parsers agree on the rest."""
    wide, narrow = schema({"M": {"n": (1, "int64")}}), schema({"M": {"n": (1, "int32")}})
    content = message_class(wide)(n=number).SerializeToString()
    plain = message_class(narrow).FromString(content).n
    assert Decoder(narrow).decode(payloads(content)).batch.to_pylist() == [{"n": plain}]
    assert plain != number
