"""The matrix of games and principals: filters that stand in the URL, one table, one pill per cell.

A pill is a glyph with words and a colour; an empty cell is a known no. A click on a cell fills in the names beside
the matrix, by which everything else goes.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final

import pyarrow as pa
import streamlit as st

from app import formatting
from app.access.queries import KINDS, AccessState, PrincipalChoice, ResolvedCatalog
from app.components import links
from grants.api.access import Request
from grants.model import folded
from grants.observing.matrix import CellState, Way
from grants.planning.drift import DriftFinding
from pipeline.base.names import parted_table_key

STATES: Final[Mapping[CellState, str]] = {
    "reads": "✓ reads",
    "could": "△ could grant itself",
    "unknown": "? unknown",
    "no": "· no",
}
_READS: Final[Mapping[Way, str]] = {"direct": "● direct", "group": "◆ by group", "schema": "◆ from schema"}
_OTHERS: Final[Mapping[CellState, str]] = {"could": "△ could", "unknown": "? unknown", "no": ""}
ASKED, DRIFT, MISSING = "○ asked", "△ drift", "× missing"
_COLOURS: Final[Mapping[str, str]] = {
    _READS["direct"]: "blue",
    _READS["group"]: "blue",
    _READS["schema"]: "gray",
    _OTHERS["could"]: "yellow",
    ASKED: "yellow",
    DRIFT: "orange",
    MISSING: "red",
    _OTHERS["unknown"]: "violet",
}
Cell = tuple[str, str]
"""A game key and a principal's folded name."""

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
class MatrixPart:
    """A part of the matrix."""

    keys: tuple[str, ...]
    who: tuple[str, ...]  # folded names


def part(known: ResolvedCatalog, names: Mapping[str, str], filters: Filters) -> MatrixPart:
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
    return MatrixPart(tuple(keys), tuple(principals))


def marks(requests: Sequence[Request], findings: Sequence[DriftFinding]) -> dict[Cell, str]:
    """Return the cells that wait for a person: requested access, drift, and missing grants of turnout."""
    found: dict[Cell, str] = {}
    for request in requests:
        for intent in request.intents:
            if intent["read"]:
                found[str(intent["key"]), folded(str(intent["principal"]))] = ASKED
    for each in findings:
        if each.ignored is None and each.principal:
            word = MISSING if each.kind in {"missing", "recreated"} else DRIFT
            found[each.securable.path[-1], folded(each.principal)] = word
    return found


def words(known: ResolvedCatalog, marked: Mapping[Cell, str], keys: Sequence[str], who: str) -> list[str]:
    """Return the pill of each game for one principal (folded); empty where it is known not to read."""
    name = known.who[who].name
    states, ways = known.matrix.columns[name], known.ways[name]
    if tuple(keys) != known.matrix.keys:
        places = {key: row for row, key in enumerate(known.matrix.keys)}
        chosen_rows = [places[key] for key in keys]
        states, ways = tuple(states[row] for row in chosen_rows), tuple(ways[row] for row in chosen_rows)
    found = [_OTHERS[state] if way is None else _READS[way] for state, way in zip(states, ways, strict=True)]
    own = {key: word for (key, principal), word in marked.items() if principal == who}
    for row, key in enumerate(keys if own else ()):
        mark, state = own.get(key), states[row]
        is_over = state == "reads" and mark in {MISSING, ASKED}
        if mark is not None and not is_over and state != "unknown":
            found[row] = mark
    return found


def table(
    known: ResolvedCatalog, access: AccessState, shown: MatrixPart, marked: Mapping[Cell, str] | None = None
) -> pa.Table:
    """Return a row per game and a column per principal, `p0` and so on: two names may look the same."""
    columns: dict[str, Any] = {"game": [access.game(key) for key in shown.keys]}
    for number, who in enumerate(shown.who):
        pills = words(known, marked or {}, shown.keys, who)
        filled = [pill for pill in pills if pill]
        offsets = pa.array([*accumulate(map(bool, pills), initial=0)], pa.int32())
        columns[f"p{number}"] = pa.ListArray.from_arrays(offsets, pa.array(filled, pa.string()))
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
class Names:
    """The keys of the widgets that hold the names of one cell."""

    game: str
    who: str

    def of(self, shown: MatrixPart, cell: tuple[int, str]) -> dict[str, str]:
        """Return what the widgets hold after a click, by their keys."""
        key, who = chosen(shown, cell)
        return {widget: value for widget, value in {self.game: key, self.who: who}.items() if value is not None}


def draw(
    access: AccessState, known: ResolvedCatalog, filters: Filters, marked: Mapping[Cell, str], height: int, names: Names
) -> None:
    """Draw the matrix at most `height` pixels high; a click on a cell fills in its names."""
    shown = part(known, access.names, filters)
    if not shown.keys or not shown.who:
        missing = "game" if not shown.keys else "principal"
        why = "No table of a game is in the catalog yet" if not known.matrix.keys else f"No {missing} matches"
        st.info(f"{why}. Clear the filters, or wait for the controller.", icon=":material/filter_alt_off:")
        return
    st.session_state[_DRAWN] = shown
    st.dataframe(
        table(known, access, shown, marked),
        hide_index=True,
        height=min(32 * (len(shown.keys) + 1) + 12, height),
        column_config=_config(known, shown.who),
        on_select=lambda: _fill(names),
        selection_mode="single-cell",
        alt="Readers of games: a row per game, a column per principal. Choose a cell to see why.",
        key=_TABLE,
    )
    st.caption(_legend(known, shown))


def _legend(known: ResolvedCatalog, shown: MatrixPart) -> str:
    whole = len(shown.keys) == len(known.matrix.keys) and len(shown.who) == len(known.who)
    of = "" if whole else f" of {len(known.matrix.keys)} × {len(known.who)}"
    derived = sum(parted_table_key(key) is not None for key in shown.keys)
    tables = f"{len(shown.keys) - derived} games{f' and {derived} silver and gold tables' if derived else ''}"
    return (
        f"{tables} × {len(shown.who)} principals{of}. Empty: does not read. "
        "△ could: could grant itself access. Choose a cell to see why."
    )


def _config(known: ResolvedCatalog, who: Sequence[str]) -> dict[str, Any]:
    options, colours = list(_COLOURS), list(_COLOURS.values())
    config: dict[str, Any] = {"game": st.column_config.TextColumn("Game", width=250, pinned=True)}
    for number, name in enumerate(who):
        label = _heading(known.who[name])
        config[f"p{number}"] = st.column_config.MultiselectColumn(
            label, width=130, help=label, options=options, color=colours
        )
    return config


def _heading(who: PrincipalChoice) -> str:
    what = {"group": " (group)", "service_principal": " (service)"}.get(who.kind or "", "")
    return f"{formatting.principal_text(who.name)}{what}{'' if who.active else ' (not active)'}"


def _fill(names: Names) -> None:
    """Fill in the names of the chosen cell, as it was drawn; nothing is done with a place in a table but that."""
    shown, held = st.session_state.get(_DRAWN), st.session_state.get(_TABLE)
    cells = [] if held is None else held["selection"]["cells"]
    if isinstance(shown, MatrixPart) and cells:
        for widget, value in names.of(shown, cells[0]).items():
            st.session_state[widget] = value


def chosen(shown: MatrixPart, cell: tuple[int, str]) -> tuple[str | None, str | None]:
    """Return the game key and the principal of a cell, as the table was drawn; None where it had none there."""
    row, column = cell
    number = column.removeprefix("p")
    who = shown.who[int(number)] if number.isdecimal() and int(number) < len(shown.who) else None
    return shown.keys[row] if 0 <= row < len(shown.keys) else None, who


def sentence(access: AccessState, known: ResolvedCatalog) -> str:
    """Say in one sentence how many people and groups read games; services, such as turnout's own, are not counted."""
    counted = [known.matrix.by_principal[each.name] for each in known.who.values() if each.kind != "service_principal"]
    counts = sum(counted, Counter[CellState]())
    readers = sum(each["reads"] > 0 for each in counted)
    said = f"{readers} of {len(counted)} people and groups read games"
    parts = [f"{said}: {formatting.count(counts['reads'])} of {formatting.count(sum(counts.values()))} cells"]
    if counts["could"]:
        parts.append(f"{formatting.count(counts['could'])} could grant themselves")
    if counts["unknown"]:
        parts.append(f"{formatting.count(counts['unknown'])} are unknown")
    lacking = access.names.keys() - known.observed.tables.keys()
    derived = sum(parted_table_key(key) is not None for key in lacking)
    if len(lacking) > derived:
        parts.append(f"{len(lacking) - derived} games have no table in the catalog yet")
    if derived:
        parts.append(f"{derived} silver and gold tables are not yet made")
    return ", ".join(parts)
