"""A wrong profile is refused with all its problems, before anything is read; a right one is what its settings say."""

from dataclasses import replace
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
from google.protobuf import descriptor_pb2, timestamp_pb2

from pipeline.base.errors import Refused
from pipeline.data.contracts.envelopes.declared import profile_of, registry_key
from pipeline.data.contracts.envelopes.envelope import COLUMNS
from pipeline.data.contracts.envelopes.framing import FRAMINGS
from pipeline.data.contracts.envelopes.opening import ENVELOPES
from pipeline.data.contracts.profile import SourceProfile
from pipeline.data.contracts.registries.supported import resolvers
from pipeline.data.verify import opening
from pipeline.settings.registries import RegistrySettings, split_key
from pipeline.settings.source import ENVELOPE_FIELDS, Source, source_problems
from pipeline.settings.tree import Settings, load
from protos.turnout.v1 import wrapper_pb2

OWN: dict[str, Any] = {"envelope": "protobuf", "envelope_definition": "/x", "envelope_message": "a.B"}
BARE: dict[str, Any] = {"envelope": "none", "routing": "key", "framing": "confluent", "registry": "main"}
BOTH = {"payload": "p", "game": "g"}
ALL = BOTH | {"schema_id": "s"}
JSON: dict[str, Any] = {"envelope": "json", "envelope_fields": ALL}


def without(name: str) -> dict[str, str]:
    return {each: path for each, path in ALL.items() if each != name}


def problems(**values: Any) -> list[str]:
    return source_problems(Source(**values))


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"framing": "confluent", "registry": "main"},
        {"framing": "wrapper", "registry": "main", "message": "acme.Event"},
        BARE,
        BARE | {"framing": "glue", "routing": "header:x-game", "message": "acme.v1.Event"},
        BARE | {"kind": "kafka", "framing": "topic", "routing": "topic"},
        BARE | {"framing": "game", "routing": "game:Chess: the game", "id_headers": ()},
        {"framing": "wrapper-or-confluent", "registry": "main"},
        {"framing": "wrapper-or-glue", "registry": "main", "message": "acme.Event"},
        {**OWN, "envelope_fields": {**BOTH, "schema_id": "meta.schema"}},
        {
            **OWN,
            "envelope": "avro",
            "routing": "key",
            "framing": "glue",
            "registry": "r",
            "envelope_fields": {"payload": "p"},
        },
        {
            "envelope": "json",
            "envelope_fields": {"game": "@meta.game-id", "schema_id": "v"},
            "envelope_time": "rfc3339",
        },
        {"envelope": "json", "routing": "key", "framing": "game", "registry": "r"},
        {"envelope": "json", "routing": "key", "framing": "type"},
        BARE | {"framing": "type", "registry": "", "event_type": "header:kind"},
        {"envelope": "json", "envelope_fields": {"game": "g", "type": "meta.type"}, "framing": "type"},
        {**OWN, "envelope_fields": BOTH | {"type": "t"}, "framing": "type"},
    ],
)
def test_profiles_that_go_together(values: dict[str, Any]) -> None:
    """Every combination of docs/envelopes.md is accepted as it stands there."""
    assert problems(**values) == []


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"routing": "queue"}, "source.routing: expected field, topic, key, header:NAME or game:NAME, got 'queue'"),
        ({"routing": "header:"}, "source.routing: expected the name of a header after 'header:', got none"),
        ({"routing": "game:"}, "source.routing: expected 1 to 256 bytes without NUL after 'game:', got ''"),
        ({"routing": "game:a\0"}, r"source.routing: expected 1 to 256 bytes without NUL after 'game:', got 'a\x00'"),
        ({"routing": "topic"}, "source.routing: expected another one than 'topic' with the kind 'delta'"),
        (BARE | {"routing": "field"}, "source.routing: expected topic, key, header:NAME or game:NAME"),
        (BARE | {"framing": "wrapper"}, "source.framing: expected confluent, glue, topic or game"),
        (BARE | {"framing": "wrapper-or-glue"}, "source.framing: expected confluent, glue, topic or game"),
        ({"framing": "wrapper-or-glue"}, "source.registry: expected the name of a registry"),
        (BARE | {"framing": "topic"}, "source.framing: expected another one than 'topic' with the kind 'delta'"),
        ({"framing": "glue"}, "source.registry: expected the name of a registry with the framing 'glue', got none"),
        (BARE | {"registry": "Main"}, "source.registry: expected 1 to 40 of a-z"),
        (BARE | {"message": "a.B"}, "source.message: expected none"),
        ({"message": "a.B"}, "source.message: expected none"),
        (BARE | {"framing": "glue", "message": "a..B"}, "source.message: expected the full name of a message"),
        (BARE | {"id_headers": ("",)}, "source.id_headers: expected names of headers, got an empty one"),
        (BARE | {"id_headers": ("a", "a")}, "source.id_headers: expected each name once"),
        (BARE | {"id_headers": tuple(map(str, range(17)))}, "source.id_headers: expected at most 16 names, got 17"),
        ({"envelope_message": "a.B"}, "source.envelope_message: expected none with the envelope 'wrapper'"),
        ({**OWN, "envelope_definition": "x", "envelope_fields": ALL}, "source.envelope_definition: expected an abs"),
        ({**OWN, "envelope_fields": without("schema_id")}, "source.envelope_fields: expected the path of 'schema_id'"),
        ({**OWN, "envelope_fields": without("game")}, "source.envelope_fields: expected the path of 'game'"),
        ({**OWN, "envelope_fields": without("payload")}, "source.envelope_fields: expected the path of 'payload'"),
        ({**OWN, "envelope_fields": ALL | {"game": "s..t"}}, "source.envelope_fields.game: expected the path"),
        ({**OWN, "envelope_fields": ALL | {"id": "i"}}, "source.envelope_fields.id: no such field"),
        ({"envelope_fields": ALL}, "source.envelope_fields: expected none with the envelope 'wrapper'"),
        (JSON | {"framing": "type", "registry": "r"}, "source.registry: expected none with the framing 'type'"),
        (JSON | {"envelope_fields": ALL | {"type": "t"}}, "source.envelope_fields.type: expected the framing 'type'"),
        ({"framing": "type"}, "source.framing: expected another one than 'type' with the envelope 'wrapper'"),
        (JSON | {"framing": "type", "event_type": "header:"}, "source.event_type: expected field or header:NAME, got"),
        ({"event_type": "header:x"}, "source.event_type: expected 'field' with the framing 'wrapper'"),
        (
            JSON | {"framing": "type", "event_type": "header:x", "envelope_fields": ALL | {"type": "t"}},
            "source.envelope_fields.type: expected none with an event type in a header",
        ),
        (BARE | {"framing": "type", "registry": ""}, "source.framing: expected another one than 'type' with the enve"),
        ({"envelope_time": "s"}, "source.envelope_time: expected none with the envelope 'wrapper'"),
        ({**OWN, "envelope_fields": ALL, "envelope_time": "s"}, "source.envelope_time: expected none"),
        (JSON | {"envelope_message": "a.B"}, "source.envelope_message: expected none with the envelope 'json'"),
        (JSON | {"envelope_fields": without("game")}, "source.envelope_fields: expected the path of 'game'"),
        (JSON | {"envelope_fields": without("schema_id")}, "source.envelope_fields: expected the path of 'schema_id'"),
        (JSON | {"envelope_fields": ALL | {"game": 'a."b'}}, "source.envelope_fields.game: expected the path"),
        (JSON | {"envelope_fields": ALL | {"game": "a\\u0062"}}, "source.envelope_fields.game: expected the path"),
    ],
)  # fmt: skip
def test_each_problem_has_its_sentence(values: dict[str, Any], words: str) -> None:
    """A person learns which setting is wrong and what was expected there; a single fault is a single problem."""
    (problem,) = problems(**values)
    assert problem.startswith(words)


def test_settings_offer_what_there_is() -> None:
    """A further envelope or framing is in the settings, and the value check opens it by code of its own."""
    hints = get_type_hints(Source)
    assert set(get_args(hints["envelope"])) == ENVELOPES.keys() == opening._ENVELOPES.keys()
    assert set(get_args(hints["framing"])) == FRAMINGS.keys() == opening._FRAMINGS.keys()
    assert set(ENVELOPE_FIELDS) == set(COLUMNS.names)


def test_all_problems_come_at_once(tmp_path: Path) -> None:
    """Law: nothing is read with a wrong profile, and nobody corrects its settings one by one."""
    (tmp_path / "turnout.toml").write_text(
        '[source]\nenvelope = "none"\nrouting = "field"\nframing = "glue"\nid_headers = [""]\nenvelope_message = "x"\n'
    )
    with pytest.raises(Refused) as refused:
        load(tmp_path, {})
    text = str(refused.value)
    assert "4 wrong setting(s)" in text
    for name in ("routing", "registry", "id_headers", "envelope_message"):
        assert f"  - source.{name}: expected" in text


# ---------------------------------------------------------------------------------------------------------- profile_of


def own(tmp_path: Path, **fields: str) -> Source:
    """Return a source whose envelope is turnout's wrapper, declared as a team's own message."""
    files = [
        descriptor_pb2.FileDescriptorProto.FromString(each.DESCRIPTOR.serialized_pb)
        for each in (timestamp_pb2, wrapper_pb2)
    ]
    path = tmp_path / "own.binpb"
    path.write_bytes(descriptor_pb2.FileDescriptorSet(file=files).SerializeToString())
    return Source(
        envelope="protobuf",
        envelope_definition=str(path),
        envelope_message=wrapper_pb2.Wrapper.DESCRIPTOR.full_name,
        envelope_fields={"game": "game", "payload": "payload", "schema_id": "schema_id", **fields},
    )


def test_settings_that_mean_the_default_need_no_profile() -> None:
    """Law L5: an environment without settings of a profile writes the rows that it wrote before there were profiles."""
    assert profile_of(Source()) is None
    assert profile_of(Source(kind="kafka", topic="other", id_headers=("unused",))) is None
    assert profile_of(Source(routing="key")) == SourceProfile(routing="key")


def test_a_profile_is_what_the_settings_say(tmp_path: Path) -> None:
    """Names, headers and the definition's content are in the profile: the file may change or go."""
    assert profile_of(Source(**BARE, id_headers=("a", "b"))) == SourceProfile(
        envelope="none", routing="key", framing="confluent", registry="main", headers=("a", "b")
    )
    first = profile_of(own(tmp_path, event_id="event_id"))
    assert first is not None
    assert (first.fields[0], first.definition_message) == (("event_id", "event_id"), "turnout.v1.Wrapper")
    assert profile_of(own(tmp_path, event_id="event_id")) == first


def test_wrong_fields_come_at_once(tmp_path: Path) -> None:
    """Each path is looked up in the definition, and its kind compared, before the first record."""
    source = own(tmp_path, event_id="meta.id", sequence="game", event_time="schema_id.x", producer_id="payload")
    with pytest.raises(Refused) as refused:
        profile_of(source)
    lines = str(refused.value).splitlines()
    assert lines[0].startswith("3 wrong field(s) of the envelope")
    assert [line.partition(":")[0].rpartition(".")[2] for line in lines[1:]] == ["event_id", "event_time", "sequence"]
    assert "expected a field of whole numbers" in lines[3]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "cannot be read: No such file"),
        (b"\xff", "is not a FileDescriptorSet"),
        (bytes(2**20 + 1), "has more than 1048576 bytes"),
    ],
)
def test_a_definition_that_cannot_be_used(tmp_path: Path, content: bytes | None, words: str) -> None:
    """A missing, damaged or huge file is one sentence, not an error of a pass later."""
    source = own(tmp_path)
    path = Path(source.envelope_definition)
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(Refused, match=words):
        profile_of(source)


@pytest.mark.parametrize(
    ("framing", "message", "key"),
    [
        ("confluent", None, "main.2"), ("glue", "t.M", "main.2:t.M"), ("glue", None, "main.2"),
        ("wrapper", "t.M", "main.2:t.M"), ("wrapper", None, "main.2:"),
    ],
)  # fmt: skip
def test_answers_are_kept_by_what_the_payloads_do_not_name(framing: str, message: str | None, key: str) -> None:
    """One id means one message to a source and another to the next: their rows have different keys in bronze."""
    registries = {"main": RegistrySettings(kind="glue", generation=2)}
    source = Source(envelope="none", routing="key", framing=framing, registry="main", message=message or "")  # type: ignore[arg-type]
    assert registry_key(source, registries) == key
    assert split_key(key) == ("main.2", None if framing == "confluent" else message or ("" if ":" in key else None))


def test_group_drivers_need_no_definition_of_an_envelope(tmp_path: Path) -> None:
    """Ingest opens envelopes, also where its groups run on other machines: these have no such file."""
    source = replace(own(tmp_path), framing="glue", registry="main", message="t.M")
    Path(source.envelope_definition).unlink()
    settings = Settings(source=source, registries={"main": RegistrySettings(kind="glue", region="eu-central-1")})
    assert sorted(resolvers(settings)) == ["main", "main:t.M"]
