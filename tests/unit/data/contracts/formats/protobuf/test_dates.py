"""google.type.Date, of which a producer can make more than a calendar has."""

import datetime as dt
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from pipeline.data.contracts.formats.protobuf.decoder import Decoder
from pipeline.data.contracts.formats.protobuf.messages import canonical
from pipeline.data.contracts.schemas import Schema
from tests.unit.data.contracts.definition_world import bundle, define
from tests.unit.data.contracts.formats.protobuf.event_world import message_class, payloads

HOLDERS = {"one": "D", "many": "repeated D", "by": "map<int32, D>", "sub": "S"}


def schema() -> Schema:
    """Return a schema with dates in every shape."""
    dates = FileDescriptorProto(name="google/type/date.proto", package="google.type", syntax="proto3")
    message = dates.message_type.add(name="Date")
    for number, name in enumerate(("year", "month", "day"), 1):
        message.field.add(name=name, number=number, type=5, label=1)
    fields = {name: (number, kind) for number, (name, kind) in enumerate(HOLDERS.items(), 1)}
    file = define({"M": fields, "S": {"on": (1, "D")}})
    file.dependency.append(dates.name)
    for each in (*file.message_type, *file.message_type[0].nested_type):
        for field in each.field:
            if field.type_name == ".t.D":
                field.type_name = ".google.type.Date"
    return Schema(1, "protobuf", "t.M", canonical("t.M", bundle(dates, file)))


DECODER = Decoder(schema())
M = message_class(schema())


def holding(place: str, date: tuple[int, int, int]) -> bytes:
    event = M()
    targets: dict[str, Any] = {
        "one": lambda: event.one,
        "many": lambda: (event.many.add(year=2000, month=1, day=1), event.many.add())[1],
        "by": lambda: event.by[7],
        "sub": lambda: event.sub.on,
    }
    held = targets[place]()
    held.year, held.month, held.day = date
    held.SetInParent()
    content: bytes = event.SerializeToString()
    return content


def date_of(place: str, value: Any) -> Any:
    """Return the date that `holding` put into a field."""
    if place == "one":
        return value
    return value["on"] if place == "sub" else value[1] if place == "many" else value[0][1]


@pytest.mark.parametrize("place", HOLDERS)
@pytest.mark.parametrize(
    "date", [(2024, 13, 1), (2023, 2, 29), (0, 1, 1), (0, 0, 0), (-5, 1, 1), (10_000, 1, 1), (2**31 - 1, 1, 1)]
)
@pytest.mark.proves("G79")
def test_a_date_no_calendar_has_is_refused(place: str, date: tuple[int, int, int]) -> None:
    """Law L5: it is never some other date in silence; its row is refused alone."""
    good = holding("one", (2024, 2, 29))
    decoded = DECODER.decode(payloads(good, holding(place, date), good))
    assert decoded.rows.tolist() == [0, 2]
    assert [each.reason for each in decoded.refused] == ["malformed_payload"]
    assert decoded.refused[0].detail.endswith(f" in {place}")


@pytest.mark.parametrize("place", HOLDERS)
@pytest.mark.parametrize("date", [(1970, 1, 1), (1970, 0, 0), (1, 1, 1), (9999, 12, 31), (2024, 2, 0), (2024, 2, 29)])
def test_a_real_date_lands(place: str, date: tuple[int, int, int]) -> None:
    """The day that stands for bad dates is also a valid date; an unknown day or month is the first."""
    decoded = DECODER.decode(payloads(holding(place, date)))
    assert decoded.refused == []
    year, month, day = date
    assert date_of(place, decoded.batch.column(place)[0].as_py()) == dt.date(year, month or 1, day or 1)
