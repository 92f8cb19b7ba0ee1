"""A schema of proto2 with required fields in nested messages, and its decoder."""

from pipeline.data.contracts.formats.protobuf.decoder import Decoder
from pipeline.data.contracts.formats.protobuf.messages import canonical
from pipeline.data.contracts.schemas import Schema
from tests.unit.data.contracts.definition_world import Fields, bundle, define
from tests.unit.data.contracts.formats.protobuf.event_world import message_class

MESSAGES: dict[str, Fields] = {
    "M": {
        "a": (1, "int32"),
        "s": (2, "S"),
        "many": (3, "repeated S"),
        "by": (4, "map<string, S>"),
        "flat": (5, "map<string, int32>"),
        "at": (6, "wkt:Timestamp"),
    },
    "S": {"x": (1, "int32"), "X": (2, "string"), "t": (3, "T")},
    "T": {"e": (1, "wkt:Empty"), "y": (2, "int32")},
}
REQUIRED = (("M", "a"), ("S", "X"), ("T", "e"))


def schema(required: tuple[tuple[str, str], ...] = REQUIRED) -> Schema:
    file = define(MESSAGES, syntax="proto2")
    for message in file.message_type:
        for field in message.field:
            if (message.name, field.name) in required:
                field.label = field.LABEL_REQUIRED
    return Schema(1, "protobuf", "t.M", canonical("t.M", bundle(file)))


DECODER = Decoder(schema())
M = message_class(schema())
