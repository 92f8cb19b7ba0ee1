"""Schemas of one game as registries and people register them."""

import json
from collections.abc import Sequence
from itertools import count

from sqlalchemy import Engine

from pipeline.base.names import game_key
from pipeline.data.contracts.formats.supported import format_of
from pipeline.data.contracts.given_ids import NewIds
from pipeline.data.contracts.policies import DEFAULTS, Policies
from pipeline.data.contracts.registration_batch import RegistrationBatch
from pipeline.data.contracts.registrations import unattended
from pipeline.data.contracts.registries.answers import Found, Version
from pipeline.data.contracts.registries.protobuf_sources import descriptor_set
from pipeline.data.contracts.registries.recording import record as keep
from pipeline.data.contracts.registries.recording import understood
from pipeline.data.contracts.registry import LocalRegistry, Registration
from pipeline.data.contracts.schemas import FieldPlacement, Schema
from pipeline.store.database.engine import writing

KEY = game_key("chess")
_WRITERS = count(1)


def proto(text: str, package: str = "acme") -> Schema:
    """Return the schema of the first message of a .proto file."""
    full = f"{package}.{text.split()[1]}" if package else text.split()[1]
    header = f"package {package};" if package else ""
    content = descriptor_set(f'syntax = "proto3"; {header} {text}', {}).SerializeToString()
    return Schema(0, "protobuf", full, format_of("protobuf").canonical(full, content))


def record(full_name: str, *aliases: str, **fields: str) -> Schema:
    """Return the schema of an Avro record with these aliases and fields."""
    given = {
        "type": "record", "name": full_name, "aliases": list(aliases),
        "fields": [{"name": name, "type": kind} for name, kind in fields.items()],
    }  # fmt: skip
    return Schema(0, "avro", full_name, format_of("avro").canonical(full_name, json.dumps(given).encode()))


def registration(schema: Schema, **more: object) -> Registration:
    """Return the registration of a schema by a person."""
    return Registration("chess", schema.message, schema.definition, format=schema.format, **more)  # type: ignore[arg-type]


def from_a_registry(
    engine: Engine, *schemas: Schema, versions: Sequence[int] = (), policies: Policies = DEFAULTS
) -> list[FieldPlacement]:
    """Register schemas as registries do, with their versions in one subject where given; return where they lie."""
    with writing(engine) as connection:
        ids = NewIds(connection, None)
        for schema, number in zip(schemas, versions, strict=False):
            found = Found(schema.format, schema.definition, {b"": schema.message}, Version("chess-value", number))
            writer = b"\0" + next(_WRITERS).to_bytes(4, "big")
            assert keep(connection, ids, "main", understood(found, writer, [], None), 0.0) is None
        each = [unattended("chess", KEY, schema, policies, registry="main") for schema in schemas]
        done = RegistrationBatch(connection, each, ids).write()
    held = LocalRegistry(engine).snapshot()
    return [held.placement(KEY, one.schema_id) for one in done]
