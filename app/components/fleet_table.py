"""The fleet's table, worst first; cells hold numbers, so that columns sort numerically.

Pure.
"""

from collections.abc import Callable
from typing import Final

import pandas as pd
import streamlit as st
from pandas.io.formats.style import Styler

from app import formatting
from app.components import links
from listeners.sample import STATUSES
from pipeline.store.fleet import Fleet, GameRow

COLUMNS: Final = {
    "status": st.column_config.TextColumn("Status", width=115),
    "since": st.column_config.Column("Since", width=85, help="Time in this status."),
    "game": st.column_config.TextColumn("Game", width=160),
    "page": links.game_column("Key (opens its page)", "fleet", 205),
    "group": st.column_config.TextColumn("Group", width=60),
    "lane": st.column_config.TextColumn("Lane", width=110),
    "lag": st.column_config.Column(
        "Lag", width=65, help="Age of the oldest event waiting for this stream or in the source."
    ),
    "rows/s": st.column_config.Column("Rows/s", width=65),
    "p95 latency": st.column_config.Column(
        "p95",
        width=60,
        help="Latency from source time to table commit. The game's page names the clock of the source time.",
    ),
    "last commit": st.column_config.Column("Commit", width=80, help="Age of the last commit to the game's table."),
    "rejects": st.column_config.Column("Rejects", width=70, help="Refused rows since the driver started."),
    "last error": st.column_config.TextColumn("Reason or last error", width=300),
}


def table(fleet: Fleet, rows: tuple[GameRow, ...]) -> Styler:
    """Return a row per game in the order given; unknown values are dashes."""
    frame = pd.DataFrame([_row(fleet, row) for row in rows])
    style = frame.style
    for column, text in _SHOWN.items():
        style = style.format(_number(text), subset=[column], na_rep=formatting.UNKNOWN_VALUE)
    colours = {formatting.status_text(status): formatting.STATUS_STYLES[status] for status in STATUSES}
    return style.map(lambda text: _paint(colours[text]), subset=["status"])


_SHOWN: Final[dict[str, Callable[[float | None], str]]] = {
    "since": formatting.age,
    "last commit": formatting.age,
    "lag": formatting.duration,
    "p95 latency": formatting.duration,
    "rows/s": formatting.rate,
    "rejects": formatting.count,
}


def _number(text: Callable[[float | None], str]) -> Callable[[object], str]:
    return lambda value: text(value if isinstance(value, (int, float)) else None)


def _paint(style: formatting.StatusStyle) -> str:
    return f"background-color: {style.colour}; color: {style.ink}" if style.ink != "#888888" else ""


def _row(fleet: Fleet, row: GameRow) -> dict[str, str | float | None]:
    live, reported = row.live, row.reported
    since, committed = row.verdict.since, reported.last_commit_at if reported is not None else None
    trouble = "; last error: ".join(
        text for text in (row.verdict.reason, row.verdict.waits_for, reported.last_error if reported else None) if text
    )
    return {
        "status": formatting.status_text(row.verdict.status),
        "since": fleet.read_at - since if since is not None else None,
        "game": formatting.shown(row.game, 80),
        "page": row.game_key,
        "group": formatting.shown(row.group) if row.group is not None else None,
        "lane": live.lane if live is not None else None,
        "lag": row.lag_seconds,
        "rows/s": live.rows_per_second if live is not None else None,
        "p95 latency": live.latency_p95_seconds if live is not None else None,
        "last commit": fleet.read_at - committed if committed is not None else None,
        "rejects": reported.rejects_total if reported is not None else None,
        "last error": formatting.shown(trouble, 160) if trouble else None,
    }
