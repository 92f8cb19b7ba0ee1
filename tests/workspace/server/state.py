"""The memory of the stand-in: plain data that can be copied, and beside it processes and connections."""

import itertools
import secrets
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.workspace.server.calls import Json

if TYPE_CHECKING:
    from tests.workspace.server.faults import Faults
    from tests.workspace.server.processes import Processes

ADMIN: Final = "admin@turnout.example"
ADMINS: Final = "admins"
EVERYBODY: Final = "users"
WORKSPACE_ID: Final = "4711471147114711"


@dataclass(slots=True)
class Settings:
    """The platform's pace in seconds, which a test may change. Real ones are minutes."""

    has_config: bool = True  # whether /.well-known/databricks-config answers; without it a token still signs in
    shows_members: bool = True  # whether lists of groups show members to others than admins; real ones: not known
    token_seconds: float = 3_600.0  # of a token of client credentials
    pending_seconds: float = 0.0  # from a run's creation to its start: a cluster that starts
    cancel_seconds: float = 0.0  # from a cancel to the end of the processes
    restart_seconds: float = (
        0.05  # from a continuous run's end to the next; documented: below 60 s [doc jobs/continuous]
    )
    backoff_seconds: float = 0.2  # after the first failure of a continuous job; doubles with each
    long_run_seconds: float = 60.0  # of a continuous run that resets the back-off
    app_seconds: float = 0.0  # from a deployment or an update of an app to its end
    stop_seconds: float = 15.0  # from SIGTERM to SIGKILL of an app [skill platform-guide]
    deleting_seconds: float = 0.3  # how long a deleted app still answers as DELETING; documented: up to 20 min
    operation_seconds: float = 0.0  # until an operation of a Lakebase project is done
    credential_seconds: float = 3_600.0  # of a database credential; a shorter `ttl` of the request counts too
    least_credential_seconds: float = 300.0  # below which a `ttl` is refused [sdk postgres]
    external_access: bool = True  # the flag of the metastore that vending credentials takes; real ones begin without
    vended_seconds: float = 3_600.0  # of temporary credentials of the catalog


@dataclass(slots=True)
class Data:
    """Everything that requests read and write: JSON and bytes, so that a copy is a moment of the past."""

    principals: dict[str, Json] = field(default_factory=dict)  # by id
    tokens: dict[str, Json] = field(default_factory=dict)
    client_secrets: dict[str, str] = field(default_factory=dict)  # by application id
    acls: dict[str, dict[tuple[str, str], str]] = field(
        default_factory=dict
    )  # "jobs/1" to (kind of name, name) to level
    jobs: dict[int, Json] = field(default_factory=dict)
    runs: dict[int, Json] = field(default_factory=dict)
    run_tokens: dict[str, int] = field(default_factory=dict)
    scopes: dict[str, Json] = field(default_factory=dict)
    nodes: dict[str, Json] = field(default_factory=dict)  # of the workspace's tree, by path
    files: dict[str, bytes | None] = field(default_factory=dict)  # of volumes; None is a directory
    apps: dict[str, Json] = field(default_factory=dict)
    lakebase: dict[str, Json] = field(default_factory=dict)  # by name, such as projects/p/branches/b
    operations: dict[str, Json] = field(default_factory=dict)
    locations: dict[str, Json] = field(default_factory=dict)
    statements: dict[str, Json] = field(default_factory=dict)
    views: dict[str, str] = field(default_factory=dict)  # queries, by full name
    warehouses: dict[str, Json] = field(default_factory=dict)
    alerts: dict[str, Json] = field(default_factory=dict)
    dashboards: dict[str, Json] = field(default_factory=dict)
    notes: dict[str, Json] = field(default_factory=dict)  # comments and properties of schemas, by schema id


class World:
    """The whole stand-in: its data, its settings, its processes, behind one lock."""

    def __init__(self, folder: Path, postgres: str | None, secret: str) -> None:
        """Keep logs below `folder`; `secret` lets a test steer."""
        self.folder, self.postgres, self.secret = folder, postgres, secret
        self.lock = threading.RLock()
        self.data, self.settings = Data(), Settings()
        self.url = ""
        self.faults: Faults
        self.processes: Processes
        self.ticks: list[Callable[[World, float], None]] = []
        self.closers: list[Callable[[], None]] = []
        self.alive: dict[str, Any] = {}  # what cannot be copied: connections, listeners
        self._numbers = itertools.count(100_000_000_001)

    def next_number(self) -> int:
        """Return an id that is above all before it."""
        return next(self._numbers)

    def now(self) -> float:
        """Return the workspace's clock, in Unix seconds."""
        return time.time()

    def add_principal(
        self, kind: str, name: str, display: str, groups: tuple[str, ...] = (), member_ids: tuple[str, ...] = ()
    ) -> Json:
        """Add a principal, in the groups of these names, and return it."""
        made: Json = {
            "id": str(self.next_number()), "kind": kind, "name": name, "display": display,
            "active": True, "members": list(member_ids), "uuid": str(uuid.uuid4()),
        }  # fmt: skip
        self.data.principals[made["id"]] = made
        if kind != "group":
            groups = (*groups, EVERYBODY)
        for group in groups:
            self.group(group)["members"].append(made["id"])
        return made

    def group(self, name: str) -> Json:
        """Return the group of a name, made where there is none."""
        for each in self.data.principals.values():
            if each["kind"] == "group" and each["display"] == name:
                return each
        return self.add_principal("group", name, name)

    def mint(self, principal_id: str, seconds: float | None = None) -> str:
        """Return a new token of a principal, for `seconds` or for ever."""
        token = f"dapi{secrets.token_hex(16)}"
        expires = None if seconds is None else self.now() + seconds
        self.data.tokens[token] = {"principal": principal_id, "expires": expires}
        return token
