"""The values that columns of the control store may have: types for the code, CHECKs for the database.

Those of games' and groups' placement are in `pipeline.placement.capacity`, those of streams in `listeners.sample`.
"""

from typing import Final, Literal, get_args

ProcessKind = Literal["ingest", "group", "controller", "maintenance"]
ProcessState = Literal["starting", "running", "skewed", "failed", "stopped"]
RunKind = Literal["group", "maintenance"]
"""What the controller starts processes for."""

Backend = Literal["none", "local"]
BACKENDS: Final[tuple[Backend, ...]] = get_args(Backend)
"""Who starts a group's driver: not turnout, or the controller as a process beside it."""

StreamDesired = Literal["running", "paused"]
FailureClass = Literal["expected", "transient", "poison", "fatal"]
"""`expected`: another owner was first, costs nothing. `transient`: storage, registry or disk. `poison`: the rows, the
schema or the table. `fatal`: it killed a worker."""

OnboardedBy = Literal["schema", "name", "prefix", "approval"]
"""Why a name became a game: it has a registered schema, its name or a prefix of it is allowed, or it was approved."""

OperationState = Literal["planned", "running", "verifying", "needs_human", "succeeded", "failed", "cancelled"]
"""`planned`: nothing was done yet. `running`: steps are being taken. `verifying`: all is done, its effect is not seen
yet. `needs_human`: it cannot go on by itself. `cancelled`: a person ended it before it was done."""

StepState = Literal["running", "done", "failed"]

AccessItemState = Literal["planned", "applied", "observed", "unseen", "failed"]
"""`applied`: the catalog has taken it. `observed`: a read has shown it. `unseen`: reads did not show it in time."""

AccessRequestState = Literal["asked", "approved", "rejected", "withdrawn"]

AuditPhase = Literal["begun", "ended"]
