"""The framings in which the simulator writes: a further one is a module here and a line in `FRAMINGS`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from pipeline.base.errors import Refused
from pipeline.demo.framings.by_type import BY_TYPE, TypeFraming
from pipeline.demo.framings.framing import Framing

WRAPPER: Final = "wrapper"
"""The framing whose ids are those of schemas registered in turnout itself."""


@dataclass(frozen=True, slots=True)
class RegistryAddress:
    """Where the foreign framings register their schemas."""

    url: str | None = None  # of a registry with Confluent's API
    glue_endpoint: str | None = None
    region: str = "us-east-1"  # of Glue
    topic: str = "turnout"  # part of the names of subjects


NO_REGISTRY: Final = RegistryAddress()


def _confluent(address: RegistryAddress) -> Framing:
    from pipeline.demo.framings.confluent import ConfluentFraming

    return ConfluentFraming(_url(address), address.topic)


def _confluent_settings(address: RegistryAddress) -> dict[str, str]:
    return {"kind": "confluent", "url": _url(address)}


def _url(address: RegistryAddress) -> str:
    if address.url is None:
        raise Refused("Confluent's frames need a schema registry: give its address by --registry-url.")
    return address.url


def _glue(address: RegistryAddress) -> Framing:
    from pipeline.demo.framings.glue import GlueFraming

    return GlueFraming(_endpoint(address), address.region)


def _glue_settings(address: RegistryAddress) -> dict[str, str]:
    return {"kind": "glue", "endpoint": _endpoint(address), "region": address.region}


def _endpoint(address: RegistryAddress) -> str:
    if address.glue_endpoint is None:
        raise Refused(
            "Frames of AWS Glue need an endpoint, which the simulator fills with schemas: give it by --glue-endpoint."
        )
    return address.glue_endpoint


@dataclass(frozen=True, slots=True)
class ForeignFraming:
    """A framing whose ids a registry outside of turnout gives."""

    open: Callable[[RegistryAddress], Framing]
    settings: Callable[[RegistryAddress], dict[str, str]]  # of the table [registries.NAME] with which turnout reads it
    is_startable: bool  # whether the demo has such a registry


FOREIGN: Final[Mapping[str, ForeignFraming]] = MappingProxyType(
    {
        "confluent": ForeignFraming(_confluent, _confluent_settings, is_startable=True),
        "glue": ForeignFraming(_glue, _glue_settings, is_startable=False),
    }
)
"""Framings by the name that `--framing` takes."""

FRAMINGS: Final = (WRAPPER, *FOREIGN, BY_TYPE)


def check_framings(framings: Sequence[str]) -> None:
    """Check a choice of framings.

    Raises:
        Refused: one is unknown, two need registries, of which a source has one, or one must be alone.
    """
    if unknown := [name for name in framings if name not in FRAMINGS]:
        raise Refused(f"The simulator does not write the framing {unknown[0]!r}: use {', '.join(FRAMINGS)}.")
    if len(foreign := [name for name in framings if name in FOREIGN]) > 1:
        raise Refused(f"A source has one registry: choose one of {' and '.join(foreign)}, with or without {WRAPPER}.")
    if BY_TYPE in framings and len(framings) > 1:
        raise Refused(f"Documents that name no schema are a source of their own: use the framing {BY_TYPE} alone.")
    if not framings or len(set(framings)) < len(framings):
        raise Refused(f"Name each framing once: {', '.join(FRAMINGS)}.")


def foreign_framing(framings: Sequence[str], address: RegistryAddress) -> Framing | None:
    """Return the framing among these that names no schema of turnout's, ready to write; none if none does.

    Raises:
        Refused: its registry's address is missing or not usable.
        Transient: its registry does not answer.
    """
    if BY_TYPE in framings:
        return TypeFraming()
    for name in framings:
        if name in FOREIGN:
            return FOREIGN[name].open(address)
    return None
