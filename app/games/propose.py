"""The form of the Games page that proposes a game which has sent nothing yet."""

from functools import partial
from typing import Final

import streamlit as st

from app import formatting
from app.components import confirm
from app.games import previews
from app.games.decision import readers_of
from app.state import services
from app.state.previews import Preview
from app.state.services import Environment
from pipeline.api.games import PRIORITIES, GameProposal, GamesOverview
from pipeline.base.errors import Refused
from pipeline.base.names import game_key
from pipeline.control.acts import DirectAct
from pipeline.data.contracts.formats.supported import BY_SUFFIX

PLACE: Final = "game_proposal"
_OWN: Final = "propose"  # begins the keys of its fields


def draw(environment: Environment, seen: GamesOverview) -> None:
    """Draw the form, closed, and what comes of it."""
    needs = services.missing_role(environment, DirectAct.PROPOSE_GAME)
    with st.expander("Propose a game that has sent nothing yet", icon=":material/add:", key="games_propose"):
        with st.form("fields_propose", enter_to_submit=False, border=False):
            _draw_fields(seen)
            st.form_submit_button(
                "Preview the proposal",
                key="preview_propose",
                on_click=confirm.stage_preview,
                args=(PLACE, partial(_planned, environment)),
                disabled=needs is not None,
            )
        if needs is not None:
            st.caption(formatting.escaped(needs))
    confirm.draw_confirmation(environment, PLACE)


def _draw_fields(seen: GamesOverview) -> None:
    st.text_input(
        "Game", key=f"{_OWN}_game", max_chars=256, autocomplete="off",
        help="Its exact name, as its producers will send it. Replaces an earlier proposal of the name.",
    )  # fmt: skip
    load, group, priority = st.columns(3, gap="medium")
    load.number_input("Expected events per second", min_value=0.0, value=None, key=f"{_OWN}_load")
    group.selectbox("Group", seen.groups, index=None, key=f"{_OWN}_group", placeholder="its rule's, or placement's")
    priority.selectbox("Priority", PRIORITIES, index=None, key=f"{_OWN}_priority", placeholder="its rule's")
    st.text_input(
        "Readers", key=f"{_OWN}_readers", max_chars=1_000, autocomplete="off",
        help="Principals of the catalog, separated by commas. The person who approves answers for them.",
    )  # fmt: skip
    endings = [suffix.removeprefix(".") for suffix in BY_SUFFIX]
    file, message = st.columns(2, gap="medium")
    file.file_uploader("Its first schema (.avsc, .json, or a .desc of protoc)", type=endings, key=f"{_OWN}_file")
    message.text_input(
        "Message", key=f"{_OWN}_message", max_chars=1_000, autocomplete="off",
        help="Full name of the schema's message or record, or the title of its JSON Schema.",
    )  # fmt: skip


def _planned(environment: Environment) -> Preview:
    """Plan what the form says.

    Raises:
        Refused: the name is missing, schema and message are not both given, or as `game_acts.preview_proposal`.
    """
    state = st.session_state
    name, message = str(state.get(f"{_OWN}_game") or ""), str(state.get(f"{_OWN}_message") or "").strip()
    file, group = state.get(f"{_OWN}_file"), state.get(f"{_OWN}_group")
    if not name:
        raise Refused("Name the game.")
    if (file is None) != (not message):
        raise Refused("A schema and the name of its message belong together.")
    suffix = None if file is None else next((one for one in BY_SUFFIX if str(file.name).lower().endswith(one)), None)
    if file is not None and suffix is None:
        raise Refused(f"The file must end in {' or '.join(BY_SUFFIX)}.")
    proposal = GameProposal(
        game_key(name), name, services.actor(), "",
        events_per_second=state.get(f"{_OWN}_load"),
        group=None if group is None else str(group),
        priority=next((one for one in PRIORITIES if one == state.get(f"{_OWN}_priority")), None),
        readers=readers_of(str(state.get(f"{_OWN}_readers") or "")),
        format=None if suffix is None else BY_SUFFIX[suffix],
        message=message or None,
        definition=None if file is None else file.getvalue(),
    )  # fmt: skip
    return previews.preview_proposal(environment, proposal)
