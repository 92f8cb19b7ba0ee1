"""The audit log: acts by day, person, action and target; and whether the log is intact."""

from datetime import UTC, datetime, timedelta
from functools import partial

import pandas as pd
import streamlit as st

from app import formatting
from app.components import header, links
from app.components.audit_csv import as_csv
from app.look import parts
from app.state import control_queries
from app.state.control_queries import AuditFilter, Log
from app.state.services import Environment
from pipeline.api.audit import Entry, changes_of
from pipeline.base.errors import Refused
from pipeline.base.texts import first_lines

_WEEK = timedelta(days=6)
_ON_SCREEN = 1_000
_VERIFIED = "audit_verified"
_DEFECTS = 10  # shown at once
_COLUMNS = {
    "at": st.column_config.TextColumn("At", width=170),
    "place": st.column_config.TextColumn("Entry", width=120),
    "actor": st.column_config.TextColumn("Who", width=110),
    "action": st.column_config.TextColumn("Action", width=90),
    "phase": st.column_config.TextColumn("Phase", width=175),
    "targets": st.column_config.TextColumn("To", width=300),
    "page": links.operation_column("Operation", "audit", 100),
    "reason": st.column_config.TextColumn("Why", width=220),
    "executor": st.column_config.TextColumn("Executed by", width=200),
}


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
        return "Audit log: no entry matches"
    acts = "1 entry" if log.matched == 1 else f"{formatting.count(log.matched)} entries"
    actors = len({entry.actor for entry in log.entries})
    least = "" if len(log.entries) == log.matched else "at least "
    return f"Audit log: {acts} by {least}{actors} {'actor' if actors == 1 else 'actors'}"


def _about(log: Log) -> str:
    newest = log.entries[0].at if log.entries else None
    ago = "" if newest is None or newest > log.read_at else f"newest {formatting.age(log.read_at - newest)} ago · "
    return f"{ago}each act: by whom, on what, and why"


def _draw_head(log: Log | None) -> None:
    """Draw how many entries the table has, and at the right what can be done; a log that cannot be read is verified."""
    with st.container(horizontal=True, vertical_alignment="center", key="row_audit", gap="small"):
        st.html(parts.section("Entries", _scope(log)), width="stretch")
        verified = bool(st.session_state.get(_VERIFIED))
        st.button(
            "Verify again" if verified else "Verify the log",
            key="verify_again" if verified else "verify",
            on_click=_verify,
            help="Reads the whole log and checks every hash.",
        )
        if log is not None and log.entries:
            st.download_button(
                "Download as CSV", partial(as_csv, log), "audit.csv", "text/csv", key="csv", icon=":material/download:"
            )


def _scope(log: Log | None) -> str:
    if log is None or not log.entries:
        return "not known" if log is None else "none"
    shown, kept = min(len(log.entries), _ON_SCREEN), len(log.entries)
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
    if not log.entries:
        st.info("No entry matches. Choose other days, or clear the filters.", icon=":material/filter_alt_off:")
        return
    shown = log.entries[:_ON_SCREEN]
    st.dataframe(
        pd.DataFrame(_row(entry, log) for entry in shown),
        hide_index=True,
        row_height=36,
        height=min(36 * (len(shown) + 1) + 2, 620),
        column_config=_COLUMNS,
        alt="Entries of the audit log, newest first.",
        key="audit_table",
    )
    operation_ids = dict.fromkeys(links.short(each.operation_id) for each in shown if each.operation_id)
    links.offer_operations("audit", {name: name for name in operation_ids})


def _row(entry: Entry, log: Log) -> dict[str, str | None]:
    reason = str(entry.detail.get("reason") or "")
    return {
        "at": formatting.moment(entry.at),
        "place": entry.place,
        "actor": formatting.shown(entry.actor, 60),
        "action": formatting.shown(entry.action, 40),
        "phase": f"{entry.phase}: {formatting.operation_text(entry.outcome)}" if entry.outcome else entry.phase,
        "targets": formatting.access_text(changes_of(entry.detail), log.names)
        or formatting.targets_text(entry.targets, log.names),
        "page": links.short(entry.operation_id) if entry.operation_id else None,
        "reason": formatting.shown(reason, 160) if reason else formatting.UNKNOWN_VALUE,
        "executor": formatting.shown(entry.executor, 80),
    }


header.keep_drawing(_live)
