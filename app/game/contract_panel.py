"""Draws the output contract of a game in the card of its rows: the rules, and how many rows of late broke each."""

from typing import Final

import pandas as pd
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from app import formatting
from app.components import pills
from app.game.contract import TONES, freshness, table
from app.game.signals import GameSignals, until_text
from app.look import parts
from app.state.services import Environment, cached
from pipeline.api import contracts
from pipeline.api.contracts import GameContracts
from pipeline.base.errors import Refused
from pipeline.base.texts import first_lines, short_moment

_ABOUT: Final = (
    "Warn: the row lands. Quarantine: it waits there. Stop: the stream stops before it, until the contract changes."
)
_ROW: Final = 36
_TALL: Final = 396  # more rows scroll

_contracts: Final = cached(contracts.of_game, seconds=10, most=200)


def draw(environment: Environment, signals: GameSignals, place: DeltaGenerator) -> None:
    """Draw the rules; `place` is that of the card's head."""
    try:
        found = _contracts(environment, signals.row.game_key, signals.row.game)
    except Refused as refused:
        place.html(parts.section("Contract"))
        st.html(parts.silence("The contract cannot be read.", formatting.shown(str(refused))))
        return
    trend = signals.trend
    rows = table(found, None if trend is None else trend.broken)
    if not rows:
        place.html(parts.section("Contract"))
        how = "turnout contracts apply FILE gives it one."
        none = "No rule is for this game." if found.contracts else "No output contract is for this game."
        st.html(parts.silence(none, how))
        _draw_promises(found, signals)
        return
    said = [f"{len(rows)} {'rule' if len(rows) == 1 else 'rules'}"]
    if trend is None:
        said.append(formatting.shown(f"rows not known: {signals.whys.get('trend', '')}", 200))
    else:
        said.append(f"rows since {short_moment(trend.since, signals.now)}{until_text(signals, 'trend')}")
    said.append(f"applied by {formatting.shown(found.actor, 40)} {short_moment(found.applied_at, signals.now)}")
    place.html(parts.section("Contract", " · ".join(said)))
    st.dataframe(
        pd.DataFrame(rows),
        hide_index=True,
        row_height=_ROW,
        height=min(_ROW * (len(rows) + 1) + 2, _TALL),
        column_config={
            "Promise": st.column_config.TextColumn(width="large"),
            "Action": pills.column("Action", TONES, 120, _ABOUT),
            "Rows that break it": st.column_config.TextColumn(alignment="right", help="Landed or refused."),
            "Readers": st.column_config.TextColumn(
                help="People and products that rely on the contract, as its file says."
            ),
        },
        alt="Rules of this game's output contract, with action and the rows that broke each lately.",
        key="contract_table",
    )
    _draw_promises(found, signals)


def _draw_promises(found: GameContracts, signals: GameSignals) -> None:
    """Draw what is promised of the table as a whole, and what is not checked."""
    for line in freshness(found, signals.row, signals.now):
        st.text(line)
    for line in found.unique:
        st.text(formatting.shown(line, 300))
    if found.unchecked:
        st.text(formatting.shown(f"Not checked, of protovalidate: {'; '.join(first_lines(found.unchecked))}", 1000))
