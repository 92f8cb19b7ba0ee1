"""The profile that the settings of a source declare. Called by commands and drivers, before anything is read."""

from collections.abc import Mapping
from pathlib import Path

from pipeline.base.errors import Refused
from pipeline.base.names import shown
from pipeline.data.contracts.envelopes.message import problems
from pipeline.data.contracts.formats.supported import format_of
from pipeline.data.contracts.profile import WRAPPER, SourceProfile
from pipeline.settings.registries import RegistrySettings, generation_of, key_of
from pipeline.settings.source import INDEXED, Source

_MAX_BYTES = 1024 * 1024


def profile_of(source: Source) -> SourceProfile | None:
    """Return the profile of a source whose settings were checked; None is turnout's wrapper with turnout's ids.

    Settings that mean the same give the same profile, hence one number.

    Raises:
        Refused: the envelope's definition cannot be read or used; with all problems of its fields.
    """
    profile = SourceProfile(
        envelope=source.envelope,
        routing=source.routing,
        framing=source.framing,
        registry=source.registry or None,
        headers=source.id_headers if source.framing in INDEXED else WRAPPER.headers,
        message=source.message or None,
        definition=_definition(source) if source.envelope_definition else b"",
        definition_message=source.envelope_message,
        fields=tuple(sorted(source.envelope_fields.items())),
        event_type=source.event_type,
        time_unit=source.envelope_time,
        undeclared=source.undeclared,
    )
    if found := problems(profile) if profile.definition else []:
        lines = "".join(f"\n  - source.envelope_fields.{each}" for each in found)
        raise Refused(f"{len(found)} wrong field(s) of the envelope {shown(source.envelope_message)}:{lines}")
    return None if profile == WRAPPER else profile


def registry_key(source: Source, registries: Mapping[str, RegistrySettings]) -> str | None:
    """Return under which key the answers for a source are kept; None where it needs no registry, or it is not set."""
    if source.registry not in registries:
        return None
    message = source.message or ("" if source.framing == WRAPPER.framing else None)
    return key_of(generation_of(registries, source.registry), message)


def _definition(source: Source) -> bytes:
    path = Path(source.envelope_definition)
    try:
        with path.open("rb") as file:
            submitted = file.read(_MAX_BYTES + 1)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise Refused(
            f"The definition of the envelope cannot be read: {reason}. Correct source.envelope_definition."
        ) from error
    if len(submitted) > _MAX_BYTES:
        raise Refused(
            f"The definition of the envelope has more than {_MAX_BYTES} bytes. Leave out what it does not need."
        )
    return format_of(source.envelope).canonical(source.envelope_message, submitted)
