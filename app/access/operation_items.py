"""Progress of each change of an access operation; failed ones first, and done only when seen in the catalog."""

from collections import Counter
from typing import Final

import pandas as pd
import streamlit as st

from app import formatting
from app.access import queries
from app.state.services import Environment
from grants.api.access import AccessItemState, Item
from grants.observing.verdict import place
from pipeline.api.operations import Operation
from pipeline.base.errors import Refused

_ORDER: Final[tuple[AccessItemState, ...]] = ("failed", "unseen", "planned", "applied", "observed")
_TEXTS: Final[dict[AccessItemState, str]] = {
    "failed": "✗ failed",
    "unseen": "▲ applied, not seen in time",
    "planned": "○ not tried yet",
    "applied": "» applied, not seen yet",
    "observed": "✓ seen in the catalog",
}
_NEVER_TRIED: Final = "○ not tried"
_COLUMNS: Final = {
    "state": st.column_config.TextColumn("Status", width=170),
    "who": st.column_config.TextColumn("Who", width=220),
    "what": st.column_config.TextColumn("What", width=190),
    "where": st.column_config.TextColumn("Where", width=330),
    "said": st.column_config.TextColumn("Said", width=360),
}


def draw(environment: Environment, operation: Operation) -> None:
    """Draw the changes of an operation with their outcomes; nothing before they are planned."""
    try:
        items = queries.items(environment, operation.operation_id)
    except Refused as refused:
        st.warning(formatting.escaped(str(refused)), icon=":material/database_off:")
        return
    if not items:
        return
    st.caption(summary(items, is_open=operation.is_open))
    rows = [_row(each, is_open=operation.is_open) for each in sorted(items, key=_turn)]
    st.dataframe(
        pd.DataFrame(rows),
        hide_index=True,
        height=min(36 * (len(rows) + 1), 400),
        column_config=_COLUMNS,
        alt="Catalog changes of this operation, failed ones first.",
        key=f"items_{operation.operation_id}",
    )


def summary(items: tuple[Item, ...], *, is_open: bool) -> str:
    """Count the changes by state, failed ones first."""
    counts = Counter(each.state for each in items)
    parts = ", ".join(f"{counts[state]} {_text(state, is_open=is_open)[2:]}" for state in _ORDER if counts[state])
    return f"{len(items)} catalog change{'' if len(items) == 1 else 's'}: {parts}."


def _turn(item: Item) -> tuple[int, int]:
    return _ORDER.index(item.state), item.number


def _text(state: AccessItemState, *, is_open: bool) -> str:
    return _NEVER_TRIED if state == "planned" and not is_open else _TEXTS[state]


def _row(item: Item, *, is_open: bool) -> dict[str, str]:
    change = item.change
    message = item.message or (
        "" if item.state != "applied" else "The catalog accepted it; a read has not shown it yet."
    )
    what = [f"{verb} {', '.join(some)}" for verb, some in (("grant", change.add), ("revoke", change.remove)) if some]
    return {
        "state": _text(item.state, is_open=is_open),
        "who": formatting.principal_text(change.principal),
        "what": formatting.shown("; ".join(what), 120),
        "where": formatting.shown(place(change.securable), 160),
        "said": formatting.shown(message, 300) if message else formatting.UNKNOWN_VALUE,
    }
