"""Schemas: which versions each game has, what refuses rows, how registries stand; and a new version's registration."""

import streamlit as st

from app import formatting
from app.components import header, links
from app.schemas import forms, game_panel, listing, queries, registries
from app.state.services import Environment
from pipeline.api.schemas import Catalogue
from pipeline.health.headlines.pages import OF_SCHEMAS


def _live(environment: Environment) -> None:
    seen = header.draw(environment, queries.overview, "schemas", ranged=False)
    if seen is None:
        return
    catalogue = seen.catalogue
    waiting = sum(each.state == "asked" for each in seen.requested)
    trouble = bool(catalogue.troubles or waiting)
    header.headline(_sentence(catalogue, waiting), trouble=trouble, causes=OF_SCHEMAS)
    chosen = st.query_params.get("game", "")
    game = catalogue.game(chosen)
    linked = {**listing.LINKED, **({} if game is None else game_panel.linked(game.key))}
    unknown = {**listing.take_filters(), **({} if game is None else game_panel.take_versions(game))}
    links.draw_unknown(unknown, linked)
    forms.draw_requests(environment, seen.requested, seen.read_at)
    registries.draw(environment, catalogue)
    if not catalogue.games:
        st.info("No game has a schema yet. Register one, or start `turnout simulate`.")
    forms.draw_register(environment, game)
    left, right = st.columns([3, 2], gap="medium")
    with left:
        if catalogue.games:
            listing.draw(environment, catalogue, seen.rates)
    with right, st.container(border=True, key="card_schema_game", gap="small"):
        if game is not None:
            game_panel.draw(environment, catalogue, game, seen.live.get(game.key))
        elif chosen:
            st.warning("There is no game with this key. Check the link, or look for it in the list.")
            st.code(formatting.shown(chosen, 100), language=None)
        else:
            st.info("Open a game of the list to see its versions and what changes between them.")
    st.page_link("views/games.py", label="Names without a game, and proposed games", icon=":material/playlist_add:")
    links.keep(linked)


def _sentence(catalogue: Catalogue, waiting: int) -> str:
    """Say what a person should look at, the worst first; where there is nothing, how much turnout knows."""
    requests = f"{waiting} registration{' waits' if waiting == 1 else 's wait'} for a second person"
    if troubles := [*catalogue.troubles, *([requests] if waiting else [])]:
        said = "; ".join(troubles)
        return f"{said[0].upper()}{said[1:]}"
    games = [each for each in catalogue.games if each.versions]
    versions = sum(len(each.versions) for each in games)
    if not games:
        return "No schema is registered yet"
    many = f"{_many(len(games), 'game')}, {_many(versions, 'schema version')}"
    return f"{many}: none is quarantined"


def _many(count: int, noun: str) -> str:
    return f"{formatting.count(count)} {noun}{'' if count == 1 else 's'}"


header.keep_drawing(_live)
