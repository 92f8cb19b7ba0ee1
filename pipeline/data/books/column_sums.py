"""The sums of the number columns of a day's rows, added batch by batch in the order of the rows. Reads nothing."""

from decimal import Context, Decimal
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_EXACT: Final = Context(prec=76)
_DIGITS: Final = 76  # of one batch: a decimal of 38 digits, times its rows


class ColumnSums:
    """Sums of the columns of payloads that hold whole numbers, decimals or floating-point numbers."""

    def __init__(self, columns: pa.Schema) -> None:
        """Begin with no row; columns of turnout's own begin with `_`, and have no sum."""
        self._columns = [each for each in columns if not each.name.startswith("_") and _is_number(each.type)]
        self._totals: dict[str, Decimal | float] = {}

    def add(self, rows: pa.Table) -> None:
        """Add the rows that follow."""
        for each in self._columns:
            values = rows.column(each.name)
            if values.null_count == len(values):
                continue
            if pa.types.is_floating(each.type):
                total = float(self._totals.get(each.name, 0.0))
                numbers = values.drop_null().cast(pa.float64()).to_numpy()
                # One after the other: so the sum follows from the rows and their order, whatever the batches.
                with np.errstate(
                    over="ignore", invalid="ignore"
                ):  # a sum beyond a double is infinite, as IEEE 754 says
                    self._totals[each.name] = float(np.cumsum(np.concatenate([[total], numbers]))[-1])
            else:
                scale = each.type.scale if pa.types.is_decimal(each.type) else 0
                found = pc.sum(values.cast(pa.decimal256(_DIGITS, scale))).as_py()
                self._totals[each.name] = _EXACT.add(Decimal(self._totals.get(each.name, 0)), found)

    @property
    def texts(self) -> tuple[tuple[str, str], ...]:
        """Each column that had a value, by name, with its sum in decimal digits."""
        return tuple(
            (name, format(total, "f") if isinstance(total, Decimal) else repr(total))
            for name, total in sorted(self._totals.items())
        )


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_decimal(kind) or pa.types.is_floating(kind))
