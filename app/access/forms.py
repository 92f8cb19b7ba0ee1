"""The forms of the Access page to grant and revoke, and to decide on requests."""

from collections.abc import Callable, Mapping
from datetime import date
from functools import partial
from typing import Any, Final, Literal

import streamlit as st

from app import formatting
from app.access import operation_items, previews, queries
from app.access.queries import AccessState
from app.components import confirm, links
from app.look import parts
from app.person import identity
from app.state import services
from app.state.previews import Preview
from app.state.services import Environment
from grants.api.access import Request
from grants.formats.expiry import parse_until
from grants.planning.entitlements import AccessIntent
from pipeline.api.operations import OperationKind
from pipeline.base.errors import Refused
from pipeline.base.texts import first_lines
from pipeline.control.acts import DirectAct
from pipeline.control.roles import same_person

_PLACE: Final = "access_change"
_REQUEST: Final = "access_request"  # the place of all of them: the drawer outlasts a request that was approved
DO, GAMES, WHO = "access_do", "access_games", "access_who"
LINKED: Final = {"do": DO, "of_games": GAMES, "to": WHO}
DOES: Final = {"give": "Grant read", "take": "Revoke"}
_PREVIEWS: Final = {"give": "Preview the grant", "take": "Preview the revoke"}
_REASON, _TICKET, _UNTIL = "access_reason", "access_ticket", "access_until"
_EMPTY: Final[Mapping[str, object]] = {DO: "give", GAMES: [], WHO: [], _REASON: "", _TICKET: "", _UNTIL: None}
"""What the fields of a change hold while its drawer is closed."""

_NOTES: Final = "access_notes"  # by request: what came of the last decision
_MAX_SHOWN: Final = 25


def draw_change(
    environment: Environment, access: AccessState, is_open: Callable[[], bool], close: Callable[[], None]
) -> None:
    """Draw the drawer of a change while `is_open` says so: the form, filled by `links.take`, or what it planned.

    `close` makes `is_open` say no. What is offered at another place has the drawer.
    """
    if confirm.offered() not in {None, _PLACE}:
        return

    def closed() -> None:
        confirm.drop(_PLACE)
        for field, empty in _EMPTY.items():
            st.session_state[field] = empty
        links.forget(*LINKED)
        close()

    @st.dialog("Grant or revoke", width=confirm.WIDE, position="right", on_dismiss=closed)
    def drawer() -> None:
        identity.rerun_where_another_acts()
        if not is_open():
            st.rerun()  # only a run of the whole page closes the drawer
        form = partial(_draw_form, environment, access)
        confirm.draw_within(environment, _PLACE, form, closed, operation_items.draw, previews.preview_undo)

    drawer()


def _draw_form(environment: Environment, access: AccessState) -> None:
    """Draw the form of a change: games and principals by name, in bulk."""
    disabled_reason, closed = (
        services.missing_role(environment, OperationKind.ACCESS),
        services.missing_role(environment, None),
    )
    with st.container(key="plan_access", gap="small"):
        does = st.segmented_control(
            "What", list(DOES), key=DO, format_func=DOES.__getitem__, required=True, label_visibility="collapsed",
            persist_state="page",
        )  # fmt: skip
        games = sorted(access.names, key=lambda key: (access.names[key], key))
        st.multiselect(
            "Games", games, key=GAMES, format_func=access.game, placeholder="by name or key", select_all=False,
            persist_state="page",
        )  # fmt: skip
        st.multiselect(
            "Principals", list(access.everybody), key=WHO, format_func=partial(queries.label, access),
            placeholder="groups are better", select_all=False, persist_state="page",
        )  # fmt: skip
        with st.form("access_terms", enter_to_submit=False, border=False):
            st.text_input("Reason", key=_REASON, max_chars=500, persist_state="page")
            with st.container(horizontal=True, vertical_alignment="bottom"):
                st.text_input("Ticket (may be empty)", key=_TICKET, max_chars=80, width=200, persist_state="page")
                if does != "take":
                    st.date_input(
                        "Until the end of (UTC; empty: no end)", None, key=_UNTIL, format="YYYY-MM-DD", width=260,
                        persist_state="page",
                    )  # fmt: skip
            with st.container(horizontal=True):
                st.form_submit_button(
                    _PREVIEWS.get(str(does), "Preview"), on_click=_offer, args=(environment, does),
                    disabled=disabled_reason is not None, key="preview_access", type="primary",
                )  # fmt: skip
                st.form_submit_button(
                    "Request access…", on_click=_offer, args=(environment, does), kwargs={"as_request": True},
                    key="preview_request", type="secondary" if disabled_reason is not None else "tertiary",
                    help="Another access admin decides.", disabled=closed is not None,
                )  # fmt: skip
        if disabled_reason is not None:
            instead = " You can request it: an access admin decides." if closed is None else ""
            st.caption(formatting.escaped(f"{disabled_reason}{instead}"))


def _offer(environment: Environment, does: str | None, *, as_request: bool = False) -> None:
    confirm.stage_preview(_PLACE, partial(_planned, environment, does, as_request=as_request))


def _planned(environment: Environment, does: str | None, *, as_request: bool) -> Preview:
    """Plan what the form says; `does` is what its button said, whatever the browser sends beside the click.

    Who forged a value of it meets the same rules as everybody.

    Raises:
        Refused: something is missing or cannot be.
    """
    if does not in DOES or st.session_state.get(DO) != does:
        raise Refused("Choose grant or revoke, then preview it again.")
    if not as_request:
        disabled_reason = services.missing_role(environment, OperationKind.ACCESS)
        if disabled_reason is not None:
            raise Refused(disabled_reason)
    access, until = queries.read_access(environment), st.session_state.get(_UNTIL)
    reason = str(st.session_state.get(_REASON) or "").strip()
    ticket = str(st.session_state.get(_TICKET) or "").strip()
    end = float(parse_until(until.isoformat())) if does == "give" and isinstance(until, date) else None
    names = {folded: who.name for folded, who in access.everybody.items()}
    intents = [
        AccessIntent(
            names.get(str(who), str(who)), str(key), read=does == "give", until=end, reason=reason, ticket=ticket
        )
        for who in st.session_state.get(WHO) or []
        for key in st.session_state.get(GAMES) or []
    ]
    return previews.preview_change(environment, intents, reason, as_request=as_request)


# ------------------------------------------------------------------------------------------------------------- requests


def draw_requests(environment: Environment, access: AccessState) -> None:
    """Draw the requests: open ones on top, for access admins and for their requesters."""
    me, disabled_reason = services.actor(), services.missing_role(environment, DirectAct.DECIDE_REQUEST)
    own = [each for each in access.waiting if same_person(each.requester, me)]
    others = [each for each in access.waiting if each not in own]
    if not access.waiting:
        st.info("No open requests.")
    if others and disabled_reason is not None:
        st.caption(formatting.escaped(f"{len(others)} requests by others wait for an access admin. {disabled_reason}"))
    for each in (others if disabled_reason is None else [])[:_MAX_SHOWN]:
        _draw_waiting(environment, access, each)
    if disabled_reason is None and len(others) > _MAX_SHOWN:
        st.caption(f"{len(others) - _MAX_SHOWN} more wait; `turnout grants requests` lists all.")
    for each in own:
        _draw_own(environment, access, each)
    confirm.draw_confirmation(environment, _REQUEST, operation_items.draw, previews.preview_undo)
    decided = [
        each for each in access.requests if each.state != "asked" and (disabled_reason is None or each.requester == me)
    ]
    if decided:
        st.html(parts.section("Decided"))
        confirm.draw_lines([_decided(each, access) for each in decided[:_MAX_SHOWN]])
    for note in st.session_state.get(_NOTES, {}).values():
        st.warning(formatting.escaped(note), icon=":material/block:")


def _draw_waiting(environment: Environment, access: AccessState, each: Request) -> None:
    with st.container(border=True, gap="small", key=f"operation_stuck_{each.request_id}"):
        _draw_request(access, each)
        with st.container(horizontal=True, vertical_alignment="bottom"):
            approve = partial(previews.preview_approval, environment, each.request_id)
            st.button(
                "Approve…", key=f"approve_{each.request_id}", on_click=confirm.stage_preview, args=(_REQUEST, approve)
            )
            reason_key = f"said_{each.request_id}"
            st.text_input("Why not", key=reason_key, max_chars=500, label_visibility="collapsed", placeholder="why not")
            st.button(
                "Reject", key=f"reject_{each.request_id}", on_click=_decide, type="tertiary",
                args=(environment, each, "rejected", reason_key),
            )  # fmt: skip


def _draw_own(environment: Environment, access: AccessState, each: Request) -> None:
    with st.container(border=True, gap="small", key=f"operation_own_{each.request_id}"):
        _draw_request(access, each)
        st.button(
            "Withdraw", key=f"withdraw_{each.request_id}", on_click=_decide, args=(environment, each, "withdrawn", ""),
            help="Your own request: another access admin decides.",
        )  # fmt: skip


def _draw_request(access: AccessState, each: Request) -> None:
    ago = formatting.age(access.read_at - each.requested_at)
    st.text(f"{formatting.shown(each.requester, 60)} asks, {ago} ago: {_cells(each, access)}")
    st.text(f"Why: {formatting.shown(each.reason, 300)}")


def _decide(environment: Environment, each: Request, state: Literal["rejected", "withdrawn"], field: str) -> None:
    notes = st.session_state.setdefault(_NOTES, {})
    notes.pop(each.request_id, None)
    reason = str(st.session_state.get(field) or "").strip() if field else ""
    try:
        previews.decide(environment, each, state, reason)
    except Refused as refused:
        notes[each.request_id] = str(refused)
    services.forget()


def _decided(each: Request, access: AccessState) -> str:
    why = f": {each.decision_reason}" if each.decision_reason else ""
    return (
        f"{formatting.moment(each.decided_at)}  {each.state} by {formatting.shown(each.decided_by or '', 40)}{why}  "
        f"({each.requester}: {_cells(each, access)})"
    )


def _cells(each: Request, access: AccessState, limit: int = 3) -> str:
    def cell(intent: Mapping[str, Any]) -> str:
        reads = "reads" if intent["read"] else "no longer reads"
        game = access.game(str(intent["key"]))
        return f"{formatting.principal_text(str(intent['principal']))} {reads} {game}{_until(intent.get('until'))}"

    return "; ".join(first_lines(each.intents, limit, cell))


def _until(until: object) -> str:
    return f" until {formatting.moment(float(until))}" if isinstance(until, (int, float)) else ""
