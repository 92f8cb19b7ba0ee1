"""The settings of registries that give producers their schema ids: `[registries.NAME]`; pure."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import PurePath
from typing import Annotated, ClassVar, Final, Literal, TypeAlias
from urllib.parse import urlsplit

from pipeline.settings.parsing import Range

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")


@dataclass(frozen=True, slots=True)
class ConfluentRegistry:
    """Confluent's REST API, which Apicurio, Karapace and Redpanda have too; for the fields see `RegistrySettings`."""

    url: str
    ca: str = ""
    certificate: str = ""
    key: str = ""
    user: str = ""
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)

    hint: ClassVar[str] = ": its url ends before /subjects, Apicurio's in /apis/ccompat/v7"
    """The end of the advice for a registry that does not answer."""


@dataclass(frozen=True, slots=True)
class GlueRegistry:
    """A registry of AWS Glue."""

    region: str = ""
    registry_name: str = ""
    endpoint: str = ""

    hint: ClassVar[str] = ""


@dataclass(frozen=True, slots=True)
class FolderRegistry:
    """A folder with files of schemas."""

    folder: str

    hint: ClassVar[str] = ""


KnownRegistry: TypeAlias = ConfluentRegistry | GlueRegistry | FolderRegistry
"""A registry by its kind, with the settings of that kind alone; a field without a default must be given."""

_KINDS: Final[Mapping[str, type[KnownRegistry]]] = {
    "confluent": ConfluentRegistry, "glue": GlueRegistry, "folder": FolderRegistry,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class RegistrySettings:
    """A registry that gives producers the ids of their schemas: see docs/registries.md.

    NAME is 1 to 40 of a-z, 0-9, `_` and `-`; `source.registry` names it.
    """

    kind: Literal["confluent", "glue", "folder"] = "confluent"
    """`confluent`: Confluent's REST API, which Apicurio, Karapace and Redpanda have too. `glue`: AWS Glue. `folder`:
    files with schemas."""

    generation: Annotated[int, Range(1, 1000)] = 1
    """Raise it when the registry was rebuilt and its ids began again. Rows of bronze keep the generation that they
    landed with; the others' schemas stay as they are."""

    timeout_seconds: Annotated[float, Range(0.1, 120)] = 20.0
    """Longest time for one answer, with all that it refers to. Without an answer the registry is away: its games wait,
    and turnout asks again after 1 to 60 seconds."""

    url: str = ""
    """With `confluent`: the address, http or https, with its port and without user and password."""

    ca: str = ""
    """With `confluent`: a file with the certificates that may vouch for the registry. Empty means the system's."""

    certificate: str = ""
    """With `confluent`: a file with turnout's own certificate, where the registry wants one."""

    key: str = ""
    """With `confluent`: a file with the private key of `certificate`. Empty means that it is in the same file."""

    user: str = ""
    """With `confluent`: the user or API key of basic authentication."""

    password: str = field(default="", repr=False)
    """With `confluent`: the password of `user`. Give it by `TURNOUT_REGISTRIES__NAME__PASSWORD`."""

    token: str = field(default="", repr=False)
    """With `confluent`: a bearer token, instead of `user`. Give it by `TURNOUT_REGISTRIES__NAME__TOKEN`."""

    region: str = ""
    """With `glue`: the AWS region. Empty means the region of the AWS environment, which also has the credentials."""

    registry_name: str = ""
    """With `glue`: the name of the registry, for schemas by the name of a topic or game. Empty means the default
    registry."""

    endpoint: str = ""
    """With `glue`: another address than that of AWS, for tests."""

    folder: str = ""
    """With `folder`: the absolute path of the folder."""

    auto_register_policies: tuple[str, ...] = ()
    """Policies of schemas that turnout registers from this registry, such as `["incompatible=side-column"]`. A change
    whose policy is to refuse sends the schema's rows to quarantine until a person registers it. See
    docs/schemas.md."""

    @property
    def known(self) -> KnownRegistry:
        """The settings of its kind."""
        kind = _KINDS[self.kind]
        return kind(**{leaf.name: getattr(self, leaf.name) for leaf in fields(kind)})


def generation_of(registries: Mapping[str, RegistrySettings], name: str) -> str:
    """Return a registry with its generation, as in bronze and the control store: NAME, NAME.2, NAME.3 and so on."""
    number = registries[name].generation
    return name if number == 1 else f"{name}.{number}"


def key_of(generation: str, message: str | None) -> str:
    """Return under which name answers to a source are kept, as in bronze's column `registry`.

    It is the registry's generation; then a colon and the source's `message` where no payload of it names its own, empty
    for a file's only one. So another message in the settings is another question, and changes no answer.
    """
    return generation if message is None else f"{generation}:{message}"


def split_key(key: str) -> tuple[str, str | None]:
    """Return the generation and the message of a key that `key_of` made."""
    generation, colon, message = key.partition(":")
    return generation, message if colon else None


def registry_problems(registries: Mapping[str, RegistrySettings]) -> list[str]:
    """Return the problems of all registries' settings, a sentence each; reads no file."""
    problems = []
    for name, each in registries.items():
        if _NAME.fullmatch(name) is None:
            problems.append(
                f"registries.{name[:60]!a}: expected a name of 1 to 40 of a-z, 0-9, '_' and '-', with no sign first"
            )
        problems += [f"registries.{name[:60]}.{problem}" for check in _CHECKS for problem in check(each)]
    return problems


def _kind_problems(registry: RegistrySettings) -> Iterator[str]:
    own = fields(_KINDS[registry.kind])
    names = {leaf.name for leaf in own}
    for leaf in (leaf.name for kind in _KINDS.values() for leaf in fields(kind)):
        if getattr(registry, leaf) and leaf not in names:
            yield f"{leaf}: expected none with the kind {registry.kind!r}"
    for needed in (leaf.name for leaf in own if leaf.default is MISSING):
        if not getattr(registry, needed):
            yield f"{needed}: expected one with the kind {registry.kind!r}, got none"


def _address_problems(registry: RegistrySettings) -> Iterator[str]:
    for leaf in ("url", "endpoint"):
        given = getattr(registry, leaf)
        if given and not _is_address(given):
            yield f"{leaf}: expected an address such as https://host:8081, without user and password (not shown)"


def _is_address(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return (
            parts.scheme in {"http", "https"}
            and bool(parts.hostname)
            and "@" not in parts.netloc
            and (parts.port is None or parts.port > 0)
        )
    except ValueError:
        return False


def _credential_problems(registry: RegistrySettings) -> Iterator[str]:
    if registry.token and registry.user:
        yield "token: expected either a token or a user, got both"
    if registry.password and not registry.user:
        yield "password: expected a user with the password, got none"
    if registry.key and not registry.certificate:
        yield "key: expected a certificate with the key, got none"


def _path_problems(registry: RegistrySettings) -> Iterator[str]:
    for leaf in ("ca", "certificate", "key", "folder"):
        given = getattr(registry, leaf)
        if given and not PurePath(given).is_absolute():
            yield f"{leaf}: expected an absolute path (not shown)"


_CHECKS: Final = (_kind_problems, _address_problems, _credential_problems, _path_problems)
