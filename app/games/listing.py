"""The list of the Games page: names that may become games, with their evidence, and which of them is chosen.

`about`, `lines` and `state_of` are pure. A name may hold anything; it is chosen by its key, as positions move.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import pandas as pd
import streamlit as st

from app import formatting
from app.components import links, pills
from app.look import parts
from app.look.rows import height_of, table_height
from app.look.tokens import Tone
from app.state.readings import Reading
from pipeline.api.games import Candidate, Candidates, Waiting
from pipeline.base.names import game_key

MOST: Final = 200
"""Most names on screen: proposals, then those with the most rows; `turnout games pending` lists more."""

CHOSEN: Final = "games_chosen"
LINKED: Final = {"name": CHOSEN}

STATES: Final[Mapping[str, str]] = {
    "deciding": "» under way",
    "proposed": "△ proposed",
    "waits": "○ waits",
    "comes": "… comes",
}
TONES: Final[Mapping[str, Tone]] = {"deciding": "busy", "proposed": "risk", "waits": "late", "comes": "busy"}
_ABOUT_STATE: Final = (
    "Proposed: by a person. Waits: ingest refuses its rows. Comes: its next rows make it a game. "
    "Under way: an operation on it is open."
)
_COLUMNS: Final = {
    "name": st.column_config.TextColumn("Name", width=170),
    "rows": st.column_config.TextColumn(
        "Rows refused", width=100, alignment="right", help="A range where the name was crowded out for a while."
    ),
    "first": st.column_config.TextColumn("First row, UTC", width=118),
    "last": st.column_config.TextColumn("Last row, UTC", width=118),
    "rule": st.column_config.TextColumn("Rule", width=120, help="That its name matches, or nearly matches."),
    "group": st.column_config.TextColumn("Group now", width=90, help="Where it would be placed now."),
    "why": st.column_config.TextColumn("Why it is proposed, or is no game", width=245),
    "like": st.column_config.TextColumn("Looks like", width=115),
}


def take_choice(seen: Candidates | None) -> dict[str, tuple[str, ...]]:
    """Lay the name that the URL has into the list, by its key; return what of it is not known.

    A name that was decided leaves the list, and so is not chosen any more.
    """
    known = [] if seen is None else [key_of(each) for each in seen.names[:MOST]]
    if seen is not None and st.session_state.get(CHOSEN) not in {None, *known}:
        links.forget("name")
        st.session_state[CHOSEN] = None
    return {"name": links.take("name", CHOSEN, None if seen is None else known)}


def chosen(seen: Candidates) -> Candidate | None:
    """Return the name that is chosen."""
    key = st.session_state.get(CHOSEN)
    return next((each for each in seen.names[:MOST] if key_of(each) == key), None)


def key_of(each: Candidate) -> str:
    """Return the key that a name would have as a game."""
    return game_key(each.game)


def state_of(each: Candidate, deciding: Mapping[str, str]) -> str:
    """Return how a name stands, a key of `STATES`; `deciding` are the open operations by game key."""
    if key_of(each) in deciding:
        return "deciding"
    if each.waiting is not None and each.waiting.comes:
        return "comes"
    return "waits" if each.proposal is None else "proposed"


def draw(seen: Reading[Candidates], deciding: Mapping[str, str]) -> None:
    """Draw the names, where there are any; where nobody can count them, why."""
    found = seen.value
    if found is None:
        st.html(parts.note(f"Names without a game are not known: {formatting.shown(seen.why or '')}"))
        return
    until = f" · until {formatting.clock(seen.good_at)}: {formatting.shown(seen.why or '')}" if seen.failed else ""
    st.html(parts.section("Names that may become games", about(found) + until))
    if not found.names:
        st.info("No name waits, and no game is proposed.")
        return
    shown = found.names[:MOST]
    table = pd.DataFrame(lines(shown, deciding))
    high = height_of((each.game for each in shown), 170)
    st.dataframe(
        table,
        hide_index=True,
        row_height=high,
        height=table_height(len(table), high, 480),
        column_config={
            "state": pills.column("State", {STATES[key]: tone for key, tone in TONES.items()}, 110, _ABOUT_STATE),
            **_COLUMNS,
        },
        placeholder=formatting.UNKNOWN_VALUE,
        alt="Names that are proposed as games or wait to become one, proposals first, then those with the most rows.",
        key="games_names",
    )
    names = {key_of(each): each.game for each in shown}
    st.selectbox(
        "Name to decide about",
        list(names),
        key=CHOSEN,
        index=None,
        format_func=lambda key: formatting.game_text(key, names[key]) if key in names else key,
        placeholder="choose a name to see its evidence and to decide: type, then Enter",
        label_visibility="collapsed",
        width=520,
    )


def about(found: Candidates) -> str:
    """Say how many names are proposed, how many wait, and how many become games with their next rows."""
    proposed = sum(each.proposal is not None for each in found.names)
    comes = sum(each.comes for each in found.seen.names)
    waits = len(found.seen.names) - comes + found.seen.beyond
    more = f" · the first {MOST}" if len(found.names) > MOST else ""
    counted = f"about {formatting.count(waits)}" if found.seen.beyond else formatting.count(waits)
    counts = f"{formatting.count(proposed)} proposed · {counted} waiting"
    return f"{counts} · {formatting.count(comes)} coming with the next rows{more}"


def lines(names: Sequence[Candidate], deciding: Mapping[str, str]) -> list[dict[str, object]]:
    """Return the names as lines of a table."""
    return [
        {
            "state": [STATES[state_of(each, deciding)]],
            "name": formatting.exact(each.game, 80),
            "rows": rows_text(each.waiting),
            "first": None if each.waiting is None else formatting.moment(each.waiting.first_seen)[:16],
            "last": None if each.waiting is None else formatting.moment(each.waiting.last_seen)[:16],
            "rule": rule_text(each),
            "group": None if each.group is None else formatting.shown(each.group, 40),
            "why": why_text(each),
            "like": looks_like(each),
        }
        for each in names
    ]


def rows_text(waiting: Waiting | None) -> str:
    """Return how many rows have arrived: nothing as `0`, a range where the name was crowded out."""
    if waiting is None:
        return "0"
    least, most = formatting.count(waiting.rows - waiting.error), formatting.count(waiting.rows)
    return f"{least} to {most}" if waiting.error else most


def rule_text(each: Candidate) -> str | None:
    """Return the rule that a name matches, or nearly matches."""
    if each.rule is not None:
        return formatting.shown(each.rule, 60)
    return None if each.near is None else formatting.shown(f"nearly {each.near}", 120)


def why_text(each: Candidate) -> str:
    """Return why a name is proposed, or why it is no game."""
    said = [] if each.proposal is None else [f"{each.proposal.proposed_by}: {each.proposal.reason}"]
    said += [] if each.waiting is None else [each.waiting.why]
    return formatting.shown(" · ".join(said), 300)


def looks_like(each: Candidate) -> str | None:
    """Return games and other names that people may take it for."""
    alike = () if each.waiting is None else each.waiting.looks_like[:3]
    return ", ".join(formatting.exact(name, 60) for name in alike) or None
