"""The schema registry of AWS Glue, asked by boto3 of the extra `glue`.

Writers are UUIDs of schema versions, or the names of topics and games whose newest version counts. boto3 makes, signs
and reads the requests; sending them is ours, bounded in time and size.
"""

import io
import json
import re
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final
from uuid import UUID

from pipeline.base.errors import Refused, Transient, first_line
from pipeline.base.names import shown
from pipeline.data.contracts.decoded import one_line
from pipeline.data.contracts.registries.answers import Absent, Answer, Found, settled, version_of
from pipeline.data.contracts.registries.bounded_http import Reply, checked_url, conversation
from pipeline.data.contracts.registries.kinds import found

_NAME: Final = re.compile(r"[a-zA-Z0-9_$#.-]{1,255}")  # of Glue's schemas


class GlueResolver:
    """Asks Glue for schema versions."""

    def __init__(
        self,
        region: str | None = None,
        *,
        registry: str = "default-registry",
        endpoint: str | None = None,
        context: ssl.SSLContext | None = None,
        seconds: float = 20.0,
        message: str | None = None,
    ) -> None:
        """Check the settings; credentials come as boto3 finds them.

        Args:
            region: None: as boto3 finds it.
            registry: the one in Glue that has the schemas of names; UUIDs need none.
            endpoint: the address to ask in place of Glue's own.
            context: what connections are checked by, see `bounded_http.tls`; None: the system's authorities.
            seconds: for one answer.
            message: the protobuf message of payloads, where their file has several.

        Raises:
            Refused: boto3 or the region is missing, or the endpoint is not valid.
        """
        try:
            import boto3
            import botocore.config
            import botocore.exceptions
            import botocore.parsers
        except ModuleNotFoundError as error:
            raise Refused("A registry of kind glue needs boto3. Install it: pip install 'turnout[glue]'.") from error
        config = botocore.config.Config(
            retries={"total_max_attempts": 1, "mode": "standard"}, connect_timeout=seconds, read_timeout=seconds
        )
        try:
            self._client = boto3.session.Session().client(
                "glue",
                region_name=region,
                endpoint_url=None if endpoint is None else checked_url(endpoint),
                config=config,
            )
        except (botocore.exceptions.BotoCoreError, ValueError) as error:
            raise Refused(f"The registry's settings do not lead to Glue: {first_line(error)}") from error
        self._client.meta.events.register("before-send.glue", self._send)
        self._answered = botocore.exceptions.ClientError
        self._failed = (botocore.exceptions.BotoCoreError, botocore.parsers.ResponseParserError)
        self._registry = registry
        self._context = context
        self._seconds = seconds
        self._message = message

    def resolve(self, writer: bytes) -> Answer:
        """Ask for the schema of a writer."""
        return settled(lambda: self._answer(writer))

    def _answer(self, writer: bytes) -> Answer:
        wanted, name = self._wanted(writer)
        try:
            told = self._client.get_schema_version(**wanted)
        except self._answered as error:
            response: Mapping[str, Any] = error.response
            status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
            code = response.get("Error", {}).get("Code")
            if status == 400 and code == "EntityNotFoundException":
                return Absent(f"Glue has no schema {name}.")
            raise Transient(f"Glue answers {status} with {shown(str(code))}.") from error
        except self._failed as error:
            raise Transient(f"Glue cannot be asked: {one_line(first_line(error))}") from error
        return self._found(told, name)

    def _wanted(self, writer: bytes) -> tuple[dict[str, Any], str]:
        """Return the question, and the schema's name in sentences."""
        if writer[:1] == b"\x03" and len(writer) == 17:
            version = str(UUID(bytes=writer[1:]))
            return {"SchemaVersionId": version}, f"version {version}"
        name = writer.decode("utf-8", "replace")
        if not _NAME.fullmatch(name):
            raise Refused(f"No schema of Glue can have the name {shown(name)}.")
        schema = {"RegistryName": self._registry, "SchemaName": name}
        latest = {"SchemaId": schema, "SchemaVersionNumber": {"LatestVersion": True}}
        return latest, f"{shown(name)} in {shown(self._registry)}"

    def _found(self, told: Mapping[str, Any], name: str) -> Answer:
        status, kind, text = (told.get(key) for key in ("Status", "DataFormat", "SchemaDefinition"))
        if status in {"FAILURE", "DELETING"}:
            raise Refused(f"Glue's schema {name} has the status {status}.")
        if status != "AVAILABLE":
            raise Transient(f"Glue's schema {name} has the status {shown(str(status))}.")
        if not isinstance(kind, str) or not isinstance(text, str):
            raise Transient("Glue's address answers with something else than a schema. Check the endpoint.")
        schema: Found = found(kind, text, {}, indexed=False, message=self._message)
        return replace(schema, version=version_of(told.get("SchemaArn"), told.get("VersionNumber")))

    def _send(self, request: Any, **_: object) -> Any:
        """Send one request of boto3."""
        from botocore.awsrequest import AWSResponse

        headers = {
            name: value.decode("latin-1") if isinstance(value, bytes) else value
            for name, value in request.headers.items()
        }
        body = request.body.encode("utf-8") if isinstance(request.body, str) else request.body or b""
        with conversation(request.url, self._context, self._seconds) as talk:
            reply = talk.send(request.method, request.url, headers, body)
        return AWSResponse(request.url, reply.status, {}, _Whole(_texts(reply)))


def _texts(reply: Reply) -> bytes:
    """Return the texts and the version's number, all that is read: boto3 fails in its own ways on other values.

    Raises:
        Transient: the answer is not Glue's.
    """
    try:
        told = json.loads(reply.body)
    except (ValueError, RecursionError):
        told = None
    if not isinstance(told, dict):
        raise Transient(f"Glue's address answers {reply.status} with something else than JSON. Check the endpoint.")
    read: dict[str, Any] = {name: value for name, value in told.items() if isinstance(value, str)}
    if version_of("any", number := told.get("VersionNumber")) is not None:
        read["VersionNumber"] = number
    return json.dumps(read).encode("ascii")


class _Whole(io.BytesIO):
    """A body that is here already, as boto3 reads it."""

    def stream(self) -> Iterator[bytes]:
        """Yield all of it."""
        yield self.read()
