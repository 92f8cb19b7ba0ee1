"""The stand-in of a Databricks workspace as tests use it: started, steered, and gone at the end."""

import json
import secrets
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, Self

import requests

from tests.checkout import ROOT
from tests.workspace.server.control import HEADER
from tests.workspace.server.processes import end_with_parent, inherited
from tests.workspace.server.state import ADMIN
from tests.workspace.serving import SECRET_VARIABLE, TOKEN_VARIABLE

_SECONDS: Final = 30


@dataclass(frozen=True, slots=True)
class Identity:
    """A principal of the stand-in; `name` is what grants and permissions carry: e-mail address or application id."""

    name: str
    id: str
    token: str
    client_secret: str | None


class StandIn:
    """A workspace in a process of its own, which ends with the block, or with this process."""

    def __init__(self, folder: Path, postgres: str | None = None) -> None:
        """Keep logs in `folder`: `runs/RUN_ID.log`, `apps/NAME.log`, `requests.jsonl`, `standin.log`.

        `postgres` is the address of a superuser, for Lakebase.
        """
        self.folder, self._postgres = folder, postgres
        self._secret = secrets.token_hex(16)
        self.url = ""
        self.admin_token = f"dapi{secrets.token_hex(16)}"
        self.admin_name = ADMIN
        self._identities: dict[str, Identity] = {}
        self._process: subprocess.Popen[str] | None = None
        self._session = requests.Session()
        self._session.trust_env = False

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        named = ("--postgres", self._postgres) if self._postgres else ()
        with (self.folder / "standin.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.workspace.serving", "--folder", str(self.folder), *named],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True, cwd=ROOT,
                env={**inherited(), SECRET_VARIABLE: self._secret, TOKEN_VARIABLE: self.admin_token},
                preexec_fn=end_with_parent,  # noqa: PLW1509 - one system call, before any thread of the child
            )  # fmt: skip
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self.__exit__(None, None, None)
            raise AssertionError((self.folder / "standin.log").read_text("utf-8"))
        self.url = json.loads(line)["url"]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._session.close()
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(_SECONDS)
            finally:
                self._process.kill()
                self._process.wait()
                if self._process.stdout is not None:
                    self._process.stdout.close()
            if error is None:
                assert self._process.returncode == 0, (self.folder / "standin.log").read_text("utf-8")

    @property
    def pid(self) -> int:
        """The id of the stand-in's process."""
        assert self._process is not None
        return self._process.pid

    def variables(self, token: str | None = None) -> dict[str, str]:
        """Return the environment of a client, by default the admin's; with Lakebase also the port behind endpoints."""
        return {
            **self._order("variables"),
            "DATABRICKS_HOST": self.url,
            "DATABRICKS_TOKEN": token or self.admin_token,
            "DATABRICKS_AUTH_TYPE": "pat",
        }

    def add_principal(
        self,
        name: str,
        kind: Literal["service_principal", "user"] = "service_principal",
        groups: tuple[str, ...] = (),
        *,
        admin: bool = False,
    ) -> str:
        """Add somebody, and return a token; `identity(name)` has the rest."""
        made = self._order("add_principal", name=name, kind=kind, groups=list(groups), admin=admin)
        self._identities[name] = Identity(made["name"], made["id"], made["token"], made["client_secret"])
        return self._identities[name].token

    def identity(self, name: str) -> Identity:
        """Return somebody who was added under this name."""
        return self._identities[name]

    def fault(
        self,
        method: str,
        path_pattern: str,
        nth: int = 1,
        status: int | Literal["cut", "kill"] = 500,
        when: Literal["before", "after"] = "before",
        retry_after: int | None = None,
    ) -> None:
        """Fail the `nth` request from here on whose method (`*` is any) and address match, once.

        `after` lets it take effect first; `cut` closes the connection without an answer; `kill` also kills the process
        that sent the request.
        """
        self._order(
            "fault", method=method, pattern=path_pattern, nth=nth, status=status, when=when, retry_after=retry_after
        )

    def stale_reads(self, on: bool | str = True) -> None:
        """Let the first read of each address after a write answer from before it; a pattern limits the addresses."""
        self._order("stale_reads", pattern=on if isinstance(on, str) else ("" if on else None))

    def throttle(
        self,
        limit: int | None,
        seconds: float = 1.0,
        path_pattern: str = "",
        method: str = "*",
        retry_after: int | None = None,
    ) -> None:
        """Answer with 429 what exceeds `limit` requests within `seconds`; None as `limit` lets all pass again."""
        if limit is None:
            self._order("throttle")
        else:
            self._order(
                "throttle", method=method, pattern=path_pattern, limit=limit, seconds=seconds, retry_after=retry_after
            )

    def settings(self, **seconds: float) -> None:
        """Change the pace of the platform: the fields of `tests.workspace.server.state.Settings`."""
        self._order("settings", **seconds)

    def calm(self) -> None:
        """Forget faults that have not happened, rates and stale reads, and set the pace back."""
        self._order("calm")

    def requests(self, path_pattern: str = "") -> list[dict[str, Any]]:
        """Return all requests so far whose address contains this: `method`, `path`, `who`, `status` (or "cut")."""
        return [each for each in self._order("requests")["requests"] if path_pattern in each["path"]]

    def expire(self, token: str) -> None:
        """Let a token expire now."""
        self._order("expire", token=token)

    def vend(self, scheme: str, credentials: dict[str, Any] | None) -> None:
        """Let the catalog vend these for places of a scheme, such as `{"aws_temp_credentials": {...}}` for `s3`.

        Without that they are invented; those of `s3` are this machine's AWS_* variables, where it has them.
        """
        self._order("vend", scheme=scheme, credentials=credentials)

    def log(self, run_id: int) -> str:
        """Return what a run's processes have printed so far."""
        path = self.folder / "runs" / f"{run_id}.log"
        return path.read_text("utf-8", "replace") if path.exists() else ""

    def _order(self, order: str, /, **fields: object) -> dict[str, Any]:
        answer = self._session.post(
            f"{self.url}/_standin/{order}",
            data=json.dumps(fields),
            headers={HEADER: self._secret},
            timeout=_SECONDS,
        )
        assert answer.ok, answer.text
        found: dict[str, Any] = answer.json()
        return found
