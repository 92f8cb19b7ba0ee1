"""A fleet made up for causes: groups with queues that fill and drain, look by look, and faults that disturb them.

Statuses come from the real rules of `pipeline.health.verdicts.status`; what a fault does stands in `Fault`.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random

from listeners.sample import Lane
from listeners.status import Status
from pipeline.health.incidents.evidence import (
    Evidence,
    GameSeen,
    GroupSeen,
    Look,
    NewestSchema,
    OpenOperation,
    RegistryWait,
    SourceSeen,
    StreamFailure,
)
from pipeline.health.incidents.incidents import Causes, Incident, group_incidents
from pipeline.health.incidents.judging import judge_all
from pipeline.health.incidents.memory import Memory
from pipeline.health.verdicts.liveness import Liveness
from pipeline.health.verdicts.quiet import Quiet, UsualGap
from pipeline.health.verdicts.status import Observation, Settled, StreamFacts, judge_stream, settle
from pipeline.store.database.states import Cause

NOW = 1_700_000_000.0
LIVE = Liveness("running", NOW - 86_400, None)
LEVEL = SourceSeen("level", "nothing waits in the source", LIVE, 0.0, 0, 100, NOW - 2, None, 1000.0)
OBJECTIVE = 60.0


def game(key: str = "chess", group: str | None = "a", status: str = "RUNNING", **changed: object) -> GameSeen:
    base = GameSeen(
        key, key.capitalize(), group, Status(status), NOW - 60, backlog_seconds=2.0, rows_per_second=50.0, landed=15_000
    )
    return replace(base, **changed)  # type: ignore[arg-type]  # the fields' own types


def look(*games: GameSeen, source: SourceSeen = LEVEL, now: float = NOW, **groups: GroupSeen) -> Look:
    names = {each.group for each in games if each.group is not None}
    known = {name: groups.get(name, GroupSeen(name, LIVE)) for name in sorted(names | groups.keys())}
    return Look(now, {each.game_key: each for each in games}, known, source, OBJECTIVE)


def evidence(*games: GameSeen, source: SourceSeen = LEVEL, now: float = NOW, **groups: GroupSeen) -> Evidence:
    """Return the windows of one look without a past."""
    return Memory().remember(look(*games, source=source, now=now, **groups))


class Keeper:
    """Does the work of the process that keeps incidents, without a store."""

    def __init__(self) -> None:
        self.memory, self.causes, self.kept = Memory(), Causes(), dict[str, Incident]()
        self.evidence: Evidence | None = None

    def see(self, seen: Look) -> tuple[Incident, ...]:
        self.evidence = self.memory.remember(seen)
        self.causes.settle(*judge_all(self.evidence), self.evidence)
        before = [each for each in self.kept.values() if each.ended_at is None or seen.now - each.ended_at <= 300]
        found = group_incidents(before, self.causes, self.evidence, lambda: f"i{len(self.kept)}")
        self.kept |= {each.incident_id: each for each in found}
        return tuple(each for each in found if each.ended_at is None)


# -------------------------------------------------------------------------------------------- a simulated fleet


@dataclass
class SimGame:
    key: str
    group: str
    rate: float  # rows/s that come
    age: float = 0.0
    blocked: bool = False  # nothing of it is written
    slowed: float = 1.0  # how many seconds of rows it passes in a second of its group's
    window: deque[Observation] = field(default_factory=lambda: deque(maxlen=36))
    settled: Settled | None = None
    seen: dict[str, object] = field(default_factory=dict)  # what a fault makes of it
    cursor: int = 0


@dataclass
class SimGroup:
    name: str
    speed: float  # rows/s that it can write
    liveness: Liveness
    queue: float = 0.0
    commit_seconds: float = 0.4
    frozen: bool = False
    frontier: int = 100
    seen: dict[str, object] = field(default_factory=dict)
    started_at: float = NOW - 86_400


@dataclass
class Fleet:
    """Games in groups, look by look."""

    random: Random
    games: dict[str, SimGame]
    groups: dict[str, SimGroup]
    now: float = NOW
    factor: float = 1.0  # of what comes, such as a surge
    arriving: bool = True
    head: int = 100
    newest_at: float = NOW
    source_age: float = 0.0
    ingest: Liveness = LIVE
    gap: float = 6.0

    @classmethod
    def made(cls, seed: object) -> "Fleet":
        random = Random(str(seed))
        groups, games = dict[str, SimGroup](), dict[str, SimGame]()
        for name in "abc"[: random.randint(2, 3)]:
            own = [SimGame(f"{name}{number}", name, random.uniform(5, 80)) for number in range(random.randint(4, 9))]
            games |= {each.key: each for each in own}
            groups[name] = SimGroup(name, sum(each.rate for each in own) * random.uniform(1.8, 3.5), LIVE)
            groups[name].commit_seconds = random.uniform(0.2, 0.7)
        return cls(random, games, groups)

    def members(self, group: str) -> list[SimGame]:
        return [each for each in self.games.values() if each.group == group]

    def look(self, seconds: float = 5.0) -> Look:
        """Let time pass and return what is seen then."""
        self.now += seconds
        if self.arriving:
            self.head += 1
            self.newest_at = self.now - self.random.uniform(0, 3)
        came = {key: each.rate * self.factor * self.random.uniform(0.8, 1.2) for key, each in self.games.items()}
        came = came if self.arriving else dict.fromkeys(came, 0.0)
        seen, ages = {}, dict[str, float]()
        for group in self.groups.values():
            share, age = self._pass(group, came, seconds)
            ages[group.name] = share
            for each in self.members(group.name):
                seen[each.key] = self._seen(each, group, came[each.key], share, age, seconds)
        late = self.source_age > OBJECTIVE
        alive = self.ingest.is_live
        condition = "unknown" if not alive else "late" if late else "behind" if self.source_age > 15 else "level"
        sentence = f"ingest is {self.source_age:.0f} s behind its source"
        source = SourceSeen(
            condition, sentence, self.ingest, self.source_age if alive else None, int(self.source_age * 100), self.head,
            self.newest_at, self._quiet(condition), sum(came.values()),
        )  # fmt: skip
        if late or not alive:
            status = Status.LAGGING if late and alive else Status.UNKNOWN
            seen = {
                key: replace(
                    each, status=status, waits_for_ingest=True, reason=sentence, backlog_seconds=self.source_age
                )
                if each.status.is_level
                else each
                for key, each in seen.items()
            }
        groups = {
            name: replace(GroupSeen(name, each.liveness, frontier_seq=each.frontier), **each.seen)  # type: ignore[arg-type]
            for name, each in self.groups.items()
        }
        return Look(self.now, seen, groups, source, OBJECTIVE)

    def _quiet(self, condition: str) -> Quiet | None:
        usual = UsualGap(self.gap, "within the last hour", max(10.0, 3 * self.gap))
        return Quiet(self.now - self.newest_at, usual) if condition == "level" and not self.source_age else None

    def _pass(self, group: SimGroup, came: dict[str, float], seconds: float) -> tuple[float, float]:
        """Write what the group can; return the share of what came that it wrote, and the age of its backlog."""
        rows = sum(came[each.key] for each in self.members(group.name)) * seconds
        can = group.speed * seconds * self.random.uniform(0.85, 1.15)
        can = 0.0 if group.frozen or not group.liveness.is_live or group.liveness.state == "starting" else can
        wrote = min(group.queue + rows, can)
        group.queue += rows - wrote
        if can and group.queue < can:
            group.frontier = self.head
        elif can:
            group.frontier = min(self.head, group.frontier + 1)
        age = group.queue * seconds / rows if rows else (group.queue / group.speed)
        return (wrote / rows if rows else 1.0), age

    def _seen(self, each: SimGame, group: SimGroup, came: float, share: float, age: float, seconds: float) -> GameSeen:
        if each.blocked or each.slowed != 1.0:
            each.age = max(0.0, each.age + seconds * (1.0 if each.blocked else 1.0 - each.slowed))
        else:
            each.age = max(age, each.age - 4 * seconds) if each.age > age else age
        backlog = each.age + self.random.uniform(0, 5)
        moves = not each.blocked and (share > 0 or age == 0)
        each.cursor += 10 if moves else 0
        if not group.liveness.is_live:
            return _blank(each, group, f"its driver {group.liveness.reason}")
        if group.liveness.state == "starting":
            return replace(_blank(each, group, "its driver was started"), status=Status.STARTING)
        each.window.append(Observation(self.now, each.cursor, 0.0 if backlog < 1 else backlog, each.cursor))
        error = each.seen.get("failure")
        parked = isinstance(error, StreamFailure) and error.parked_at is not None
        waits = each.seen.get("waits_for")
        facts = StreamFacts(
            desired="paused" if each.seen.get("paused_by") else "running", driver_active=True,
            last_run_failed=error.text if parked and isinstance(error, StreamFailure) else None,
            failed_runs_15min=0,
            lane=Lane.PAUSED if each.seen.get("paused_by") else Lane.QUARANTINED if parked
            else Lane.CATCHUP if each.blocked else Lane.RUN,
            started_at=group.started_at, trigger_seconds=5.0, pass_p95_seconds=2.0, objective_seconds=OBJECTIVE,
            pass_active_since=None, last_attempt_failed=error.text if isinstance(error, StreamFailure) else None,
            waits_for=waits if isinstance(waits, str) else None,
        )  # fmt: skip
        each.settled = settle(each.settled, judge_stream(each.window, facts, self.now), self.now)
        known = self.random.random() > 0.02
        rows = came * min(share, 3.0) * (0.0 if each.blocked else 1.0)
        landed = int(each.rate * 300)
        bad = max(0, int(self.random.gauss(0.01 * landed, (0.01 * landed) ** 0.5)))  # any source has its share
        commit_seconds = group.commit_seconds * self.random.uniform(0.7, 1.4)
        base = GameSeen(
            each.key, each.key, each.group, each.settled.status, each.settled.since, backlog_seconds=backlog,
            rows_per_second=rows if known else None, commit_seconds=commit_seconds,
            refused={"malformed_payload": bad} if bad else {}, landed=landed,
        )  # fmt: skip
        return replace(base, **each.seen)  # type: ignore[arg-type]


def _blank(each: SimGame, group: SimGroup, reason: str) -> GameSeen:
    """Return a game of which no living driver reports anything."""
    blank = GameSeen(each.key, each.key, each.group, Status.UNKNOWN, group.liveness.since, reason=reason)
    return replace(blank, **each.seen)  # type: ignore[arg-type]


# ---------------------------------------------------------------------------------------------------- faults

Fault = Callable[[Fleet], str | None]
"""Disturbs a fleet; returns the game that must have the cause, None: all games of group a, or the source."""


def _one(fleet: Fleet) -> SimGame:
    return fleet.random.choice(list(fleet.games.values()))


def source_silent(fleet: Fleet) -> str | None:
    fleet.arriving = False
    return "source"


def ingest_down(fleet: Fleet) -> str | None:
    state, why = fleet.random.choice([("dead", "ended 3 s ago: killed by signal 9"), ("unknown", "is silent for 20 s")])
    fleet.ingest = Liveness(state, fleet.now, why)  # type: ignore[arg-type]
    return "source"


def ingest_slow(fleet: Fleet) -> str | None:
    fleet.source_age = OBJECTIVE * fleet.random.uniform(1.1, 3)
    return "source"


def driver_killed(fleet: Fleet) -> str | None:
    fleet.groups["a"].liveness = Liveness("dead", fleet.now, "ended 2 s ago: killed by signal 9", is_over=True)
    return None


def driver_frozen(fleet: Fleet) -> str | None:
    fleet.groups["a"].liveness = Liveness("unknown", fleet.now - 16, "is silent for 16 s")
    return None


def driver_crash_loop(fleet: Fleet) -> str | None:
    fleet.groups["a"].liveness = Liveness("dead", fleet.now, "ended 1 s ago: exit code 52", is_over=True)
    fleet.groups["a"].seen = {"deaths": fleet.random.randint(3, 12), "is_started_here": True, "last_death": "code 52"}
    return None


def query_fails(fleet: Fleet) -> str | None:
    fleet.groups["a"].liveness = Liveness("failed", fleet.now, "has failed: java.lang.IllegalStateException: closed")
    return None


def driver_slow(fleet: Fleet) -> str | None:
    group = fleet.groups["a"]
    group.speed = sum(each.rate for each in fleet.members("a")) * fleet.random.uniform(0.1, 0.55)
    return None


def pass_hangs(fleet: Fleet) -> str | None:
    fleet.groups["a"].frozen = True
    return None


def clock_wrong(fleet: Fleet) -> str | None:
    group = fleet.groups["a"]
    group.liveness = Liveness("unknown", fleet.now, "has a clock 90 s ahead of the control store's")
    group.seen = {"is_skewed": True}
    return None


_STORAGE_ERRORS = (
    "OSError: [Errno 28] No space left on device: '/data/tables/x/part-0.parquet'",
    "CommitFailedError: Failed to commit transaction: 15",
    "OSError: Generic S3 error: response error 503 SlowDown",
    "PermissionError: [Errno 13] Permission denied: '/data/tables/x/_delta_log'",
)


def storage_errors(fleet: Fleet) -> str | None:
    own = fleet.members("a")
    for each in fleet.random.sample(own, fleet.random.randint(1, len(own))):
        each.blocked = True
        text = fleet.random.choice(_STORAGE_ERRORS)
        each.seen = {"failure": StreamFailure("transient", text, fleet.random.randint(1, 9), fleet.now)}
        key = each.key
    return key


def storage_slow(fleet: Fleet) -> str | None:
    group = fleet.groups["a"]
    group.commit_seconds *= fleet.random.uniform(8, 40)
    group.speed = sum(each.rate for each in fleet.members("a")) * fleet.random.uniform(0.05, 0.6)
    return None


def storage_full(fleet: Fleet) -> str | None:
    fleet.groups["a"].liveness = Liveness("failed", fleet.now, f"has failed: {_STORAGE_ERRORS[0]}")
    return None


def _registered(fleet: Fleet, ago: float, **more: object) -> NewestSchema:
    base = NewestSchema(fleet.random.randint(2, 30), fleet.now - ago, "ann")
    return replace(base, **more)  # type: ignore[arg-type]


def schema_kept_out(fleet: Fleet) -> str | None:
    each = _one(fleet)
    schema = _registered(fleet, fleet.random.uniform(5, 80_000), quarantined="field score became a text")
    each.seen = {"refused": {"quarantined_schema": int(each.rate * fleet.random.uniform(9, 300))}, "schema": schema}
    return each.key


def schema_unknown(fleet: Fleet) -> str | None:
    each = _one(fleet)
    each.seen = {"refused": {"unknown_schema": int(each.rate * fleet.random.uniform(9, 300))}}
    return each.key


def schema_breaks_rows(fleet: Fleet) -> str | None:
    each = _one(fleet)
    schema = _registered(fleet, fleet.random.uniform(5, 200))
    each.seen = {"refused": {"malformed_payload": int(each.rate * fleet.random.uniform(9, 300))}, "schema": schema}
    return each.key


def schema_breaks_stream(fleet: Fleet) -> str | None:
    each = _one(fleet)
    each.blocked = True
    failure = StreamFailure("poison", "ArrowInvalid: cannot cast string to int64", 2, fleet.now)
    each.seen = {"failure": failure, "schema": _registered(fleet, fleet.random.uniform(5, 500))}
    return each.key


def registry_waits(fleet: Fleet) -> str | None:
    each = _one(fleet)
    each.blocked = True
    state = fleet.random.choice(["ok", "away", "mistrusted", None])
    each.seen = {
        "waits_for": "waits for schema 0000000007 of registry main",
        "need": RegistryWait("main", fleet.random.randint(1, 9), fleet.now, state, None),
    }
    return each.key


def poison_rows(fleet: Fleet) -> str | None:
    each = _one(fleet)
    rows = max(10, int(each.rate * 300 * fleet.random.uniform(0.03, 2)))
    schema = _registered(fleet, fleet.random.uniform(3_000, 900_000))
    each.seen = {"refused": {fleet.random.choice(["malformed_payload", "kills_worker"]): rows}, "schema": schema}
    return each.key


def poison_stream(fleet: Fleet) -> str | None:
    each = _one(fleet)
    each.blocked = True
    kind = fleet.random.choice(["poison", "fatal"])
    parked = fleet.now if fleet.random.random() < 0.5 else None
    failure = StreamFailure(kind, "ValueError: row 17 of seq 8811", fleet.random.randint(1, 3), fleet.now, parked)
    each.seen = {"failure": failure, "schema": _registered(fleet, 90_000)}
    return each.key


def contract_stops(fleet: Fleet) -> str | None:
    each = _one(fleet)
    each.blocked = True
    failure = StreamFailure("poison", "Output contract: row 1 of seq 2", 1, fleet.now, fleet.now, by_contract=True)
    each.seen = {"failure": failure, "schema": _registered(fleet, fleet.random.uniform(60, 90_000))}
    return each.key


def contract_refuses(fleet: Fleet) -> str | None:
    each = _one(fleet)
    rows = max(10, int(each.rate * 300 * fleet.random.uniform(0.03, 2)))
    each.seen = {"refused": {"contract": rows}, "schema": _registered(fleet, fleet.random.uniform(3_000, 900_000))}
    return each.key


def surge(fleet: Fleet) -> str | None:
    fleet.factor = fleet.random.uniform(4.5, 8)
    return None


def group_full(fleet: Fleet) -> str | None:
    group = fleet.groups["a"]
    own = sum(each.rate for each in fleet.members("a"))
    group.speed = own * fleet.random.uniform(0.6, 0.8)
    group.seen = {"capacity_cores": 1.0}
    for each in fleet.members("a"):
        each.seen = {"cores": fleet.random.uniform(0.95, 1.1) * each.rate / own}
    return None


def one_surges(fleet: Fleet) -> str | None:
    each = _one(fleet)
    each.rate *= fleet.random.uniform(4, 6)
    fleet.groups[each.group].speed += each.rate
    each.slowed = fleet.random.uniform(0.2, 0.6)
    return each.key


def person_moves(fleet: Fleet) -> str | None:
    each = _one(fleet)
    each.blocked = True
    kind = fleet.random.choice(["move", "rebuild", "replay"])
    each.seen = {"operation": OpenOperation("0af3" * 8, kind, "ann", fleet.now, fleet.random.random() < 0.3)}
    return each.key


def person_restarts(fleet: Fleet) -> str | None:
    group = fleet.groups["a"]
    group.liveness = Liveness("stopped", fleet.now, "is stopped", is_over=True)
    group.seen = {"operation": OpenOperation("0af4" * 8, "restart", "ann", fleet.now)}
    return None


def person_stopped(fleet: Fleet) -> str | None:
    group = fleet.groups["a"]
    group.liveness, group.seen = Liveness("stopped", fleet.now, "is stopped", is_over=True), {"desired": "stopped"}
    return None


def person_paused(fleet: Fleet) -> str | None:
    each = _one(fleet)
    each.seen = {"paused_by": "ann", "paused_at": fleet.now}
    return each.key


def one_stands_still(fleet: Fleet) -> str | None:
    each = _one(fleet)
    each.blocked = True
    return each.key


def one_lags(fleet: Fleet) -> str | None:
    each = _one(fleet)
    each.slowed = fleet.random.uniform(0.1, 0.5)
    return each.key


FAULTS: dict[Cause, tuple[Fault, ...]] = {
    Cause.SOURCE_SILENT: (source_silent,),
    Cause.INGEST_BEHIND: (ingest_down, ingest_slow),
    Cause.DRIVER_GONE: (driver_killed, driver_frozen, driver_crash_loop, query_fails),
    Cause.DRIVER_SLOW: (driver_slow, pass_hangs, clock_wrong),
    Cause.STORAGE: (storage_errors, storage_slow, storage_full),
    Cause.SCHEMA: (schema_kept_out, schema_unknown, schema_breaks_rows, schema_breaks_stream),
    Cause.REGISTRY: (registry_waits,),
    Cause.POISON: (poison_rows, poison_stream),
    Cause.CONTRACT: (contract_stops, contract_refuses),
    Cause.CAPACITY: (surge, group_full, one_surges),
    Cause.OPERATOR: (person_moves, person_restarts, person_stopped, person_paused),
    Cause.UNDETERMINED: (one_stands_still, one_lags),
}


def cause_after(fault: Fault, seed: object) -> Cause | None:
    """Let a fleet be calm, then disturb it; return the settled cause at the end, of what the fault is about.

    How long it was calm, how long the fault lasts, and the time between looks vary; in every third run another game, of
    another group, has a fault of its own.
    """
    fleet, keeper = Fleet.made(seed), Keeper()
    random = fleet.random
    for _ in range(random.randint(32, 60)):
        assert keeper.see(fleet.look(random.uniform(4, 7))) == (), "it is calm"
    about = fault(fleet)
    if random.random() < 1 / 3:
        bystander = random.choice([each for each in fleet.members("b") if each.key != about and not each.seen])
        random.choice([_refuse, _block])(bystander)
    for _ in range(random.randint(35, 60)):
        keeper.see(fleet.look(random.uniform(4, 7)))
    if about == "source":
        found = keeper.causes.source
        return None if found is None or found.finding is None else found.finding.cause
    keys = [about] if about is not None else [each.key for each in fleet.members("a")]
    causes = [found.finding.cause for key in keys if (found := keeper.causes.games[key]).finding is not None]
    return max(set(causes), key=causes.count) if causes else None


def _refuse(each: SimGame) -> None:
    each.seen = {"refused": {"malformed_payload": int(each.rate * 99)}}


def _block(each: SimGame) -> None:
    each.blocked = True
