"""Causes of one game's own: its registry, its failures, its refused rows. Pure; called by `judging.py`."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from pipeline.base.names import plain
from pipeline.health.incidents.causes import Action, Finding
from pipeline.health.incidents.evidence import (
    REFUSED_SECONDS,
    Evidence,
    GameSeen,
    GameWindow,
    GroupWindow,
    StreamFailure,
)
from pipeline.health.incidents.texts import (
    MAX_NAME,
    cut,
    neighbours,
    of_game,
    percent,
    source_is_well,
    source_trouble,
    troubled_neighbours,
)
from pipeline.health.verdicts.upkeep import duration
from pipeline.store.database.states import Cause, OperationKind

REFUSED_SHARE: Final = 0.02
PLAIN_SHARE: Final = 0.05
REFUSED_LEAST: Final = 10
"""From this share and this number on, refused rows within five minutes have a cause; single bad rows are usual.

From the plain share on one look is enough: it is not the chance of a small game.
"""

SUDDEN_SHARE: Final = 0.2
"""Likewise of the rows since the look before: five minutes of good rows do not hide that every fifth is refused now."""

HELD_SHARE: Final = 0.002
"""Likewise of rows whose schema version is kept out of its table: none of them is usual."""

MOSTLY_SHARE: Final = 0.5
MOSTLY_LEAST: Final = 3
"""Likewise of a game of which most rows are refused, however few there are."""

QUIET_SECONDS: Final = 60.0
QUIET_GAPS: Final = 3.0
"""Rows are refused no more for a reason after this time without one, and this multiple of their mean distance."""

SCHEMA_CHANGE_SECONDS: Final = 900.0
"""A schema that was registered so shortly before a failure counts as its cause."""

TOGETHER_SECONDS: Final = 60.0
"""Seconds after a game's first version within which others count as its first schema, as in a migration."""

_MOST_REASONS: Final = 3  # that are listed
_JUST_SECONDS: Final = 15.0  # refused rows that are older are not what happens now

_SHAPES: Final = "shapes"  # the registry of needs that drivers answer themselves, from bronze
_FOR_SHAPES: Final = ("waits for shapes ", "waits for new shapes ")  # as drivers report it
_OTHER: Final = "other_type"
_MOST_OTHER: Final = 500  # characters: it names both types and what can be done
_HELD: Final = ("quarantined_schema", _OTHER)
_CONTRACT: Final = "contract"
_SCHEMA_REASONS: Final = frozenset({"unknown_schema", *_HELD})


def registry(window: GameWindow, _group: GroupWindow | None, evidence: Evidence) -> Finding | None:
    """Judge a stream that is held by a schema its registry has not given."""
    seen, need = window.seen, window.seen.need
    if seen.waits_for is None or not seen.in_trouble:
        return None
    evidences, runbook, registry = [cut(f"the stream {seen.waits_for}")], "turnoutlatencyoverobjective", "a registry"
    held = "until {0} answers"
    if need.registry == _SHAPES if need is not None else seen.waits_for.startswith(_FOR_SHAPES):
        held, registry = "until the {0} are registered", "shapes of documents"
    elif need is not None:
        registry = f"registry {cut(need.registry, MAX_NAME)}"
        amount = f"{need.schemas} schema{'' if need.schemas == 1 else 's'}"
        evidences.append(f"{amount} wanted from {registry} for {duration(evidence.now - need.since)}")
        if need.state != "ok":
            detail = f": {cut(need.detail)}" if need.detail else ""
            evidences.append(f"{registry} is {need.state or 'not known to answer'}{detail}")
        if need.state == "mistrusted":
            runbook = "turnoutregistrymistrusted"
    evidences += source_trouble(evidence)
    return of_game(
        Cause.REGISTRY, f"Rows of {{}} held {held.format(registry)}", window, evidences,
        ("no row is refused for it: rows wait in bronze", *source_is_well(evidence)),
        Action("Open schemas", "schemas", {"game": seen.game_key}), runbook, scope=registry, is_fact=True,
        past=f"Rows of {{}} waited for {registry}",
    )  # fmt: skip


def failing(window: GameWindow, group: GroupWindow | None, evidence: Evidence) -> Finding | None:
    """Judge a stream whose own work fails."""
    seen, failure = window.seen, window.seen.failure
    error = failure.text if failure is not None else seen.last_error
    if error is None or not (seen.is_failing or (failure is not None and seen.in_trouble)):
        return None
    if failure is not None and failure.by_contract:
        return _stopped(window, group, evidence, failure)
    kind = failure.kind if failure is not None else ("transient" if is_storage(error) else "unknown")
    evidences = [cut(error)]
    if failure is not None and failure.in_a_row:
        evidences.append(f"{failure.in_a_row} {'failure' if failure.in_a_row == 1 else 'failures'} in a row")
    if failure is not None and failure.parked_at is not None:
        evidences.append(f"parked for {duration(evidence.now - failure.parked_at)}, its retries are used up")
    changed = schema_change(window, failure.at if failure is not None else seen.since)
    evidences += troubled_neighbours(window, group)
    well, retry = (
        neighbours(window, group, evidence),
        Action("Retry…", "repairs", {"repair": "retry", "games": seen.game_key}),
    )
    if kind == "transient":
        is_parked = failure is not None and failure.parked_at is not None
        again = 0 if group is None else group.land_again(window.failure_at)
        if again:
            land = "lands" if again == 1 else "land"
            evidences.append(f"{again:,} of its neighbours failed as well, and {land} again")
        found = of_game(
            Cause.STORAGE, "Commits of {} failed on storage", window, evidences, (*well, "its rows are not the cause"),
            retry if is_parked or again else None, "turnoutstreamdown", scope=_shared_by(group), is_fact=True,
        )  # fmt: skip
        if again:
            than = "it stays parked without a retry" if is_parked else "a retry does not wait for the next attempt"
            return replace(found, advice=f"The storage takes writes of its group again; {than}")
        then = "then retry" if is_parked else "streams retry by themselves"
        return replace(found, advice=storage_advice(error, None if group is None else group.seen.host, then))
    if changed is not None:
        return of_game(
            Cause.SCHEMA, "Commits of {} failed after a schema change", window, (*evidences, changed), well,
            Action("Compare versions…", "schemas", {"game": seen.game_key}), "turnoutstreamdown", is_fact=True,
        )  # fmt: skip
    if kind in {"poison", "fatal"}:
        pattern = "Rows of {} killed their worker" if kind == "fatal" else "Commits of {} failed on its rows or table"
        return of_game(
            Cause.POISON, pattern, window, evidences, (*well, "no schema was registered shortly before"), retry,
            "turnoutstreamdown", is_fact=True,
        )  # fmt: skip
    return None


def _stopped(window: GameWindow, group: GroupWindow | None, evidence: Evidence, failure: StreamFailure) -> Finding:
    """Judge a stream that its output contract has stopped."""
    since = () if failure.parked_at is None else (f"stopped for {duration(evidence.now - failure.parked_at)}",)
    found = of_game(
        Cause.CONTRACT, "The output contract of {} stopped its stream", window,
        (cut(failure.text, _MOST_OTHER), *since, *troubled_neighbours(window, group)),
        (*neighbours(window, group, evidence), "no row is lost: rows from that seq on wait in bronze"),
        Action("Look at its contract", "game", {"game": window.seen.game_key, "rows": "contract"}),
        "turnoutstreamdown", is_fact=True,
    )  # fmt: skip
    return replace(found, advice="Change the rule in its contract, and the stream goes on; a retry stops there again")


def _shared_by(group: GroupWindow | None) -> str:
    """Return the group, where failures of storage are most of its games': they are one incident with its query's."""
    return f"group {group.seen.name}" if group is not None and group.games > 1 and group.is_mostly_troubled else ""


def _sudden(window: GameWindow) -> list[str]:
    """Return, as evidence, how many of the rows since the look before were refused, where they are too many."""
    refused, landed = window.last
    is_sudden = refused >= REFUSED_LEAST and refused >= SUDDEN_SHARE * (refused + landed)
    return [f"{refused:,} of the last {refused + landed:,} rows"] if is_sudden else []


def refused(window: GameWindow, group: GroupWindow | None, evidence: Evidence) -> Finding | None:
    """Judge rows that go to quarantine."""
    seen = replace(window.seen, refused=_of_now(window.seen, evidence.now))
    held, other = sum(seen.refused.get(each, 0) for each in _HELD), seen.refused.get(_OTHER, 0)
    is_mostly = seen.refused_rows >= MOSTLY_LEAST and seen.refused_share >= MOSTLY_SHARE
    is_kept_out = held >= REFUSED_LEAST and held >= HELD_SHARE * (seen.refused_rows + (seen.landed or 0))
    sudden = _sudden(window)
    is_many = bool(sudden) or (seen.refused_rows >= REFUSED_LEAST and seen.refused_share >= REFUSED_SHARE)
    if not (is_mostly or is_kept_out or is_many):
        return None
    by_reason = sorted(seen.refused.items(), key=lambda each: (-each[1], each[0]))
    when = sudden or _newest(seen, [reason for reason, _ in by_reason[:_MOST_REASONS]], evidence.now)
    evidences = [_amounts(by_reason, seen.refused_share), *when, *troubled_neighbours(window, group)]
    of_schema = sum(rows for reason, rows in by_reason if reason in _SCHEMA_REASONS)
    changed, version = schema_change(window, evidence.now), None if seen.schema is None else seen.schema.version
    is_held = seen.schema is not None and seen.schema.quarantined is not None and held > 0
    well = neighbours(window, group, evidence)
    is_fact = is_kept_out or bool(sudden) or seen.refused_share >= PLAIN_SHARE
    is_only_kept_out = is_kept_out and not (is_mostly or is_many)  # the others are the usual ones
    if 2 * of_schema >= seen.refused_rows or changed is not None or is_only_kept_out:
        pattern = "Rows of {} refused for their schema"
        action = Action("Compare versions…", "schemas", {"game": seen.game_key})
        if 2 * other > held and seen.schema is not None and seen.schema.other_type is not None:
            evidences.append(cut(seen.schema.other_type, _MOST_OTHER))
            pattern = "Rows of {} refused as another event type"
            action = Action("Open schemas", "schemas", {"game": seen.game_key})
        elif is_held and seen.schema is not None:
            evidences.append(cut(f"version {version} is kept out of its table: {seen.schema.quarantined}"))
            pattern = f"Rows of {{}} refused since schema version {version}"
        elif seen.schema is not None and 2 * held >= seen.refused_rows:  # a better one was registered since
            evidences.append(f"version {version}, the newest, is not kept out of its table: an older one was")
            action = Action("Replay…", "repairs", {"repair": "replay", "games": seen.game_key})
        elif 2 * seen.refused.get("unknown_schema", 0) >= seen.refused_rows:
            pattern = "Rows of {} refused for a schema that is not registered"
            if group is not None and group.seen.liveness.is_live and group.seen.liveness.reason is not None:
                evidences.append(cut(f"its driver {group.seen.liveness.reason}"))  # such as that the store is older
            action = Action("Register a schema…", "schemas", {"game": seen.game_key})
        elif changed is not None:
            evidences.append(changed)
            pattern = f"Rows of {{}} refused since schema version {version}"
        return of_game(
            Cause.SCHEMA, pattern, window, evidences, (*well, "its stream runs"),
            action, "turnoutrejectratiohigh", is_fact=is_fact,
        )  # fmt: skip
    look = Action("Look at refused rows", "game", {"game": seen.game_key, "rows": "refused"})
    if 2 * seen.refused.get(_CONTRACT, 0) >= seen.refused_rows:
        return of_game(
            Cause.CONTRACT, "Rows of {} refused by its output contract", window, evidences,
            (*well, "its stream runs", "no row is damaged"), look, "turnoutrejectratiohigh", is_fact=is_fact,
        )  # fmt: skip
    return of_game(
        Cause.POISON, "Rows of {} refused as damaged", window, evidences,
        (*well, "no schema was registered shortly before", "its stream runs", "a replay lands no damaged row"),
        look, "turnoutrejectratiohigh", is_fact=is_fact,
    )  # fmt: skip


def _amounts(by_reason: Sequence[tuple[str, int]], share: float) -> str:
    listed = ", ".join(f"{rows:,} {plain(reason)}" for reason, rows in by_reason[:_MOST_REASONS])
    return f"{listed} in the last 5 min, {percent(share)} of its rows"


def _newest(seen: GameSeen, reasons: Sequence[str], now: float) -> list[str]:
    """Return, as evidence, how long ago the last row was refused for the first reason, where that is not just now.

    Of several reasons it is named, as rows of the others may have come since.
    """
    at = seen.refused_at.get(reasons[0])
    what = "one" if len(reasons) == 1 else plain(reasons[0])
    return [] if at is None or now - at < _JUST_SECONDS else [f"the last {what} {duration(now - at)} ago"]


def _of_now(seen: GameSeen, now: float) -> dict[str, int]:
    """Return the refused rows by reason, without reasons that are mended.

    Nothing was refused for one since a replay of its rows began; or for a minute and three of its gaps, while rows
    landed or until a commit: that stays so where nothing comes any more. The latter tells nothing of schemas, whose
    rows wait in quarantine for a replay.
    """
    replayed_at = max((each.requested_at for each in seen.done if each.kind == OperationKind.REPLAY), default=0.0)

    def is_over(reason: str, rows: int) -> bool:
        at = seen.refused_at.get(reason)
        if at is None or at <= replayed_at:
            return at is not None  # of a driver that does not say when, nothing is over
        gap = max(QUIET_SECONDS, QUIET_GAPS * REFUSED_SECONDS / max(rows, 1))
        until = now if seen.rows_per_second else seen.committed_at
        return until is not None and until - at > gap and reason not in _SCHEMA_REASONS

    return {reason: rows for reason, rows in seen.refused.items() if not is_over(reason, rows)}


def is_storage(error: str) -> bool:
    """Return whether an error's text is about storage: a disk, a file system, an object store, a commit."""
    lowered = error.lower()
    return any(word in lowered for word in _STORAGE_WORDS)


def storage_advice(error: str, host: str | None, then: str) -> str:
    """Return what a person does about an error of storage, as a sentence without its full stop."""
    path = _PATH.search(error)
    place = ":".join(cut(each, _MAX_PLACE) for each in (host, path and path.group()) if each)
    if not lacks_space(error):
        return f"Mend {f'the storage of {place}' if place else 'the storage to which its driver writes'}; {then}"
    size = ", or raise its limit of a file's size" if _TOO_LARGE in error.lower() else ""
    return f"Free space on {place or 'the disk to which its driver writes'}{size}; {then}"


def lacks_space(error: str) -> bool:
    """Return whether an error's text says that no more can be written: a full disk, a quota, a limit of sizes."""
    return any(word in error.lower() for word in _SPACE_WORDS)


_TOO_LARGE: Final = "file too large"
_SPACE_WORDS: Final = ("no space left", "quota", "disk full", _TOO_LARGE)
_PATH: Final = re.compile(r"(?<![\w:/])/[^\s'\":,)]+")
_MAX_PLACE: Final = 80

_STORAGE_WORDS: Final = (
    "oserror", "no space left", "disk", "quota", "read-only file system", "permission denied", "input/output error",
    "stale file handle", "too many open files", "slowdown", "slow down", "timed out", "timeout", "connection",
    "commitfailederror", "commit failed", "service unavailable", "throttl", "access denied", "accessdenied",
    "object at location", "object store", "no such bucket",
)  # fmt: skip


def schema_change(window: GameWindow, at: float | None) -> str | None:
    """Return that a schema was registered shortly before a moment."""
    schema = window.seen.schema
    if schema is None or at is None or not 0 <= at - schema.registered_at <= SCHEMA_CHANGE_SECONDS:
        return None
    if schema.version == 1 or (
        schema.first_at is not None and schema.registered_at - schema.first_at < TOGETHER_SECONDS
    ):
        return None  # the first schema changes nothing, and neither do versions that are registered with it
    by = "" if schema.by is None else f" by {cut(schema.by, MAX_NAME)}"
    return f"schema version {schema.version} was registered{by} {duration(at - schema.registered_at)} before"
