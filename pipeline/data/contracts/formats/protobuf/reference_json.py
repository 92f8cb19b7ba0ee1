"""The reference decoder's texts of google.protobuf.Struct, Value and ListValue, by RFC 8785."""

import json
from decimal import Decimal
from typing import Any

from pipeline.data.contracts.decoded import Undecodable


def json_of(held: Any) -> str:
    """Return the text of a Struct, Value or ListValue.

    Raises:
        Undecodable: a number in it is infinite or not a number.
    """
    match held.DESCRIPTOR.name:
        case "Struct":
            names = sorted(held.fields, key=lambda name: name.encode("utf-16-be"))
            return "{" + ",".join(f"{_quoted(name)}:{json_of(held.fields[name])}" for name in names) + "}"
        case "ListValue":
            return "[" + ",".join(json_of(each) for each in held.values) + "]"
        case _:
            return _of_value(held)


def _of_value(held: Any) -> str:
    for field, value in held.ListFields():  # at most one, as all are of one oneof
        match field.name:
            case "string_value":
                return _quoted(value)
            case "number_value":
                return _number(value)
            case "bool_value":
                return json.dumps(value)
            case "struct_value" | "list_value":
                return json_of(value)
    return "null"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _number(value: float) -> str:
    exact = Decimal(repr(value))
    if not exact.is_finite():
        raise Undecodable("malformed_payload", f"a number that JSON lacks: {value}")
    if exact == 0:
        return "0"
    exact = exact.normalize()
    if Decimal("1e-6") <= abs(exact) < Decimal("1e21"):
        return f"{exact:f}"
    digits, _, exponent = f"{exact:e}".partition("e")
    return f"{digits}e{int(exponent):+}"
