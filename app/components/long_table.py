"""Tables some columns of which may need several lines in a row."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import streamlit as st

from app.look.rows import height_of_all, table_height


def draw(rows: Sequence[Mapping[str, Any]], long: Mapping[str, int], most: int, **options: Any) -> None:
    """Draw a table at most `most` px high; `long` are its long columns with their px, `options` those of Streamlit."""
    high = height_of_all(((str(row[name]) for row in rows), width) for name, width in long.items())
    st.dataframe(
        pd.DataFrame(rows), hide_index=True, row_height=high, height=table_height(len(rows), high, most), **options
    )
