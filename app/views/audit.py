"""The audit log: acts by day, person, action and target; and whether the log is intact."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import partial

import streamlit as st

from app import formatting
from app.components import header, links, long_table, pills
from app.components.audit_csv import as_csv
from app.look import parts
from app.state import control_queries
from app.state.control_queries import AuditFilter, Log
from app.state.services import Environment
from pipeline.api.audit import AuditedAct, Entry, changes_of
from pipeline.api.operations import Intent, OperationWords, words_of
from pipeline.base.errors import Refused
from pipeline.base.texts import first_lines, in_utc

_WEEK = timedelta(days=6)
_ON_SCREEN = 1_000
_VERIFIED = "audit_verified"
_DEFECTS = 10  # shown at once
_OUTCOMES = {formatting.operation_text(state): tone for state, tone in formatting.OPERATION_TONES.items()}
_OPEN = "… not ended"
_COLUMNS = {
    "begun": st.column_config.TextColumn("Begun, UTC", width=138),
    "ended": st.column_config.TextColumn("Ended, UTC", width=138),
    "actor": st.column_config.TextColumn("By", width=95),
    "action": st.column_config.TextColumn("Action", width=90),
    "targets": st.column_config.TextColumn("Of", width=165),
    "page": links.operation_column("Operation", "audit", 80),
    "undo": st.column_config.TextColumn("Undo", width=115),
    "reason": st.column_config.TextColumn("Why", width=145),
    "place": st.column_config.TextColumn("Entries", width=120, help="Their executors are in the file."),
}
_ORDER = ("begun", "ended", "outcome", "actor", "action", "targets", "page", "undo", "reason", "place")
_LONG = {"actor": 95, "action": 90, "targets": 165, "undo": 115, "reason": 145, "place": 120}  # may need several lines


def _live(environment: Environment) -> None:
    lines = header.lines(environment, ranged=False)
    filters = _draw_filters()
    log = header.show(environment, lines, partial(control_queries.audit_log, filters=filters), "audit", repr(filters))
    if log is not None:
        header.headline(_sentence(log), tone="plain", meta=_about(log))
    _draw_head(log)
    _draw_verdict(environment)
    if log is not None:
        _draw_log(log)


def _sentence(log: Log) -> str:
    """Say how much was done, and by how many, in the days that are chosen."""
    if not log.matched:
        return "Audit log: no act matches"
    acts = "1 act" if log.matched == 1 else f"{formatting.count(log.matched)} acts"
    actors = len({act.entry.actor for act in log.acts})
    least = "" if len(log.acts) == log.matched else "at least "
    return f"Audit log: {acts} by {least}{actors} {'actor' if actors == 1 else 'actors'}"


def _about(log: Log) -> str:
    newest = max((entry.at for act in log.acts for entry in act.entries), default=None)
    ago = "" if newest is None or newest > log.read_at else f"newest {formatting.age(log.read_at - newest)} ago · "
    return f"{ago}each act: from when to when, by whom, on what, and why"


def _draw_head(log: Log | None) -> None:
    """Draw how many acts the table has, and at the right what can be done; a log that cannot be read is verified."""
    with st.container(horizontal=True, vertical_alignment="center", key="row_audit", gap="small"):
        st.html(parts.section("Acts", _scope(log)), width="stretch")
        verified = bool(st.session_state.get(_VERIFIED))
        st.button(
            "Verify again" if verified else "Verify the log",
            key="verify_again" if verified else "verify",
            on_click=_verify,
            help="Reads the whole log and checks every hash.",
        )
        if log is not None and log.acts:
            st.download_button(
                "Download as CSV", partial(as_csv, log), "audit.csv", "text/csv", key="csv", icon=":material/download:"
            )


def _scope(log: Log | None) -> str:
    if log is None or not log.acts:
        return "not known" if log is None else "none"
    shown, kept = min(len(log.acts), _ON_SCREEN), len(log.acts)
    file = "" if kept == log.matched else f"; the file holds the newest {formatting.count(kept)}"
    return f"{formatting.count(shown)} of {formatting.count(log.matched)}, newest first, UTC{file}"


def _draw_verdict(environment: Environment) -> None:
    """Draw whether the log is intact; it is read whole, so only on request."""
    if not st.session_state.get(_VERIFIED):
        return
    try:
        verdict, at = control_queries.verify_audit(environment)
    except Refused as refused:
        st.error(formatting.escaped(str(refused)), icon=":material/database_off:")
        return
    with st.container(border=True, gap=None, key="verdict_intact" if verdict.intact else "verdict_broken"):
        how = "✓ Intact" if verdict.intact else "✗ NOT intact"
        st.text(f"{how}: {formatting.count(verdict.entries)} entries, checked at {formatting.clock(at)}")
        st.text(f"newest hash {verdict.head or formatting.UNKNOWN_VALUE}")
        for defect in first_lines(verdict.defects, _DEFECTS):
            st.text(f"✗ {formatting.shown(defect)}")
        if len(verdict.defects) > _DEFECTS:
            st.caption("`turnout audit verify` lists all.")
        if verdict.unended:
            st.text(f"{len(verdict.unended)} have not ended, open operations included")
        st.caption("Keep this hash elsewhere: a writer of the whole table can make a new valid chain.")


def _verify() -> None:
    st.session_state[_VERIFIED] = True
    control_queries.forget_verdict()


def _draw_filters() -> AuditFilter:
    """Draw the filters, which live in the URL."""
    today = datetime.now(UTC).date()
    with st.container(horizontal=True, vertical_alignment="bottom", key="filters"):
        since = st.date_input("From", today - _WEEK, key="since", bind="query-params", format="YYYY-MM-DD", width=150)
        until = st.date_input("To", today, key="until", bind="query-params", format="YYYY-MM-DD", width=150)
        texts = [
            st.text_input(label, key=key, bind="query-params", type="search", placeholder="all") or ""
            for label, key in (("Who", "who"), ("Action", "did"), ("Game or group", "what"))
        ]
    return AuditFilter(since.isoformat(), until.isoformat(), *texts)


def _draw_log(log: Log) -> None:
    if not log.acts:
        st.info("No act matches. Choose other days, or clear the filters.", icon=":material/filter_alt_off:")
        return
    shown = log.acts[:_ON_SCREEN]
    rows = [_row(act, log) for act in shown]
    long_table.draw(
        rows,
        _LONG,
        620,
        column_order=_ORDER,
        column_config={"outcome": pills.column("Outcome", {_OPEN: "busy", **_OUTCOMES}, 120), **_COLUMNS},
        alt="Acts of the audit log, those that began last first.",
        key="audit_table",
    )
    operation_ids = dict.fromkeys(links.short(each.entry.operation_id) for each in shown if each.entry.operation_id)
    links.offer_operations("audit", {name: name for name in operation_ids})


def _row(act: AuditedAct, log: Log) -> dict[str, str | list[str] | None]:
    entry, ended = act.entry, act.ended
    reason, said = str(entry.detail.get("reason") or ""), _words(entry)
    return {
        "begun": formatting.UNKNOWN_VALUE if act.begun is None else in_utc(act.begun.at),
        "ended": formatting.UNKNOWN_VALUE if ended is None else in_utc(ended.at),
        "outcome": [_OPEN if ended is None or ended.outcome is None else formatting.operation_text(ended.outcome)],
        "place": _place(act),
        "actor": formatting.shown(entry.actor, 60),
        "action": formatting.shown(said.verb, 40),
        "targets": formatting.access_text(changes_of(entry.detail), log.names)
        or formatting.targets_text(said.about, log.names),
        "page": links.short(entry.operation_id) if entry.operation_id else None,
        "undo": _undo(act, log.read_at),
        "reason": formatting.shown(reason, 160) if reason else formatting.UNKNOWN_VALUE,
    }


def _words(entry: Entry) -> OperationWords:
    """Return what people call an act: an operation by its definition, which may call a move a drain."""
    parameters = entry.detail.get("parameters")
    kept = parameters if isinstance(parameters, Mapping) else {}
    return words_of(Intent(entry.action, entry.targets, entry.actor, parameters=kept))


def _place(act: AuditedAct) -> str:
    """Return day and numbers of its entries; the number alone where both are of one day."""
    if act.begun is None or act.ended is None:
        return act.entry.place
    begun, ended = act.begun, act.ended
    return f"{begun.place}, {f'#{ended.number}' if ended.day == begun.day else ended.place}"


def _undo(act: AuditedAct, now: float) -> str:
    """Say what undid an act, what it undid, or for how long it may still be undone on its operation's page."""
    undoes = act.entry.detail.get("undoes")
    said = [f"undoes {links.short(undoes)}"] if isinstance(undoes, str) and undoes else []
    if act.undone_by is not None:
        said.append(f"undone by {links.short(act.undone_by)}")
    elif act.undoable_until is not None and act.undoable_until > now:
        said.append(f"possible for {formatting.age(act.undoable_until - now)}")
    return formatting.shown("; ".join(said)) if said else formatting.UNKNOWN_VALUE


header.keep_drawing(_live)
