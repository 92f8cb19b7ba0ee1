"""The formats in which the simulator writes: a further one is a module here and a line in `SAMPLES`."""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from pipeline.base.errors import Refused
from pipeline.demo.samples.avro import AvroSample
from pipeline.demo.samples.further_type import FurtherType
from pipeline.demo.samples.json import JsonSample
from pipeline.demo.samples.protobuf import ProtobufSample
from pipeline.demo.samples.sample import VERSIONS, Sample

SAMPLES: Final[Mapping[str, Callable[[str, int, int], Sample]]] = MappingProxyType(
    {"protobuf": ProtobufSample, "avro": AvroSample, "json": JsonSample}
)
"""Samples by the name of their format in `pipeline.data.contracts.formats.supported`."""


def check_formats(formats: Sequence[str]) -> None:
    """Check a choice of formats.

    Raises:
        Refused: one is unknown or named twice, or there is none.
    """
    if unknown := [name for name in formats if name not in SAMPLES]:
        raise Refused(f"The simulator does not write {unknown[0]!r}: use {', '.join(SAMPLES)}.")
    if not formats or len(set(formats)) < len(formats):
        raise Refused(f"Name each format once: {', '.join(SAMPLES)}.")


def sample(format_name: str, family: str, version: int, seed: int) -> Sample:
    """Return new payloads of one family and version.

    A version above the last one is that of a further event type: `version_of_type` numbers them.

    Raises:
        Refused: there is no such format, family or version.
    """
    check_formats((format_name,))
    number, place = divmod(version - 1, VERSIONS)
    made = SAMPLES[format_name](family, place + 1 if version > 0 else version, seed)
    return made if number == 0 else FurtherType(made, number + 1)


def version_of_type(version: int, number: int) -> int:
    """Return the number of a version of a game's event type; types count from 1."""
    return version + (number - 1) * VERSIONS


@lru_cache(maxsize=128)
def payload_schema(family: str, version: int, format_name: str = "protobuf") -> tuple[str, bytes]:
    """Return a payload schema as it is registered: the message's full name and its definition.

    For protobuf that is a serialised FileDescriptorSet with all that the message depends on.

    Raises:
        Refused: there is no such format, family or version.
    """
    made = sample(format_name, family, version, 0)
    return made.message, made.definition
