"""The list of the Schemas page: each game with its newest version, what refuses rows first."""

from collections.abc import Mapping, Sequence
from typing import Final

import pandas as pd
import streamlit as st

from app import formatting
from app.components import links, pills
from app.look import parts, trends
from app.look.rows import height_of_all, table_height
from app.look.tokens import Tone
from app.schemas import queries
from app.state.readings import reading
from app.state.series import about, series
from app.state.services import Environment
from pipeline.api.schemas import Catalogue
from pipeline.api.versions import GameVersions
from pipeline.base.errors import Refused

_MAX_ROWS: Final = 300  # as on the page Fleet
_MAX_CHANGES: Final = 100  # rows whose change is computed: each costs about a millisecond, once
FIND: Final = "schemas_find"
SHOW: Final = "schemas_show"
LINKED: Final = {"find": FIND, "show": SHOW}

STATES: Final[Mapping[str, str]] = {
    "refuses": "✗ refuses rows",
    "waits": "△ waits",
    "none": "? no schema",
    "registered": "● registered",
}
TONES: Final[Mapping[str, Tone]] = {"refuses": "bad", "waits": "risk", "none": "blind", "registered": "well"}
_PILLS: Final = {STATES[state]: tone for state, tone in TONES.items()}
_ABOUT_STATE: Final = "Refuses rows: all rows of a version go to quarantine. Waits: for a registry's answer."
_CHANGE_WIDTH: Final = 132  # px
_COLUMNS: Final = {
    "game": st.column_config.TextColumn("Game", width=115),
    "page": links.schemas_column("Key (opens it)", "schemas", 105),
    "version": st.column_config.NumberColumn("Version", width=58),
    "change": st.column_config.TextColumn(
        "Change",
        width=_CHANGE_WIDTH,
        help="Why rows are refused, else what the newest version changed in the game's table.",
    ),
    "trend": st.column_config.AreaChartColumn(
        "Rows, 24 h", width=72, y_min=0, color="blue", help="Rows a minute over the last 24 hours."
    ),
    "rate": st.column_config.TextColumn("Rows/s", width=58, help="That land. A dash: nothing current is known."),
    "age": st.column_config.TextColumn("Age", width=68, help="Of the newest version."),
}
_DAY: Final = 86_400  # seconds
_ORDER: Final = ("state", "game", "page", "version", "rate", "trend", "change", "age")


def state_of(game: GameVersions, catalogue: Catalogue) -> str:
    """Return how a game's schemas stand, a key of `STATES`; the worst counts."""
    if game.quarantined:
        return "refuses"
    if game.key in catalogue.waiting:
        return "waits"
    return "registered" if game.versions else "none"


def take_filters() -> dict[str, tuple[str, ...]]:
    """Lay what the URL says into the filters; return what of it is not known."""
    return {"find": links.take("find", FIND), "show": links.take("show", SHOW, STATES)}


def draw(environment: Environment, catalogue: Catalogue, rates: Mapping[str, float | None]) -> None:
    """Draw the filters and the games that pass them; `rates` are rows per second by game key."""
    states: dict[str, str] = {game.key: state_of(game, catalogue) for game in catalogue.games}
    counts = {each: sum(state == each for state in states.values()) for each in STATES}
    with st.container(horizontal=True, vertical_alignment="center", key="schema_filters"):
        st.pills(
            "State",
            list(STATES),
            key=SHOW,
            format_func=lambda each: f"{STATES[each]} {counts[each]}",
            label_visibility="collapsed",
        )
        st.text_input(
            "Search", key=FIND, type="search", live=True, placeholder="game, key, format, message or schema id",
            label_visibility="collapsed", max_chars=256, width=330,
        )  # fmt: skip
    wanted, shown = str(st.session_state.get(FIND) or "").casefold().strip(), st.session_state.get(SHOW)
    found = [
        game
        for game in catalogue.games
        if (shown is None or states[game.key] == shown) and (not wanted or _matches(game, wanted))
    ]
    if not found:
        st.info("No game matches these filters.", icon=":material/filter_alt_off:")
        return
    order = list(STATES)
    found.sort(key=lambda game: (order.index(states[game.key]), -_registered_at(game)))
    _draw_table(environment, catalogue, found[:_MAX_ROWS], states, rates)
    limited = f" The table has the first {_MAX_ROWS}; search finds the others." if len(found) > _MAX_ROWS else ""
    st.caption(
        f"{len(found)} of {len(catalogue.games)} games, those that refuse rows first, then newest first.{limited}"
    )


def _draw_table(
    environment: Environment,
    catalogue: Catalogue,
    games: Sequence[GameVersions],
    states: Mapping[str, str],
    rates: Mapping[str, float | None],
) -> None:
    day = reading("schemas_day", environment.store, lambda: series(environment, _DAY))
    trend = trends.landed(day.value, [game.key for game in games]).to_pylist()
    changes = [_change(environment, game, place) for place, game in enumerate(games)]
    high = height_of_all([((game.game for game in games), 120), (changes, _CHANGE_WIDTH)])
    st.dataframe(
        pd.DataFrame(
            {
                "state": [STATES[states[game.key]]],
                "game": formatting.shown(game.game, 80),
                "page": game.key,
                "version": None if game.newest is None else game.newest.version,
                "change": changes[place],
                "rate": formatting.rate(rates.get(game.key)),
                "trend": trend[place],
                "age": formatting.UNKNOWN_VALUE
                if game.newest is None
                else formatting.age(catalogue.read_at - game.newest.created_at),
            }
            for place, game in enumerate(games)
        ),
        hide_index=True,
        row_height=high,
        height=table_height(len(games), high, 620),
        column_order=_ORDER,
        column_config={"state": pills.column("State", _PILLS, 105, _ABOUT_STATE), **_COLUMNS},
        placeholder=formatting.UNKNOWN_VALUE,
        alt="Games with their newest schema version, those that refuse rows first. The key opens the game's schemas.",
        key="schemas_table",
    )
    if day.failed and day.good_at is None:
        st.html(parts.note(f"Rows of the last day are not known: {formatting.shown(day.why or '', 200)}"))
    elif old := about(day, catalogue.read_at):
        st.html(parts.note(f"Rows of the last day{old}"))
    links.offer_schemas("schemas", {game.key: formatting.game_text(game.key, game.game) for game in games})


def _matches(game: GameVersions, wanted: str) -> bool:
    texts = (
        formatting.shown(game.game),
        game.key,
        *(text for each in game.versions for text in (each.format, each.message)),
    )
    ids = {str(each.schema_id) for each in game.versions}
    return wanted in ids or any(wanted in text.casefold() for text in texts)


def _registered_at(game: GameVersions) -> float:
    return 0.0 if game.newest is None else game.newest.created_at


def _change(environment: Environment, game: GameVersions, place: int) -> str:
    """Say why rows are refused, else what the newest version changed."""
    if refusing := game.quarantined:
        return formatting.shown(f"version {refusing[-1].version}: {refusing[-1].quarantined}", 160)
    if game.newest is None or place >= _MAX_CHANGES:
        return formatting.UNKNOWN_VALUE
    try:
        return formatting.shown(queries.change_text(environment, game), 160)
    except Refused:
        return formatting.UNKNOWN_VALUE  # the page says that the store is away
