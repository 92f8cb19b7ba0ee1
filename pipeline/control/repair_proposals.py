"""What a repair would do to which games: planned once for the command that submits it and for the page that shows it.

Of several games those are planned for which it is possible; each of the others is left out with the reason. Nothing is
written here: `gate.submit` does that.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from sqlalchemy import Engine

from pipeline.base.errors import Refused
from pipeline.base.names import GameKey
from pipeline.control import capabilities
from pipeline.control.capabilities import Capability, read_all_facts, with_quarantined
from pipeline.control.operations import dedupes, repairs
from pipeline.control.operations.definition import OperationProposal
from pipeline.control.proposals import propose
from pipeline.data.contracts.registry import LocalRegistry
from pipeline.data.repair.refusals import unreadable
from pipeline.data.repair.removal import file_sizes
from pipeline.lake.delta.errors import DeltaError
from pipeline.lake.delta.opening import open_table
from pipeline.settings.tree import Paths, Settings
from pipeline.store.database.states import OperationKind
from pipeline.store.games import Game
from pipeline.store.processes.leases import store_time

MAX_COUNTED: Final = 20  # games whose quarantine is counted before a replay, and whose tables a page reads for a dedupe
MAX_BYTES: Final = 1 << 30  # of those tables together


@dataclass(frozen=True, slots=True)
class RepairPlanner:
    """Plans repairs of the games of one environment, from what they are now."""

    settings: Settings
    paths: Paths
    engine: Engine
    briefly: bool = False  # a page waits for it: second copies are counted in few and small tables only

    def plan(
        self, kind: str, keys: Sequence[str] | None, actor: str, reason: str = "",
        choice: Mapping[str, str | None] | None = None,
    ) -> OperationProposal:  # fmt: skip
        """Plan a retry, a replay, a dedupe or a rebuild (`kind`) of those of these games for which it is possible now.

        Games are named by their keys; None are, for a replay, all that have such rows. `choice` is which rows of
        quarantine a replay takes, see `repairs.choice`; all where None.

        Raises:
            Refused: it is possible for none that is named, with a line for each that says why; or there is nothing to
                rebuild from.
        """
        if kind == OperationKind.REBUILD and not self.paths.bronze.is_folder():
            raise Refused(f"There is nothing to rebuild from: {self.paths.bronze} does not exist. Start ingest first.")
        selected = choice or {}
        chosen = repairs.replayable(self.paths, self.engine, selected) if keys is None else sorted(set(keys))
        subjects: Mapping[str, repairs.Subject] = {}  # a retry is of a stream, whatever its table is like
        if kind != OperationKind.RETRY:
            subjects = repairs.observe(self.paths, self.settings.environment, self.engine, chosen, kind)
        can, why_not, rows = self._capabilities(kind, chosen, selected)
        why_not |= {key: each.unreadable for key, each in subjects.items() if each.unreadable is not None}
        why_not |= {
            key: why
            for key, each in subjects.items()
            if key not in why_not and (why := repairs.why_not(kind, each)) is not None
        }
        possible = [key for key in chosen if key not in why_not]
        if kind == OperationKind.RETRY:
            planned = propose(self.engine, kind, possible, actor, reason)
        elif kind == OperationKind.DEDUPE:
            planned = self._dedupe({key: subjects[key] for key in possible}, actor, reason)
        else:
            facts = repairs.plan(kind, possible, subjects)
            is_reported = kind == OperationKind.REPLAY and len(facts) <= MAX_COUNTED
            touches = [f"{key}: {can[key].touches}" for key in facts if is_reported]
            lines = [*repairs.render_preview(kind, facts, selected), *touches]
            intent = repairs.intent(kind, facts, actor, reason, selected)
            amount = _amount(sum(rows[key] for key in facts)) if facts and rows.keys() >= facts.keys() else None
            planned = OperationProposal(intent, lines, amount=amount)
        left_out = [*(f"{key}: {why_not[key]}" for key in sorted(why_not)), *planned.left_out]
        if keys and len(left_out) == len(chosen):
            raise Refused("\n".join([f"Nothing to {kind}.", *left_out]))
        return replace(planned, left_out=left_out, best_effort=keys is None)

    def _capabilities(
        self, kind: str, keys: Sequence[str], selected: Mapping[str, str | None]
    ) -> tuple[dict[str, Capability], dict[str, str], dict[str, int]]:
        """Return the games for which a repair is possible, why it is not for the others, and rows that were counted."""
        can: dict[str, Capability] = {}
        rows: dict[str, int] = {}
        why_not = dict.fromkeys(keys, "No such game.")
        count = kind == OperationKind.REPLAY and len(keys) <= MAX_COUNTED
        now, metrics = store_time(self.engine), self.settings.metrics
        all_facts = read_all_facts(self.engine, self.paths, keys, now, selected, metrics=metrics)
        for key, facts in all_facts.items():
            try:
                seen = with_quarantined(facts, self.paths) if count else facts
                offered = capabilities.repairs(seen)
            except Refused as refused:
                why_not[key] = str(refused)
                continue
            if seen.quarantined is not None:
                rows[key] = sum(seen.quarantined.values())
            each = next(each for each in offered if each.name == kind)
            if each.possible:
                can[key] = each
                del why_not[key]
            else:
                why_not[key] = _why_not(each)
        return can, why_not, rows

    def _dedupe(self, subjects: Mapping[str, repairs.Subject], actor: str, reason: str) -> OperationProposal:
        """Plan to remove second copies from those of these tables that have some, or where nobody has counted them."""
        environment, keys = self.settings.environment, list(subjects)
        facts = dedupes.plan(self.paths, environment, keys, subjects)
        counted = self._small_tables(keys) if self.briefly else keys
        games = [Game(GameKey(key), subjects[key].game) for key in counted]
        schemas = LocalRegistry(self.engine, self.paths.bronze).snapshot
        deduped, undecided = dedupes.dedupe_each(self.paths, environment, schemas, games, dry_run=True)
        uncounted = [key for key in keys if key not in counted]
        wanted = {*uncounted, *(each.game_key for each in deduped if each.removed)}
        intent = dedupes.intent({key: facts[key] for key in keys if key in wanted}, actor, reason, deduped)
        return OperationProposal(intent, dedupes.render_preview(deduped, uncounted), undecided)

    def _small_tables(self, keys: Sequence[str]) -> list[str]:
        """Return the first of these games whose tables are read while a person waits before a page."""
        small: list[str] = []
        left = MAX_BYTES
        for key in keys:
            try:
                size = sum(file_sizes(open_table(self.paths.table(GameKey(key)))).values())
            except (DeltaError, OSError) as error:  # since it was looked at
                raise unreadable(key, error) from error
            if len(small) < MAX_COUNTED and size <= left:
                small.append(key)
                left -= size
        return small


def _amount(rows: int) -> str:
    return f"{rows:,} row{'' if rows == 1 else 's'}"


def _why_not(capability: Capability) -> str:
    other = capability.alternative
    instead = "" if other is None else f" Instead: {other.name}. {other.sentence}"
    return f"{capability.why_not}{instead}"
