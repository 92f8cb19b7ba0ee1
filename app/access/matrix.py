"""The matrix of games and principals: filters that stand in the URL, one table, one verdict per cell.

A cell is a glyph with words and a colour; what is not known is neither of yes and no. A click on a cell fills in the
names below, by which everything else goes, and shows why.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import streamlit as st

from app import formatting
from app.access.queries import KINDS, AccessState, PrincipalChoice, ResolvedCatalog
from app.components import links
from grants.observing.matrix import CellState

STATES: Final[Mapping[CellState, str]] = {
    "reads": "✓ reads",
    "could": "△ could grant itself",
    "unknown": "? unknown",
    "no": "· no",
}
_SHORT: Final[Mapping[CellState, str]] = {**STATES, "could": "△ could"}
_COLOURS: Final = {"reads": "blue", "could": "orange", "unknown": "violet", "no": "gray"}
GAME, WHO, KIND, SHOW = "access_game_text", "access_who_text", "access_kind", "access_show"
LINKED: Final[Mapping[str, str]] = {"game_text": GAME, "who_text": WHO, "kind": KIND, "show": SHOW}
_KINDS: Final[Mapping[str, str]] = {"any": "anybody", **{kind: f"{word}s" for kind, word in KINDS.items()}}
_SHOWS: Final[Mapping[str, str]] = {"all": "all", "reads": "only readers, actual or possible"}
_TABLE: Final = "access_table"
_DRAWN: Final = "access_drawn"  # the keys and names of the table as it was drawn last


@dataclass(frozen=True, slots=True)
class Filters:
    """Which part of the matrix a person chose; an empty text is all."""

    game: str = ""
    who: str = ""
    kind: str = "any"
    only_readers: bool = False


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the matrix."""

    keys: tuple[str, ...]
    who: tuple[str, ...]  # folded names


def part(known: ResolvedCatalog, names: Mapping[str, str], filters: Filters) -> Part:
    """Return the chosen games and principals; what is not known stays where readers are the choice."""
    game, who = filters.game.strip().casefold(), filters.who.strip().casefold()
    keys = [key for key in known.matrix.keys if game in names.get(key, "").casefold() or game in key]
    principals = [
        name for name, each in known.who.items() if who in each.name.casefold() and filters.kind in {"any", each.kind}
    ]
    if filters.only_readers:
        columns = {name: known.matrix.columns[known.who[name].name] for name in principals}
        rows = {key: row for row, key in enumerate(known.matrix.keys)}
        chosen = [rows[key] for key in keys]
        principals = [name for name in principals if any(columns[name][row] in {"reads", "unknown"} for row in chosen)]
        keys = [key for key in keys if any(columns[name][rows[key]] in {"reads", "unknown"} for name in principals)]
    return Part(tuple(keys), tuple(principals))


def table(known: ResolvedCatalog, access: AccessState, shown: Part) -> pa.Table:
    """Return a row per game and a column per principal, `p0` and so on: two names may look the same."""
    rows = {key: row for row, key in enumerate(known.matrix.keys)}
    places = [rows[key] for key in shown.keys]
    offsets = pa.array(range(len(places) + 1), pa.int32())
    whole = len(places) == len(rows)
    columns: dict[str, Any] = {"game": [access.game(key) for key in shown.keys]}
    for number, name in enumerate(shown.who):
        states = known.matrix.columns[known.who[name].name]
        texts = [_SHORT[state] for state in (states if whole else [states[row] for row in places])]
        columns[f"p{number}"] = pa.ListArray.from_arrays(offsets, pa.array(texts, pa.string()))
    return pa.table(columns)


def draw_filters() -> Filters:
    """Draw the filters, which `links.take` has filled."""
    with st.container(horizontal=True, vertical_alignment="bottom", key="access_filters"):
        game = st.text_input("Game", key=GAME, type="search", placeholder="all games", width=220, max_chars=256)
        who = st.text_input("Principal", key=WHO, type="search", placeholder="all principals", width=220, max_chars=256)
        kind = st.segmented_control("Kind", list(_KINDS), key=KIND, format_func=_KINDS.__getitem__, required=True)
        show = st.segmented_control("Show", list(_SHOWS), key=SHOW, format_func=_SHOWS.__getitem__, required=True)
    return Filters(str(game or ""), str(who or ""), str(kind or "any"), show == "reads")


def take_filters() -> dict[str, tuple[str, ...]]:
    """Lay what a link says into the filters; return what of it is not known, by parameter."""
    return {
        "game_text": links.take("game_text", GAME),
        "who_text": links.take("who_text", WHO),
        "kind": links.take("kind", KIND, _KINDS, default="any"),
        "show": links.take("show", SHOW, _SHOWS, default="all"),
    }


@dataclass(frozen=True, slots=True)
class Prefill:
    """What a click on a cell fills in: the keys of the widgets that hold names, and of the view with what tells why."""

    game: str
    who: str
    view: str
    why: str

    def of(self, shown: Part, cell: tuple[int, str]) -> dict[str, str]:
        """Return what the widgets hold after a click, by their keys; only a game with a principal has a why."""
        key, who = chosen(shown, cell)
        held = {self.game: key, self.who: who, self.view: None if key is None or who is None else self.why}
        return {widget: value for widget, value in held.items() if value is not None}


def draw(access: AccessState, known: ResolvedCatalog, filters: Filters, prefill: Prefill) -> None:
    """Draw the matrix; a click on a cell fills in what `prefill` says."""
    shown = part(known, access.names, filters)
    if not shown.keys or not shown.who:
        missing = "game" if not shown.keys else "principal"
        why = "No table of a game is in the catalog yet" if not known.matrix.keys else f"No {missing} matches"
        st.info(f"{why}. Clear the filters, or wait for the controller.", icon=":material/filter_alt_off:")
        return
    st.session_state[_DRAWN] = shown
    st.dataframe(
        table(known, access, shown),
        hide_index=True,
        height=min(36 * (len(shown.keys) + 1) + 12, 460),
        column_config=_config(known, shown.who),
        on_select=lambda: _prefill(prefill),
        selection_mode="single-cell",
        alt="Readers of games: a row per game, a column per principal. Choose a cell to see why.",
        key=_TABLE,
    )
    st.caption(_legend(known, shown))


def _legend(known: ResolvedCatalog, shown: Part) -> str:
    meaning = ", ".join(f"{formatting.escaped(text)}" for text in STATES.values())
    whole = len(shown.keys) == len(known.matrix.keys) and len(shown.who) == len(known.who)
    of = "" if whole else f" of {len(known.matrix.keys)} × {len(known.who)}"
    return f"{len(shown.keys)} games × {len(shown.who)} principals{of}. {meaning}. Choose a cell to see why."


def _config(known: ResolvedCatalog, who: Sequence[str]) -> dict[str, Any]:
    options, colours = list(_SHORT.values()), [_COLOURS[state] for state in _SHORT]
    config: dict[str, Any] = {"game": st.column_config.TextColumn("Game", width=250, pinned=True)}
    for number, name in enumerate(who):
        label = _heading(known.who[name])
        config[f"p{number}"] = st.column_config.MultiselectColumn(label, width=130, options=options, color=colours)
    return config


def _heading(who: PrincipalChoice) -> str:
    what = {"group": " (group)", "service_principal": " (service)"}.get(who.kind or "", "")
    return f"{formatting.principal_text(who.name)}{what}{'' if who.active else ' (not active)'}"


def _prefill(prefill: Prefill) -> None:
    """Fill in the names of the chosen cell, as it was drawn; nothing is done with a place in a table but that."""
    shown, held = st.session_state.get(_DRAWN), st.session_state.get(_TABLE)
    cells = [] if held is None else held["selection"]["cells"]
    if isinstance(shown, Part) and cells:
        for widget, value in prefill.of(shown, cells[0]).items():
            st.session_state[widget] = value


def chosen(shown: Part, cell: tuple[int, str]) -> tuple[str | None, str | None]:
    """Return the game key and the principal of a cell, as the table was drawn; None where it had none there."""
    row, column = cell
    number = column.removeprefix("p")
    who = shown.who[int(number)] if number.isdecimal() and int(number) < len(shown.who) else None
    return shown.keys[row] if 0 <= row < len(shown.keys) else None, who


def sentence(access: AccessState, known: ResolvedCatalog) -> str:
    """Say in one sentence who reads what."""
    counts = known.matrix.counts
    columns = known.matrix.by_principal.values()
    readers = f"{sum(each['reads'] > 0 for each in columns)} of {len(columns)} principals read games"
    parts = [f"{readers}: {formatting.count(counts['reads'])} of {formatting.count(sum(counts.values()))} cells"]
    if counts["could"]:
        parts.append(f"{formatting.count(counts['could'])} could grant themselves")
    if counts["unknown"]:
        parts.append(f"{formatting.count(counts['unknown'])} are unknown")
    lacking = len(access.names.keys() - known.observed.tables.keys())
    if lacking:
        parts.append(f"{lacking} games have no table in the catalog yet")
    return ", ".join(parts)
