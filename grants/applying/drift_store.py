"""Drift of this environment: finds it, recognises known findings, and keeps ignored ones."""

import hashlib
from collections.abc import Sequence

from sqlalchemy import Engine, delete, insert, select

from grants.applying import ledger, proposals
from grants.catalog import Catalog
from grants.model import Observed
from grants.observing import snapshot
from grants.planning.drift import Drift, Finding, drift
from pipeline.access_settings import Access
from pipeline.control.acts import DirectAct
from pipeline.control.roles import require_current
from pipeline.errors import Refused
from pipeline.names import is_said
from pipeline.settings import Settings
from pipeline.store import audit
from pipeline.store.database.id_prefix import only_one
from pipeline.store.database.tables import ignored_drift
from pipeline.store.processes.leases import store_now, store_time


def read_drift(engine: Engine, catalog: Catalog, access: Access) -> Drift:
    """Read the whole catalog and return where it differs.

    Raises:
        CatalogUnavailable: it cannot be read.
    """
    return in_snapshot(engine, snapshot.observe(catalog, proposals.schema_of(access), store_time(engine)))


def in_snapshot(engine: Engine, observed: Observed) -> Drift:
    """Return where a snapshot differs from what turnout keeps."""
    return drift(observed, ledger.managed(engine), store_time(engine), ignored(engine))


def ignored(engine: Engine) -> dict[str, str]:
    """Return the findings that a person decided to leave, mark → reason."""
    with engine.connect() as connection:
        rows = connection.execute(select(ignored_drift.c.mark, ignored_drift.c.reason, ignored_drift.c.actor)).all()
    return {row.mark: f"{row.reason} ({row.actor})" for row in rows}


def ignore(engine: Engine, settings: Settings, findings: Sequence[Finding], actor: str, reason: str) -> None:
    """Ignore findings from now on and audit it; they stay counted.

    Raises:
        Refused: the actor may not, or no reason is given.
    """
    require_current(settings, engine, actor, DirectAct.IGNORE_DRIFT.role, DirectAct.IGNORE_DRIFT)
    if not is_said(reason):
        raise Refused("Enter a reason for ignoring this finding. It is shown with the finding.")
    targets = tuple(proposals.target(each.principal or "deleted") for each in findings)
    marks = [each.mark for each in findings]
    act = audit.Act(actor, DirectAct.IGNORE_DRIFT, targets, None, {"findings": marks, "reason": reason})
    with engine.begin() as connection:
        audit.lock_log(connection)
        audit.begin(connection, act)
        for each in findings:
            connection.execute(delete(ignored_drift).where(ignored_drift.c.finding == id_of(each)))
            row = {"finding": id_of(each), "mark": each.mark, "reason": reason, "actor": actor}
            connection.execute(insert(ignored_drift).values(**row, ignored_at=store_now()))
        audit.end(connection, act, "succeeded")


def id_of(finding: Finding) -> str:
    """Return a short name by which a finding is recognised when it is found again."""
    return hashlib.sha256(finding.mark.encode()).hexdigest()


def find(observed: Drift, name: str) -> Finding:
    """Return the finding whose id begins so.

    Raises:
        Refused: there is none, or there are several.
    """
    same = [each for each in observed.findings if name and id_of(each).startswith(name)]
    return only_one(same, name, "finding", "`turnout grants drift` lists them.")
