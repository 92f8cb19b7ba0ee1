"""Executes changes of access: plans again, applies them one by one, observes them in the catalog and probes them.

The work is done in threads of the controller, since a catalog may be slow. Each step may be begun again after a kill:
what was applied is marked, and applying it twice is applying it once.
"""

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any, Final

from grants.applying import ledger, proposals
from grants.applying.approvals import require_approved
from grants.applying.operation import ACCESS
from grants.catalog import Catalog, CatalogUnavailable, Probe
from grants.model import Securable, folded
from pipeline.control.operations.background_tasks import BackgroundTasks
from pipeline.control.operations.definition import (
    CHANGED,
    ControlContext,
    OperationDefinition,
    StepDefinition,
    StepResult,
)
from pipeline.control.roles import CONTROLLER
from pipeline.errors import Refused, Transient
from pipeline.lists import first_lines
from pipeline.store.operations import Operation

_STEP_SECONDS: Final = 900.0  # a catalog may be away this long before an operation needs a person
_OBSERVE_SECONDS: Final = 60.0  # reads of a workspace may lag so long
_AT_ONCE: Final = 4  # principals whose changes are applied side by side
_MAX_PROBES: Final = 20  # of those who gain, and of those who lose

Open = Callable[[], Catalog]


class Executor:
    """Carries out operations of the kind `access` on one catalog."""

    def __init__(
        self,
        open_catalog: Open,
        stop: threading.Event,
        observe_seconds: float = _OBSERVE_SECONDS,
        seen: Callable[[], None] = lambda: None,
    ) -> None:
        """Start idle; `stop` ends waits between two reads, `seen` is called when the catalog shows changes."""
        self._open, self._stop, self._observe_seconds, self._seen = open_catalog, stop, observe_seconds, seen
        self._works = BackgroundTasks()

    def kind(self) -> OperationDefinition:
        """Return the kind of operation it carries out."""
        steps = (
            StepDefinition("check", partial(self._in_thread, self._check), _STEP_SECONDS),
            StepDefinition("apply", partial(self._in_thread, self._apply), _STEP_SECONDS),
            StepDefinition("record", self._record, 60.0),
            StepDefinition(
                "observe", partial(self._in_thread, self._observe), _STEP_SECONDS, verifies=True, reports=True
            ),
            StepDefinition("probe", partial(self._in_thread, self._probe), _STEP_SECONDS, verifies=True, reports=True),
            StepDefinition("finalize", self._finalize, 60.0, verifies=True),
        )
        return replace(ACCESS, steps=steps, done=_done)

    def _in_thread(
        self, work: Callable[[ControlContext, Operation], str], context: ControlContext, operation: Operation
    ) -> StepResult:
        name = f"{operation.operation_id} {work.__name__}"
        if not self._works.contains(name):
            self._works.submit(name, partial(work, context, operation))
        try:
            message = self._works.pop_result(name)
        except Transient as away:
            return StepResult("waiting", str(away))
        return StepResult("waiting", "Waiting for the catalog.") if message is None else StepResult("done", message)

    def _check(self, context: ControlContext, operation: Operation) -> str:
        """Plan it again, and go on only if the plan is the one that was shown, and is allowed.

        Raises:
            Refused: it does not, or may not.
        """
        require_approved(context.engine, operation)
        access, catalog = context.settings.access, self._open()
        planned = proposals.replan(context.engine, catalog, access, operation)
        if planned.plan.fingerprint != operation.preview.get("fingerprint"):
            raise Refused(CHANGED)
        proposals.require_permitted(context.engine, context.settings, catalog, planned, operation)
        ledger.write(context.engine, operation, planned.plan.change_set)
        return f"The plan still holds: {len(planned.plan.changes)} changes to make."

    def _apply(self, context: ControlContext, operation: Operation) -> str:
        """Apply each open change; where USE_* fails, skip the changes that depend on it."""
        catalog = self._open()
        by_principal: dict[str, list[ledger.Item]] = {}
        for item in ledger.items(context.engine, operation.operation_id):
            by_principal.setdefault(folded(item.change.principal), []).append(item)
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="apply") as pool:
            for each in [
                pool.submit(_apply_to_one, context, operation, catalog, some) for some in by_principal.values()
            ]:
                each.result()
        items = ledger.items(context.engine, operation.operation_id)
        return f"{sum(each.is_done for each in items)} of {len(items)} applied."

    def _record(self, context: ControlContext, operation: Operation) -> StepResult:
        _settle(context, operation)
        return StepResult("done", "Recorded in the ledger.")

    def _observe(self, context: ControlContext, operation: Operation) -> str:
        """Read until the catalog shows every applied change, or the time is over."""
        catalog, until = self._open(), time.monotonic() + self._observe_seconds
        pause = 0.1
        while True:
            waiting = [each for each in ledger.items(context.engine, operation.operation_id) if each.state == "applied"]
            seen: dict[Securable, Mapping[str, frozenset[str]]] = {}
            for item in waiting:
                where = item.change.securable
                if where not in seen:
                    seen[where] = catalog.assignments(where)
                if _is_seen(item, seen[where]):
                    ledger.mark(context.engine, operation, item.number, "observed", "")
                elif time.monotonic() >= until:
                    message = f"Not seen in the catalog within {self._observe_seconds:g} s."
                    ledger.mark(context.engine, operation, item.number, "unseen", message)
            items = ledger.items(context.engine, operation.operation_id)
            if not any(each.state == "applied" for each in items):
                _settle(context, operation)
                observed = sum(each.state == "observed" for each in items)
                if observed:  # what fails time and again makes nobody look time and again
                    self._seen()
                return f"{observed} of {len(items)} observed in the catalog."
            if self._stop.wait(pause):
                raise CatalogUnavailable("The controller is stopping.")
            pause = min(pause * 2, 5.0)

    def _probe(self, context: ControlContext, operation: Operation) -> str:
        """Probe as principals that gain and lose access; the results are judged at the end."""
        catalog = self._open()
        failed = {
            folded(each.change.principal)
            for each in ledger.items(context.engine, operation.operation_id)
            if not each.is_done
        }
        effects = [each for each in operation.preview["effects"] if folded(each[0]) not in failed]
        tables = catalog.tables(proposals.schema_of(context.settings.access))
        tried: list[tuple[str, str, bool, Probe]] = []
        for gains in (True, False):
            cells = [(who, key) for who, key, was, then in effects if (then if gains else was) is True]
            chosen = [(who, key) for who, key in cells if key in tables][:_MAX_PROBES]
            tried += [(who, key, gains, catalog.probe(who, tables[key])) for who, key in chosen]
        return _probe_report(tried, parts_failed=bool(failed))

    def _finalize(self, context: ControlContext, operation: Operation) -> StepResult:
        """Report failed changes, if any: a partly failed set has not succeeded."""
        items = ledger.items(context.engine, operation.operation_id)
        failed = [each for each in items if each.state in {"failed", "planned", "unseen"}]
        if not failed:
            return StepResult("done", "Nothing failed.")
        first = first_lines(
            failed, 3, lambda each: f"{each.change.principal} on {each.change.securable.full_name}: {each.message}"
        )
        done = f"{len(items) - len(failed)} of {len(items)} changes were applied."
        return StepResult("failed", f"{done} {len(failed)} not: {'; '.join(first)}")


def _settle(context: ControlContext, operation: Operation) -> None:
    ledger.settle(context.engine, operation, proposals.intents_of(operation.parameters["intents"]))


def _apply_to_one(context: ControlContext, operation: Operation, catalog: Catalog, items: list[ledger.Item]) -> None:
    kept_back = None
    for item in items:
        if item.is_done:
            continue
        if kept_back is not None:
            ledger.mark(context.engine, operation, item.number, "failed", kept_back)
            continue
        try:
            catalog.change(item.change)
        except CatalogUnavailable:
            raise  # nothing is known of it: it is tried again
        except Refused as refused:
            ledger.mark(context.engine, operation, item.number, "failed", str(refused))
            if item.change.securable.type != "table":  # what is above tables is added before them, taken after them
                kept_back = f"Not tried: a change on {item.change.securable.full_name} failed before."
        else:
            ledger.mark(context.engine, operation, item.number, "applied", "")


def _is_seen(item: ledger.Item, held: Mapping[str, frozenset[str]]) -> bool:
    who = folded(item.change.principal)
    has = frozenset[str]().union(*(had for name, had in held.items() if folded(name) == who))
    return has.issuperset(item.change.add) and has.isdisjoint(item.change.remove)


def _probe_report(tried: list[tuple[str, str, bool, Probe]], *, parts_failed: bool) -> str:
    """Report the results of the probes.

    Where parts have failed, who is concerned by them, such as members of a group, need not read as planned: the
    operation fails by these parts, whose sentences say more.

    Raises:
        Refused: a principal who should read does not, or the other way round, and no part has failed.
    """
    if not tried:
        return "No read access changes, so nothing was probed."
    wrong = [(who, key, probe) for who, key, gains, probe in tried if probe.reads is (not gains)]
    if wrong:
        who, key, probe = wrong[0]
        sentence = f"{who} {'reads' if probe.reads else 'does not read'} {key}: {probe.message}"
        if not parts_failed:
            raise Refused(f"Applied, but {sentence}")
        return f"{len(wrong)} of {len(tried)} probes differ from the plan because some changes failed: {sentence}"
    untried = [probe.message for *_, probe in tried if probe.reads is None]
    proven = f"{len(tried) - len(untried)} probed: each reads or is refused as planned."
    by_group = [probe.stand_in for *_, probe in tried if probe.reads and probe.stand_in]
    if by_group:
        proven += (
            f" {len(by_group)} of them as {by_group[0]}: the catalog does not know groups and refuses them by name."
        )
    return proven if not untried else f"{proven} {len(untried)} applied, not probed: {untried[0]}"


def _done(operation: Operation) -> str:
    effects: list[Any] = operation.preview["effects"]
    gains, loses = sum(each[3] is True for each in effects), sum(each[2] is True for each in effects)
    by = "" if operation.actor != CONTROLLER else "By itself: "
    return f"{by}{gains} gained read access, {loses} lost it."
