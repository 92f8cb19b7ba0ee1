"""Why a principal reads a game or not, and turnout's grants on it; both are chosen by name."""

from typing import Final

import pandas as pd
import streamlit as st

from app import formatting
from app.access import queries
from app.access.matrix import STATES
from app.access.queries import AccessState, GrantRecord, ResolvedCatalog
from app.look import parts
from app.state.services import Environment
from grants.observing.matrix import CellState
from grants.observing.verdict import AccessVerdict, Need, place
from pipeline.errors import Refused
from pipeline.lists import first_lines

GAME, WHO = "why_game", "why_who"
LINKED: Final = {"why_game": GAME, "why_who": WHO}
_MET: Final = {True: "✓ there", False: "✗ missing", None: "? not known"}
_NEEDS: Final = {
    "need": st.column_config.TextColumn("Needed", width=110),
    "on": st.column_config.TextColumn("On", width=300),
    "met": st.column_config.TextColumn("Present", width=110),
    "by": st.column_config.TextColumn("By", width=560),
}
_PAST: Final = {
    "given": st.column_config.TextColumn("Given", width=170),
    "by": st.column_config.TextColumn("Grantor", width=120),
    "until": st.column_config.TextColumn("Until", width=170),
    "why": st.column_config.TextColumn("Why", width=260),
    "ticket": st.column_config.TextColumn("Ticket", width=110),
    "ended": st.column_config.TextColumn("Ended", width=170),
    "ender": st.column_config.TextColumn("Ended by", width=120),
}


def draw(environment: Environment, access: AccessState, known: ResolvedCatalog) -> None:
    """Draw the choice of a cell, which `links.take` has filled, its verdict and its history."""
    with st.container(horizontal=True, vertical_alignment="bottom"):
        games = sorted({*access.names, *known.observed.tables}, key=lambda key: (access.names.get(key, key), key))
        st.selectbox("Game", games, key=GAME, format_func=access.game, index=None, placeholder="choose a game")
        st.selectbox(
            "Principal",
            list(access.everybody),
            key=WHO,
            format_func=access.label,
            index=None,
            placeholder="choose a principal",
        )
    key, who = st.session_state.get(GAME), st.session_state.get(WHO)
    if key is None or who is None:
        st.info("Choose a game and a principal, here or in the matrix.", icon=":material/help:")
        return
    name = access.everybody[str(who)].name
    try:
        verdict = known.resolver.verdict(name, str(key))
    except Refused as refused:
        st.text(formatting.shown(f"? {refused}", 600))
    else:
        _draw_verdict(known, verdict)
    _draw_history(environment, str(key), str(who))


def state_of(verdict: AccessVerdict) -> CellState:
    """Return a verdict as the matrix shows it."""
    if verdict.reads is None:
        return "unknown"
    if verdict.reads:
        return "reads"
    return "could" if verdict.could_grant_itself else "no"


def _draw_verdict(known: ResolvedCatalog, verdict: AccessVerdict) -> None:
    with st.container(key="verdict", gap=None):
        st.text(f"{STATES[state_of(verdict)]}: {formatting.shown(verdict.sentence, 900)}")
    badges = list(verdict.badges)
    if known.observed.directory.emulated_groups:
        badges.append("groups are emulated: the server does not know them")
    if badges:
        with st.container(horizontal=True, gap="small"):
            for each in badges:
                st.badge(formatting.escaped(each), icon=":material/visibility_off:", color="gray")
    st.dataframe(
        pd.DataFrame(_need(each) for each in verdict.needs),
        hide_index=True,
        column_config=_NEEDS,
        alt="The three privileges needed to read, and the grants that give them.",
        key="why_needs",
    )
    could = {True: f"Could grant itself: yes, by {verdict.granting[0].words}" if verdict.granting else "yes",
             False: "Could grant itself: no", None: "Could grant itself: ? not known"}  # fmt: skip
    st.text(formatting.shown(could[verdict.could_grant_itself], 400))
    for odd in verdict.unknown:
        text = f"? {odd.holder} holds {odd.privilege} on {place(odd.securable)}: turnout does not know its effect."
        st.text(formatting.shown(text, 400))


def _need(need: Need) -> dict[str, str]:
    ways = first_lines(need.ways, 4, lambda way: way.words)
    unread = [f"? not read: {place(each)}" for each in need.unread]
    by = "; ".join([*ways, *unread])
    return {
        "need": need.privilege,
        "on": formatting.shown(place(need.securable), 160),
        "met": _MET[need.met],
        "by": formatting.shown(by, 600) if by else "no grant found",
    }


def _draw_history(environment: Environment, key: str, who: str) -> None:
    st.html(parts.section("Grants and revokes by turnout"))
    try:
        past = queries.history(environment, key, who)
    except Refused as refused:
        st.warning(formatting.escaped(str(refused)), icon=":material/database_off:")
        return
    if not past:
        st.info("turnout granted nothing: access comes from another grantor or from a group.")
        return
    st.dataframe(
        pd.DataFrame(_row(each) for each in past),
        hide_index=True,
        column_config=_PAST,
        alt="All that turnout ever granted this principal of this game, newest first.",
        key="why_history",
    )
    st.caption("All times are UTC.")


def _row(past: GrantRecord) -> dict[str, str]:
    held = past.held
    return {
        "given": formatting.moment(held.given_at),
        "by": formatting.shown(past.given_by, 60),
        "until": "no end" if held.expires_at is None else formatting.moment(held.expires_at),
        "why": formatting.shown(held.reason, 160) if held.reason else formatting.UNKNOWN_VALUE,
        "ticket": formatting.shown(held.ticket, 60) if held.ticket else formatting.UNKNOWN_VALUE,
        "ended": formatting.moment(held.ended_at) if held.ended_at is not None else "holds",
        "ender": formatting.shown(past.ended_by, 60) if past.ended_by else formatting.UNKNOWN_VALUE,
    }
