"""The kinds of registries that turnout asks: a further one is a module here and a case of `_client`.

A client is imported when the settings have its kind: a driver without registries loads none.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from sqlalchemy import Engine

from pipeline.base.errors import Refused
from pipeline.data.contracts.envelopes.declared import registry_key
from pipeline.data.contracts.policies import Policies, parse_policies
from pipeline.data.contracts.registries.answers import SchemaResolver
from pipeline.data.contracts.registries.resolution import NotSet, Resolution
from pipeline.lake.storage.location import Location
from pipeline.settings.registries import (
    ConfluentRegistry,
    FolderRegistry,
    GlueRegistry,
    RegistrySettings,
    generation_of,
    split_key,
)
from pipeline.settings.tree import Settings

_T = TypeVar("_T")


def resolution_of(engine: Engine, settings: Settings, bronze: Location) -> Resolution:
    """Return what answers the needs of a driver's games; `start` begins its threads.

    New schemas get their ids beside `bronze`.

    Raises:
        Refused: the settings of registries cannot be used; with all problems.
    """
    chosen, others = policies(settings.registries), _others(settings)
    return Resolution(engine, resolvers(settings), policies=chosen, others=others, bronze=bronze)


def resolvers(settings: Settings) -> Mapping[str, SchemaResolver]:
    """Return a client of each registry by its generation, and by each key of a source; asks nothing yet.

    Raises:
        Refused: settings cannot be used, such as those of a missing file; with all problems.
    """
    made = _by_generation(settings.registries, lambda _, each: _client(each, None))
    others = _others(settings)
    keys = (registry_key(each, settings.registries) for each in settings.every_source.values())
    return made | {key: others(key) for key in keys if key is not None and key not in made}


def policies(registries: Mapping[str, RegistrySettings]) -> Mapping[str, Policies]:
    """Return the policies of automatic registrations, by the registries' generations.

    Raises:
        Refused: there are no such policies; with all problems.
    """
    return _by_generation(registries, lambda _, each: parse_policies(each.auto_register_policies))


def _others(settings: Settings) -> Callable[[str], SchemaResolver]:
    """Return what makes a client by the key of answers, also of a source that the settings had before."""
    by_generation = {generation_of(settings.registries, name): each for name, each in settings.registries.items()}

    def make(key: str) -> SchemaResolver:
        generation, message = split_key(key)
        known = by_generation.get(generation)
        return NotSet(key) if known is None else _client(known, message or None)

    return make


def _by_generation(
    registries: Mapping[str, RegistrySettings], make: Callable[[str, RegistrySettings], _T]
) -> dict[str, _T]:
    made, problems = {}, []
    for name, each in registries.items():
        generation = generation_of(registries, name)
        try:
            made[generation] = make(generation, each)
        except Refused as refused:
            problems.append(f"registries.{name}: {refused}")
    if problems:
        lines = "".join(f"\n  - {problem}" for problem in problems)
        raise Refused(f"{len(problems)} wrong table(s) of registries, correct the settings:{lines}")
    return made


def _client(settings: RegistrySettings, message: str | None) -> SchemaResolver:
    """Return a client; `message` is that of payloads without one."""
    match settings.known:
        case ConfluentRegistry() as registry:
            return _confluent(registry, settings.timeout_seconds, message)
        case GlueRegistry() as registry:
            return _glue(registry, settings.timeout_seconds, message)
        case FolderRegistry() as registry:
            return _folder(registry, message)


def _confluent(registry: ConfluentRegistry, seconds: float, message: str | None) -> SchemaResolver:
    from pipeline.data.contracts.registries.bounded_http import Credentials, tls
    from pipeline.data.contracts.registries.confluent import ConfluentResolver

    ca, certificate, key = (Path(file) if file else None for file in (registry.ca, registry.certificate, registry.key))
    return ConfluentResolver(
        registry.url,
        credentials=Credentials(registry.user or None, registry.password or None, registry.token or None),
        context=tls(ca, certificate, key),
        seconds=seconds,
        message=message,
    )


def _glue(registry: GlueRegistry, seconds: float, message: str | None) -> SchemaResolver:
    from pipeline.data.contracts.registries.glue import GlueResolver

    return GlueResolver(
        registry.region or None,
        registry=registry.registry_name or "default-registry",
        endpoint=registry.endpoint or None,
        seconds=seconds,
        message=message,
    )


def _folder(registry: FolderRegistry, message: str | None) -> SchemaResolver:
    from pipeline.data.contracts.registries.folder import FolderResolver

    return FolderResolver(Path(registry.folder), message=message)
