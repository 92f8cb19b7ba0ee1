"""The palette: one list of pages, games, groups, operations and actions, which a letter opens on every page.

`entries` is pure. Nothing is read or made while the palette is closed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import streamlit as st

from app import formatting
from app.components import confirm, links
from app.components.operation_cards import sentence_case
from app.look import parts
from app.person import identity
from app.state import control_queries, services
from app.state.control_queries import OperationList
from app.state.services import Environment
from pipeline.api.operations import words
from pipeline.base.errors import Refused
from pipeline.health.facts.fleet import Fleet, GameRow

_CHOSEN: Final = "palette_chosen"
_MOST_OPERATIONS: Final = 50
_LONGEST: Final = 200  # characters of a name: names of one series differ at their ends
_HINT: Final = "Tab, type a few letters, Enter. Esc closes."


@dataclass(frozen=True, slots=True)
class PaletteEntry:
    """One line of the palette: a text that is typed for, and where it leads."""

    label: str
    page: str
    query: Mapping[str, str] = field(default_factory=dict)
    opens: str = ""  # a folded form of that page, by the key of its widget


_ACTIONS: Final = (
    PaletteEntry("Move games… · action", "groups"),
    PaletteEntry("Make a group… · action", "groups", opens="make_group"),
    PaletteEntry("Grant or revoke access… · action", "access", {"view": "change"}),
    PaletteEntry("Decide about requests of access… · action", "access", {"view": "requests"}),
    PaletteEntry("Producers of the edge… · action", "access", {"view": "producers"}),
    PaletteEntry("Register a schema… · action", "schemas", opens="schema_register_new"),
    PaletteEntry("Propose a game… · action", "games"),
    PaletteEntry("Retry, replay or rebuild games… · action", "repairs"),
    PaletteEntry("Verify the audit log… · action", "audit"),
)
_OF_GROUP: Final = {"restart": "Restart", "drain": "Drain", "stop": "Stop", "start": "Start"}


def entries(pages: Mapping[str, str], fleet: Fleet | None, journal: OperationList | None) -> dict[str, PaletteEntry]:
    """Return the lines by their keys: games in trouble, pages, groups, actions, operations, other games.

    `pages` are titles by page. Without fleet or journal their lines are left out.
    """
    rows = () if fleet is None else fleet.rows
    found = {f"game:{row.game_key}": _game(row) for row in rows if row.in_trouble}
    found |= {f"page:{page}": PaletteEntry(f"{title} · page", page) for page, title in pages.items()}
    for name in () if fleet is None else fleet.groups:
        found[f"group:{name}"] = PaletteEntry(f"Group {formatting.shown(name, 40)} · group", "groups", {"steer": name})
    found |= {f"action:{number}": each for number, each in enumerate(_ACTIONS)}
    for name in () if fleet is None else fleet.groups:
        for does, verb in _OF_GROUP.items():
            label = f"{verb} group {formatting.shown(name, 40)}… · action"
            found[f"{does}:{name}"] = PaletteEntry(label, "groups", {"steer": name, "do": does})
    found |= {} if journal is None else _operations(journal)
    return {**found, **{f"game:{row.game_key}": _game(row) for row in rows if not row.in_trouble}}


def _operations(journal: OperationList) -> dict[str, PaletteEntry]:
    made = {}
    for each in journal.operations[:_MOST_OPERATIONS]:
        name = links.short(each.operation_id)
        what = sentence_case(formatting.operation_title(words(each), journal.names))
        label = f"{what} · operation {name} · {formatting.operation_text(each.state)}"
        made[f"operation:{each.operation_id}"] = PaletteEntry(label, "operations", {"operation": name})
    return made


def _game(row: GameRow) -> PaletteEntry:
    state = f" · {formatting.status_text(row.verdict.status)}" if row.in_trouble else ""
    label = f"{formatting.shown(row.game, _LONGEST)} · {row.game_key}{state}"
    return PaletteEntry(label, "game", {"game": row.game_key})


def draw(environment: Environment, pages: Mapping[str, str]) -> None:
    """Draw the button that the letter presses; pressed, it opens the palette."""
    if st.button("Find", key="palette_open", icon=":material/search:", shortcut="S", type="tertiary"):
        _opened(environment, pages)


@st.dialog("Find", width="large")
def _opened(environment: Environment, pages: Mapping[str, str]) -> None:
    identity.rerun_where_another_acts()
    confirm.draw_scheme()
    missing: list[str] = []
    fleet = journal = None
    try:
        fleet = services.fleet(environment)
        journal = control_queries.journal(environment)
    except Refused as refused:
        missing.append(str(refused))
    found = entries(pages, fleet, journal)
    with st.container(key="palette", gap="xsmall"):
        chosen = st.selectbox(
            "Game, group, operation, page or action",
            list(found),
            index=None,
            format_func=lambda key: found[key].label if key in found else str(key),
            key=_CHOSEN,
            placeholder="type a few letters",
        )
        st.html(parts.note(_HINT))
        for why in missing:
            st.html(parts.note(f"Games, groups and operations are not known: {formatting.shown(why)}"))
    if (entry := found.get(str(chosen))) is not None:
        if entry.opens:
            st.session_state[entry.opens] = True
        links.open_page(entry.page, entry.query)
