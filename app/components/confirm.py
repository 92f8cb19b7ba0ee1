"""The one way from an intent to an operation: a preview, and a confirmation that grows with what it may disturb.

A preview is kept in the viewer's session until it is confirmed or dropped; what comes after is the operation's page.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import streamlit as st

from app import formatting
from app.components import group_cards, progress
from app.look import parts, style, tokens
from app.person import identity
from app.state import control_queries, previews, services
from app.state.previews import Preview
from app.state.services import Environment
from pipeline.api.acts import Follows
from pipeline.api.operations import Intent, Operation, OperationState
from pipeline.base.errors import Refused
from pipeline.base.names import is_said
from pipeline.control.gate import level
from pipeline.control.operations import registry

Items = Callable[[Environment, Operation], None]
Act = Callable[[], None]
Undo = Callable[[Environment, str], Preview]
_OFFERED: Final = "offer_"
WIDE: Final = 560
"""Pixels of a drawer."""
_TALL: Final = 8  # lines of a preview; more scroll


def verb(intent: Intent) -> str:
    """Return what people call an intent: a move that empties groups is a drain, access is granted or revoked."""
    known = registry.find(intent.kind)
    return intent.kind if known is None else known.verb(intent)


def does(preview: Preview) -> str:
    """Say what an act does, as its drawer's title and its button: `Move 3 games`, `Replay 7,980 rows`."""
    intent, known = preview.intent, registry.find(preview.intent.kind)
    groups = sum(target.startswith("group:") for target in intent.targets)
    count, noun = (preview.games, "game" if known is None else known.counts) if preview.games else (groups, "group")
    if preview.label is not None or known is None or not (count or preview.amount):
        return preview.label or verb(intent).capitalize()
    amount = preview.amount or f"{formatting.count(count)} {noun}{'' if count == 1 else 's'}"
    return f"{verb(intent).capitalize()} {amount}"


def confirmation_phrase(intent: Intent, games: int) -> str | None:
    """Return what must be typed to confirm an intent that touches this many games, such as `RESTART 12`, or None."""
    return f"{verb(intent).upper()} {games}" if level(intent) == 3 else None


def validation_error(intent: Intent, games: int, reason: str, typed: str) -> str | None:
    """Say what an intent lacks to be submitted; None when nothing."""
    if level(intent) > 1 and not is_said(reason):
        return "Enter a reason. It is kept in the audit log."
    wanted = confirmation_phrase(intent, games)
    if wanted is not None and " ".join(typed.split()) != wanted:
        known = registry.find(intent.kind)
        what = "game" if known is None else known.counts
        return f"Type {wanted} to confirm: {games} {f'{what} is' if games == 1 else f'{what}s are'} touched."
    return None


@dataclass(frozen=True, slots=True)
class _Offer:
    """What stands at one place of a page: a preview, what became of it, or why there is none."""

    preview: Preview | None = None
    operation_id: str | None = None  # the operation's id
    done: str | None = None  # what was done, where that is no operation
    refused: str | None = None

    @property
    def title(self) -> str:
        """The drawer's title."""
        return "Not possible now" if self.preview is None else does(self.preview)

    @property
    def is_over(self) -> bool:
        """Whether it was submitted."""
        return self.operation_id is not None or self.done is not None


def stage_preview(place: str, make: Callable[[], Preview]) -> None:
    """Make a preview and keep it for `draw_confirmation` at this place; a button's callback.

    It replaces what was offered at any other place: there is one drawer.
    """
    for other in [str(name) for name in st.session_state if str(name).startswith(_OFFERED)]:
        del st.session_state[other]
    try:
        st.session_state[_slot(place)] = _Offer(preview=make())
    except Refused as refused:
        st.session_state[_slot(place)] = _Offer(refused=str(refused))


def offered() -> str | None:
    """Return the place at which something is offered; None: nothing is. There is one drawer."""
    places = (str(name).removeprefix(_OFFERED) for name in st.session_state if str(name).startswith(_OFFERED))
    return next(places, None)


def draw_within(
    environment: Environment, place: str, form: Act, close: Act, items: Items | None = None,
    undo: Undo = previews.preview_undo,
) -> None:  # fmt: skip
    """Draw, in a drawer that is open, the form of a plan, below it why there is no plan; or the plan in its place.

    `form` draws the fields, which have to outlast the plan (`persist_state`); `close` closes the drawer when all is
    over.
    """
    draw_scheme()
    kept: _Offer | None = st.session_state.get(_slot(place))
    if kept is None or kept.preview is None:
        form()
    if kept is not None:
        st.html(parts.section(kept.title))
        _draw_offer(environment, place, kept, items, undo, close)


def draw_confirmation(
    environment: Environment, place: str, items: Items | None = None, undo: Undo = previews.preview_undo
) -> None:
    """Draw what was offered at this place, in a drawer: why not, the preview to confirm, or what became of it.

    `items` draws the parts of such an operation, where it has any; `undo` plans its inverse.
    """
    kept: _Offer | None = st.session_state.get(_slot(place))
    if kept is None:
        return

    @st.dialog(kept.title, width=WIDE, position="right", on_dismiss=partial(drop, place))
    def drawer() -> None:
        identity.rerun_where_another_acts()
        now: _Offer | None = st.session_state.get(_slot(place))
        if now is None or now.title != kept.title:
            st.rerun()  # it was dropped, or another act follows: only a run of the whole page changes the drawer
        draw_scheme()
        _draw_offer(environment, place, now, items, undo)

    drawer()


def draw_scheme() -> None:
    """Draw the theme's colour scheme for what stands in a drawer, which is outside the page."""
    if st.context.theme.type is not None:
        st.html(style.scheme(tokens.mode_of(st.context.theme.type)))


def _draw_offer(
    environment: Environment, place: str, kept: _Offer, items: Items | None, undo: Undo = previews.preview_undo,
    close: Act | None = None,
) -> None:  # fmt: skip
    with st.container(key=f"confirm_{place}", gap="small"):
        if kept.preview is not None and not kept.is_over:
            _draw_preview(environment, place, kept.preview)
        if kept.refused is not None:
            draw_refused(kept.refused)
        if kept.operation_id is not None:
            _follow(place, partial(_draw_submitted, environment, place, kept, items, undo))
        if kept.done is not None:
            st.text(f"✓ {formatting.shown(kept.done)}")
            if kept.preview is not None and kept.preview.follows is not None:
                _follow(place, partial(_draw_next, environment, place, kept.preview.follows))
        if kept.preview is None or kept.is_over:
            st.button("Dismiss", key=f"drop_{place}", on_click=_dismiss, args=(place, close if kept.is_over else None))


def _dismiss(place: str, close: Act | None) -> None:
    drop(place)
    if close is not None:
        close()


def drop(place: str) -> None:
    """Forget what stands at this place."""
    st.session_state.pop(_slot(place), None)


def draw_refused(refused: str) -> None:
    """Draw why not: its first line, and below it what concerns single games."""
    first, *more = refused.splitlines() or [""]
    st.warning(formatting.escaped(first), icon=":material/block:")
    draw_lines(more)


def draw_lines(lines: Sequence[str]) -> None:
    """Draw lines that hold foreign names, as text; many of them scroll."""
    with st.container(height=260 if len(lines) > _TALL else "content", border=False, gap=None):
        for line in lines:
            st.text(formatting.shown(line, 400))


def operation_link(operation_id: str, label: str) -> None:
    """Draw a link to an operation's page; `label` is ours, or escaped."""
    st.page_link(
        "views/operations.py", label=label, icon=":material/assignment:", query_params={"operation": operation_id}
    )


def _draw_preview(environment: Environment, place: str, preview: Preview) -> None:
    intent = preview.intent
    what = f"What {verb(intent)} would do" if registry.find(intent.kind) is not None else "What would be written"
    st.caption(f"{what}, as seen at {formatting.clock(preview.seen_at)}. Nothing is done yet.")
    if preview.diff:
        st.html(parts.section("What changes"))
        with st.container(height=260 if len(preview.diff) > _TALL else "content", border=False):
            st.html(parts.diff([(sign, formatting.shown(line, 400)) for sign, line in preview.diff]))
    if preview.groups:
        st.html(parts.section("Load before and after", group_cards.ESTIMATED))
        st.html(group_cards.load_bars(preview.groups))
    if preview.diff and preview.lines:
        st.html(parts.section("What it touches"))
    draw_lines(preview.lines)
    for title, lines in preview.sections.items():
        _draw_section(title, lines)
    if preview.checks:
        st.html(parts.section("Checks"))
        checked = [("✓" if each.is_well else "△", formatting.shown(each.text, 300)) for each in preview.checks]
        st.html(parts.facts(checked))
    wanted, disabled_reason = confirmation_phrase(intent, preview.games), _disabled_reason(environment, preview)
    with st.form(f"form_{place}", enter_to_submit=False, border=False):
        if not intent.reason:  # else it was given with the intent
            optional = " (may be empty)" if level(intent) == 1 else ""
            st.text_input(f"Reason{optional}", key=_field("reason", intent), max_chars=500)
        if wanted is not None:
            st.text_input(f"Type {wanted} to confirm", key=_field("typed", intent), max_chars=40, autocomplete="off")
        with st.container(horizontal=True):
            st.form_submit_button(
                does(preview),
                key=f"ask_{place}",
                type="primary",
                on_click=_confirm,
                args=(environment, place, preview),
                disabled=disabled_reason is not None,
            )
            st.form_submit_button("Cancel", key=f"dropped_{place}", on_click=drop, args=(place,), type="tertiary")
    st.caption(formatting.escaped(disabled_reason or f"Submitted as {formatting.shown(services.actor(), 60)}."))


def _disabled_reason(environment: Environment, preview: Preview) -> str | None:
    """Return the role that the acting person lacks for a preview; None where they may."""
    return services.missing_role(environment, preview.act)


def _draw_section(title: str, lines: Sequence[str]) -> None:
    """Draw lines that may be many as one text, in which no name acts."""
    st.caption(title)
    with st.container(height=180 if len(lines) > _TALL else "content", border=False):
        st.code("\n".join(formatting.shown(line, 400) for line in lines), language=None, wrap_lines=True)


def _confirm(environment: Environment, place: str, preview: Preview) -> None:
    """Submit what was shown; a second click finds it submitted, or the same key and so the same operation."""
    if _is_over(place, preview):
        return
    reason = preview.intent.reason or str(st.session_state.get(_field("reason", preview.intent)) or "")
    typed = str(st.session_state.get(_field("typed", preview.intent)) or "")
    refused = validation_error(preview.intent, preview.games, reason, typed)
    if refused is None:
        try:
            intent = replace(preview.intent, reason=reason.strip())
            submitted = previews.submit(environment, replace(preview, intent=intent))
        except Refused as why:
            refused = str(why)
        else:
            if isinstance(submitted, str):
                over = _Offer(preview, done=submitted)
            else:
                over = _Offer(preview, operation_id=submitted.operation_id)
            st.session_state[_slot(place)] = over
            services.forget()
            return
        services.forget()  # another person may have been faster, which is to be seen
        if _is_over(place, preview):
            return  # by another click, meanwhile
    st.session_state[_slot(place)] = _Offer(preview, refused=refused)


def _is_over(place: str, preview: Preview) -> bool:
    kept: _Offer | None = st.session_state.get(_slot(place))
    return kept is not None and kept.preview is preview and kept.is_over


def _follow(place: str, draw: Callable[[], None]) -> None:
    """Draw what becomes of an act, again each second: the page itself is drawn more rarely, and may take longer."""
    kept = st.session_state.get(_slot(place))

    def draw_now() -> None:
        identity.rerun_where_another_acts()
        if st.session_state.get(_slot(place)) is not kept:
            st.rerun()  # another act is planned: only a run of the whole page changes the drawer
        draw()

    st.fragment(draw_now, run_every=progress.POLL_SECONDS)()


def _draw_submitted(environment: Environment, place: str, kept: _Offer, items: Items | None, undo: Undo) -> None:
    """Say that it was submitted, which is not that it was done, how it stands now, and what comes next."""
    operation_id = str(kept.operation_id)
    operation_link(operation_id, f"Submitted: operation {operation_id[:8]}")
    try:
        seen = control_queries.one_operation(environment, operation_id)
    except Refused as refused:
        st.warning(formatting.escaped(str(refused)), icon=":material/database_off:")
        return
    progress.draw(seen)
    draw_controller(seen.operation, seen.no_controller)
    if items is not None:
        items(environment, seen.operation)
    if not progress.is_over(seen.operation):
        return
    follows = None if kept.preview is None else kept.preview.follows
    if follows is not None and seen.operation.state == OperationState.SUCCEEDED:
        _draw_next(environment, place, follows)
    plan = partial(undo, environment, operation_id)
    progress.draw_undo(environment, seen, partial(stage_preview, place, plan))


def _draw_next(environment: Environment, place: str, follows: Follows) -> None:
    """Draw the act that is of use once this one is done."""
    plan = partial(previews.preview_repair, environment, follows.kind, list(follows.keys))
    progress.draw_next(environment, follows, partial(stage_preview, place, plan))


def draw_controller(operation: Operation, absence: str | None) -> None:
    """Say that no controller continues an open operation, where none does."""
    if operation.is_open and not operation.is_stuck and absence is not None:
        draw_absence(absence, "the operation waits for it")


def draw_absence(absence: str, what_waits: str) -> None:
    """Say that no controller acts, what waits for one, and how to start one."""
    st.warning(
        f"{absence[0].upper()}{absence[1:]}: {what_waits}. If none runs, start `turnout controller run`.",
        icon=":material/hourglass_disabled:",
    )


def _slot(place: str) -> str:
    return f"{_OFFERED}{place}"


def _field(name: str, intent: Intent) -> str:
    """Name a field of one preview, so that the next preview's is empty."""
    return f"{name}_{intent.idempotency_key}"
