"""The columns of the fleet's table: heads, widths, pills and trends. The rows are of `app/fleet/table.py`."""

from typing import Any

import streamlit as st

from app import formatting
from app.components import links
from app.look import tokens
from app.look.tokens import Mode
from listeners.status import Status
from pipeline.api.figures import WITHOUT_CAUGHT_UP

_LATE_SECONDS = 120  # top of a trend of backlogs: below it a healthy one stays low


def columns(mode: Mode, span: str) -> dict[str, Any]:
    """Return the columns; `span` is the time that the trends are of, as a text."""
    styles = [formatting.STATUS_STYLES[status] for status in Status]
    return {
        "status": st.column_config.MultiselectColumn(
            "Status",
            width=104,
            options=[formatting.status_text(status) for status in Status],
            color=[tokens.colour(f"pill-{style.tone}", mode) for style in styles],
        ),
        "game": links.named_game_column("Game", "fleet", 145),
        "group": st.column_config.TextColumn("Group", width=60),
        "since": st.column_config.TextColumn("Since", width=62, help="Time in this status.", alignment="right"),
        "backlog": st.column_config.TextColumn(
            "Backlog",
            width=66,
            help="Age of the oldest event waiting for this stream or in the source.",
            alignment="right",
        ),
        "backlog_trend": st.column_config.AreaChartColumn(
            f"Backlog, {span}", width=80, y_min=0, y_max=_LATE_SECONDS, color="orange"
        ),
        "p99": st.column_config.TextColumn(
            "p99",
            width=58,
            help=f"Latency from source time to table commit, last five minutes, {WITHOUT_CAUGHT_UP}.",
            alignment="right",
        ),
        "rows": st.column_config.TextColumn("Rows/s", width=60, help="Landed in the last minute.", alignment="right"),
        "rows_trend": st.column_config.AreaChartColumn(f"Rows/min, {span}", width=80, y_min=0, color="blue"),
        "commit": st.column_config.TextColumn("Commit", width=64, help="Age of the last commit.", alignment="right"),
        "through": st.column_config.TextColumn(
            "Complete through",
            width=108,
            help="The table has every record that the source had by then (UTC), and how long ago that was.",
            alignment="right",
        ),
        "cause": st.column_config.TextColumn("Cause", width=225),
        "next": st.column_config.TextColumn("Next", width=110),
    }
