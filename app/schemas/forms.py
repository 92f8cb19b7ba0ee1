"""The forms of the Schemas page: register a version, decide about requests that wait for a second person."""

from collections.abc import Sequence
from functools import partial
from typing import Final

import streamlit as st

from app import formatting
from app.components import confirm
from app.schemas import previews
from app.state import services
from app.state.previews import Preview
from app.state.services import Environment
from pipeline.api.versions import GameVersions, Version
from pipeline.base.errors import Refused
from pipeline.control.acts import DirectAct
from pipeline.control.registering.requests import SchemaRequest
from pipeline.control.roles import is_self
from pipeline.data.contracts.formats.supported import BY_SUFFIX
from pipeline.data.contracts.policies import CHOICES, parse_policies
from pipeline.data.contracts.registrations import Registration

_FILE: Final = "file"
_REQUEST: Final = "schema_request"  # the place of all of them: the drawer outlasts a request that was decided
_POLICIES: Final = tuple(f"{kind}={policy}" for kind, policies in CHOICES.items() for policy in policies[1:])
_MAX_SHOWN: Final = 25


def draw_register(environment: Environment, game: GameVersions | None) -> None:
    """Draw the form that registers a version, of the game on screen or of any other."""
    own = "new" if game is None else game.key
    disabled_reason = services.missing_role(environment, DirectAct.REGISTER_SCHEMA)
    title = "Register a schema" if game is None else "Register the next version of this game"
    opened = st.expander(title, icon=":material/upload_file:", key=f"schema_register_{own}", on_change="rerun")
    with opened:
        with st.form(f"fields_register_{own}", enter_to_submit=False, border=False):
            _draw_fields(own, game)
            st.form_submit_button(
                "Preview the registration",
                key=f"preview_register_{own}",
                on_click=_plan,
                args=(environment, game),
                disabled=disabled_reason is not None,
            )
        if disabled_reason is not None:
            st.caption(formatting.escaped(disabled_reason))
        confirm.draw_confirmation(environment, f"register_{own}")


def _draw_fields(own: str, game: GameVersions | None) -> None:
    if game is None:
        st.text_input(
            "Game", key=f"register_game_{own}", max_chars=256, autocomplete="off",
            help="Its exact name. A name's first schema makes it a game.",
        )  # fmt: skip
    elif game.quarantined:
        again = {
            f"v{each.version}": f"version {each.version} again, whose rows go to quarantine"
            for each in game.quarantined
        }
        st.selectbox(
            "Schema",
            [_FILE, *again],
            key=f"register_what_{own}",
            format_func=lambda each: again.get(each, "a file"),
            help="With other policies its next rows land. A replay lands those in quarantine.",
        )
    st.file_uploader(
        "File: an Avro schema (.avsc), a JSON Schema (.json), or a descriptor set (.desc, protoc --include_imports)",
        type=[suffix.removeprefix(".") for suffix in BY_SUFFIX],
        key=f"register_file_{own}",
    )
    newest = None if game is None else game.newest
    st.text_input(
        "Message", value="" if newest is None else newest.message, key=f"register_message_{own}", max_chars=1000,
        autocomplete="off", help="Full name of the payload's message or record, or the title of its JSON Schema.",
    )  # fmt: skip
    if game is not None:
        st.text_input(
            "Renamed from", key=f"register_continues_{own}", max_chars=1000, autocomplete="off",
            help="Only where this message is the game's event type under a new name: the earlier full name.",
        )  # fmt: skip
    st.multiselect(
        "Policies other than the default", _POLICIES, key=f"register_policies_{own}",
        placeholder="kind=policy", select_all=False,
    )  # fmt: skip


def _plan(environment: Environment, game: GameVersions | None) -> None:
    own = "new" if game is None else game.key
    confirm.stage_preview(f"register_{own}", partial(_planned, environment, game, own))


def _planned(environment: Environment, game: GameVersions | None, own: str) -> Preview:
    """Plan what the form says.

    Raises:
        Refused: something is missing or cannot be.
    """
    state = st.session_state
    if (disabled_reason := services.missing_role(environment, DirectAct.REGISTER_SCHEMA)) is not None:
        raise Refused(disabled_reason)
    again = _again(game, str(state.get(f"register_what_{own}") or _FILE))
    policies = parse_policies(state.get(f"register_policies_{own}") or ())
    continues = str(state.get(f"register_continues_{own}") or "").strip() or None
    if game is not None and again is not None:
        return previews.preview_again(environment, game, again, policies, continues)
    name = str(state.get(f"register_game_{own}") or "") if game is None else game.game
    message, file = str(state.get(f"register_message_{own}") or "").strip(), state.get(f"register_file_{own}")
    if not name or not message or file is None:
        raise Refused("Name the game and the message, and choose a file.")
    suffix = next((each for each in BY_SUFFIX if str(file.name).lower().endswith(each)), None)
    if suffix is None:
        raise Refused(f"The file must end in {' or '.join(BY_SUFFIX)}.")
    given = Registration(name, message, file.getvalue(), policies, format=BY_SUFFIX[suffix], continues=continues)
    return previews.preview_registration(environment, given)


def _again(game: GameVersions | None, what: str) -> Version | None:
    """Return the version to be registered again; None where a file is."""
    if game is None or what == _FILE:
        return None
    return next((each for each in game.quarantined if f"v{each.version}" == what), None)


# ------------------------------------------------------------------------------------------------------------- requests


def draw_requests(environment: Environment, listed: Sequence[SchemaRequest], read_at: float) -> None:
    """Draw the registrations that wait for a second person, and the newest decisions."""
    waiting, decided = [each for each in listed if each.state == "asked"], [each for each in listed if each.decided_at]
    for each in waiting[:_MAX_SHOWN]:
        _draw_waiting(environment, each, read_at)
    if len(waiting) > _MAX_SHOWN:
        st.caption(f"{len(waiting) - _MAX_SHOWN} more wait; `turnout schemas requests` lists all.")
    confirm.draw_confirmation(environment, _REQUEST)
    if decided:
        with st.expander("Decided requests", icon=":material/gavel:", key="schema_decided"):
            confirm.draw_lines([_decided(each) for each in decided[:_MAX_SHOWN]])


def _draw_waiting(environment: Environment, each: SchemaRequest, read_at: float) -> None:
    own = is_self(environment.settings.access, each.requester, services.actor())
    with st.container(border=True, gap="small", key=f"operation_stuck_{each.request_id}"):
        ago = formatting.age(read_at - each.requested_at)
        what = f"{formatting.shown(each.message, 120)} ({formatting.shown(each.format, 20)})"
        st.text(
            f"△ Waits for a second person: {formatting.shown(each.requester, 60)} asks, {ago} ago, to register "
            f"{what} for {formatting.shown(each.game, 80)}"
        )
        st.text(f"Why: {formatting.shown(each.reason, 300)}")
        decide = {
            DirectAct.APPROVE_SCHEMA: ("Approve…", previews.preview_approval),
            DirectAct.REJECT_SCHEMA: ("Withdraw…" if own else "Reject…", previews.preview_rejection),
        }
        with st.container(horizontal=True, vertical_alignment="center"):
            for act, (label, preview) in decide.items():
                needs = services.missing_role(environment, act)
                if own and act == DirectAct.APPROVE_SCHEMA:
                    needs = "Your own request: another person approves it."
                st.button(
                    label,
                    key=f"{act.name.lower()}_{each.request_id}",
                    on_click=confirm.stage_preview,
                    args=(_REQUEST, partial(preview, environment, each.request_id)),
                    disabled=needs is not None,
                    help=None if needs is None else formatting.escaped(needs),
                )


def _decided(each: SchemaRequest) -> str:
    why = f": {each.decision_reason}" if each.decision_reason else ""
    what = f"{each.requester}: {each.message} for {each.game}"
    return f"{formatting.moment(each.decided_at)}  {each.state} by {each.decided_by}{why}  ({what})"
