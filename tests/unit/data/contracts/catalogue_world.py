"""Schemas of Avro and their registration in a store."""

import json
from typing import Any

from sqlalchemy import Engine

from pipeline.data.contracts.policies import parse_policies
from pipeline.data.contracts.registry import LocalRegistry, Registration


def avro(**fields: Any) -> bytes:
    listed = [{"name": name, "type": kind} for name, kind in fields.items()]
    return json.dumps({"type": "record", "name": "t.M", "fields": listed}).encode()


def register(engine: Engine, definition: bytes, *policies: str, game: str = "Chess", by: str | None = None) -> None:
    chosen = parse_policies(policies)
    LocalRegistry(engine).register_many([Registration(game, "t.M", definition, chosen, None, "avro", by)])
