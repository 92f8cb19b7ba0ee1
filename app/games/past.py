"""Games that were retired and names that were rejected, on the Games page, each with the way back."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

import pandas as pd
import streamlit as st

from app import formatting
from app.components import confirm, links
from app.games import previews
from app.look import parts
from app.state import services
from app.state.previews import Preview, preview_named
from app.state.services import Environment
from pipeline.api.games import GamesOverview
from pipeline.api.operations import OperationKind
from pipeline.base.errors import Refused
from pipeline.base.names import game_key

MOST: Final = 200
"""Most lines of each table, the newest."""

PLACE: Final = "game_past"
_RETIRED: Final = "games_retired_chosen"
_REJECTED: Final = "games_rejected_chosen"
_RETIRED_COLUMNS: Final = {
    "key": links.game_column("Key (opens it)", "games_retired", 150),
    "rows": st.column_config.TextColumn("Its table", width=230),
}


def draw(environment: Environment, seen: GamesOverview) -> None:
    """Draw both side by side, and what comes of a decision about one of them."""
    left, right = st.columns(2, gap="medium")
    with left, st.container(border=True, key="card_games_retired", gap="small"):
        _draw_retired(environment, seen)
    with right, st.container(border=True, key="card_games_rejected", gap="small"):
        _draw_rejected(environment, seen)
    confirm.draw_confirmation(environment, PLACE)


def _draw_retired(environment: Environment, seen: GamesOverview) -> None:
    retired = seen.retired
    st.html(parts.section("Retired games", _many(len(retired), "their rows stay in bronze")))
    if not retired:
        st.html(parts.note("No game is retired."))
        return
    st.dataframe(
        pd.DataFrame(
            {
                "Game": formatting.exact(each.game, 80),
                "key": each.game_key,
                "Retired, UTC": formatting.moment(each.retired_at)[:16],
                "rows": _behind(each.last_seq, each.cursor_seq),
            }
            for each in retired[:MOST]
        ),
        hide_index=True,
        column_config=_RETIRED_COLUMNS,
        alt="Retired games, the newest first. The key opens the game's page.",
        key="games_retired",
    )
    names = {each.game_key: each.game for each in retired[:MOST]}
    _draw_way_back(
        environment, "Retired game", _RETIRED, names, "Restore…", OperationKind.RESTORE,
        lambda key: preview_named(environment, OperationKind.RESTORE, [key]),
    )  # fmt: skip


def _draw_rejected(environment: Environment, seen: GamesOverview) -> None:
    rejected = seen.rejected
    st.html(parts.section("Rejected names", _many(len(rejected), "no schema and no rule makes games of them")))
    if not rejected:
        st.html(parts.note("No name is rejected."))
        return
    st.dataframe(
        pd.DataFrame(
            {
                "Name": formatting.exact(each.game, 80),
                "By": formatting.shown(each.actor, 60),
                "Reason": formatting.shown(each.reason or formatting.UNKNOWN_VALUE, 200),
                "At, UTC": formatting.moment(each.refused_at)[:16],
            }
            for each in rejected[:MOST]
        ),
        hide_index=True,
        alt="Rejected names with the person and the reason, the newest first.",
        key="games_rejected",
    )
    names = {str(game_key(each.game)): each.game for each in rejected[:MOST]}
    _draw_way_back(
        environment, "Rejected name", _REJECTED, names, "Approve…", OperationKind.ONBOARD,
        lambda key: previews.preview_approval(environment, names[key]),
    )  # fmt: skip


def _behind(last: int, cursor: int | None) -> str:
    """Say how far a retired game's table is complete; what nobody reported is unknown."""
    if cursor is None:
        return "cursor unknown"
    return "complete" if cursor >= last else f"complete up to seq {cursor} of {last}"


def _many(count: int, about: str) -> str:
    more = f" · the newest {MOST}" if count > MOST else ""
    return f"{formatting.count(count)} · {about}{more}" if count else ""


def _draw_way_back(
    environment: Environment,
    title: str,
    field: str,
    names: Mapping[str, str],
    label: str,
    kind: str,
    preview: Callable[[str], Preview],
) -> None:
    """Draw the choice of one by its key, `title` for a screen reader, and the button that previews its way back."""
    if st.session_state.get(field) not in {None, *names}:
        st.session_state[field] = None
    needs = services.missing_role(environment, kind)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        st.selectbox(
            title, list(names), key=field, index=None, label_visibility="collapsed", width=360,
            format_func=lambda key: formatting.game_text(key, names[key]) if key in names else key,
            placeholder="choose one: type, then Enter",
        )  # fmt: skip
        st.button(
            label,
            key=f"preview_{field}",
            on_click=confirm.stage_preview,
            args=(PLACE, partial(_planned, field, preview)),
            disabled=needs is not None,
            help=None if needs is None else formatting.escaped(needs),
        )


def _planned(field: str, preview: Callable[[str], Preview]) -> Preview:
    """Plan the way back of what is chosen.

    Raises:
        Refused: nothing is, or it cannot be.
    """
    key = st.session_state.get(field)
    if key is None:
        raise Refused("Choose a name first.")
    return preview(str(key))
