"""Operations and how far each is: those that need a person first; one of them by `?operation=ID`."""

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Final, Literal

import streamlit as st

from app import formatting
from app.access import operation_items
from app.access import previews as access_previews
from app.components import confirm, header, links, long_table, operation_cards, operation_history, pills
from app.look import parts
from app.state import control_queries, previews, services
from app.state.control_queries import OneOperation, OperationList
from app.state.services import Environment
from pipeline.api.operations import Operation, words
from pipeline.base.errors import Refused
from pipeline.base.names import is_said
from pipeline.base.texts import in_utc
from pipeline.control.operations.registry import find, inverse_of

_MAX_CARDS = 20
_STATES = {formatting.operation_text(state): tone for state, tone in formatting.OPERATION_TONES.items()}
_MAX_STEPPERS = 5  # cards whose steps are read, too
_COLUMNS = {
    "page": links.operation_column("Operation", "operations", 85),
    "kind": st.column_config.TextColumn("What", width=75),
    "targets": st.column_config.TextColumn("Of", width=190),
    "actor": st.column_config.TextColumn("Who", width=105),
    "reason": st.column_config.TextColumn("Why", width=160),
    "submitted": st.column_config.TextColumn("Submitted, UTC", width=140),
    "took": st.column_config.TextColumn("Took", width=65),
    "outcome": st.column_config.TextColumn("Outcome", width=275),
}
_LONG: Final = {"targets": 190, "actor": 105, "reason": 160, "outcome": 275}  # columns that may need several lines
_ORDER = ("state", "page", "kind", "targets", "outcome", "actor", "reason", "submitted", "took")


def _live(environment: Environment) -> None:
    operation_id, game = st.query_params.get("operation", ""), st.query_params.get("history", "")
    if operation_id:
        _draw_one(environment, operation_id)
        return
    if game:
        _draw_game(environment, game)
        return
    journal = header.draw(environment, control_queries.journal, "journal", ranged=False)
    if journal is not None:
        _draw_all(environment, journal)


# ---------------------------------------------------------------------------------------------------------- all of them


def _draw_all(environment: Environment, journal: OperationList) -> None:
    opened = [each for each in journal.operations if each.is_open]
    ended = [each for each in journal.operations if not each.is_open]
    stuck = sum(each.is_stuck for each in opened)
    header.draw_operations(len(opened), stuck)
    if opened:
        confirm.draw_controller(opened[-1], journal.no_controller)
    for place, each in enumerate(opened[:_MAX_CARDS]):
        operation_cards.draw(environment, each, journal, with_steps=place < _MAX_STEPPERS)
    if len(opened) > _MAX_CARDS:
        st.caption(f"{len(opened) - _MAX_CARDS} more open operations are in the table.")
    left = [*opened[_MAX_CARDS:], *ended]
    if not left:
        st.html(parts.section("Earlier"))
        st.info("No operation has ended yet. Start one on a game's page, under Groups or under Repairs.")
        return
    chosen = _draw_filters(left, journal)
    if not chosen:
        st.info("No operation matches. Clear the filters.", icon=":material/filter_alt_off:")
        return
    rows = [_row(each, journal) for each in chosen]
    long_table.draw(
        rows,
        _LONG,
        620,
        column_order=_ORDER,
        column_config={"state": pills.column("State", _STATES, 115), **_COLUMNS},
        alt="Operations, newest first. The id links to the operation's page.",
        key="operations_table",
    )
    with st.container(horizontal=True, key="row_open", gap="small"):
        links.offer_operations("operations", {links.short(each.operation_id): _named(each, journal) for each in chosen})
        links.offer_histories("operations", _games_of(journal))
    st.caption("All times are UTC.")


def _games_of(journal: OperationList) -> dict[str, str]:
    """Return the games of the listed operations, for a choice."""
    targets = {target for each in journal.operations for target in each.targets}
    keys = sorted(key for kind, _, key in (target.partition(":") for target in targets) if kind == "game")
    return {key: formatting.game_text(key, journal.names[key]) for key in keys if key in journal.names}


def _draw_filters(rows: list[Operation], journal: OperationList) -> list[Operation]:
    """Draw the filters, which live in the URL, and return the operations that pass them."""
    kinds = Counter(words(each).verb for each in rows)
    with st.container(horizontal=True, vertical_alignment="center", key="filters_operations", gap="small"):
        st.html(parts.section("Earlier", f"the last {len(rows)}"), width="stretch")
        chosen = st.pills(
            "Kind",
            sorted(kinds),
            selection_mode="multi",
            key="kind",
            bind="query-params",
            format_func=lambda each: f"{formatting.shown(each, 24)} {kinds[each]}",
            label_visibility="collapsed",
        )
        text = st.text_input(
            "Search", key="q", bind="query-params", type="search", live=True, placeholder="game, person or id",
            label_visibility="collapsed", max_chars=256, width=240,
        )  # fmt: skip
    wanted = (text or "").casefold().strip()
    return [
        each
        for each in rows
        if (not chosen or words(each).verb in chosen) and (not wanted or wanted in _searched(each, journal))
    ]


def _searched(operation: Operation, journal: OperationList) -> str:
    games = (journal.names.get(target.partition(":")[2], "") for target in operation.targets)
    said = words(operation)
    return " ".join([operation.operation_id, operation.actor, *operation.targets, *said.about, *games]).casefold()


def _named(operation: Operation, journal: OperationList) -> str:
    return f"{links.short(operation.operation_id)} · {formatting.operation_title(words(operation), journal.names)}"


def _row(operation: Operation, journal: OperationList) -> dict[str, str | list[str]]:
    took, said = (operation.ended_at or journal.read_at) - operation.requested_at, words(operation)
    return {
        "state": [formatting.operation_text(operation.state)],
        "page": links.short(operation.operation_id),
        "kind": formatting.shown(said.verb, 24),
        "targets": formatting.targets_text(said.about, journal.names),
        "actor": formatting.shown(operation.actor, 40),
        "reason": formatting.shown(operation.reason, 120) if operation.reason else formatting.UNKNOWN_VALUE,
        "submitted": in_utc(operation.requested_at),
        "took": formatting.duration(took),
        "outcome": formatting.shown(operation.outcome, 200) if operation.outcome else formatting.UNKNOWN_VALUE,
    }


def _draw_game(environment: Environment, game: str) -> None:
    """Draw the history of one game over all operations."""
    read = partial(control_queries.game_history, game_key=game)
    seen = header.draw(environment, read, "history", game, ranged=False)
    st.page_link("views/operations.py", label="All operations", icon=":material/arrow_back:")
    if seen is None:
        return
    name = seen.names.get(game)
    if name is None:
        header.headline("No such game", meta=f"the link names {formatting.shown(game, 60)}", tone="blind")
        return
    many = len(seen.operations)
    about = f"{formatting.count(many)} {'operation' if many == 1 else 'operations'}, the newest first"
    header.headline(f"History of {formatting.shown(name, 80)}", meta=about if many else "no operation", tone="plain")
    label = formatting.escaped(formatting.game_text(game, name))
    st.page_link("views/game.py", label=label, query_params={"game": game})
    operation_history.draw_game(seen)


# ---------------------------------------------------------------------------------------------------------- one of them


def _draw_one(environment: Environment, operation_id: str) -> None:
    read = partial(control_queries.one_operation, operation_id=operation_id)
    seen = header.draw(environment, read, "operation", operation_id, ranged=False)
    if seen is None:
        st.page_link("views/operations.py", label="All operations", icon=":material/arrow_back:")
        return
    st.page_link("views/operations.py", label="All operations", icon=":material/arrow_back:")
    operation = seen.operation
    waits = _waits(seen)
    state = formatting.operation_text(operation.state) + (f": {formatting.shown(waits)}" if waits else "")
    header.headline(
        operation_cards.sentence_case(formatting.operation_title(words(operation), seen.names)),
        meta=state,
        tone=operation_cards.tone(operation.state),
    )
    confirm.draw_controller(operation, seen.no_controller)
    _draw_facts(seen)
    if _has_items(operation):
        operation_items.draw(environment, operation)
    _draw_target(seen)
    operation_history.draw_targets(seen)
    _draw_buttons(environment, seen)
    operation_history.draw_history(seen)


def _has_items(operation: Operation) -> bool:
    known = find(operation.kind)
    return known is not None and known.has_items


def _waits(seen: OneOperation) -> str:
    """Return its outcome, or what it waits for."""
    if seen.operation.outcome:
        return seen.operation.outcome
    if seen.steps and seen.operation.is_open:
        return f"{seen.steps[-1].name}: {seen.steps[-1].detail or 'just begun'}"
    return ""


def _draw_facts(seen: OneOperation) -> None:
    operation = seen.operation
    facts = {
        "Operation": operation.operation_id[:8],
        "Asked by": formatting.shown(operation.actor, 40),
        "At": formatting.moment(operation.requested_at),
        "Ended": formatting.moment(operation.ended_at),
        "Took": formatting.duration((operation.ended_at or seen.read_at) - operation.requested_at),
        "Undoes": operation.undoes[:8] if operation.undoes else formatting.UNKNOWN_VALUE,
    }
    facts["Why"] = formatting.shown(operation.reason, 500) if operation.reason else formatting.UNKNOWN_VALUE
    with st.container(border=True, key="card_facts", gap="small"):
        if seen.steps:
            st.html(operation_cards.stepper(seen))
        st.html(parts.facts(list(facts.items())))


def _draw_target(seen: OneOperation) -> None:
    """Link the one game that an operation is about; several stand in a table."""
    kind, _, key = seen.operation.targets[0].partition(":") if len(seen.operation.targets) == 1 else ("", "", "")
    if kind == "game" and key in seen.names:
        label = formatting.escaped(formatting.game_text(key, seen.names[key]))
        st.page_link("views/game.py", label=label, query_params={"game": key})


# -------------------------------------------------------------------------------------------------------------- buttons


def _draw_buttons(environment: Environment, seen: OneOperation) -> None:
    operation = seen.operation
    if operation.is_stuck:
        _draw_looked_after(environment, seen)
    elif operation.is_open:
        _draw_cancel(environment, operation)
    else:
        with st.container(border=True, key="undo_box", gap="xsmall"):
            st.html(parts.section("Undo"))
            st.text(formatting.shown(seen.why_no_undo or "Asks for the inverse, checked like anything else."))
            place = f"undo_{operation.operation_id}"
            has_items = _has_items(operation)
            plan = access_previews.preview_undo if has_items else previews.preview_undo
            undo = partial(plan, environment, operation.operation_id)
            disabled_reason = services.missing_role(environment, inverse_of(operation.kind))
            st.button(
                "Undo…",
                disabled=(seen.why_no_undo or disabled_reason) is not None,
                on_click=confirm.stage_preview,
                args=(place, undo),
                key="undo",
            )
            if disabled_reason is not None and seen.why_no_undo is None:
                st.caption(formatting.escaped(disabled_reason))
            confirm.draw_confirmation(environment, place, operation_items.draw if has_items else None, plan)
    note = st.session_state.get(_note_of(operation.operation_id))
    if note is not None and note[1] is not None:
        st.warning(formatting.escaped(note[1]), icon=":material/block:")


def _draw_looked_after(environment: Environment, seen: OneOperation) -> None:
    """Draw what a person may do with an operation that waits, or the role that they lack for it."""
    operation = seen.operation
    disabled_reason = services.missing_role(environment, operation.kind)
    with (
        st.container(border=True, key="resume_box", gap="xsmall"),
        st.form("resume", enter_to_submit=False, border=False),
    ):
        st.html(parts.section("Let it go on"))
        last = seen.steps[-1].name if seen.steps else "its first step"
        st.text(f"It tries {formatting.shown(last, 40)} again, and asks a person again if that does not come.")
        st.text_input("Why (may be empty)", key=_reason_of(operation, "why"), max_chars=500)
        _draw_act("Resume", _resume, environment, operation, disabled_reason, kind="primary")
    with (
        st.container(border=True, key="close_box", gap="small"),
        st.form("close", enter_to_submit=False, border=False),
    ):
        st.html(parts.section("End it as it is"))
        st.text("Finished steps stay done; its games are free for other operations.")
        st.text_input("What was found, and done about it", key=_reason_of(operation), max_chars=500)
        _draw_act("Close it", _close, environment, operation, disabled_reason)


def _draw_cancel(environment: Environment, operation: Operation) -> None:
    """Draw how an operation is ended before it is done."""
    with (
        st.container(border=True, key="cancel_box", gap="small"),
        st.form("cancel", enter_to_submit=False, border=False),
    ):
        st.html(parts.section("Cancel it"))
        st.text("Only before it begins, or while it only waits. Finished steps stay done.")
        st.text_input("Why it is not to be done", key=_reason_of(operation, "cancelled"), max_chars=500)
        disabled_reason = services.missing_role(environment, operation.kind)
        _draw_act("Cancel operation", _cancel, environment, operation, disabled_reason)


def _draw_act(
    label: str,
    act: Callable[..., None],
    environment: Environment,
    operation: Operation,
    disabled_reason: str | None,
    *,
    kind: Literal["primary", "secondary"] = "secondary",
) -> None:
    """Draw a button of a form; what is safe to try is primary, what ends an operation is not."""
    st.form_submit_button(
        label, on_click=act, args=(environment, operation), disabled=disabled_reason is not None, type=kind
    )
    if disabled_reason is not None:
        st.caption(formatting.escaped(disabled_reason))


def _resume(environment: Environment, operation: Operation) -> None:
    reason = str(st.session_state.get(_reason_of(operation, "why")) or "").strip()
    _act(operation, partial(previews.resume, environment, operation, reason))


def _close(environment: Environment, operation: Operation) -> None:
    reason = str(st.session_state.get(_reason_of(operation)) or "").strip()
    if is_said(reason):
        _act(operation, partial(previews.close, environment, operation, reason))
    else:
        st.session_state[_note_of(operation.operation_id)] = (
            None,
            "Enter a reason: what was found, and what was done about it.",
        )


def _cancel(environment: Environment, operation: Operation) -> None:
    reason = str(st.session_state.get(_reason_of(operation, "cancelled")) or "").strip()
    if is_said(reason):
        _act(operation, partial(previews.cancel, environment, operation, reason))
    else:
        st.session_state[_note_of(operation.operation_id)] = (None, "Enter a reason. It is kept in the audit log.")


def _act(operation: Operation, act: Callable[[], Operation]) -> None:
    """Do it, if the operation is still as it was drawn; a second click on the same drawing does nothing."""
    note = _note_of(operation.operation_id)
    if st.session_state.get(note) == (operation.version, None):
        return
    try:
        act()
    except Refused as refused:
        st.session_state[note] = (operation.version, str(refused))
    else:
        st.session_state[note] = (operation.version, None)
        services.forget()


def _note_of(operation_id: str) -> str:
    return f"note_{operation_id}"


def _reason_of(operation: Operation, name: str = "found") -> str:
    return f"{name}_{operation.operation_id}_{operation.version}"


header.keep_drawing(_live)
