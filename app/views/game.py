"""One game (`?game=<game_key>`): what is wrong and what to do, the proof over time, what can be done, its last rows."""

from collections.abc import Callable, Mapping
from functools import partial

import streamlit as st

from app import formatting
from app.components import cards, confirm, header, links, log_panel, type_table
from app.components.cards import Card
from app.game import panels, queries, rows_panel
from app.game.cause import CauseCard, card
from app.game.signals import GameSignals
from app.look import parts
from app.state import control_queries, first_events, previews, services
from app.state.control_queries import ControlState
from app.state.readings import reading
from app.state.services import Environment
from pipeline.base.errors import Refused
from pipeline.control.operations import registry
from pipeline.health.facts.fleet import Fleet, GameRow
from pipeline.health.incidents.causes import Action

_DAY = 86_400.0
_ROWS_FIRST = "game_rows_first"  # the game of which a link of ours has asked for rows


def _live(environment: Environment) -> None:
    crumb = st.container(horizontal=True, vertical_alignment="center", gap="xsmall", key="crumb")
    steering = header.draw(environment, control_queries.steering, "steering")
    if steering is None:
        return
    game_key = st.query_params.get("game", "")
    row = steering.fleet.row(game_key)
    if row is None:
        _draw_unknown(environment, steering.fleet, game_key)
        return
    signals = queries.signals(environment, steering, row, header.range_seconds())
    offered, why_not = _offered(environment, row)
    with crumb:
        panels.draw_crumb(signals)
    header.sentence_place().html(panels.head(signals))
    with st.container(key="trouble", gap="small"):
        if (found := card(signals)) is not None:
            panels.draw_cause(signals, found, partial(_draw_next, environment, row, found, offered))
        panels.draw_alerts(signals)
    panels.draw_strip(signals)
    linked = links.choice_of_link()
    if "rows" in linked:
        st.session_state[_ROWS_FIRST] = linked.get("game")
    if rows_first := st.session_state.get(_ROWS_FIRST) == game_key:
        rows_panel.draw(environment, signals)  # where they were asked for, they are seen without scrolling
    left, right = st.columns([1.55, 1], gap="small")
    with left:
        panels.draw_charts(signals)
    with right, st.container(border=True, key="card_actions", gap="xsmall", height="stretch"):
        _draw_actions(environment, steering, signals, offered, why_not)
        panels.draw_versions(environment, signals)
    if not rows_first:
        rows_panel.draw(environment, signals)
    type_table.draw_card(environment, row.game_key, row.live, signals.now)
    left, right = st.columns(2, gap="small")
    with left:
        panels.draw_operations(signals)
        read = partial(services.game_transitions, environment, game_key, _DAY)
        panels.draw_changes(signals, reading("game_changes", (environment.store, game_key), read))
    with right:
        panels.draw_neighbours(signals)
    log_panel.draw(environment, steering.fleet, () if row.group is None else (row.group,))


def _offered(environment: Environment, row: GameRow) -> tuple[Mapping[str, Card], str | None]:
    """Return what can be done with the game, by name, and why nobody knows where that could not be read."""
    try:
        facts = control_queries.facts(environment, [row.game_key]).get(row.game_key)
    except Refused as refused:
        return {}, str(refused)
    if facts is None:
        return {}, None
    found = cards.of_game(facts, partial(services.missing_role, environment))
    return {each.can.name: each for each in found}, None


def _draw_actions(
    environment: Environment,
    steering: ControlState,
    signals: GameSignals,
    offered: Mapping[str, Card],
    why_not: str | None,
) -> None:
    """Draw what can be done with the game, and below it the preview that was opened."""
    row = signals.row
    st.html(parts.section("What can be done", "least disturbing first"))
    if why_not is not None:
        st.html(parts.silence("Not known.", formatting.shown(why_not)))
    elif offered:
        cards.draw_list(
            tuple(offered.values()),
            on_click=_offer,
            args=(environment, row.game_key, row.group),
            before={"move": partial(_choose_group, steering, row)},
        )
    confirm.draw_confirmation(environment, f"game_{row.game_key}")


def _draw_next(environment: Environment, row: GameRow, found: CauseCard, offered: Mapping[str, Card]) -> None:
    """Draw the next action of a cause, and what comes after it, which may not be possible yet."""
    is_first = True
    if found.action is not None:
        is_first = not _draw_action(environment, row, found.action, offered)
    follows = None if found.following is None else offered.get(found.following)
    if follows is not None and not is_first:
        why = follows.disabled_reason or follows.can.why_not or found.why_not_yet
        st.button(
            f"{follows.can.name.capitalize()}…",
            key="cause_following",
            width="stretch",
            disabled=why is not None,
            help=None if why is None else formatting.escaped(why),
            on_click=_offer,
            args=(environment, row.game_key, row.group, follows.can.name),
        )


def _draw_action(environment: Environment, row: GameRow, action: Action, offered: Mapping[str, Card]) -> bool:
    """Draw the button of an action and return whether there is one; what this page offers is planned on it."""
    here = action.page == "game" and action.query.get("game") == row.game_key
    own = offered.get(action.label.rstrip("…").casefold()) if here else None
    press: Callable[..., None] = _open
    args: tuple[object, ...] = (action,)
    why = None
    if own is not None:
        press, args = _offer, (environment, row.game_key, row.group, own.can.name)
        why = own.disabled_reason or own.can.why_not
    elif here and set(action.query) <= {"game"}:
        return False  # it leads to this page
    st.button(
        formatting.escaped(formatting.shown(action.label, 40)),
        key="cause_action",
        type="primary",
        width="stretch",
        disabled=why is not None,
        help=None if why is None else formatting.escaped(why),
        on_click=press,
        args=args,
    )
    return True


def _open(action: Action) -> None:
    links.open_page(action.page, action.query)


def _choose_group(steering: ControlState, row: GameRow) -> None:
    groups = [name for name in steering.fleet.groups if name != row.group]
    st.selectbox(
        "To group",
        groups,
        key=f"to_{row.game_key}",
        index=None,
        format_func=formatting.shown,
        placeholder="to group",
        label_visibility="collapsed",
    )


def _offer(environment: Environment, key: str, group: str | None, kind: str) -> None:
    make: Callable[[], previews.Preview]
    offer = registry.offers_of_game()[kind][1]
    if offer.chooses_group:
        target = st.session_state.get(f"to_{key}")
        make = partial(previews.preview_move, environment, [key], None if target is None else str(target))
    elif offer.is_of_its_group:
        make = partial(previews.preview_named, environment, kind, [] if group is None else [group])
    elif offer.repairs:
        make = partial(previews.preview_repair, environment, kind, [key])
    else:
        make = partial(previews.preview_named, environment, kind, [key])
    confirm.stage_preview(f"game_{key}", make)


def _draw_unknown(environment: Environment, fleet: Fleet, game_key: str) -> None:
    """Say why there is no page: no choice, a wrong link, or a game whose first event has not reached bronze."""
    if not game_key:
        header.headline("No game", tone="plain")
        st.info("No game is chosen. Open one from the Fleet page.")
        return
    try:
        registered = queries.game_versions(environment, game_key).versions
    except Refused as refused:
        header.headline("No events of this game", tone="plain")
        st.error(formatting.escaped(str(refused)))
        return
    if registered:
        header.headline(f"No event of {formatting.shown(registered[-1].game)} in bronze yet", tone="plain")
        why = first_events.awaited(fleet) or "Nothing waits in the source: check that its producer is running."
        st.info(formatting.escaped(f"This game is registered, but no event of it has reached bronze. {why}"))
        st.text(f"{formatting.shown(registered[-1].game)} (key {game_key})")
    else:
        header.headline("No such game", tone="plain")
        st.warning("There is no game with this key. Check the link, or look for it on the Fleet page.")
        st.code(formatting.shown(game_key, 100), language=None)


header.keep_drawing(_live)
