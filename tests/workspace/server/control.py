"""How a test steers the stand-in: a private path, refused without the secret that only its starter has."""

import dataclasses
import hmac
import json
from collections.abc import Mapping
from typing import Any

from tests.workspace.server import lakebase
from tests.workspace.server.calls import Answer, ApiError, Json, as_json, invalid, missing, said
from tests.workspace.server.faults import Fault, Throttle
from tests.workspace.server.people import new_client_secret
from tests.workspace.server.state import Settings, World

HEADER = "x-standin-secret"


def answer(world: World, name: str, headers: Mapping[str, str], raw: bytes) -> Answer:
    """Do what a test orders."""
    if not hmac.compare_digest(headers.get(HEADER, ""), world.secret):
        return said(ApiError(403, "PERMISSION_DENIED", "This path is the tests' own."))
    body: Json = json.loads(raw or b"{}")
    act = getattr(_Orders, name, None)
    if act is None:
        return said(missing(f"There is no order {name}."))
    try:
        return as_json(act(world, **body))
    except ApiError as error:
        return said(error)


class _Orders:
    """Each function is an order; its arguments are the fields of the body."""

    @staticmethod
    def fault(world: World, **fields: Any) -> Json:
        world.faults.add(Fault(**fields))
        return {}

    @staticmethod
    def throttle(world: World, **fields: Any) -> Json:
        world.faults.throttle(Throttle(**fields) if fields else None)
        return {}

    @staticmethod
    def calm(world: World) -> Json:
        world.faults.calm()
        world.settings = Settings()
        return {}

    @staticmethod
    def stale_reads(world: World, pattern: str | None) -> Json:
        world.faults.read_stale(pattern)
        return {}

    @staticmethod
    def requests(world: World) -> Json:
        return {"requests": world.faults.requests}

    @staticmethod
    def settings(world: World, **fields: Any) -> Json:
        world.settings = dataclasses.replace(world.settings, **fields)
        return {}

    @staticmethod
    def vend(world: World, scheme: str, credentials: Json | None) -> Json:
        world.alive.setdefault("vended", {})[scheme] = credentials
        return {}

    @staticmethod
    def variables(world: World) -> Json:
        return dict(lakebase.variables(world))

    @staticmethod
    def expire(world: World, token: str) -> Json:
        world.data.tokens[token]["expires"] = 0.0
        return {}

    @staticmethod
    def add_principal(world: World, name: str, kind: str, groups: list[str], admin: bool) -> Json:
        """Add a user or a service principal; the name of the latter is its display name."""
        if kind not in {"user", "service_principal"}:
            raise invalid("kind must be user or service_principal.")
        everything = (*groups, *(["admins"] if admin else []))
        made = world.add_principal(kind, name, name, everything)
        secret = None
        if kind == "service_principal":
            made["name"] = made["uuid"]
            secret = new_client_secret(world, made["name"])
        return {"token": world.mint(made["id"]), "name": made["name"], "id": made["id"], "client_secret": secret}
