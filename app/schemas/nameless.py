"""The names without a game: how many rows ingest refuses of each, since when, why, and what makes a game of one.

`lines`, `about` and `commands` are pure; `draw` draws. A name may hold anything, and is never a command by itself.
"""

import shlex
from typing import Final

import pyarrow as pa
import streamlit as st

from app import formatting
from app.components import links
from app.look import parts
from app.schemas import queries
from app.state.readings import reading
from app.state.services import Environment
from pipeline.api.schemas import Pending, Waiting

MOST: Final = 200
"""Most names on screen, those with the most rows; `turnout games pending` lists more."""

_CHOSEN: Final = "nameless_chosen"
_COLUMNS: Final = {
    "name": st.column_config.TextColumn("Name", width=210),
    "rows": st.column_config.TextColumn(
        "Rows refused", width=150, alignment="right", help="A range where the name was crowded out for a while."
    ),
    "first": st.column_config.TextColumn("Since, UTC", width=140),
    "last": st.column_config.TextColumn("Last row, UTC", width=140),
    "why": st.column_config.TextColumn("Why it is no game, and what to do", width=430),
    "like": st.column_config.TextColumn("Looks like", width=180),
}


def draw(environment: Environment) -> None:
    """Draw the names, where there are any; where nobody can count them, since when."""
    seen = reading("nameless", environment.store, lambda: queries.nameless(environment))
    found = seen.value
    if found is None:
        st.html(parts.note(f"Names without a game are not known: {formatting.shown(seen.why or '')}"))
        return
    if not found.names:
        return
    with st.container(border=True, key="card_nameless", gap="small"):
        until = f" · until {formatting.clock(seen.good_at)}: {formatting.shown(seen.why or '')}" if seen.failed else ""
        st.html(parts.section("Names without a game", about(found) + until))
        shown = found.names[:MOST]
        rows = lines(shown)
        st.dataframe(
            pa.table({name: [row[name] for row in rows] for name in _COLUMNS}),
            hide_index=True,
            row_height=36,
            height=min(36 * (len(rows) + 1) + 2, 330),
            column_config=_COLUMNS,
            placeholder=formatting.UNKNOWN_VALUE,
            alt="Names that are not games, whose rows ingest refuses, those with the most rows first.",
            key="nameless_table",
        )
        _draw_next(shown)


def about(found: Pending) -> str:
    """Say how many names there are, and how many rows they sent."""
    many = len(found.names)
    more = f" · the {MOST} with the most rows" if many > MOST else ""
    return f"{formatting.count(many)} {'name' if many == 1 else 'names'} · ingest refuses their rows{more}"


def lines(names: tuple[Waiting, ...]) -> list[dict[str, str | None]]:
    """Return the names as lines of a table."""
    return [
        {
            "name": formatting.shown(each.game, 80),
            "rows": _rows(each),
            "first": formatting.moment(each.first_seen)[:16],
            "last": formatting.moment(each.last_seen)[:16],
            "why": formatting.shown(each.why, 200),
            "like": ", ".join(formatting.shown(name, 60) for name in each.looks_like[:3]) or None,
        }
        for each in names
    ]


def commands(name: str) -> list[str] | None:
    """Return the commands that approve and reject a name; None where a person could not see all of the name."""
    if formatting.shown(name) != name:
        return None
    return [f"turnout games {act} -- {shlex.quote(name)}" for act in ("approve", "reject")]


def _rows(each: Waiting) -> str:
    if not each.error:
        return formatting.count(each.rows)
    return f"{formatting.count(each.rows - each.error)} to {formatting.count(each.rows)}"


def _draw_next(names: tuple[Waiting, ...]) -> None:
    """Draw what to do about one of them, which is chosen by its key: positions in the table move."""
    by_key: dict[str, Waiting] = {each.game_key: each for each in reversed(names)}
    with st.container(horizontal=True, vertical_alignment="bottom", key="row_nameless"):
        chosen = st.selectbox(
            "Name",
            list(by_key),
            key=_CHOSEN,
            index=None,
            format_func=lambda key: formatting.game_text(key, by_key[key].game) if key in by_key else key,
            placeholder="choose a name to see what can be done",
            label_visibility="collapsed",
            width=420,
        )
        named = by_key.get(chosen) if chosen is not None else None
        st.button(
            "Use it in the form above",
            key="nameless_form",
            help="Registering its first schema makes it a game.",
            disabled=named is None,
            on_click=_fill,
            args=(None if named is None else named.game,),
        )
        with st.popover("How names become games", type="tertiary", key="nameless_help"):
            st.text(
                "By a registered schema, an onboarding rule (`turnout games rules`), "
                "or an approval. It counts from ingest's next micro-batch on; earlier rows stay in quarantine until a "
                "replay."
            )
    if named is None:
        return
    said = commands(named.game)
    if said is None:
        st.text("The name holds characters that cannot be seen: copy it from `turnout games pending --json`.")
    else:
        st.code("\n".join(said), language=None)


def _fill(name: str | None) -> None:
    """Put the name into the form that registers a schema, and open that."""
    if name is not None:
        links.forget("game")
        st.session_state["register_game_new"] = name
        st.session_state["schema_register_new"] = True
