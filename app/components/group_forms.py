"""The forms in which a cluster group is made or changed: what is wanted, what that changes, then the write.

A form keeps the version of the group it was opened at; where another was written meanwhile, it reports that and writes
nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import streamlit as st

from app import formatting
from app.components.confirm import draw_lines, draw_refused
from app.state import control_queries, previews, services
from app.state.control_queries import ControlState
from app.state.services import Environment
from pipeline.control import group_proposals
from pipeline.control.group_changes import STARTED_BY, describe
from pipeline.control.group_proposals import GroupProposal
from pipeline.errors import Refused
from pipeline.placement.capacity import PRIORITIES
from pipeline.store.groups import Group
from pipeline.store.states import BACKENDS

_MAKE: Final = "make_group"
_OPENED: Final = "opened_group"  # what was seen of the group whose form is open


@dataclass(frozen=True, slots=True)
class _Offer:
    """What stands below a form: what would change, what was done, or why not."""

    proposal: GroupProposal | None = None
    done: str | None = None
    refused: str | None = None


def draw_make(environment: Environment) -> None:
    """Draw the form in which a group is made."""
    barred = services.missing_role(environment, group_proposals.MAKE)
    with st.expander("Make a group", icon=":material/add_circle:", key="make_group"):
        st.caption("It is made known: nothing moves by itself. Its driver is started by whom you choose.")
        with st.form("form_make_group", enter_to_submit=False, border=False):
            with st.container(horizontal=True, vertical_alignment="bottom"):
                st.text_input(
                    "Name", key="make_name", max_chars=40, placeholder="a-z, 0-9 and -", width=200, autocomplete="off"
                )
                _draw_fields("make", Group("", backend="local"), environment)
            st.form_submit_button(
                "Preview the group", key="preview_make", on_click=_plan_make, args=(environment,), disabled=bool(barred)
            )
        _draw_barred(barred)
        _draw_offer(environment, _MAKE)


def draw_change(environment: Environment, steering: ControlState, name: str) -> None:
    """Draw what is wanted of a group, and the form in which that is changed."""
    group = steering.groups.get(name)
    if group is None:
        return  # its driver has reported, and nobody has registered it
    barred = services.missing_role(environment, group_proposals.CHANGE)
    seen: Group | None = st.session_state.get(_OPENED)
    with st.container(border=True, key="card_wanted", gap="small"):
        st.markdown(f"**What is wanted of group {formatting.escaped(formatting.shown(name, 40))}**")
        if seen is None or seen.name != name:
            values = describe(group, environment.settings.spark.master).items()
            st.text(" · ".join(f"{what}: {formatting.shown(value, 120)}" for what, value in values))
            st.button("Change…", key="open_change", on_click=_open, args=(group,), disabled=barred is not None)
        else:
            _draw_form(environment, seen, group, barred)
        _draw_barred(barred)
        _draw_offer(environment, _place(name))


def _draw_form(environment: Environment, seen: Group, now: Group, barred: str | None) -> None:
    place = _place(seen.name)
    if now.version > seen.version:
        lines = group_proposals.what_changed(seen, now, environment.settings.spark.master)
        st.warning("This group was changed after you opened this form.", icon=":material/group:")
        draw_lines(lines)
    with st.form(f"form_{place}", enter_to_submit=False, border=False):
        with st.container(horizontal=True, vertical_alignment="bottom"):
            _draw_fields(_fields(seen), seen, environment)
        with st.container(horizontal=True):
            st.form_submit_button(
                "Preview the change",
                key="preview_change",
                on_click=_plan_change,
                args=(environment, seen),
                disabled=barred is not None,
            )
            if now.version > seen.version:
                st.form_submit_button("Look again", key="reopen_change", on_click=_open, args=(now,))
            st.form_submit_button("Close", key="close_change", on_click=_close, args=(seen.name,), type="tertiary")


def _draw_fields(prefix: str, group: Group, environment: Environment) -> None:
    """Draw a field for each thing that can be wanted, filled with what is."""
    st.selectbox(
        "Driver started by",
        BACKENDS,
        index=BACKENDS.index(group.backend),
        format_func=lambda backend: STARTED_BY.get(backend, backend),
        key=f"{prefix}_backend",
        placeholder="choose",
        width=190,
    )
    cores, limit = f"{prefix}_cores", group.capacity_cores
    if cores not in st.session_state:  # a `value` could not be taken away: Streamlit puts it back into an empty field
        st.session_state[cores] = limit
    st.number_input(
        "Capacity in cores",
        min_value=0.0,
        value=None,
        step=0.5,
        format="%g",
        key=cores,
        placeholder="no limit",
        width=170,
        help="What its games may take. Empty: no limit.",
    )
    st.selectbox(
        "For games of priority",
        PRIORITIES,
        index=PRIORITIES.index(group.priority),
        key=f"{prefix}_priority",
        placeholder="choose",
        width=170,
    )
    st.text_input(
        "Spark master",
        value=group.spark_master or "",
        key=f"{prefix}_master",
        max_chars=300,
        placeholder=f"the setting's, {formatting.shown(environment.settings.spark.master, 40)}",
        width=300,
        autocomplete="off",
        help="Its own Spark master. Empty: the setting spark.master counts.",
    )


def _filled(prefix: str, group: Group) -> Group:
    """Return a group as the fields have it.

    Raises:
        Refused: something is not chosen.
    """
    state = st.session_state
    backend, priority = state.get(f"{prefix}_backend"), state.get(f"{prefix}_priority")
    if backend is None or priority is None:
        raise Refused("Choose who starts its driver, and which games it is for.")
    cores, master = state.get(f"{prefix}_cores"), str(state.get(f"{prefix}_master") or "").strip()
    return replace(
        group,
        backend=str(backend),
        priority=str(priority),
        capacity_cores=None if cores is None else float(cores),
        spark_master=master or None,
    )


# -------------------------------------------------------------------------------------------------------------- the way


def _plan_make(environment: Environment) -> None:
    def make() -> GroupProposal:
        name = str(st.session_state.get("make_name") or "").strip()
        if not name:
            raise Refused("Give the group a name: 1 to 40 of a-z, 0-9 and '-', not starting with '-'.")
        return previews.preview_group(environment, None, _filled("make", Group(name)))

    _offer(_MAKE, make)


def _plan_change(environment: Environment, seen: Group) -> None:
    _offer(_place(seen.name), lambda: previews.preview_group(environment, seen, _filled(_fields(seen), seen)))


def _offer(place: str, make: Callable[[], GroupProposal]) -> None:
    try:
        st.session_state[_slot(place)] = _Offer(proposal=make())
    except Refused as refused:
        st.session_state[_slot(place)] = _Offer(refused=str(refused))


def _open(group: Group) -> None:
    st.session_state[_OPENED] = group
    st.session_state.pop(_slot(_place(group.name)), None)


def _close(name: str) -> None:
    st.session_state.pop(_OPENED, None)
    st.session_state.pop(_slot(_place(name)), None)


def _draw_offer(environment: Environment, place: str) -> None:
    kept: _Offer | None = st.session_state.get(_slot(place))
    if kept is None:
        return
    with st.container(border=True, key=f"confirm_{place}", gap="small"):
        if kept.done is not None:
            st.text(f"✓ {formatting.shown(kept.done)}")
        elif kept.proposal is not None:
            _draw_proposal(environment, place, kept.proposal)
        if kept.refused is not None:
            draw_refused(kept.refused)
        if kept.proposal is None or kept.done is not None:
            st.button("Dismiss", key=f"drop_{place}", on_click=_drop, args=(place,))


def _draw_proposal(environment: Environment, place: str, proposal: GroupProposal) -> None:
    st.caption(f"What would be written, as seen at {formatting.clock(proposal.seen_at)}. Nothing is done yet.")
    draw_lines(proposal.lines)
    barred = services.missing_role(environment, proposal.kind)
    verb = "Make" if proposal.seen is None else "Change"
    with st.form(f"write_{place}", enter_to_submit=False, border=False):
        optional = "" if proposal.effects else " (may be empty)"
        st.text_input(f"Reason{optional}", key=_reason(proposal), max_chars=500)
        with st.container(horizontal=True):
            st.form_submit_button(
                f"{verb} group {formatting.escaped(proposal.then.name)}",
                key=f"write_{place}",
                on_click=_write,
                args=(environment, place, proposal),
                disabled=barred is not None,
            )
            st.form_submit_button("Cancel", key=f"dropped_{place}", on_click=_drop, args=(place,), type="tertiary")
    _draw_barred(barred)


def _write(environment: Environment, place: str, proposal: GroupProposal) -> None:
    """Write what was shown; a second click finds it done."""
    if _is_done(place, proposal):
        return
    reason = str(st.session_state.get(_reason(proposal)) or "").strip()
    refused, done = None, None
    try:
        done = previews.write_group(environment, proposal, reason)
    except Refused as why:
        if _is_done(place, proposal):
            return  # by another click, meanwhile
        refused = str(why)
    st.session_state[_slot(place)] = _Offer(proposal, done, refused)
    control_queries.forget()
    if done is not None:
        _clear(proposal)


def _is_done(place: str, proposal: GroupProposal) -> bool:
    kept: _Offer | None = st.session_state.get(_slot(place))
    return kept is not None and kept.proposal is proposal and kept.done is not None


def _clear(proposal: GroupProposal) -> None:
    """Close the form of what is written; the next one begins with what is wanted then."""
    if proposal.seen is not None:
        st.session_state.pop(_OPENED, None)
    else:
        st.session_state["make_name"] = ""


def _drop(place: str) -> None:
    st.session_state.pop(_slot(place), None)


def _draw_barred(barred: str | None) -> None:
    if barred is not None:
        st.caption(formatting.escaped(barred))


def _place(name: str) -> str:
    return f"change_{name}"


def _fields(seen: Group) -> str:
    """Name the fields of one version of a group, so that those of the next begin with what is wanted then."""
    return f"want_{seen.name}_{seen.version}"


def _slot(place: str) -> str:
    return f"group_offer_{place}"


def _reason(proposal: GroupProposal) -> str:
    return f"why_{proposal.then.name}_{proposal.seen_at}"
