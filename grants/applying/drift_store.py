"""Drift of this environment: finds it, recognises known findings, and keeps ignored ones."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Final

from sqlalchemy import Connection, Engine, delete, insert, select

from grants.applying import ledger, own_tables, proposals
from grants.catalog import Catalog
from grants.model import Observed
from grants.observing import snapshot
from grants.planning.drift import Drift, DriftFinding, drift
from pipeline.base.errors import Refused
from pipeline.base.names import is_said
from pipeline.control.acts import DirectAct
from pipeline.control.roles import CONTROLLER, require_current
from pipeline.settings.access import Access
from pipeline.settings.tree import Paths, Settings
from pipeline.store import audit
from pipeline.store.database.id_prefix import only_one
from pipeline.store.database.tables import ignored_drift
from pipeline.store.processes.leases import store_now, store_time

DEFAULT_DAYS: Final = 90  # for which a finding is ignored
MOST_DAYS: Final = 366
_DAY: Final = 86_400.0


def read_drift(engine: Engine, catalog: Catalog, access: Access, paths: Paths) -> Drift:
    """Read the whole catalog and return where it differs.

    Raises:
        CatalogUnavailable: it cannot be read.
    """
    places = own_tables.places(engine, paths)
    return in_snapshot(engine, snapshot.observe(catalog, proposals.schema_of(access), store_time(engine), places))


def in_snapshot(engine: Engine, observed: Observed) -> Drift:
    """Return where a snapshot differs from what turnout keeps."""
    return drift(observed, ledger.managed(engine), store_time(engine), ignored(engine))


def ignored(engine: Engine) -> dict[str, str]:
    """Return the findings that a person decided to leave for now, mark → reason, who and until when."""
    columns = (ignored_drift.c.mark, ignored_drift.c.reason, ignored_drift.c.actor, ignored_drift.c.expires_at)
    with engine.connect() as connection:
        rows = connection.execute(select(*columns).where(ignored_drift.c.expires_at > store_now())).all()
    return {row.mark: f"{row.reason} ({row.actor}, until {_day(row.expires_at)})" for row in rows}


def ignore(
    engine: Engine,
    settings: Settings,
    findings: Sequence[DriftFinding],
    actor: str,
    reason: str,
    until: float | None = None,
) -> None:
    """Ignore findings until then (Unix seconds), or else for DEFAULT_DAYS, and audit it; they stay listed.

    Each is open again at that end, when a person says so, or when it is found again after it was gone.

    Raises:
        Refused: the actor may not, no reason is given, or the end is past or too far.
    """
    _require(engine, settings, actor, reason, DirectAct.IGNORE_DRIFT)
    now = store_time(engine)
    expires_at = now + DEFAULT_DAYS * _DAY if until is None else until
    if not 0 < expires_at - now <= (MOST_DAYS + 1) * _DAY:
        raise Refused(f"Choose an end within {MOST_DAYS} days: an ignored finding is looked at again then.")
    detail = {"reason": reason, "until": _day(expires_at)}
    with engine.begin() as connection, _audited(connection, actor, DirectAct.IGNORE_DRIFT, findings, detail):
        for each in findings:
            connection.execute(delete(ignored_drift).where(ignored_drift.c.finding == id_of(each)))
            row = {"finding": id_of(each), "mark": each.mark, "reason": reason, "actor": actor}
            values = {**row, "ignored_at": store_now(), "expires_at": expires_at}
            connection.execute(insert(ignored_drift).values(values))


def unignore(engine: Engine, settings: Settings, findings: Sequence[DriftFinding], actor: str, reason: str) -> None:
    """Have ignored findings open again, and audit it.

    Raises:
        Refused: the actor may not, no reason is given, or one of them is not ignored.
    """
    _require(engine, settings, actor, reason, DirectAct.UNIGNORE_DRIFT)
    for each in findings:
        if each.ignored is None:
            raise Refused(f"{id_of(each)[:8]} is not ignored: {each.sentence}")
    detail = {"reason": reason}
    with engine.begin() as connection, _audited(connection, actor, DirectAct.UNIGNORE_DRIFT, findings, detail):
        wanted = ignored_drift.c.finding.in_([id_of(each) for each in findings])
        connection.execute(delete(ignored_drift).where(wanted))


def end_ignored(engine: Engine, observed: Observed, found: Drift) -> None:
    """Forget, with an entry in the audit log, what was ignored and is over or gone; `found` is of `observed`.

    Where a part was not read, nothing counts as gone.
    """
    marks = {each.mark for each in found.findings}
    with engine.begin() as connection:
        audit.lock_log(connection)
        for row in connection.execute(select(ignored_drift)).all():
            is_over = row.expires_at <= observed.read_at
            is_gone = not found.unread and row.ignored_at < observed.read_at and row.mark not in marks
            if is_over or is_gone:
                why = "Its end has come." if is_over else "The finding is gone."
                detail = {"findings": [row.mark], "reason": why}
                act = audit.Act(CONTROLLER, DirectAct.UNIGNORE_DRIFT, (), None, detail)
                audit.begin(connection, act)
                connection.execute(delete(ignored_drift).where(ignored_drift.c.finding == row.finding))
                audit.end(connection, act, "succeeded")


def _require(engine: Engine, settings: Settings, actor: str, reason: str, act: DirectAct) -> None:
    require_current(settings, engine, actor, act.role, act)
    if not is_said(reason):
        raise Refused("Enter a reason. It is shown with the finding and kept in the audit log.")


@contextmanager
def _audited(
    connection: Connection, actor: str, kind: DirectAct, findings: Sequence[DriftFinding], detail: Mapping[str, str]
) -> Iterator[None]:
    targets = tuple(proposals.target(each.principal or "deleted") for each in findings)
    act = audit.Act(actor, kind, targets, None, {"findings": [each.mark for each in findings], **detail})
    audit.lock_log(connection)
    audit.begin(connection, act)
    yield
    audit.end(connection, act, "succeeded")


def _day(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).date().isoformat()


def id_of(finding: DriftFinding) -> str:
    """Return a short name by which a finding is recognised when it is found again."""
    return hashlib.sha256(finding.mark.encode()).hexdigest()


def find(observed: Drift, name: str) -> DriftFinding:
    """Return the finding whose id begins so.

    Raises:
        Refused: there is none, or there are several.
    """
    same = [each for each in observed.findings if name and id_of(each).startswith(name)]
    return only_one(same, name, "finding", "`turnout grants drift` lists them.")
