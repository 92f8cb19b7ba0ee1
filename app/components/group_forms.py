"""The forms that create or change a cluster group: its settings, their effects, then the write.

A form keeps the version of the group it was opened at; where another was written meanwhile, it reports that and writes
nothing.
"""

from dataclasses import replace
from functools import partial
from typing import Final

import streamlit as st

from app import formatting
from app.components import confirm
from app.state import services
from app.state.previews import Preview
from app.state.services import Environment
from pipeline.api import acts
from pipeline.api.environment import OpenEnvironment
from pipeline.api.operations import Intent
from pipeline.api.steering import BACKENDS, PRIORITIES, Group, backend_kind
from pipeline.base.errors import Refused
from pipeline.control import group_proposals
from pipeline.control.acts import DirectAct
from pipeline.control.group_changes import describe
from pipeline.control.group_proposals import GroupProposal

_MAKE: Final = "make_group"
_OPENED: Final = "opened_group"  # what was seen of the group whose form is open


def draw_make(environment: Environment) -> None:
    """Draw the form in which a group is made."""
    disabled_reason = services.missing_role(environment, DirectAct.CREATE_GROUP)
    with st.expander("Make a group", icon=":material/add_circle:", key="make_group", on_change="rerun"):
        st.caption("Registers the group. No game moves until you move one. You choose who starts its driver.")
        with st.form("fields_make_group", enter_to_submit=False, border=False):
            with st.container(horizontal=True, vertical_alignment="bottom"):
                st.text_input(
                    "Name", key="make_name", max_chars=40, placeholder="a-z, 0-9 and -", width=200, autocomplete="off"
                )
                _draw_fields("make", Group("", backend="local"), environment)
            st.form_submit_button(
                "Preview the group",
                key="preview_make",
                on_click=_plan_make,
                args=(environment,),
                disabled=bool(disabled_reason),
            )
        _draw_disabled_reason(disabled_reason)
        confirm.draw_confirmation(environment, _MAKE)


def draw_change(environment: Environment, group: Group) -> None:
    """Draw a group's settings and the form that changes them; what it plans is offered at `place_of` the group."""
    disabled_reason = services.missing_role(environment, DirectAct.CHANGE_GROUP)
    seen: Group | None = st.session_state.get(_OPENED)
    with st.container(border=True, key="card_wanted", gap="small"):
        st.markdown("**Settings**")
        if seen is None or seen.name != group.name:
            values = describe(group, environment.settings.spark.master).items()
            st.text(" · ".join(f"{what}: {formatting.shown(value, 120)}" for what, value in values))
            st.button("Change…", key="open_change", on_click=_open, args=(group,), disabled=disabled_reason is not None)
        else:
            _draw_form(environment, seen, group, disabled_reason)
        _draw_disabled_reason(disabled_reason)


def place_of(name: str) -> str:
    """Return where the change of a group's settings is offered."""
    return f"change_{name}"


def _draw_form(environment: Environment, seen: Group, now: Group, disabled_reason: str | None) -> None:
    place = place_of(seen.name)
    if now.version > seen.version:
        lines = group_proposals.what_changed(seen, now, environment.settings.spark.master)
        st.warning("This group was changed after you opened this form.", icon=":material/group:")
        confirm.draw_lines(lines)
    with st.form(f"fields_{place}", enter_to_submit=False, border=False):
        with st.container(horizontal=True, vertical_alignment="bottom"):
            _draw_fields(_fields(seen), seen, environment)
        with st.container(horizontal=True):
            st.form_submit_button(
                "Preview the change",
                key="preview_change",
                on_click=_plan_change,
                args=(environment, seen),
                disabled=disabled_reason is not None,
            )
            if now.version > seen.version:
                st.form_submit_button("Look again", key="reopen_change", on_click=_open, args=(now,))
            st.form_submit_button("Close", key="close_change", on_click=close, args=(seen.name,), type="tertiary")


def _draw_fields(prefix: str, group: Group, environment: Environment) -> None:
    """Draw a field for each setting, filled with its present value."""
    backends: list[str] = [*BACKENDS]
    st.selectbox(
        "Driver started by",
        backends,
        index=backends.index(group.backend),
        format_func=lambda backend: backend_kind(backend).title,
        key=f"{prefix}_backend",
        placeholder="choose",
        width=190,
        persist_state="page",
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
        persist_state="page",
        help="Cores its games may use. Empty: no limit.",
    )
    st.selectbox(
        "For games of priority",
        PRIORITIES,
        index=PRIORITIES.index(group.priority),
        key=f"{prefix}_priority",
        placeholder="choose",
        width=170,
        persist_state="page",
    )
    st.text_input(
        "Spark master",
        value=group.spark_master or "",
        key=f"{prefix}_master",
        max_chars=300,
        placeholder=f"the setting's, {formatting.shown(environment.settings.spark.master, 40)}",
        width=300,
        autocomplete="off",
        persist_state="page",
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
    def make() -> Preview:
        name = str(st.session_state.get("make_name") or "").strip()
        if not name:
            raise Refused("Give the group a name: 1 to 40 of a-z, 0-9 and '-', not starting with '-'.")
        return _preview(acts.plan_group(services.opened(environment), None, _filled("make", Group(name))))

    confirm.stage_preview(_MAKE, make)


def _plan_change(environment: Environment, seen: Group) -> None:
    def change() -> Preview:
        return _preview(acts.plan_group(services.opened(environment), seen, _filled(_fields(seen), seen)))

    confirm.stage_preview(place_of(seen.name), change)


def _preview(proposal: GroupProposal) -> Preview:
    name, verb = proposal.then.name, "Make" if proposal.seen is None else "Change"
    effects = {"effects": list(proposal.effects)}  # with any, a reason is needed
    return Preview(
        Intent(proposal.act, (f"group:{name}",), services.actor(), parameters=effects),
        proposal.lines,
        0,
        proposal.seen_at,
        submit=partial(_write, proposal),
        label=f"{verb} group {formatting.escaped(name)}",
    )


def _write(proposal: GroupProposal, environment: OpenEnvironment, intent: Intent) -> str:
    """Write the shown settings and close their form; the next form reads them again."""
    done = acts.write_group(environment, proposal, intent.actor, intent.reason)
    if proposal.seen is not None:
        st.session_state.pop(_OPENED, None)
    else:
        st.session_state["make_name"] = ""
    return done


def _open(group: Group) -> None:
    st.session_state[_OPENED] = group
    confirm.drop(place_of(group.name))


def close(name: str) -> None:
    """Close the form of a group's settings, and drop what it planned."""
    st.session_state.pop(_OPENED, None)
    confirm.drop(place_of(name))


def _draw_disabled_reason(disabled_reason: str | None) -> None:
    if disabled_reason is not None:
        st.caption(formatting.escaped(disabled_reason))


def _fields(seen: Group) -> str:
    """Name the fields of one version of a group, so that the next version's fields read its settings."""
    return f"want_{seen.name}_{seen.version}"
