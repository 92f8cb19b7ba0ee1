"""States in tables as pills: a column of one-element lists, each word in the colour of its tone."""

from collections.abc import Mapping
from typing import Any

import streamlit as st

from app.look import tokens
from app.look.tokens import Tone


def column(label: str, tones: Mapping[str, Tone], width: int, about: str | None = None) -> Any:
    """Return the column; `tones` are by the words that its cells may have. A word beyond them stays grey."""
    mode = tokens.mode_of(st.context.theme.type)
    return st.column_config.MultiselectColumn(
        label,
        width=width,
        help=about,
        options=list(tones),
        color=[tokens.colour(f"pill-{tone}", mode) for tone in tones.values()],
    )
