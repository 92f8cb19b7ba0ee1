"""Drift of the catalog from turnout's grants, the acts on it, and grants that end soon."""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import pandas as pd
import streamlit as st

from app import formatting
from app.access import operation_items, previews, queries
from app.access.queries import AccessState, ResolvedCatalog
from app.components import confirm, links
from app.look import parts
from app.state import services
from app.state.previews import Preview
from app.state.services import Environment
from grants.api.access import DEFAULT_DAYS, MOST_DAYS, Held, id_of
from grants.observing.verdict import place
from grants.planning.drift import CLASSES, Drift, DriftFinding
from grants.planning.drift import Act as Deed
from pipeline.api.operations import OperationKind
from pipeline.base.errors import Refused
from pipeline.base.texts import join_limited

_PLACE: Final = "access_drift"
_CLASS, _CHOSEN, _ACT, _REASON = "drift_class", "drift_chosen", "drift_act", "drift_reason"
_DAYS: Final = "drift_days"
_MAX_SHOWN: Final = 200
_ACTS: Final[dict[Deed, str]] = {
    "adopt": "Adopt: keep it",
    "revert": "Revert: restore it",
    "ignore": "Ignore it",
    "unignore": "Stop ignoring it",
}
_FOUND: Final = {
    "kind": st.column_config.TextColumn("Class", width=90),
    "who": st.column_config.TextColumn("Who", width=190),
    "where": st.column_config.TextColumn("Where", width=270),
    "sentence": st.column_config.TextColumn("Finding", width=480),
    "acts": st.column_config.TextColumn("Possible", width=150),
    "ignored": st.column_config.TextColumn("Ignored because", width=200),
}
_ENDING: Final = {
    "in": st.column_config.TextColumn("Ends in", width=110),
    "until": st.column_config.TextColumn("At", width=170),
    "who": st.column_config.TextColumn("Who", width=230),
    "game": st.column_config.TextColumn("Game", width=280),
    "why": st.column_config.TextColumn("Why", width=240),
    "ticket": st.column_config.TextColumn("Ticket", width=110),
    "page": links.operation_column("Given by", "ending", 100),
}


def draw(environment: Environment, known: ResolvedCatalog) -> None:
    """Draw the findings by class, worst first, and the form to act on them."""
    try:
        observed = queries.drift(environment, known)
    except Refused as refused:
        st.warning(formatting.escaped(str(refused)), icon=":material/database_off:")
        return
    if observed.unread:
        some = join_limited(observed.unread, 4, lambda each: each.full_name)
        st.warning(formatting.escaped(f"Not read, so drift is unknown: {some}."))
    if not observed.findings:
        st.info("The catalog matches turnout's grants." if not observed.unread else "No difference in what was read.")
        return
    _draw_counts(observed)
    listed = _chosen_class(observed)
    st.dataframe(
        pd.DataFrame(_row(each) for each in listed[:_MAX_SHOWN]),
        hide_index=True,
        height=min(36 * (min(len(listed), _MAX_SHOWN) + 1), 400),
        column_config=_FOUND,
        alt="Where the catalog differs from what turnout keeps, by class.",
        key="drift_table",
    )
    if len(listed) > _MAX_SHOWN:
        st.caption(f"{_MAX_SHOWN} of {formatting.count(len(listed))} shown; `turnout grants drift` lists all.")
    _draw_acts(environment, listed[:_MAX_SHOWN])


def findings(environment: Environment, known: ResolvedCatalog) -> Drift | None:
    """Return the drift of the snapshot on screen; None where it cannot be read, which the view Drift explains."""
    try:
        return queries.drift(environment, known)
    except Refused:
        return None


def draw_first(observed: Drift | None, known: ResolvedCatalog, review: Callable[[], None]) -> None:
    """Draw in one line how many grants are not as decided, above all else; `review` opens the view of them."""
    if observed is None:
        return
    counts = Counter(each.kind for each in observed.open if each.needs_act)
    number = sum(counts.values())
    if not number:
        return
    with st.container(horizontal=True, border=True, vertical_alignment="center", key="inc_late_drift"):
        title = "1 grant is not as decided" if number == 1 else f"{number} grants are not as decided"
        about = ", ".join(f"{count} {kind}" for kind in CLASSES if (count := counts[kind]))
        seen = f"seen {formatting.clock(known.observed.read_at)}"
        st.html(parts.incident("△", title, about, seen, "late"), width="stretch")
        with st.container(width=232):
            st.button("Review drift", key="review_drift", on_click=review)


def _chosen_class(observed: Drift) -> tuple[DriftFinding, ...]:
    """Draw the choice of a class, and return its findings, ignored ones last."""
    kinds = [kind for kind in CLASSES if observed.counts[kind]]
    chosen = st.segmented_control("Class", kinds, key=_CLASS, label_visibility="collapsed") if len(kinds) > 1 else None
    some = [each for each in observed.findings if chosen in {None, each.kind}]
    return tuple(sorted(some, key=lambda each: each.ignored is not None))


def _draw_counts(observed: Drift) -> None:
    with st.container(gap=None):
        for kind, meaning in CLASSES.items():
            if observed.counts[kind]:
                ignored = observed.ignored_counts[kind]
                left = f", {ignored} of them ignored" if ignored else ""
                st.text(f"{observed.counts[kind]} {kind}: {meaning}{left}")


def _row(each: DriftFinding) -> dict[str, str]:
    return {
        "kind": each.kind,
        "who": _who(each),
        "where": formatting.shown(place(each.securable), 160),
        "sentence": formatting.shown(each.sentence, 1_000),
        "acts": ", ".join(each.acts),
        "ignored": formatting.shown(each.ignored, 200) if each.ignored is not None else formatting.UNKNOWN_VALUE,
    }


def _draw_acts(environment: Environment, findings: Sequence[DriftFinding]) -> None:
    """Draw the acts on findings; a finding is chosen by its text, never by its place in the table."""
    by_id = {id_of(each): each for each in findings}
    disabled_reason = services.missing_role(environment, OperationKind.ACCESS)
    with st.container(border=True, key="plan_drift", gap="small"):
        act = st.segmented_control(
            "What", list(_ACTS), key=_ACT, format_func=_ACTS.__getitem__, label_visibility="collapsed"
        )
        ids = [name for name, each in by_id.items() if act is None or act in each.acts]
        with st.form("drift_terms", enter_to_submit=False, border=False):
            st.multiselect(
                "Findings", ids, key=_CHOSEN, format_func=lambda name: _label(by_id[name]) if name in by_id else "",
                placeholder="choose an act, then findings",
            )  # fmt: skip
            if act == "ignore":
                st.number_input("Days until it is open again", 1, MOST_DAYS, DEFAULT_DAYS, key=_DAYS)
            st.text_input("Reason", key=_REASON, max_chars=500)
            st.form_submit_button(
                "Preview the change", on_click=_offer, args=(environment,), disabled=disabled_reason is not None,
                key="preview_drift",
            )  # fmt: skip
        if disabled_reason is not None:
            st.caption(formatting.escaped(disabled_reason))
        confirm.draw_confirmation(environment, _PLACE, operation_items.draw, previews.preview_undo)


def _who(each: DriftFinding) -> str:
    if each.kind == "other_table":
        return formatting.UNKNOWN_VALUE
    return formatting.principal_text(each.principal) if each.principal else "(deleted)"


def _label(each: DriftFinding) -> str:
    who = _who(each)
    return f"{each.kind}: {who} · {'+'.join(each.privileges)} · {each.securable.path[-1]}"


def _offer(environment: Environment) -> None:
    confirm.stage_preview(_PLACE, partial(_planned, environment))


def _planned(environment: Environment) -> Preview:
    """Plan the chosen act from the newest snapshot.

    Raises:
        Refused: the choice is incomplete or impossible.
    """
    known, act = queries.read_access(environment).known, st.session_state.get(_ACT)
    disabled_reason = services.missing_role(environment, OperationKind.ACCESS)
    if disabled_reason is not None:
        raise Refused(disabled_reason)
    if known is None or act not in _ACTS:
        raise Refused("Choose what to do about the findings.")
    by_id = {id_of(each): each for each in queries.drift(environment, known).findings}
    chosen = [str(each) for each in st.session_state.get(_CHOSEN) or []]
    if any(each not in by_id for each in chosen):
        raise Refused("A chosen finding no longer exists. Review the list again.")
    reason = str(st.session_state.get(_REASON) or "").strip()
    days = int(st.session_state.get(_DAYS) or DEFAULT_DAYS)
    return previews.preview_findings(environment, [by_id[each] for each in chosen], act, reason, days)


def draw_ending(access: AccessState) -> None:
    """Draw what ends by itself within two weeks, the soonest first."""
    if not access.ending:
        st.info("No grant ends within 14 days.")
        return
    st.dataframe(
        pd.DataFrame(_ends(each, access) for each in access.ending),
        hide_index=True,
        height=min(36 * (len(access.ending) + 1), 400),
        column_config=_ENDING,
        alt="Access that ends within 14 days, the soonest first.",
        key="ending_table",
    )
    given = {links.short(each.operation_id): access.game(each.game_key) for each in access.ending}
    links.offer_operations("ending", {name: f"{name} · {game}" for name, game in given.items()})
    st.caption(
        "The controller revokes expired grants. To extend one, grant it again with a later end. All times are UTC."
    )


def _ends(each: Held, access: AccessState) -> dict[str, str]:
    left = (each.until or 0.0) - access.read_at
    return {
        "in": formatting.age(left) if left > 0 else "▲ due now",
        "until": formatting.moment(each.until),
        "who": formatting.principal_text(each.principal),
        "game": access.game(each.game_key),
        "why": formatting.shown(each.reason, 160) if each.reason else formatting.UNKNOWN_VALUE,
        "ticket": formatting.shown(each.ticket, 60) if each.ticket else formatting.UNKNOWN_VALUE,
        "page": links.short(each.operation_id),
    }
