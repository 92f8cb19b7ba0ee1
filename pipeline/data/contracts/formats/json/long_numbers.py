"""Finds documents with a number of which a double may not hold every digit. Called by `parser` only. Pure.

A regular expression decides. It would read every byte of every document, so a cheaper look at the bytes of all
documents together finds the few that it has to read.
"""

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.data.contracts.decoded import Rows
from pipeline.data.contracts.formats.json.glance import Bytes, Places, rows_with, where
from pipeline.data.contracts.formats.json.scalar import MOST_DIGITS

EXPRESSION: Final = "|".join(
    (
        *(
            rf"[:,\[\s-][1-9][0-9]{{{before - 1}}}\.[0-9]{{{MOST_DIGITS + 1 - before}}}"
            for before in range(1, MOST_DIGITS + 1)
        ),
        rf"[:,\[\s-]0\.0*[1-9][0-9]{{{MOST_DIGITS}}}",
        rf"[:,\[\s-][1-9][0-9]{{{MOST_DIGITS}}}[0-9]*[.eE]",
        r"[:,\[\s-]0\.0{200}",
        r"[0-9][eE]-0*[1-9][0-9]{2,}[,\]}\s]",
    )
)
"""What a number with a fraction has, of which a double may not hold every digit: too many, or a tiny exponent.

Each begins before the number, without which the expression would be forty times as slow.
"""

_RUN: Final = MOST_DIGITS + 1
_VERY_LONG: Final = 2 * _RUN - 2


def with_long_numbers(texts: pa.StringArray) -> Rows:
    """Return the rows of the documents, in order."""
    rows = rows_with(texts, suspects)
    if not len(rows):
        return rows
    matching = pc.match_substring_regex(texts.take(pa.array(rows)), EXPRESSION)
    result: Rows = rows[matching.to_numpy(zero_copy_only=False)]
    return result


def suspects(content: Bytes) -> Places:
    """Return where a number may begin that is too long, or has a negative exponent.

    In a long number a digit other than 0 begins 18 digits, or 19 with the point among them. One that begins with 0 is
    of those, or is very long.
    """
    in_number = content - np.uint8(ord(".")) < 12  # digits, the point, and a slash, which does no harm
    run = in_number
    for more in (1, 2, 4, 8, _RUN - 16):
        run = run[more:] & run[:-more]  # where 2, 4, 8, 16, 18 of them begin
    begins = np.flatnonzero(run & (content[: len(run)] - np.uint8(ord("1")) < 9))
    all_digits = (content[begins[:, None] + np.arange(_RUN)] >= ord("0")).all(axis=1)
    one_more = in_number[np.minimum(begins + _RUN, len(content) - 1)]
    very_long = run[_VERY_LONG - _RUN :] & run[: _RUN - _VERY_LONG]
    exponent = ((content[:-1] | np.uint8(ord("e") ^ ord("E"))) == ord("e")) & (content[1:] == ord("-"))
    return np.concatenate([begins[all_digits | one_more], where(very_long), where(exponent)])
