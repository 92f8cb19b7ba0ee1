"""Why a principal reads a game or not, and turnout's grants on it; both are chosen by name."""

from collections.abc import Callable
from functools import partial
from typing import Final

import streamlit as st

from app import formatting
from app.access import queries
from app.access.matrix import STATES
from app.access.queries import AccessState, GrantRecord, ResolvedCatalog
from app.look import parts
from app.state.services import Environment
from grants.model import folded
from grants.observing.matrix import CellState
from grants.observing.verdict import AccessVerdict, RequiredPrivilege, place
from pipeline.base.errors import Refused
from pipeline.base.texts import first_lines

GAME, WHO = "why_game", "why_who"
LINKED: Final = {"why_game": GAME, "why_who": WHO}
_MET: Final = {True: "✓", False: "✗ missing", None: "? not known"}
_MOST_PAST: Final = 3  # entitlements that are listed; the audit log has all


Change = Callable[[str, str, str], None]
"""What a button of a cell does, given `give` or `take`, the game's key and the principal's folded name."""


def draw(environment: Environment, access: AccessState, known: ResolvedCatalog, change: Change) -> None:
    """Draw the choice of a cell, which `links.take` has filled, its verdict, its history and its buttons."""
    st.html(parts.section("Why", "one game, one principal"))
    games = sorted({*access.names, *known.observed.tables}, key=lambda key: (access.names.get(key, key), key))
    st.selectbox("Game", games, key=GAME, format_func=access.game, index=None, placeholder="choose a game")
    st.selectbox(
        "Principal",
        list(access.everybody),
        key=WHO,
        format_func=partial(queries.label, access),
        index=None,
        placeholder="choose a principal",
    )
    key, who = st.session_state.get(GAME), st.session_state.get(WHO)
    if key is None or who is None:
        st.info("Choose a game and a principal, here or in the matrix.", icon=":material/help:")
        return
    key, who = str(key), str(who)
    verdict: AccessVerdict | None = None
    try:
        verdict = known.resolver.verdict(access.everybody[who].name, key)
    except Refused as refused:
        st.text(formatting.shown(f"? {refused}", 600))
    if verdict is not None:
        with st.container(key="verdict", gap=None):
            st.text(f"{STATES[state_of(verdict)]}: {formatting.shown(verdict.sentence, 900)}")
    if key in access.names:
        with st.container(horizontal=True, gap="xsmall", key="row_why"):
            for does, label in (("give", "Grant…"), ("take", "Revoke…")):
                st.button(label, key=f"why_{does}", on_click=change, args=(does, key, who))
    if verdict is not None:
        _draw_verdict(known, verdict)
    _draw_requests(access, key, who)
    _draw_history(environment, key, who, _followed(access, known, key))


def state_of(verdict: AccessVerdict) -> CellState:
    """Return a verdict as the matrix shows it."""
    if verdict.reads is None:
        return "unknown"
    if verdict.reads:
        return "reads"
    return "could" if verdict.could_grant_itself else "no"


def _draw_verdict(known: ResolvedCatalog, verdict: AccessVerdict) -> None:
    badges = list(verdict.badges)
    if known.observed.directory.emulated_groups:
        badges.append("groups are emulated: the server does not know them")
    if badges:
        with st.container(horizontal=True, gap="small"):
            for each in badges:
                st.badge(formatting.escaped(each), icon=":material/visibility_off:", color="gray")
    st.html(parts.facts([_need(each) for each in verdict.needs]))
    could = {True: f"Could grant itself: yes, by {verdict.granting[0].words}" if verdict.granting else "yes",
             False: "Could grant itself: no", None: "Could grant itself: ? not known"}  # fmt: skip
    st.text(formatting.shown(could[verdict.could_grant_itself], 400))
    for odd in verdict.unknown:
        text = f"? {odd.holder} holds {odd.privilege} on {place(odd.securable)}: turnout does not know its effect."
        st.text(formatting.shown(text, 400))


def _need(need: RequiredPrivilege) -> tuple[str, str]:
    """Return a privilege, and whether it is there and by which grants."""
    unread = [f"not read: {place(each)}" for each in need.unread]
    by = "; ".join([*first_lines(need.ways, 4, lambda way: way.words), *unread]) or "no grant found"
    label = need.privilege.replace("_", " ").lower()
    return label, formatting.shown(f"{_MET[need.met]} {by}", 600)


def _draw_requests(access: AccessState, key: str, who: str) -> None:
    for each in access.waiting:
        if any(str(intent["key"]) == key and folded(str(intent["principal"])) == who for intent in each.intents):
            ago = formatting.age(access.read_at - each.requested_at)
            said = formatting.shown(f"by {each.requester}, {ago} ago: {each.reason}", 300)
            st.html(parts.facts([("asked", said)]))


def _followed(access: AccessState, known: ResolvedCatalog, key: str) -> str | None:
    """Return the game whose grants a silver or gold table follows."""
    table = known.observed.tables.get(key)
    return None if table is None or not table.follows else access.game(table.game)


def _draw_history(environment: Environment, key: str, who: str, followed: str | None) -> None:
    if followed is not None:
        st.html(parts.note(f"It follows the grants of {formatting.shown(followed, 120)}: choose that game for these."))
    try:
        past = queries.history(environment, key, who)
    except Refused as refused:
        st.warning(formatting.escaped(str(refused)), icon=":material/database_off:")
        return
    if not past and followed is None:
        st.html(parts.note("turnout granted nothing: what is there comes from another grantor or from a group."))
    if not past:
        return
    st.html(parts.section("Grants and revokes by turnout", "UTC, newest first"))
    st.html(parts.facts([fact for each in past[:_MOST_PAST] for fact in _facts(each)]))
    if len(past) > _MOST_PAST:
        st.html(parts.note(f"{len(past) - _MOST_PAST} earlier ones: see Audit."))


def _facts(past: GrantRecord) -> list[tuple[str, str]]:
    held = past.held
    why = f"{held.reason or 'no reason was given'}{f' · {held.ticket}' if held.ticket else ''}"
    found = [
        ("granted", f"{formatting.moment(held.given_at)} by {past.given_by}"),
        ("reason", why),
        ("ends", "no end" if held.expires_at is None else formatting.moment(held.expires_at)),
    ]
    if held.revoked_at is not None:
        found[2] = ("revoked", f"{formatting.moment(held.revoked_at)}; the catalog does not show it yet")
    if held.ended_at is not None:
        found[2] = ("ended", f"{formatting.moment(held.ended_at)} by {past.ended_by or 'nobody known'}")
    return [(label, formatting.shown(said, 300)) for label, said in found]
