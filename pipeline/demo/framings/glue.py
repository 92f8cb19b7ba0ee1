"""Frames of AWS Glue Schema Registry: version 3, compression, the UUID of a schema version. Needs the extra `glue`."""

import zlib
from typing import Any, Final
from uuid import UUID

from pipeline.base.errors import Refused, Transient
from pipeline.demo.framings.framing import FRAMED, Framed
from pipeline.demo.samples.sample import Sample

REGISTRY: Final = "turnout-demo"
_VERSION: Final = b"\x03"
_PLAIN: Final = b"\x00"
_ZLIB: Final = b"\x05"
_TIMEOUTS: Final[dict[str, Any]] = {"connect_timeout": 5, "read_timeout": 10}  # seconds
_NOBODYS: Final = (UUID(int=1), UUID("ffffffff-ffff-4fff-bfff-ffffffffffff"))


class GlueFraming:
    """Frames events by schema versions of Glue, every other one compressed.

    A schema is registered with its first event. Each version of a sample is a schema of its own, as Glue may judge
    compatibility within one.
    """

    def __init__(self, endpoint: str, region: str) -> None:
        """Connect to Glue or a stand-in at an address; credentials come from the environment.

        Raises:
            Refused: boto3 is not installed, or the registry cannot be created.
            Transient: nothing answers there.
        """
        try:
            import boto3
            from botocore.config import Config
        except ImportError as error:
            raise Refused("Frames of AWS Glue need boto3: install `turnout[glue]`.") from error
        self._endpoint = endpoint
        self.client: Any = boto3.client("glue", endpoint_url=endpoint, region_name=region, config=Config(**_TIMEOUTS))
        self._ids: dict[Sample, bytes] = {}
        self._count = 0
        self._called("create_registry", ("AlreadyExistsException",), RegistryName=REGISTRY)

    def introduce(self, version: int, sample: Sample) -> None:
        """Register a schema under a name of its own.

        Raises:
            Transient: Glue does not answer.
            Refused: Glue does not take the schema.
        """
        name = f"{sample.message}-{sample.glue_format.lower()}-{version}"
        made = self._called(
            "create_schema",
            ("AlreadyExistsException",),
            RegistryId={"RegistryName": REGISTRY},
            SchemaName=name,
            DataFormat=sample.glue_format,
            Compatibility="NONE",
            SchemaDefinition=sample.text,
        )
        if made is None:  # by an earlier run
            made = self._called(
                "register_schema_version",
                (),
                SchemaId={"RegistryName": REGISTRY, "SchemaName": name},
                SchemaDefinition=sample.text,
            )
        assert made is not None  # only an error that is passed over gives nothing
        self._ids[sample] = UUID(made["SchemaVersionId"]).bytes

    def framed(self, game: str, version: int, sample: Sample, event: Any) -> Framed:  # noqa: ARG002 - one id for all games
        """Return an event's bytes behind the id of their schema version."""
        self._count += 1
        compression = _PLAIN if self._count % 2 else _ZLIB
        return Framed(FRAMED, _VERSION + compression + self._ids[sample], sample.encode(event))

    def joined(self, framed: Framed) -> bytes:
        """Return the payload as it goes into the wrapper, compressed where its frame says so."""
        compressed = framed.head[1:2] == _ZLIB
        return framed.head + (zlib.compress(framed.body) if compressed else framed.body)

    def unknown(self, game: str, framed: Framed, chance: int) -> Framed:  # noqa: ARG002 - nobody has these ids
        """Return the payload under an id that Glue has not given."""
        return framed._replace(head=framed.head[:2] + _NOBODYS[chance % len(_NOBODYS)].bytes)

    def _called(self, operation: str, passed_over: tuple[str, ...], **wanted: Any) -> dict[str, Any] | None:
        """Call Glue; return nothing when it answers with an error that is passed over."""
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            answer: dict[str, Any] = getattr(self.client, operation)(**wanted)
        except ClientError as error:
            code = error.response["Error"]["Code"]
            if code in passed_over:
                return None
            raise Refused(f"AWS Glue at {self._endpoint} refused {operation}: {_line(error)}") from error
        except BotoCoreError as error:
            raise Transient(f"AWS Glue does not answer at {self._endpoint}: {_line(error)}") from error
        return answer


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300]
