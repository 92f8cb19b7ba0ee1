"""How high the rows of a table are: higher where a text needs more than one line. Pure."""

from collections.abc import Iterable
from typing import Final

LOW: Final = 36
"""Pixels of a row with one line."""

TALL: Final = 60
"""Pixels of a row with up to three lines: above 56 Streamlit breaks the lines of cells."""

_LETTER: Final = 6.6  # px, about


def height_of(texts: Iterable[str], width: int) -> int:
    """Return the height of all rows of a table, by the texts of its column that is `width` pixels wide."""
    return TALL if any(len(text) * _LETTER > width for text in texts) else LOW


def height_of_all(columns: Iterable[tuple[Iterable[str], int]]) -> int:
    """Return the height of all rows of a table, by the texts and the width of each column that may be long."""
    return max(height_of(texts, width) for texts, width in columns)


def table_height(rows: int, row_height: int, most: int) -> int:
    """Return the pixels of a table with its head, at most `most`."""
    return min(row_height * rows + LOW + 2, most)
