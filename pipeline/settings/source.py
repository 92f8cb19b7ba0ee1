"""The settings of a source, and what is wrong with them before anything is read."""

import hashlib
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from pipeline.base.names import MAX_NAME_BYTES, is_game_name
from pipeline.lake.storage.places import is_url
from pipeline.settings.parsing import ISOLATION_LEVELS, names_more, quoted

ENVELOPE_FIELDS: Final = ("game", "schema_id", "payload", "event_time", "event_id", "producer_id", "sequence", "type")
"""What a field of an envelope may hold."""

INDEXED: Final = ("confluent", "wrapper-or-confluent")
"""Framings that have headers with a schema's GUID, and index paths."""

_DEFINED: Final = ("protobuf", "avro")
_OWN: Final = (*_DEFINED, "json")
_ROUTING: Final = re.compile(r"field|topic|key|(?P<kind>header|game):(?P<name>.*)", re.DOTALL)
_EVENT_TYPE: Final = re.compile(r"field|header:.+", re.DOTALL)
_REGISTRY: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")
_FULL_NAME: Final = re.compile(r"(?=.{1,500}$)[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")
_KEYS: Final = re.compile(r'(?=.{1,500}$)[^."\\\x00-\x1f]+(\.[^."\\\x00-\x1f]+)*')
_MAX_HEADERS: Final = 16
_TOPIC: Final = re.compile(r"(?!\.\.?$)[A-Za-z0-9._-]{1,249}")
_TOPIC_WORDS: Final = "1 to 249 letters, digits, '.', '_' and '-'"
_MAX_LISTED: Final = 500  # characters
_PATTERN: Final = re.compile(r"(?:[A-Za-z0-9._*+?|()\[\]^${},-]|\\[.dDwW-])+")
_NESTED: Final = re.compile(r"\[[^\]]*\[|\[\^?\]|\(\?|[*+?}][+]")  # Java's unions, flags, possessive quantifiers


@dataclass(frozen=True, slots=True)
class Source:
    """Where records come from, and how they are routed and packed: see docs/envelopes.md."""

    kind: Literal["delta", "kafka"] = "delta"
    """`delta` reads the landing table in the environment's folder, `kafka` a topic. `--source` overrides it."""

    bootstrap_servers: str = "127.0.0.1:9092"
    """Kafka brokers as `host:port`, comma separated. Brokers and topic together name the source: ingest treats
    another spelling as another source and begins it at `source.starting_offsets`. See docs/kafka.md."""

    topic: str = "turnout-events"
    """The Kafka topic. For several use `source.topics` or `source.topic_pattern` in its place."""

    topics: tuple[str, ...] = ()
    """Several topics of the same brokers and with the same profile. Another list goes on behind what is in bronze of
    each topic. See docs/kafka.md."""

    topic_pattern: str = ""
    """A regular expression: ingest reads each topic whose whole name matches, and from its beginning a topic that
    appears later."""

    path: str = ""
    """The absolute path of a landing table; empty means the one in the environment's folder."""

    starting_offsets: str = "earliest"
    """Where the first start on a topic begins: `earliest`, `latest`, or Spark's JSON of offsets per partition. Later
    starts continue where the last one stopped."""

    kafka_options: Mapping[str, str] = field(default_factory=dict)
    """More options of the Kafka consumer, named as in Kafka's Java client, such as those for security.
    `isolation.level` is `read_committed` unless set here. See docs/kafka.md."""

    envelope: Literal["wrapper", "protobuf", "avro", "json", "none"] = "wrapper"
    """The bytes around a payload: turnout's `wrapper`, a message of `protobuf`, a record of `avro` or a document of
    `json` of your own, or `none`, where the record's value is the payload. See docs/envelopes.md."""

    envelope_definition: str = ""
    """Envelopes of protobuf and Avro only: absolute path of the definition, a FileDescriptorSet with all imports or an
    `.avsc` file. Rows that landed keep the definition that they landed with."""

    envelope_message: str = ""
    """Envelopes of protobuf and Avro only: full name of its message or record."""

    envelope_fields: Mapping[str, str] = field(default_factory=dict)
    """Custom envelopes only: paths of its fields, such as `game = "meta.studio"`. `payload` must be there, except in
    `json`, where the payload is the whole document without it; `game` with the routing `field`, `schema_id` with the
    framing `wrapper`; `event_time`, `event_id`, `producer_id`, `sequence` and `type` may be."""

    envelope_time: Literal["s", "ms", "us", "ns", "rfc3339"] = "ms"
    """The envelope `json` only: the unit of numbers at `event_time`, since 1970, or `rfc3339` for texts."""

    routing: str = "field"
    """Where the game's name is: in a `field` of the envelope, in the `topic`, in the record's `key`, in `header:NAME`,
    or `game:NAME` for all records."""

    framing: Literal[
        "wrapper", "confluent", "glue", "wrapper-or-confluent", "wrapper-or-glue", "topic", "game", "type"
    ] = "wrapper"
    """Where the payload's schema is named: by the number in the `wrapper` or another envelope, by the bytes that the
    serializers of `confluent` or `glue` write before the payload, by the one or the other, or not at all, with one
    schema for each `topic` or `game`, or with the JSON Schemas that the game has for the event `type`."""

    event_type: str = "field"
    """With the framing `type`: where the event type is, in the `field` type of the envelope or in `header:NAME`. A game
    has one event type if the envelope has no path for it."""

    undeclared: Literal["register", "quarantine"] = "register"
    """With the framing `type`: what becomes of documents of an event type without a schema. turnout registers their
    shapes and types their columns by them, or they go to `quarantine` until a schema is declared."""

    registry: str = ""
    """The registry that gave the schemas their ids, as in `[registries.NAME]`. Empty means turnout itself, which only
    the framings `wrapper` and `type` may use."""

    id_headers: tuple[str, ...] = ("__value_schema_id",)
    """With the framings of Confluent: names of headers that may hold a schema's GUID. The first one in a record counts,
    and then its value has no id."""

    message: str = ""
    """The full name of the payload's message, where payloads are protobuf and the framing does not name one of the
    messages in a schema: `glue`, `topic`, `game`, and `wrapper` with a registry."""

    @property
    def isolation_level(self) -> str:
        """Which transactions the consumer reads: committed ones, unless `kafka_options` set `read_uncommitted`."""
        given = {name.removeprefix("kafka."): value for name, value in self.kafka_options.items()}
        return given.get("isolation.level", ISOLATION_LEVELS[0])


def source_problems(source: Source) -> list[str]:
    """Return the problems of a source's settings, a sentence each; reads no file."""
    return [f"source.{each}" for each in _problems(source)]


def sources_problems(source: Source, several: Mapping[str, Source]) -> list[str]:
    """Return the problems of the tables `[source]` and `[sources.NAME]`."""
    if not several:
        return source_problems(source)
    problems = []
    if source != Source():
        problems.append("sources: expected either [source] or [sources.NAME], got both")
    named: dict[str, str] = {}
    for name, each in several.items():
        if _REGISTRY.fullmatch(name) is None:
            problems.append(
                f"sources: expected names of 1 to 40 of a-z, 0-9, '_' and '-', with no sign first, got {quoted(name)}"
            )
        problems += [f"sources.{name}.{problem}" for problem in _problems(each)]
        other = named.setdefault(source_described(each), name)
        if other != name:
            problems.append(f"sources.{name}: expected another source than that of sources.{other}, got the same")
    return problems


def source_described(source: Source) -> str:
    """Return one line that names what a source reads; another line is another source."""
    if source.kind == "kafka":
        return topics_described(source)
    return f"landing table {source.path}" if source.path else "landing table"


def sources_described(sources: Collection[Source]) -> str:
    """Return one line that names several sources, in any order."""
    return f"sources {_listed([source_described(each) for each in sources], ' and ')}"


def _problems(source: Source) -> Iterator[str]:
    checks = (_topic_problems, *_CHECKS) if source.kind == "kafka" else (_path_problems, *_CHECKS)
    for check in checks:
        yield from check(source)


def _path_problems(source: Source) -> Iterator[str]:
    if is_url(source.path):
        if not source.path.startswith("s3://") or source.path.endswith("/") or names_more(source.path):
            yield f"path: expected a URL such as s3://bucket/landing, got {quoted(source.path)}"
    elif source.path and (not Path(source.path).is_absolute() or source.path != str(Path(source.path))):
        yield f"path: expected an absolute path without '/' at its end, or a URL, got {quoted(source.path)}"


def reads_several(source: Source) -> bool:
    """Return whether a Kafka source reads several topics, or a pattern."""
    return bool(source.topic_pattern) or len(source.topics) > 1


def topics_described(source: Source) -> str:
    """Return one line that names the topics of a Kafka source; another line is another source."""
    if source.topic_pattern:
        what = f"topics matching {source.topic_pattern}"
    elif len(source.topics) > 1:
        what = f"topics {_listed(source.topics)}"
    else:
        what = f"topic {next(iter(source.topics), source.topic)}"
    return f"kafka {what} at {source.bootstrap_servers}"


def topic_described(topic: str, source: Source) -> str:
    """Return the line that names one topic of a source."""
    return f"kafka topic {topic} at {source.bootstrap_servers}"


def named_topic(described: str) -> str:
    """Return the topic that the line of one topic names, whatever its brokers are called."""
    return described.removeprefix("kafka topic ").partition(" at ")[0]


def topic_of(described: str, source: Source) -> str | None:
    """Return the topic that a line names; None where it names something else."""
    topic = described.removeprefix("kafka topic ").removesuffix(f" at {source.bootstrap_servers}")
    return topic if topic_described(topic, source) == described else None


def _listed(names: Collection[str], between: str = ",") -> str:
    """Return names as one text that differs from that of other names, in any order; an index cannot hold a long one."""
    text = between.join(sorted(names))
    if len(text) <= _MAX_LISTED:
        return text
    return f"{text[:_MAX_LISTED]}... ({len(names)} in all, {hashlib.sha256(text.encode()).hexdigest()[:16]})"


def _topic_problems(source: Source) -> Iterator[str]:
    is_set = {
        "topic": source.topic != Source.__dataclass_fields__["topic"].default,
        "topics": bool(source.topics),
        "topic_pattern": bool(source.topic_pattern),
    }
    given = [name for name, there in is_set.items() if there]
    if len(given) > 1:
        yield f"topic: expected one of topic, topics and topic_pattern, got {' and '.join(given)}"
    if given in ([], ["topic"]) and _TOPIC.fullmatch(source.topic) is None:
        yield (
            f"topic: expected the name of one topic, {_TOPIC_WORDS}, got {quoted(source.topic)}; a list is for "
            f"source.topics, a pattern for source.topic_pattern"
        )
    for name in source.topics:
        if _TOPIC.fullmatch(name) is None:
            yield f"topics: expected names of topics, {_TOPIC_WORDS}, got {quoted(name)}"
    if len(set(source.topics)) < len(source.topics):
        yield "topics: expected each name once"
    if source.topic_pattern and not _is_pattern(source.topic_pattern):
        yield (
            f"topic_pattern: expected a regular expression of letters, digits and "
            f". _ - * + ? | ( ) [ ] ^ $ {{ }} , \\, got {quoted(source.topic_pattern)}"
        )
    if source.isolation_level not in ISOLATION_LEVELS:
        yield (
            f"kafka_options: expected isolation.level to be {' or '.join(ISOLATION_LEVELS)}, got "
            f"{quoted(source.isolation_level)}"
        )


def _is_pattern(text: str) -> bool:
    """Return whether turnout and Spark understand the pattern alike: Java reads further constructs in another way."""
    if len(text) > _MAX_LISTED or _PATTERN.fullmatch(text) is None or _NESTED.search(text) is not None:
        return False
    try:
        re.compile(text, re.ASCII)
    except (re.error, OverflowError, RecursionError):
        return False
    return True


def _routing_problems(source: Source) -> Iterator[str]:
    found = _ROUTING.fullmatch(source.routing)
    if found is None:
        yield f"routing: expected field, topic, key, header:NAME or game:NAME, got {quoted(source.routing)}"
    elif found["kind"] == "header" and not found["name"]:
        yield "routing: expected the name of a header after 'header:', got none"
    elif found["kind"] == "game" and not is_game_name(found["name"]):
        yield f"routing: expected 1 to {MAX_NAME_BYTES} bytes without NUL after 'game:', got {quoted(found['name'])}"
    if source.routing == "field":
        if source.envelope == "none":
            yield "routing: expected topic, key, header:NAME or game:NAME with the envelope 'none', got 'field'"
        elif source.envelope in _OWN and "game" not in source.envelope_fields:
            yield "envelope_fields: expected the path of 'game' with the routing 'field', got none"
    if source.kind == "delta" and source.routing == "topic":
        yield "routing: expected another one than 'topic' with the kind 'delta', as a landing table has no topics"


def _framing_problems(source: Source) -> Iterator[str]:
    if source.framing.startswith("wrapper"):
        if source.envelope == "none":
            yield f"framing: expected confluent, glue, topic or game with the envelope 'none', got {source.framing!r}"
        elif source.envelope in _OWN and "schema_id" not in source.envelope_fields:
            yield f"envelope_fields: expected the path of 'schema_id' with the framing {source.framing!r}, got none"
    if source.kind == "delta" and source.framing == "topic":
        yield "framing: expected another one than 'topic' with the kind 'delta', as a landing table has no topics"
    if source.message and (source.framing in INDEXED or not source.registry):
        yield f"message: expected none where the framing or turnout's own schema names it, got {quoted(source.message)}"
    if source.message and _FULL_NAME.fullmatch(source.message) is None:
        yield f"message: expected the full name of a message such as acme.v1.Event, got {quoted(source.message)}"


def _registry_problems(source: Source) -> Iterator[str]:
    if source.framing == "type":
        if source.envelope not in _OWN and source.event_type == "field":
            yield (
                f"framing: expected another one than 'type' with the envelope {source.envelope!r} and without an event "
                f"type in a header"
            )
        if source.registry:
            yield f"registry: expected none with the framing 'type', got {quoted(source.registry)}"
    elif source.framing != "wrapper" and not source.registry:
        yield f"registry: expected the name of a registry with the framing {source.framing!r}, got none"
    if source.framing != "type" and "type" in source.envelope_fields:
        yield "envelope_fields.type: expected the framing 'type' with it, as other framings name the schema"
    if source.registry and _REGISTRY.fullmatch(source.registry) is None:
        yield f"registry: expected 1 to 40 of a-z, 0-9, '_' and '-', with no sign first, got {quoted(source.registry)}"


def _type_problems(source: Source) -> Iterator[str]:
    if _EVENT_TYPE.fullmatch(source.event_type) is None:
        yield f"event_type: expected field or header:NAME, got {quoted(source.event_type)}"
    elif source.undeclared != "register" and source.framing != "type":
        yield f"undeclared: expected 'register' with the framing {source.framing!r}, which names the schema"
    elif source.event_type != "field":
        if source.framing != "type":
            yield f"event_type: expected 'field' with the framing {source.framing!r}, which names the schema"
        if "type" in source.envelope_fields:
            yield "envelope_fields.type: expected none with an event type in a header"


def _header_problems(source: Source) -> Iterator[str]:
    names = source.id_headers
    if not all(names):
        yield "id_headers: expected names of headers, got an empty one"
    if len(set(names)) < len(names):
        yield "id_headers: expected each name once"
    if len(names) > _MAX_HEADERS:
        yield f"id_headers: expected at most {_MAX_HEADERS} names, got {len(names)}"


def _envelope_problems(source: Source) -> Iterator[str]:
    given = {"envelope_definition": source.envelope_definition, "envelope_message": source.envelope_message}
    if source.envelope not in _DEFINED:
        for name in (name for name, value in given.items() if value):
            yield f"{name}: expected none with the envelope {source.envelope!r}"
    if source.envelope != "json" and source.envelope_time != "ms":
        yield f"envelope_time: expected none with the envelope {source.envelope!r}"
    if source.envelope in _DEFINED:
        yield from _definition_problems(source)
    if source.envelope in _OWN:
        yield from _field_problems(source)
    elif source.envelope_fields:
        yield f"envelope_fields: expected none with the envelope {source.envelope!r}"


def _definition_problems(source: Source) -> Iterator[str]:
    if not source.envelope_definition:
        yield f"envelope_definition: expected the path of a file with the envelope {source.envelope!r}, got none"
    elif not Path(source.envelope_definition).is_absolute():
        yield f"envelope_definition: expected an absolute path, got {quoted(source.envelope_definition)}"
    if _FULL_NAME.fullmatch(source.envelope_message) is None:
        got = quoted(source.envelope_message) if source.envelope_message else "none"
        yield f"envelope_message: expected the full name of a message such as acme.v1.Event, got {got}"
    if "payload" not in source.envelope_fields:
        yield "envelope_fields: expected the path of 'payload', got none"


def _field_problems(source: Source) -> Iterator[str]:
    written = _KEYS if source.envelope == "json" else _FULL_NAME
    for name, path in source.envelope_fields.items():
        if name not in ENVELOPE_FIELDS:
            yield f"envelope_fields.{name}: no such field; known here are {', '.join(ENVELOPE_FIELDS)}"
        elif written.fullmatch(path) is None:
            yield f"envelope_fields.{name}: expected the path of a field such as meta.game, got {quoted(path)}"


_CHECKS: Final = (
    _envelope_problems,
    _routing_problems,
    _framing_problems,
    _registry_problems,
    _type_problems,
    _header_problems,
)
