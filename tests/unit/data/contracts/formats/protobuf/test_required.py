"""Proto2's required fields, and fields that are called like a method of the parser's messages."""

import keyword
import subprocess
import sys
from typing import Any

import pytest
from google.protobuf.message import Message
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.data.contracts.decoded import malformed
from pipeline.data.contracts.formats.protobuf.decoder import Decoder
from pipeline.data.contracts.formats.protobuf.messages import canonical
from pipeline.data.contracts.schemas import Schema
from tests.unit.data.contracts.definition_world import Fields, bundle, define
from tests.unit.data.contracts.formats.protobuf.event_world import payloads
from tests.unit.data.contracts.formats.protobuf.required_world import DECODER, M
from tests.unit.data.contracts.formats.protobuf.wire_world import tagged

FULL = M(a=1, s={"X": "x"})


@pytest.mark.parametrize(
    ("path", "event"),
    [
        ("a", M(s={"X": "x"})),
        ("s.X", M(a=1, s={"x": 5})),
        ("many.X", M(a=1, many=[{"X": "x"}, {}])),
        ("s.t.e", M(a=1, s={"X": "x", "t": {}})),
        ("a", M(flat={"key": 1, "other": 2})),
        ("a", M(s={}, flat={"key": 1})),
    ],
    ids=str,
)
@pytest.mark.proves("B26", "G80")
def test_a_payload_without_a_required_field_is_refused_alone(path: str, event: Any) -> None:
    """B26, law L6: it is no message, and costs its own row only; the detail names the first field that is missing."""
    contents = [FULL.SerializeToString(), event.SerializePartialToString(), FULL.SerializeToString()]
    decoded = DECODER.decode(payloads(*contents))
    assert decoded.refused == [malformed(1, f"the required field {path} is missing", path)]
    assert decoded.rows.tolist() == [0, 2]
    assert [row["a"] for row in decoded.batch.to_pylist()] == [1, 1]


CRASH = """
from tests.unit.data.contracts.formats.protobuf.event_world import payloads
from tests.unit.data.contracts.formats.protobuf.required_world import DECODER, M
event = M()
for number in range(40):
    event.flat[str(number)] = number
    event.by[str(number)].x = number
    event.many.add().t.y = number
print(DECODER.decode(payloads(*[event.SerializePartialToString()] * 50)).refused[49].detail)
"""


@pytest.mark.proves("B26")
def test_a_missing_required_field_beside_a_map_kills_no_process() -> None:
    """B26, law L6: the plain parser dies when it names what such a message lacks, so it is never asked."""
    done = subprocess.run([sys.executable, "-c", CRASH], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "the required field a is missing\n"), done.stderr


SUBS = st.builds(
    lambda x, text, t: {**({"x": 1} if x else {}), **({"X": "x"} if text else {}), **({} if t is None else {"t": t})},
    st.booleans(),
    st.booleans(),
    st.none() | st.just({}) | st.just({"e": {}}),
)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.booleans(), st.none() | SUBS, st.lists(SUBS, max_size=2), st.lists(SUBS, max_size=2)), max_size=5
    )
)
@pytest.mark.proves("G80")
def test_refused_is_what_the_plain_parser_says_is_not_complete(
    rows: list[tuple[bool, Any, list[Any], list[Any]]],
) -> None:
    """Law L5: at whatever depth a required field is missing, that row is refused and no other."""
    events = [FULL]
    for has_a, sub, many, by in rows:
        event = M(s=sub, many=many, at={"seconds": 1})
        if has_a:
            event.a = 1
        for number, each in enumerate(by):
            event.by[str(number)].CopyFrom(type(FULL.s)(**each))
        events.append(event)
    decoded = DECODER.decode(payloads(*(event.SerializePartialToString() for event in events)))
    complete = [event.IsInitialized() for event in events]  # asks for a yes or no only, which is safe
    assert [row for row, whole in enumerate(complete) if whole] == decoded.rows.tolist()


METHODS = sorted(
    {*dir(Message), *dir(M), *dir({}), *dir([]), *keyword.kwlist, "rows", "Rows", "key", "value", "element"}
)
TAKEN = {name.lower().replace("_", "") for name in METHODS}


@pytest.mark.parametrize("repeated", ["", "repeated "])
@pytest.mark.proves("B27", "G80")
def test_a_field_may_be_called_like_a_method(repeated: str) -> None:
    """B27, law L6: a field's name is data; whatever a message of the parser can do under that name is not meant."""
    chosen: dict[str, str] = {}
    for name in METHODS:  # of names that differ by case or underscores only, one
        chosen.setdefault(name.lower().replace("_", ""), name)
    fields: Fields = {name: (number, f"{repeated}S") for number, name in enumerate(chosen.values(), 1)}
    file = define({"M": fields, "S": {"HasField": (1, "T"), "x": (2, "int32")}, "T": {"DESCRIPTOR": (1, "int32")}})
    named = Schema(1, "protobuf", "t.M", canonical("t.M", bundle(file)))
    sub = b"\x0a\x02\x08\x05\x10\x07"
    content = b"".join(tagged(number, 2, sub) for number in range(1, len(fields) + 1))
    unknown, wrong = content + tagged(900, 0, b"\x05"), tagged(1, 2, b"\x0a\x03\x0a\x01a") + content
    decoded = Decoder(named).decode(payloads(content, unknown, wrong, content * 2))
    first = next(iter(chosen.values()))
    assert [(each.row, each.detail.split(":")[0]) for each in decoded.refused] == [(2, f"in {first}")]
    value = {"HasField": {"DESCRIPTOR": 5}, "x": 7}
    plain = {name: [value] if repeated else value for name in chosen.values()}
    twice = {name: [value, value] for name in chosen.values()} if repeated else plain
    assert decoded.batch.to_pylist() == [plain, plain, twice]
