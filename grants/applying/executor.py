"""Executes changes of access: plans again, applies them one by one, observes them in the catalog and probes them.

The work is done in threads of the controller, since a catalog may be slow. Each step may be begun again after a kill:
what was applied is marked, and applying it twice is applying it once.
"""

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any, Final

from grants.applying import expiries, ledger, own_tables, proposals
from grants.applying.approvals import require_approved
from grants.applying.operation import ACCESS
from grants.catalog import Catalog, CatalogUnavailable, Change, Probe
from grants.model import Securable, folded
from pipeline.base.errors import Refused, Transient
from pipeline.base.texts import first_lines
from pipeline.control.operations.background_tasks import BackgroundTasks
from pipeline.control.operations.definition import (
    CHANGED,
    ControlContext,
    OperationDefinition,
    StepDefinition,
    StepResult,
)
from pipeline.store.operations import Operation

_STEP_SECONDS: Final = 900.0  # a catalog may be away this long before an operation needs a person
_OBSERVE_SECONDS: Final = 60.0  # the longest that a workspace's reads lag behind its writes
_AT_ONCE: Final = 4  # principals whose changes are applied side by side
_MAX_PROBES: Final = 20  # of those who gain, and of those who lose

_TRIES: Final = 3  # of all probes, where some differ from the plan
_WAITING: Final = "Waiting for the catalog."
_REVOKED: Final = StepResult("done", "Done by the check, as no other operation may come between.")

Open = Callable[[], Catalog]
_Work = Callable[[ControlContext, Operation], str]
_Tried = tuple[str, str, bool, Probe]  # who, on which game's key, whether they gain, and what came of it


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
        self._works, self._tries = BackgroundTasks(), expiries.Tries()
        self._revoking = BackgroundTasks()  # threads of their own: what waits for an expiry is no person's change
        self._following = BackgroundTasks()  # and nothing that follows a game's grant either

    def kind(self) -> OperationDefinition:
        """Return the kind of operation it carries out."""
        steps = (
            self._step("check", self._check),
            self._step("apply", self._apply),
            StepDefinition("record", self._record, 60.0),
            self._step("observe", self._observe, verifies=True),
            self._step("probe", self._probe, verifies=True),
            StepDefinition("finalize", self._finalize, 60.0, verifies=True),
        )
        return replace(ACCESS, steps=steps, done=_done)

    def _step(self, name: str, work: _Work, *, verifies: bool = False) -> StepDefinition:
        """Return a step that works in a thread; the controller's own revocations wait without a limit."""
        act, idle = partial(self._in_thread, work), partial(self._idle, work)
        return StepDefinition(
            name, act, _STEP_SECONDS, verifies=verifies, reports=verifies, idle=idle, patience=_patience
        )

    def _in_thread(self, work: _Work, context: ControlContext, operation: Operation) -> StepResult:
        if work != self._check and expiries.is_automatic(operation):
            return _REVOKED
        works, name = self._works_of(operation), _name_of(work, operation)
        resting = self._tries.resting(operation.operation_id)
        if resting is not None:
            return StepResult("waiting", resting)
        works.submit(name, partial(work, context, operation))
        try:
            message = works.pop_result(name)
        except Transient as away:
            return StepResult("waiting", str(away))
        return StepResult("waiting", _WAITING) if message is None else StepResult("done", message)

    def _idle(self, work: _Work, _: ControlContext, operation: Operation) -> StepResult:
        """Return that a step waits while its work runs in this process or rests, else that it is due."""
        works, name = self._works_of(operation), _name_of(work, operation)
        waiting = self._tries.resting(operation.operation_id)
        if waiting is None and works.contains(name) and not works.has_ended(name):
            waiting = _WAITING
        return StepResult("done", "It is due.") if waiting is None else StepResult("waiting", waiting)

    def _works_of(self, operation: Operation) -> BackgroundTasks:
        if expiries.follows(operation):
            return self._following
        return self._revoking if expiries.is_automatic(operation) else self._works

    def _check(self, context: ControlContext, operation: Operation) -> str:
        """Plan it again, and go on only if the plan is the one that was shown, and is allowed.

        Raises:
            Refused: it does not, or may not.
        """
        if expiries.is_automatic(operation):
            return self._revoke(context, operation)
        require_approved(context.engine, operation)
        access, catalog = context.settings.access, self._open()
        planned = proposals.replan(context.engine, catalog, access, context.paths, operation)
        shown, delta_ids = operation.preview.get("delta_ids"), planned.delta_ids
        if delta_ids is None:
            delta_ids = own_tables.delta_ids(context.paths, sorted(planned.plan.rests_on))
        if planned.plan.fingerprint != operation.preview.get("fingerprint") or shown not in (None, delta_ids):
            raise Refused(CHANGED)
        proposals.require_permitted(context.engine, context.settings, catalog, planned, operation)
        change_set = replace(planned.plan.change_set, delta_ids=tuple(sorted(delta_ids.items())))
        ledger.write(context.engine, operation, change_set, planned.plan.effects)
        return f"The plan still holds: {len(planned.plan.changes)} changes to make."

    def _revoke(self, context: ControlContext, operation: Operation) -> str:
        """Try to end what is over: plan, apply, record and observe.

        The steps that follow do nothing: the principal's lock is free by then, and a newer grant must stay.

        Raises:
            Unfinished: not all of it was seen removed. It is tried again later, from a new plan.
        """
        try:
            with expiries.principal_held(context.engine, operation):
                catalog = self._open()
                planned, refused = expiries.propose(context, catalog, operation)
                ledger.write(context.engine, operation, planned.plan.change_set, planned.plan.effects, replaces=True)
                self._apply(context, operation)
                _settle(context, operation)
                self._observe(context, operation)
                failed = _failures(ledger.items(context.engine, operation.operation_id))
                problem = " ".join(filter(None, [failed, refused]))
        except (Refused, Transient) as error:
            raise self._tries.failed(operation.operation_id, error) from error
        if problem:
            raise self._tries.failed(operation.operation_id, problem)
        self._tries.forget(operation.operation_id)
        return f"{len(planned.plan.changes)} changes were made and seen."

    def _apply(self, context: ControlContext, operation: Operation) -> str:
        """Apply each open change; where USE_* fails, skip the changes that depend on it.

        Where the catalog's table is not the game's, nothing is applied; what was applied meanwhile is taken back.
        """
        catalog = self._open()
        wrong = _wrong_tables(context, operation, catalog)
        by_principal: dict[str, list[ledger.Item]] = {}
        for item in ledger.items(context.engine, operation.operation_id):
            by_principal.setdefault(folded(item.change.principal), []).append(item)
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="apply") as pool:
            for each in [
                pool.submit(_apply_to_one, context, operation, catalog, some, wrong) for some in by_principal.values()
            ]:
                each.result()
        _take_back(context, operation, catalog, _wrong_tables(context, operation, catalog))
        items = ledger.items(context.engine, operation.operation_id)
        return f"{sum(each.is_done for each in items)} of {len(items)} applied."

    def _record(self, context: ControlContext, operation: Operation) -> StepResult:
        if expiries.is_automatic(operation):
            return _REVOKED
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
        """Probe as principals that gain and lose access, and judge the results.

        A request that nobody waits for any more may undo a change after it was observed, and a further one may make it
        again: what the catalog has lost is applied again, and all are tried again, a few times, before results count.
        A read that only came along, by a SELECT from before, is no promise of this operation: it may be gone by now.
        """
        catalog, again = self._open(), 0
        for tries_left in reversed(range(_TRIES)):
            tried, parts_failed = self._tried(context, operation, catalog)
            if parts_failed or not tries_left or not _wrong(tried):
                break
            again += _apply_again(context, operation, catalog)
        done = ledger.change_set(context.engine, operation.operation_id)
        came_along = done.brought - {(folded(each.principal), each.key) for each in done.made}
        gone = [each for each in _wrong(tried) if each[2] and each[:2] in came_along]
        report = _probe_report([each for each in tried if each not in gone], parts_failed=parts_failed)
        if gone:
            report += f" {len(gone)} reads did not come along, as their grants are gone: {gone[0][0]} on {gone[0][1]}."
        return report if not again else f"{report} {again} changes were undone meanwhile, and applied again."

    def _tried(self, context: ControlContext, operation: Operation, catalog: Catalog) -> tuple[list[_Tried], bool]:
        """Return who was tried on which game, whether they should read it, and the result; and whether parts failed."""
        failed = {
            folded(each.change.principal)
            for each in ledger.items(context.engine, operation.operation_id)
            if each.state != "observed"
        }
        effects = [
            each for each in ledger.effects(context.engine, operation.operation_id) if folded(each[0]) not in failed
        ]
        schema = proposals.schema_of(context.settings.access)
        if not failed:
            _require_own(context, operation, catalog)
        tables = catalog.tables(schema)
        tried: list[_Tried] = []
        for gains in (True, False):
            cells = [(who, key) for who, key, was, then in effects if (then if gains else was) is True]
            chosen = [(who, key) for who, key in cells if key in tables][:_MAX_PROBES]
            tried += [(who, key, gains, catalog.probe(who, tables[key])) for who, key in chosen]
        return tried, bool(failed)

    def _finalize(self, context: ControlContext, operation: Operation) -> StepResult:
        """Report failed changes, if any: a partly failed set has not succeeded."""
        problem = _failures(ledger.items(context.engine, operation.operation_id))
        return StepResult("done", "Nothing failed.") if problem is None else StepResult("failed", problem)


def _failures(items: Sequence[ledger.Item]) -> str | None:
    """Return which changes were not applied, or not seen; None: all were."""
    failed = [each for each in items if each.state in {"failed", "planned", "unseen"}]
    if not failed:
        return None
    first = first_lines(
        failed, 3, lambda each: f"{each.change.principal} on {each.change.securable.full_name}: {each.message}"
    )
    done = f"{len(items) - len(failed)} of {len(items)} changes were applied."
    return f"{done} {len(failed)} not: {'; '.join(first)}"


def _name_of(work: _Work, operation: Operation) -> str:
    return f"{operation.operation_id} {work.__name__}"


def _patience(_: ControlContext, operation: Operation) -> float:
    """Return how long a step waits: nobody has to resume what the controller revokes by itself."""
    return math.inf if expiries.is_automatic(operation) else _STEP_SECONDS


def _settle(context: ControlContext, operation: Operation) -> None:
    ledger.settle(context.engine, operation, proposals.intents_of(operation.parameters["intents"]))


def _wrong_tables(context: ControlContext, operation: Operation, catalog: Catalog) -> Mapping[str, str]:
    """Return the games whose table is not the one that was checked, each with the reason."""
    expected = dict(ledger.change_set(context.engine, operation.operation_id).delta_ids)
    schema = proposals.schema_of(context.settings.access)
    return own_tables.wrong(catalog, schema, context.engine, context.paths, expected)


def _take_back(context: ControlContext, operation: Operation, catalog: Catalog, wrong: Mapping[str, str]) -> None:
    """Revoke at once what was granted on tables that are not the game's, and fail these changes."""
    for item in ledger.items(context.engine, operation.operation_id) if wrong else ():
        change = item.change
        problem = wrong.get(change.securable.path[-1]) if change.securable.type == "table" else None
        if problem is not None and item.is_done:
            if change.add:
                catalog.change(Change(change.securable, change.principal, remove=change.add))
            ledger.mark(context.engine, operation, item.number, "failed", f"Applied and revoked at once: {problem}")


def _apply_to_one(
    context: ControlContext,
    operation: Operation,
    catalog: Catalog,
    items: list[ledger.Item],
    wrong: Mapping[str, str],
) -> None:
    kept_back = None
    for item in items:
        if item.is_done:
            continue
        if item.change.securable.path[-1] in wrong and item.change.securable.type == "table":
            ledger.mark(context.engine, operation, item.number, "failed", wrong[item.change.securable.path[-1]])
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
    """Return whether a read shows a change: what it removes is gone from that spelling, as another's may keep it."""
    change, who = item.change, folded(item.change.principal)
    has = frozenset[str]().union(*(had for name, had in held.items() if folded(name) == who))
    return has.issuperset(change.add) and held.get(change.principal, frozenset()).isdisjoint(change.remove)


def _wrong(tried: list[_Tried]) -> list[_Tried]:
    return [each for each in tried if each[3].reads is (not each[2])]


def _apply_again(context: ControlContext, operation: Operation, catalog: Catalog) -> int:
    """Apply each change again that the catalog showed and shows no more; return how many these are.

    Raises:
        Refused: the name of a table leads elsewhere by now. Nothing of this operation is granted there.
    """
    lost = [
        item for item in ledger.items(context.engine, operation.operation_id)
        if item.is_done and not _is_seen(item, catalog.assignments(item.change.securable))
    ]  # fmt: skip
    if lost:
        _require_own(context, operation, catalog)
    for item in lost:
        catalog.change(item.change)
    if lost:
        _take_back(context, operation, catalog, _wrong_tables(context, operation, catalog))
    return len(lost)


def _require_own(context: ControlContext, operation: Operation, catalog: Catalog) -> None:
    for problem in _wrong_tables(context, operation, catalog).values():
        raise Refused(f"Applied, but {problem} Then undo this operation.")


def _probe_report(tried: list[_Tried], *, parts_failed: bool) -> str:
    """Report the results of the probes.

    Where parts have failed, who is concerned by them, such as members of a group, need not read as planned: the
    operation fails by these parts, whose sentences say more.

    Raises:
        Refused: a principal who should read does not, or the other way round, and no part has failed.
    """
    if not tried:
        return "No read access changes, so nothing was probed."
    wrong = _wrong(tried)
    if wrong:
        who, key, _, probe = wrong[0]
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
    if expiries.is_automatic(operation):
        return expiries.describe(operation)
    effects: list[Any] = operation.preview["effects"]
    gains, loses = sum(each[3] is True for each in effects), sum(each[2] is True for each in effects)
    return f"{gains} gained read access, {loses} lost it."
