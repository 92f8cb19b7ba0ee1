"""Books: games by days, which of them are closed, with what sums, by whom, and why others wait."""

from typing import Any, Final

import pandas as pd
import streamlit as st

from app import formatting
from app.books import queries, tables
from app.components import header, pills
from app.look import parts
from app.look.rows import TALL, height_of, table_height
from app.state.services import Environment

_MOST: Final = 300  # rows on screen


def _live(environment: Environment) -> None:
    seen = header.draw(environment, queries.shelf, "books", ranged=False)
    if seen is None:
        return
    sentence, trouble = tables.sentence(seen)
    header.headline(sentence, trouble=trouble)
    rows = tables.matrix(seen)
    if not rows:
        st.info("No game has a day in its books. Set books.games, or close a day: `turnout books close GAME DAY`.")
        return
    high = height_of((row[name] for row in rows for name in ("Game", "Open days")), 180)
    with st.container(border=True, key="card_books", gap="xsmall"):
        about = (
            "accepted rows by day · ✓ closed · ± corrected since · ↻ reopened · ○ open · ▲ needs a person · ? not known"
        )
        st.html(parts.section("Games by days", about))
        st.dataframe(
            pd.DataFrame(rows),
            hide_index=True,
            row_height=high,
            height=table_height(len(rows), high, 396),
            column_config={
                "Game": st.column_config.TextColumn(width=180),
                "Open days": st.column_config.TextColumn(width=190),
            },
            alt="Games by days: closed days with their accepted rows, open days, and those that need a person.",
            key="books_matrix",
        )
    with st.container(border=True, key="card_book_days", gap="xsmall"):
        with st.container(horizontal=True, vertical_alignment="center"):
            place = st.empty()
            text = st.text_input(
                "Search", key="q", bind="query-params", type="search", live=True, placeholder="game",
                label_visibility="collapsed", max_chars=256, width=240,
            )  # fmt: skip
        found = tables.days(seen, text or "")
        place.html(
            parts.section("Days", f"{formatting.count(min(len(found), _MOST))} of {formatting.count(len(found))}")
        )
        if not found:
            st.html(parts.silence("No game matches.", "Clear the search."))
            return
        st.dataframe(
            pd.DataFrame(found[:_MOST]),
            hide_index=True,
            row_height=TALL,
            height=table_height(min(len(found), _MOST), TALL, 620),
            column_order=tuple(_columns()),
            column_config=_columns(),
            alt="Days of games, with state, rows of each class, reasons, and who closed each.",
            key="books_days",
        )


def _columns() -> dict[str, Any]:
    numbers = {
        "Accepted": "Rows of the day, with all corrections since.",
        "Late": "Rows that came after the day could have closed.",
        "Duplicate": "Second rows of an event, by the silver table.",
        "Refused": "Rows that no table has.",
    }
    widths = {"Accepted": 95, "Late": 78, "Duplicate": 78, "Refused": 82}
    return {
        "Game": st.column_config.TextColumn(width=115),
        "Day": st.column_config.TextColumn(width=95),
        "State": pills.column("State", tables.TONES, 120),
        **{
            name: st.column_config.TextColumn(width=widths[name], alignment="right", help=about)
            for name, about in numbers.items()
        },
        "Closed by": st.column_config.TextColumn(width=95),
        "At, UTC": st.column_config.TextColumn(width=62),
        "Reasons": st.column_config.TextColumn(width=150, help="Of an open day why it waits, of a closed one why."),
        "Sums": st.column_config.TextColumn(width=160, help="Of the accepted rows at the closing, by column."),
        "Hash": st.column_config.TextColumn(width=70, help="Of the accepted rows; the ledger has all of it."),
    }


header.keep_drawing(_live)
