"""Confluent's frames, written by confluent-kafka's own serializers: they register each schema in a registry.

Subjects are `<topic>-<message>` (TopicRecordNameStrategy), as one topic has the schemas of many games.
"""

from collections.abc import Callable
from typing import Any, Final

import httpx2
from confluent_kafka.schema_registry import SchemaRegistryClient, topic_record_subject_name_strategy
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.serialization import MessageField, SerializationContext

from pipeline.base.errors import Refused, Transient
from pipeline.demo.framings.framing import FRAMED, Framed
from pipeline.demo.samples.sample import Sample

_TIMEOUT_SECONDS: Final = 10
_NOBODYS: Final = (2_000_000_000, 2**31 - 1)  # ids that no registry has given so far
_SETTINGS: Final[dict[str, Any]] = {
    "auto.register.schemas": True,
    "subject.name.strategy": topic_record_subject_name_strategy,
}


class ConfluentFraming:
    """Frames events by a registry's ids. A schema is registered with its first event."""

    def __init__(self, url: str, topic: str, retries: int = 2) -> None:
        """Take a registry's address, such as `http://localhost:8081/apis/ccompat/v7`."""
        self._url = url
        self.client = SchemaRegistryClient.new_client({"url": url, "timeout": _TIMEOUT_SECONDS, "max.retries": retries})
        self._context = SerializationContext(topic, MessageField.VALUE)
        self._serializers: dict[Sample, Callable[..., Any]] = {}

    def introduce(self, version: int, sample: Sample) -> None:  # noqa: ARG002 - subjects count their versions
        """Let the serializer register its schema.

        Raises:
            Transient: the registry does not answer.
            Refused: the registry does not take the schema.
        """
        serializer = sample.serializer(self.client, dict(_SETTINGS))
        try:
            serializer(sample.event(0, 0, 0), self._context)
        except SchemaRegistryError as error:
            raise self._problem(sample, error) from error
        except (httpx2.HTTPError, OSError) as error:
            raise Transient(f"No schema registry answers at {self._url}: {_line(error)}. Start it.") from error
        self._serializers[sample] = serializer

    def framed(self, game: str, version: int, sample: Sample, event: Any) -> Framed:  # noqa: ARG002 - one id for all games
        """Return an event's bytes behind magic 0 and the registry's id."""
        message: bytes = self._serializers[sample](event, self._context)
        start = len(message) - len(sample.encode(event))
        return Framed(FRAMED, message[:start], message[start:])

    def joined(self, framed: Framed) -> bytes:
        """Return the payload as it goes into the wrapper."""
        return framed.head + framed.body

    def unknown(self, game: str, framed: Framed, chance: int) -> Framed:  # noqa: ARG002 - nobody has these ids
        """Return the payload with an id that the registry has not given."""
        nobodys = _NOBODYS[chance % len(_NOBODYS)].to_bytes(4, "big")
        return framed._replace(head=framed.head[:1] + nobodys + framed.head[5:])

    def _problem(self, sample: Sample, error: SchemaRegistryError) -> Refused | Transient:
        said = f"The schema registry at {self._url} did not register {sample.message}: {_line(error)}"
        if error.http_status_code in {409, 422}:
            return Refused(f"{said}. Allow the change of its subject there, or use an empty registry.")
        return Transient(f"{said}. Look into its log, or retry.")


def _line(error: BaseException) -> str:
    return (" ".join(str(error).split()) or type(error).__name__)[:300]
