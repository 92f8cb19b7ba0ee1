from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.data.contracts.formats.protobuf.decoder import Decoder
from pipeline.data.contracts.placing import placed
from pipeline.data.contracts.schemas import PLAIN, FieldPlacement
from pipeline.data.contracts.shape import placed_columns
from tests.unit.data.contracts.definition_world import Fields
from tests.unit.data.contracts.formats.protobuf.event_world import message_class, payloads, schema

NAMED: dict[str, Fields] = {
    "M": {"a": (1, "int32"), "s": (2, "S"), "many": (3, "repeated S"), "by": (4, "map<string, S>"), "A": (5, "string")},
    "S": {"x": (1, "int32"), "y": (2, "string")},
}


RENAMED = FieldPlacement((("a", "b"), ("by.x", "p"), ("many.y", "q"), ("s", "t"), ("s.x", "z")))


SUB = st.fixed_dictionaries({}, optional={"x": st.integers(-9, 9), "y": st.text(max_size=3)})


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.none() | SUB, st.lists(SUB, max_size=3), st.dictionaries(st.text(max_size=2), SUB, max_size=3)),
        min_size=1,
        max_size=4,
    ),
    st.integers(0, 3),
)
def test_a_placement_changes_names_and_nothing_else(rows: list[Any], start: int) -> None:
    """Under other names, at any depth and in slices, every value and every null is where it was."""
    named = schema(NAMED)
    events = []
    for number, (sub, many, by) in enumerate(rows):
        event = message_class(named)(a=number, many=many, **({} if sub is None else {"s": sub}))
        for key, value in by.items():
            event.by[key].CopyFrom(type(event.s)(**value))
        events.append(event.SerializeToString() or b"\x08\x00")
    plain = Decoder(named).decode(payloads(*events)).batch.slice(start)
    batch = placed(plain, named, RENAMED)
    batch.validate(full=True)
    assert batch.schema == placed_columns(named, RENAMED)
    assert batch.schema.names == ["b", "t", "many", "by", "A__f5"]

    def swap(value: Any, names: dict[str, str]) -> Any:
        return None if value is None else {names.get(name, name): each for name, each in value.items()}

    assert batch.to_pylist() == [
        {
            "b": row["a"],
            "t": swap(row["s"], {"x": "z"}),
            "many": [swap(each, {"y": "q"}) for each in row["many"]],
            "by": [(key, swap(each, {"x": "p"})) for key, each in row["by"]],
            "A__f5": row["A__f5"],
        }
        for row in plain.to_pylist()
    ]
    assert placed(plain, named, PLAIN) is plain
