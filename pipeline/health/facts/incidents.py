"""Reads and keeps incidents: makes them of the control store's rows, and rows of them."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, Final

from sqlalchemy import Engine

from pipeline.health.incidents.causes import Acting, Action, Finding
from pipeline.health.incidents.evidence import OpenOperation
from pipeline.health.incidents.incidents import REOPEN_SECONDS, Incident, order
from pipeline.health.incidents.offers import acted_on, acting_on
from pipeline.store import incidents as store
from pipeline.store.database.states import Cause
from pipeline.store.incidents import KeptIncident
from pipeline.store.operations import ended_of

_FINDING: Final = ("title", "evidence", "excludes", "action", "runbook", "pattern", "is_fact", "advice", "past")


def read_incidents(engine: Engine, since: float | None = None) -> tuple[Incident, ...]:
    """Return the open incidents, worst first, then those that ended after `since`, by default within a day.

    Of an operation that was at a mend when they were judged, and has ended since, they say that.

    Raises:
        Refused: the control store cannot be read.
    """
    return order(_ended_since(engine, [_incident(row) for row in store.read_kept(engine, since)]))


def _ended_since(engine: Engine, found: Sequence[Incident]) -> list[Incident]:
    """Return incidents as of now: a look is some seconds old, in which "is under way" may have become untrue."""
    begun = {each.finding.acting.since for each in found if each.phase == "acting" and each.finding.acting is not None}
    over: dict[Acting | None, Acting] = {}
    for one in ended_of(engine, begun) if begun else ():
        if one.ended_at is not None:
            known = OpenOperation(one.operation_id, one.kind, one.actor, one.requested_at)
            over[acting_on(known)] = acted_on(known, one.state, one.ended_at)
    said = [(each, each.finding.acting) for each in found]
    return [
        replace(each, finding=replace(each.finding, acting=over[acting])) if acting in over else each
        for each, acting in said
    ]


def keep_look(
    engine: Engine, kept_by: str, now: float, judge: Callable[[Sequence[Incident]], tuple[Incident, ...]]
) -> tuple[Incident, ...]:
    """Replace the open incidents by what `judge` makes of them and of those that ended just now; return these.

    Processes that keep them at one moment wait for each other, so the second sees what the first has written.
    """
    after: list[Incident] = []

    def judge_rows(rows: Sequence[KeptIncident]) -> list[KeptIncident]:
        before = {row.incident_id: (_incident(row), row) for row in rows}

        def kept(incident: Incident) -> KeptIncident:
            was, row = before.get(incident.incident_id, (None, None))
            return row if row is not None and was == incident else _row(incident)

        after.extend(judge([each for each, _ in before.values()]))
        return [kept(each) for each in after]

    store.keep(engine, kept_by, now, now - REOPEN_SECONDS, judge_rows)
    return tuple(after)


def _incident(row: KeptIncident) -> Incident:
    finding = json.loads(row.finding)
    action, acting = finding["action"], finding.get("acting")
    return Incident(
        incident_id=row.incident_id,
        finding=Finding(
            Cause(row.cause), finding["title"], tuple(finding["evidence"]), tuple(finding["excludes"]),
            None if action is None else _action(action), finding["runbook"], finding["pattern"], row.scope,
            finding["is_fact"], advice=finding["advice"], acting=None if acting is None else Acting(**acting),
            past=finding.get("past"),
        ),
        games=tuple(json.loads(row.games)), group=row.group_name, since=row.since, ended_at=row.ended_at,
        outlook=row.outlook, tone=row.tone, joined_at=row.joined_at,
        left=tuple(finding.get("left", ())),
    )  # fmt: skip


def _action(tree: Mapping[str, Any]) -> Action:
    query = {name: value if isinstance(value, str) else tuple(value) for name, value in tree["query"].items()}
    return Action(tree["label"], tree["page"], query)


def _row(incident: Incident) -> KeptIncident:
    finding = incident.finding
    said = {name: getattr(finding, name) for name in _FINDING}
    said |= {
        name: None if value is None else asdict(value)
        for name, value in (("action", finding.action), ("acting", finding.acting))
    }
    if incident.left:
        said["left"] = incident.left
    return KeptIncident(
        incident_id=incident.incident_id, cause=finding.cause, scope=finding.scope,
        finding=json.dumps(said), games=json.dumps(incident.games), group_name=incident.group,
        since=incident.since, joined_at=incident.joined_at, ended_at=incident.ended_at,
        outlook=incident.outlook, tone=incident.tone,
    )  # fmt: skip
