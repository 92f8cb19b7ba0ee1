"""The audit log as a file for spreadsheets. Pure."""

import csv
import io
import json
from typing import Final

from app import formatting
from app.state.control_queries import Log
from pipeline.api.audit import changes_of

_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")  # what a spreadsheet would take for the beginning of a formula


def as_csv(log: Log) -> str:
    """Return the entries as CSV, none of whose cells a spreadsheet would take for a formula."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(_FIELDS)
    for entry in log.entries:
        detail = json.dumps(dict(entry.detail), sort_keys=True, ensure_ascii=False)
        number = str(entry.number)
        values = (entry.day, number, formatting.moment(entry.at), entry.actor, entry.executor, entry.action)
        access = "; ".join(change.sentence(log.names) for change in changes_of(entry.detail))
        about = (" ".join(entry.targets), access, entry.operation_id or "")
        more = (*about, entry.phase, entry.outcome or "", detail, entry.hash)
        writer.writerow([f"'{value}" if value.startswith(_FORMULA) else value for value in (*values, *more)])
    return text.getvalue()


_FIELDS: Final = (
    *("day", "number", "at", "actor", "executor", "action"),
    *("targets", "access", "operation_id", "phase", "outcome", "detail", "hash"),
)
