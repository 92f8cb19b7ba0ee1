"""The values that columns of the control store may have: types for the code, CHECKs for the database.

Those of streams are in `listeners.sample`.
"""

from enum import StrEnum
from typing import Final, Literal, get_args

ProcessState = Literal["starting", "running", "skewed", "failed", "stopped"]
Desired = Literal["running", "drained", "stopped"]
DESIRED: Final[tuple[Desired, ...]] = get_args(Desired)
"""What a group should do; `drained`: it runs, and gets no more games."""

Priority = Literal["high", "normal", "low"]
PRIORITIES: Final[tuple[Priority, ...]] = get_args(Priority)
"""Priority of a game, and of the games that a group is for."""

StreamDesired = Literal["running", "paused"]
FailureClass = Literal["expected", "transient", "poison", "fatal"]
"""`expected`: another owner was first, costs nothing. `transient`: storage, registry or disk. `poison`: the rows, the
schema or the table. `fatal`: it killed a worker."""

OnboardedBy = Literal["schema", "name", "prefix", "approval"]
"""Why a name became a game: it has a registered schema, its name or a prefix of it is allowed, or it was approved."""


RegistryState = Literal["ok", "away", "mistrusted"]
"""`away`: it gave no answer, so nothing is known. `mistrusted`: it gave a known id another schema."""


class OperationKind(StrEnum):
    """What an operation does."""

    ONBOARD = "onboard"
    PAUSE = "pause"
    RESUME = "resume"
    RETRY = "retry"
    REPLAY = "replay"
    DEDUPE = "dedupe"
    REBUILD = "rebuild"
    RETIRE = "retire"
    RESTORE = "restore"
    MOVE = "move"
    ISOLATE = "isolate"
    START = "start"
    STOP = "stop"
    RESTART = "restart"
    ACCESS = "access"
    ACCEPT_TYPE = "accept-type"
    WITHDRAW_TYPE = "withdraw-type"
    NEST_TYPE = "nest-type"
    FLATTEN_TYPE = "flatten-type"
    KEEP_VIEWS = "keep-views"
    DROP_VIEWS = "drop-views"
    PIN_VARIATIONS = "pin-variations"
    UNPIN_VARIATIONS = "unpin-variations"
    REFUSE_VARIATION = "refuse-variation"
    ALLOW_VARIATION = "allow-variation"
    MERGE_COLUMNS = "merge-columns"
    PART_COLUMNS = "part-columns"
    PAUSE_DERIVED = "pause-derived"
    RESUME_DERIVED = "resume-derived"
    REPAIR_DERIVED = "repair-derived"
    DECLARE_TYPE = "declare"
    UNDECLARE_TYPE = "undeclare"


class OperationState(StrEnum):
    """How an operation stands."""

    PLANNED = "planned"  # nothing was done yet
    RUNNING = "running"  # steps are being taken
    VERIFYING = "verifying"  # all is done, its effect is not seen yet
    NEEDS_HUMAN = "needs_human"  # it cannot go on by itself
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"  # a person ended it before it was done


OPEN: Final = (
    OperationState.PLANNED,
    OperationState.RUNNING,
    OperationState.VERIFYING,
    OperationState.NEEDS_HUMAN,
)
"""The states in which an operation may still act; its targets belong to it."""


StepState = Literal["running", "done", "failed"]

AccessItemState = Literal["planned", "applied", "observed", "unseen", "failed"]
"""`applied`: the catalog has taken it. `observed`: a read has shown it. `unseen`: reads did not show it in time."""

RequestState = Literal["asked", "approved", "rejected", "withdrawn"]
"""State of a request that another person decides about: for access, to register a schema, or to reopen a day."""

AuditPhase = Literal["begun", "ended"]


class Cause(StrEnum):
    """Why games are late or have rows refused; the values are the words that people read."""

    STORE = "control store"
    SOURCE_SILENT = "source silent"
    INGEST_BEHIND = "ingest behind"
    DRIVER_GONE = "driver gone"
    DRIVER_SLOW = "driver slow"
    STORAGE = "storage"
    SCHEMA = "schema"
    REGISTRY = "waits for a registry"
    POISON = "poison data"
    CONTRACT = "contract"
    CAPACITY = "capacity"
    OPERATOR = "operator"
    CONTROLLER = "controller away"
    ACCESS = "access"
    FRESHNESS = "freshness"
    TIME_WENT_BACK = "time went back"
    UNDETERMINED = "undetermined"


IncidentTone = Literal["bad", "late", "recovering"]
