"""Games: names that are proposed or wait, with their evidence; onboarding rules; retired and rejected games."""

import streamlit as st

from app import formatting
from app.components import confirm, header, links
from app.games import decision, listing, past, propose, queries, rules
from app.state.readings import reading
from app.state.services import Environment
from pipeline.api.games import Candidates, GamesOverview


def _live(environment: Environment) -> None:
    seen = header.draw(environment, queries.overview, "games", ranged=False)
    if seen is None:
        return
    names = reading(
        "games_candidates", environment.store, lambda: queries.candidates(environment), paused=header.is_paused()
    )
    if names.value is None:
        header.headline("Names without a game are not known", tone="blind")
    else:
        sentence, trouble = _sentence(names.value, seen)
        header.headline(sentence, trouble=trouble)
    links.draw_unknown(listing.take_choice(names.value), listing.LINKED)
    with st.container(border=True, key="card_games_names", gap="small"):
        listing.draw(names, seen.deciding)
    if names.value is not None and (chosen := listing.chosen(names.value)) is not None:
        with st.container(border=True, key="card_game_name", gap="small"):
            decision.draw(environment, seen, chosen, names.value.framings)
    confirm.draw_confirmation(environment, decision.PLACE)
    propose.draw(environment, seen)
    rules.draw(environment, seen)
    past.draw(environment, seen)
    links.keep(listing.LINKED)


def _sentence(names: Candidates, seen: GamesOverview) -> tuple[str, bool]:
    """Say what a person should decide, and whether there is anything; else what games come by."""
    proposed = sum(each.proposal is not None for each in names.names)
    waits = sum(each.waiting is not None and not each.waiting.comes for each in names.names) + names.seen.beyond
    many = f"about {formatting.count(waits)}" if names.seen.beyond else formatting.count(waits)
    said = [f"{proposed} proposed {'game waits' if proposed == 1 else 'games wait'} for a decision"] if proposed else []
    said += [f"ingest refuses rows of {many} {'name' if waits == 1 else 'names'} without a game"] if waits else []
    if said:
        sentence = "; ".join(said)
        return f"{sentence[0].upper()}{sentence[1:]}", True
    count = len(seen.rules.rules)
    return f"No name waits for a decision; onboarding rules in force: {count or 'none'}", False


header.keep_drawing(_live)
