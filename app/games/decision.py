"""The name that is chosen on the Games page: its evidence, and what a person decides about it.

`evidence`, `commands` and `readers_of` are pure.
"""

import shlex
from collections.abc import Sequence
from functools import partial
from typing import Final

import streamlit as st

from app import formatting
from app.components import confirm, links
from app.games import listing, previews, queries
from app.look import parts
from app.state import services
from app.state.previews import Preview
from app.state.readings import reading
from app.state.services import Environment
from pipeline.api.games import PRIORITIES, Candidate, GameProposal, GamesOverview, Priority
from pipeline.api.operations import OperationKind
from pipeline.control.acts import DirectAct

PLACE: Final = "game_decision"
"""Where what is decided stands: it outlasts the name's place in the list."""

_LONGEST: Final = 300
_FREE: Final = "as its proposal, its rule or placement says"


def draw(environment: Environment, seen: GamesOverview, each: Candidate, framings: Sequence[str]) -> None:
    """Draw a name: left its evidence, right the ways to decide."""
    key = listing.key_of(each)
    state = listing.state_of(each, seen.deciding)
    title = parts.title(formatting.exact(each.game, 80), listing.STATES[state], listing.TONES[state])
    st.html(title)
    st.caption(f"key {key}")
    left, right = st.columns([3, 2], gap="medium")
    with left:
        st.html(parts.facts(evidence(each, framings, _schema_ids(environment, each), seen.read_at)))
    with right:
        if key in seen.deciding:
            confirm.operation_link(seen.deciding[key], f"Operation {links.short(seen.deciding[key])} is open")
        _draw_wishes(key, seen.groups)
        _draw_buttons(environment, each, key)
        _draw_commands(each.game)


def evidence(each: Candidate, framings: Sequence[str], schema_ids: str, now: float) -> list[tuple[str, str]]:
    """Return what is known of a name as label and value."""
    waiting, proposal = each.waiting, each.proposal
    found: list[tuple[str, str]] = [] if proposal is None else _proposed(proposal, now)
    if waiting is None:
        found.append(("Arrived", "nothing, as far as the bounded list of names says"))
    else:
        times = f"{formatting.moment(waiting.first_seen)[:16]} to {formatting.moment(waiting.last_seen)[:16]} UTC"
        found.append(("Arrived", f"{listing.rows_text(waiting)} rows, {times}"))
        sources = ", ".join(formatting.shown(each, 60) for each in waiting.sources)
        found.append(("Sent by", sources or "not known: it came before turnout recorded sources"))
        found.append(("Why no game", formatting.shown(waiting.why, _LONGEST)))
    if (alike := listing.looks_like(each)) is not None:
        found.append(("Looks like", alike))
    found.append(("Schema ids", schema_ids))
    found.append(("Framing", formatting.shown("; ".join(framings), _LONGEST) + " (of the sources)"))
    found.append(("Rule", listing.rule_text(each) or "none matches"))
    group = "no group has room" if each.group is None else formatting.shown(each.group, 40)
    found.append(("Group now", group))
    return found


def commands(name: str) -> list[str] | None:
    """Return the commands that approve and reject a name; None where a person could not see all of the name."""
    if formatting.shown(name) != name:
        return None
    return [f"turnout games {act} -- {shlex.quote(name)}" for act in ("approve", "reject")]


def readers_of(text: str) -> tuple[str, ...]:
    """Return the principals that a field names, separated by commas."""
    return tuple(dict.fromkeys(each for part in text.split(",") if (each := part.strip())))


def _proposed(proposal: GameProposal, now: float) -> list[tuple[str, str]]:
    by = f"{formatting.shown(proposal.proposed_by, 60)}, {formatting.age(now - proposal.proposed_at)} ago"
    load = proposal.events_per_second
    found = [
        ("Proposed by", by),
        ("Reason", formatting.shown(proposal.reason, _LONGEST)),
        ("Expected load", "not given" if load is None else f"{formatting.rate(load)} events/s"),
    ]
    if proposal.priority is not None:
        found.append(("Priority", proposal.priority))
    if proposal.readers:
        found.append(("Readers", ", ".join(formatting.shown(reader, 60) for reader in proposal.readers)))
    if proposal.message:
        found.append(("Schema", formatting.shown(f"{proposal.message} ({proposal.format})", _LONGEST)))
    return found


def _schema_ids(environment: Environment, each: Candidate) -> str:
    """Return the schema ids of the rows of a name in quarantine; unknown is never none."""
    if each.waiting is None:
        return "none: nothing has arrived"
    seen = reading("game_schema_ids", environment.store, lambda: queries.schema_ids(environment))
    if seen.value is None:
        return f"not known: {formatting.shown(seen.why or '', _LONGEST)}"
    ids = seen.value.get(each.game, ())
    return ", ".join("no id" if one is None else str(one) for one in ids) or "none in quarantine"


def _draw_wishes(key: str, groups: Sequence[str]) -> None:
    with st.expander("Group, priority and readers", key=f"game_wishes_{key}"):
        st.selectbox("Group", groups, index=None, placeholder=_FREE, key=f"wish_group_{key}")
        st.selectbox("Priority", PRIORITIES, index=None, placeholder=_FREE, key=f"wish_priority_{key}")
        st.text_input(
            "Readers", key=f"wish_readers_{key}", max_chars=1_000, autocomplete="off",
            help="Principals of the catalog, separated by commas, besides those of its rule. Needs access_admin.",
        )  # fmt: skip


def _draw_buttons(environment: Environment, each: Candidate, key: str) -> None:
    acts = {
        "approve": ("Approve…", OperationKind.ONBOARD, partial(_approval, environment, each.game, key)),
        "reject": ("Reject…", DirectAct.REJECT_GAME, partial(previews.preview_rejection, environment, each.game)),
    }
    with st.container(horizontal=True, vertical_alignment="center"):
        for act, (label, kind, preview) in acts.items():
            needs = services.missing_role(environment, kind)
            st.button(
                label,
                key=f"game_{act}_{key}",
                on_click=confirm.stage_preview,
                args=(PLACE, preview),
                disabled=needs is not None,
                help=None if needs is None else formatting.escaped(needs),
            )
        if st.button(
            "Register a schema",
            key=f"game_schema_{key}",
            type="tertiary",
            help="Opens the form on Schemas. A name's first schema makes it a game.",
        ):
            st.session_state["register_game_new"] = each.game
            st.session_state["schema_register_new"] = True
            links.open_page("schemas", {})


def _approval(environment: Environment, name: str, key: str) -> Preview:
    """Plan an approval with what the fields say."""
    state = st.session_state
    group, priority = state.get(f"wish_group_{key}"), state.get(f"wish_priority_{key}")
    readers = readers_of(str(state.get(f"wish_readers_{key}") or ""))
    known: Priority | None = next((one for one in PRIORITIES if one == priority), None)
    return previews.preview_approval(environment, name, None if group is None else str(group), known, readers)


def _draw_commands(name: str) -> None:
    said = commands(name)
    if said is None:
        st.text("The name holds characters that cannot be seen: compare it with `turnout games pending --json`.")
    else:
        st.code("\n".join(said), language=None, wrap_lines=True)
