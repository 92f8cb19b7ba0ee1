"""The controller's part of access: carries out operations, and reconciles the catalog round after round.

A round registers the tables of new games, and takes the snapshot that pages show. It is due time and again, and as soon
as changes of an operation were seen in the catalog: pages should show them. It runs in a thread of its own: a catalog
that is slow or away holds up nobody. Access that is over is revoked beside the rounds.
"""

import logging
import os
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import ClassVar, Final

from sqlalchemy.exc import SQLAlchemyError

from grants.applying import drift_store, expiries, ledger, onboarded_readers, own_tables, proposals, type_views
from grants.applying.executor import Executor
from grants.applying.operation import ACCESS
from grants.applying.table_registration import register_missing
from grants.catalog import Catalog, CatalogUnavailable
from grants.catalogs.opening import open_catalog
from grants.model import Directory, folded
from grants.observing import snapshot
from grants.observing.blindness import blindness
from grants.observing.resolver import Resolver
from grants.planning.following import due
from pipeline.base.errors import Refused
from pipeline.base.texts import join_limited, principal_text
from pipeline.control.operations.definition import ControlContext, OperationDefinition
from pipeline.control.roles import groups_of
from pipeline.store import members
from pipeline.store.processes.leases import store_time
from pipeline.store.wanted_readers import WantedReader, read_taken_back, read_ungranted

_log: Final = logging.getLogger("turnout")
_LONG_SECONDS: Final = 900.0  # an alarm and no limit: the round goes on
_READERS_SECONDS: Final = 2.0  # between two looks for readers of new games
_REFUSED_SECONDS: Final = 60.0  # after one that could not submit all
_EXPIRY_SECONDS: Final = 5.0  # between two looks for access that is over; they read the control store alone


class AccessReconciler:
    """Reconciles access in the controller's process."""

    DEFINITIONS: ClassVar = (ACCESS, type_views.KEEP, type_views.DROP)

    def __init__(self, context: ControlContext, environ: Mapping[str, str] = os.environ) -> None:
        """Begin with a round at the first tick; `environ` has addresses and tokens of catalogs that are not ours."""
        self._context, self._environ = context, environ
        self._stop = threading.Event()
        self._seen = threading.Event()  # a change was, since the newest round began
        self._executor = Executor(self._open, self._stop, seen=self._seen.set)
        self._pool = ThreadPoolExecutor(2, thread_name_prefix="access")  # a round, and the readers of new games
        self._readers: Future[None] | None = None
        self._readers_due_at = self._refused_due_at = 0.0
        self._round: Future[None] | None = None
        self._begun_at = self._due_at = self._expiry_due_at = 0.0
        self._problem: str | None = None  # why the catalog could not be read, as last reported
        self._broken: str | None = None
        kind = self._executor.kind()
        of_views = type_views.steps(self._open)
        about_views = (replace(each, steps=of_views) for each in (type_views.KEEP, type_views.DROP))
        self.kinds: Mapping[str, OperationDefinition] = {each.kind: each for each in (kind, *about_views)}

    def tick(self) -> str | None:
        """Start a round if one is due and none runs; return the error of the newest one, or that it hangs.

        A catalog that is away is reported with the snapshot, and is no alarm of the controller.
        """
        if self._round is not None and self._round.done():
            error = self._round.exception()
            if error is not None:
                _log.error("access: a round failed: %s", error, exc_info=error)
                self._broken = f"access: {type(error).__name__}: {error}"
            else:
                self._broken = None
            self._round, self._due_at = None, time.monotonic() + self._context.settings.access.refresh_seconds
        is_due = self._seen.is_set() or time.monotonic() >= self._due_at
        if self._round is None and is_due and not self._stop.is_set():
            self._seen.clear()  # before it begins: what is seen while it runs may have come too late for it
            self._round, self._begun_at = self._pool.submit(self.run_round), time.monotonic()
        if time.monotonic() >= self._expiry_due_at and not self._stop.is_set():
            self._expiry_due_at = time.monotonic() + _EXPIRY_SECONDS
            self._submit_expired()
        self._grant_to_new_readers()
        at_work = 0.0 if self._round is None else time.monotonic() - self._begun_at
        if at_work > _LONG_SECONDS:
            return (
                f"access: a round has been running for {at_work / 60:.0f} min: until it ends the catalog is not read "
                "again. Check that the catalog answers; if it does, "
                "restart the controller."
            )
        return self._broken

    def stop(self) -> None:
        """Begin no round any more; a running one ends by itself."""
        self._stop.set()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _open(self) -> Catalog:
        return open_catalog(self._context.settings.access, self._context.paths, self._environ)

    def run_round(self) -> None:
        """Do one round and report its outcome; a tick runs it in a thread."""
        try:
            self._submit_expired()  # first: no fault of what follows leaves access open
            self._round_of(self._open())
        except (CatalogUnavailable, Refused) as problem:
            self._report(str(problem))
            snapshot.keep(self._context.engine, None, str(problem))
        except SQLAlchemyError as error:
            _log.warning("the control store is unavailable, access waits: %s", error)
        else:
            self._report(None)

    def _grant_to_new_readers(self) -> None:
        """Grant games to the readers of their onboardings, in a thread; the control store says whether some wait."""
        now = time.monotonic()
        if self._readers is not None:
            if not self._readers.done():
                return
            if (error := self._readers.exception()) is not None:
                _log.warning("access: readers of new games wait: %s", error)
            self._readers = None
        if now < self._readers_due_at or self._stop.is_set():
            return
        self._readers_due_at, again = now + _READERS_SECONDS, now >= self._refused_due_at
        waiting = [*read_ungranted(self._context.engine), *read_taken_back(self._context.engine)]
        if any(again or each.problem is None for each in waiting):
            self._refused_due_at = now + _REFUSED_SECONDS if again else self._refused_due_at
            self._readers = self._pool.submit(self.grant_to_new_readers, again=again)

    def grant_to_new_readers(self, *, again: bool = True) -> None:
        """Submit the operations of readers that wait, those that were refused `again`; a tick does it in a thread."""
        catalog = self._open()
        onboarded_readers.submit_due(self._context, catalog, again=again)
        onboarded_readers.take_back_due(self._context, catalog)

    def _submit_expired(self) -> None:
        expiries.submit_expired(self._context.engine, proposals.schema_of(self._context.settings.access))

    def _round_of(self, catalog: Catalog) -> None:
        context = self._context
        schema = proposals.schema_of(context.settings.access)
        refused = [*register_missing(context, catalog, schema), *type_views.reconcile_all(context, catalog)]
        own = own_tables.places(context.engine, context.paths)
        observed = snapshot.observe(catalog, schema, store_time(context.engine), own)
        blindly = blindness(Resolver(observed), schema)
        blind = [] if blindly is None else [blindly]
        found = drift_store.in_snapshot(context.engine, observed)
        if not blind:
            drift_store.end_ignored(context.engine, observed, found)
        drift = None if blind else found.open_counts
        notes = (*refused, *_ungranted(read_ungranted(context.engine)), *blind, *_unsure(observed.directory))
        snapshot.keep(context.engine, replace(observed, notes=notes), None, drift)
        if not blind:
            tables = {key for key, each in own.items() if each.game}
            waiting = due(observed, ledger.managed(context.engine), tables, observed.read_at)
            expiries.submit_following(context.engine, schema, waiting)
        if groups := groups_of(context.settings.roles):
            resolver = Resolver(observed)
            shown = [each for each in groups if not _is_unsure(resolver, each)]  # of others the last look ages
            members.keep(context.engine, {each: _active_in(resolver, each) for each in shown})

    def _report(self, problem: str | None) -> None:
        if problem is not None and problem != self._problem:
            _log.warning("access: %s", problem)
        if problem is None and self._problem is not None:
            _log.info("access: the catalog answers again")
        self._problem = problem


def _active_in(resolver: Resolver, group: str) -> list[str]:
    """Return who is in a group, directly or not, and can act."""
    inside = [resolver.name(each) for each in resolver.members({folded(group)}) if each != folded(group)]
    return [each for each in inside if resolver.standing(each) == "active"]


def _is_unsure(resolver: Resolver, group: str) -> bool:
    """Return whether a group's members are unknown; a member shown beside a hidden one counts."""
    return resolver.is_ambiguous(group) or (folded(group) in resolver.hidden and not _active_in(resolver, group))


def _ungranted(waiting: Iterable[WantedReader]) -> Iterator[str]:
    """Report readers of new games to whom nothing could be granted: their onboardings ended well long ago."""
    games: dict[tuple[str, str, str], list[str]] = {}
    for each in waiting:
        if each.problem is not None:
            games.setdefault((each.principal, each.reason, each.problem), []).append(each.game_key)
    for (principal, reason, problem), keys in games.items():
        yield f"{principal_text(principal)} is not granted {join_limited(keys, 3)} ({reason}): {problem}"


def _unsure(directory: Directory) -> Iterator[str]:
    """Report what the directory leaves open."""
    for names in directory.ambiguous.values():
        some = " and ".join(map(repr, names))
        yield f"{some} share a name, but for its case: turnout grants them nothing. Rename one of them."
    if directory.hidden:
        some = ", ".join(sorted(directory.hidden)[:3])
        yield (
            f"The directory does not show all members of {len(directory.hidden)} groups, such as {some}: who is in "
            "them is not known. Give turnout's principal the right to see the members of groups, and add the groups in "
            "them to the workspace."
        )
