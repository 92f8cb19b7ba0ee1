"""Which silver tables check that a column is unique, and what people read of it."""

import pytest

from pipeline.data.derived.definitions import SilverDefinition
from pipeline.data.derived.uniqueness import unique_checks
from pipeline.data.output_contracts.rules import OutputContract

SOLD = SilverDefinition("sold", "Chess", "Sold", within=3600, id="order.number")


@pytest.mark.parametrize(
    ("types", "silvers", "lines"),
    [
        (("acme.Sold",), (SOLD,), ["sold"]),
        (("Sold",), (SilverDefinition("sold", "Chess", "acme.v1.Sold", 3600, "order.number"),), ["sold"]),
        (("acme.Sold",), (SilverDefinition("sold", "Chess", "other.Sold", 60, "order.number"),), ["no silver table"]),
        (("Left", "Sold"), (SOLD,), ["no silver table names this type", "sold"]),
        (("Sold",), (SilverDefinition("sold", "Chess", "Sold", 60),), ["silver sold does not compare rows by order"]),
        (("Sold",), (SilverDefinition("sold", "Chess", "Sold", id="order.number"),), ["does not compare rows"]),
        (("Sold",), (SilverDefinition("first", "Chess", None, 60, "order.number"),), ["no silver table names"]),
        ((), (SilverDefinition("first", "Chess", None, 60, "order.number"), SOLD), ["first", "sold"]),
        ((), (SilverDefinition("a", "Chess", "A", 60), SilverDefinition("b", "Chess")), ["none of the silver tables"]),
        ((), (SilverDefinition("sold", "Go", "Sold", 60, "order.number"),), ["the game has no silver table"]),
    ],
)
def test_a_promise_that_nothing_checks_says_so(
    types: tuple[str, ...], silvers: tuple[SilverDefinition, ...], lines: list[str]
) -> None:
    """A silver table checks it if it is of the type and compares rows by the column; all else is named."""
    contract = OutputContract("sales", ("Chess",), event_types=types, unique="order.number")
    others = [OutputContract("none", ("Chess",)), OutputContract("go", ("Go",), unique="order.number")]
    found = list(unique_checks([contract, *others], "Chess", silvers))
    assert len(found) == len(lines)
    for check, expected in zip(found, lines, strict=True):
        if check.silver is not None:
            assert check.silver.name == expected
        else:
            assert "NOT CHECKED: " in check.line(None)
            assert expected in check.line(None)


@pytest.mark.parametrize(
    ("left_out", "said"),
    [
        (None, "how many second rows silver sold has left out is not known: see `turnout derived list`"),
        (0, "silver sold has left out no second row within 1 h 0 min of the first"),
        (1, "NOT UNIQUE: silver sold has left out 1 second row within 1 h 0 min of the first"),
        (2_000, "NOT UNIQUE: silver sold has left out 2,000 second rows within 1 h 0 min of the first"),
    ],
)
def test_an_unknown_number_is_not_zero(left_out: int | None, said: str) -> None:
    """A line has the number of rows that silver left out, and unknown is never none."""
    contract = OutputContract("sales", ("Chess",), event_types=("Sold",), unique="order.number")
    (check,) = unique_checks([contract], "Chess", [SOLD])
    assert check.line(left_out) == f"sales: order.number is unique in 'Sold': {said}"
