"""The sums of number columns that a closed day has in the ledger."""

from decimal import Decimal, localcontext

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from pipeline.data.books.column_sums import ColumnSums

COLUMNS = pa.schema(
    [
        ("_seq", pa.int64()), ("whole", pa.int64()), ("price", pa.decimal128(38, 4)), ("rate", pa.float64()),
        ("small", pa.float32()), ("name", pa.string()), ("is_new", pa.bool_()), ("none", pa.int32()),
    ]
)  # fmt: skip
PRICES = st.integers(1 - 10**38, 10**38 - 1).map(lambda digits: Decimal(f"{digits}e-4"))  # exact, whatever the context
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "_seq": st.just(1),
            "whole": st.none() | st.integers(-(2**63), 2**63 - 1),
            "price": st.none() | PRICES,
            "rate": st.none() | st.floats(allow_nan=False, allow_infinity=False, width=64),
            "small": st.none() | st.floats(-1e6, 1e6, width=32),
        }
    ),
    max_size=12,
)


@given(ROWS, st.integers(1, 5))
def test_sums_are_exact_whatever_the_batches(rows: list[dict[str, object]], size: int) -> None:
    """Whole numbers and decimals lose no digit, and floating-point numbers are added one after the other."""
    sums = ColumnSums(COLUMNS)
    for at in range(0, len(rows), size):
        sums.add(pa.Table.from_pylist(rows[at : at + size], COLUMNS))
    found = dict(sums.texts)
    assert not found.keys() - {"whole", "price", "rate", "small"}
    with localcontext() as exact:
        exact.prec = 100
        for name in ("whole", "price"):
            values = [Decimal(each[name]) for each in rows if each[name] is not None]  # type: ignore[arg-type]
            assert (Decimal(found[name]) == sum(values)) if values else name not in found
    for name in ("rate", "small"):
        total, has_any = 0.0, False
        for each in rows:
            if each[name] is not None:
                total, has_any = total + float(each[name]), True  # type: ignore[arg-type]
        assert found.get(name) == (repr(total) if has_any else None)
