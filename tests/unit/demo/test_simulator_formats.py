"""The simulator in every format and framing: what it writes is what a strict reader reads."""

import io
import itertools
import json
import shlex
import subprocess
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from click.testing import CliRunner, Result
from deltalake import DeltaTable

from bench.load import write_settings
from pipeline.base.errors import Refused, Transient
from pipeline.cli.main import cli
from pipeline.cli.simulation import simulate as simulate_command
from pipeline.control.onboarding.candidates import candidates
from pipeline.data.contracts.formats.supported import decoder, format_of
from pipeline.data.contracts.schemas import Schema
from pipeline.demo import demo
from pipeline.demo.demo import DemoOptions
from pipeline.demo.framings import by_type
from pipeline.demo.framings.by_type import FIELDS
from pipeline.demo.framings.confluent import ConfluentFraming
from pipeline.demo.framings.supported import FRAMINGS, RegistryAddress, foreign_framing
from pipeline.demo.samples.protobuf import message_class
from pipeline.demo.samples.sample import FAMILIES, VERSIONS
from pipeline.demo.samples.supported import SAMPLES, payload_schema, sample
from pipeline.demo.simulator import BAD_KINDS, GOOD, Event, SimulationPlan, Simulator, family, game_names, game_writings
from pipeline.settings.tree import Paths, load
from pipeline.store.database.engine import open_store
from protos.turnout.v1.wrapper_pb2 import Wrapper

BOTH = ("protobuf", "avro")


def ids_of(plan: SimulationPlan) -> dict[tuple[str, int], int]:
    """Number the schemas as a registry does: equal definitions share one id."""
    numbers = {key: 1 + place for place, key in enumerate(itertools.product(SAMPLES, FAMILIES, range(1, VERSIONS + 1)))}
    return {
        (game, version): numbers[writing.format, family(game), version]
        for game, writing in game_writings(plan).items()
        for version in range(1, plan.versions + 1)
        if writing.framing == "wrapper"
    }


def simulate(plan: SimulationPlan, size: int = 1000) -> list[Event]:
    foreign = foreign_framing(plan.framings, RegistryAddress("mock://registry", topic="events"))
    simulator = Simulator(plan, ids_of(plan), foreign)
    return [event for batch in simulator.batches(size) for event in batch]


def read_avro(definition: bytes, body: bytes) -> Any:
    """Read as a strict reader: all bytes are used."""
    source = io.BytesIO(body)
    value = fastavro.schemaless_reader(source, fastavro.parse_schema(json.loads(definition)))
    if source.read(1):
        raise EOFError("bytes are left over")
    return value


def test_games_share_out_formats_and_framings() -> None:
    """Every format meets every framing, and one choice of each is for all games."""
    writings = game_writings(SimulationPlan(games=9, formats=BOTH, framings=("wrapper", "confluent"))).values()
    assert Counter(writings) == {
        ("protobuf", "wrapper"): 3,
        ("avro", "wrapper"): 2,
        ("protobuf", "confluent"): 2,
        ("avro", "confluent"): 2,
    }
    assert set(game_writings(SimulationPlan()).values()) == {("protobuf", "wrapper")}


def test_the_same_seed_gives_the_same_bytes_in_avro() -> None:
    """A plan alone decides every byte, in both formats; the size of a batch does not."""
    plan = SimulationPlan(games=12, events=600, bad_share=0.3, hostile=True, formats=BOTH)
    assert simulate(plan, 97) == simulate(plan, 600)
    mixed = simulate(plan := SimulationPlan(games=12, events=600, formats=BOTH))
    avro = {game for game, writing in game_writings(plan).items() if writing.format == "avro"}
    plain = {(event.game, event.sequence): event for event in simulate(replace(plan, formats=("protobuf",)))}
    assert {event.game for event in mixed if plain[event.game, event.sequence] != event} == avro


def test_avro_events_hold_what_was_meant() -> None:
    """A good event is readable by the schema that its id names, and says its sequence and time."""
    plan = SimulationPlan(games=6, versions=6, events=400, formats=("avro",))
    ids = ids_of(plan)
    seen = set()
    for event in simulate(plan):
        wrapper = Wrapper.FromString(event.value)
        version = next(each for each in range(1, 7) if ids[event.game, each] == wrapper.schema_id)
        value = read_avro(payload_schema(family(event.game), version, "avro")[1], wrapper.payload)
        assert (event.sequence, wrapper.event_time.ToDatetime()) == (
            value["round"],
            value["ended_at"].replace(tzinfo=None),
        )
        seen.add((family(event.game), version))
    assert seen == set(itertools.product(FAMILIES, range(1, 7)))


@pytest.mark.parametrize("kin", FAMILIES)
def test_json_documents_are_what_their_schema_says(kin: str) -> None:
    """The decoder takes every document, by a newer version's schema too, and refuses all broken ones."""
    samples = [sample("json", kin, version, 1) for version in range(1, VERSIONS + 1)]
    documents = [each.encode(each.event(chance, 7, 1_767_225_600_000_001)) for each in samples for chance in range(6)]
    for version, each in enumerate(samples, 1):
        schema = Schema(1, "json", each.message, format_of("json").canonical(each.message, each.definition))
        own = documents[: 6 * version]
        broken = [each.broken(document, chance) for chance, document in enumerate(own)]
        decoded = decoder(schema).decode(pa.array([*own, *broken], pa.binary()))
        assert decoded.rows.tolist() == list(range(len(own)))
        assert decoded.batch.column("round").to_pylist() == [7] * len(own)


@pytest.mark.parametrize("kin", FAMILIES)
def test_a_newer_avro_version_reads_the_one_before(kin: str) -> None:
    """The samples evolve as registries want it (BACKWARD), and a renamed field keeps its value by its alias."""
    for version in range(1, VERSIONS):
        older, newer = sample("avro", kin, version, 1), sample("avro", kin, version + 1, 1)
        body = older.encode(older.event(3, 7, 1_767_225_600_000_001))
        written, wanted = (fastavro.parse_schema(json.loads(each.definition)) for each in (older, newer))
        before = read_avro(older.definition, body)
        after: Any = fastavro.schemaless_reader(io.BytesIO(body), written, wanted)
        fields = json.loads(newer.definition)["fields"]
        renamed = {field["name"]: field.get("aliases", []) for field in fields}
        for name, value in before.items():
            new = next((each for each, aliases in renamed.items() if name in aliases), name)
            assert new not in after or isinstance(value, (dict, list)) or after[new] == value


def test_the_avro_samples_have_every_kind_of_change() -> None:
    """Fields are added, removed, renamed and widened, symbols added, and records inside change, in one fleet."""
    definitions = {
        (kin, version): json.loads(sample("avro", kin, version, 1).definition)["fields"]
        for kin, version in itertools.product(FAMILIES, range(1, VERSIONS + 1))
    }
    found = set()
    for (kin, version), fields in definitions.items():
        after = definitions.get((kin, version + 1))
        if after is None:
            continue
        old, new = ({each["name"]: each["type"] for each in some} for some in (fields, after))
        renamed = {alias for each in after if each["name"] not in old for alias in each.get("aliases", [])}
        found |= {"rename"} if renamed else set()
        found |= {"remove"} if old.keys() - new.keys() - renamed else set()
        found |= {"add"} if new.keys() - old.keys() else set()
        for name in old.keys() & new.keys():
            if old[name] != new[name]:
                kind = old[name]["type"] if isinstance(old[name], dict) else "widen"
                found.add(kind)
    assert found == {"add", "remove", "rename", "widen", "enum", "record"}


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("kin", FAMILIES)
def test_all_versions_have_one_full_name(name: str, kin: str) -> None:
    """Samples evolve by protobuf's numbers, which go on only within one full name; their text says the same name."""
    made = [sample(name, kin, version, 1) for version in range(1, VERSIONS + 1)]
    assert len({each.message for each in made}) == 1
    assert len({each.definition for each in made}) == VERSIONS
    package = made[0].message.rpartition(".")[0]
    assert all(package in each.text and f"samples.{kin}.v2" not in each.text for each in made)


@pytest.mark.parametrize("kin", FAMILIES)
def test_broken_avro_is_unreadable(kin: str) -> None:
    """No strict reader accepts what is called malformed, of any version."""
    for version, chance in itertools.product(range(1, VERSIONS + 1), range(6)):
        made = sample("avro", kin, version, 1)
        body = made.encode(made.event(chance, 1, 1))
        assert made.encode(read_avro(made.definition, body)) == body
        with pytest.raises((EOFError, IndexError, ValueError, OverflowError)):
            read_avro(made.definition, made.broken(body, chance))


def test_confluents_serializers_write_what_its_readers_read() -> None:
    """A framed payload is magic 0, a registered id, for protobuf the index path, and the event, whatever the format."""
    plan = SimulationPlan(games=9, versions=3, events=300, formats=tuple(SAMPLES), framings=("confluent",))
    framing = ConfluentFraming("mock://registry", "events")
    writings = game_writings(plan)
    for event in itertools.chain.from_iterable(Simulator(plan, {}, framing).batches(100)):
        wrapper = Wrapper.FromString(event.value)
        assert (wrapper.schema_id, wrapper.payload[:1]) == (0, b"\0")
        found = framing.client.get_schema(int.from_bytes(wrapper.payload[1:5], "big"))
        assert found.schema_str is not None
        if writings[event.game].format == "avro":
            assert found.schema_type == "AVRO"
            value = read_avro(found.schema_str.encode(), wrapper.payload[5:])
            assert value["round"] == event.sequence
        elif writings[event.game].format == "json":
            value = json.loads(wrapper.payload[5:])
            assert (found.schema_type, value["round"]) == ("JSON", event.sequence)
        else:
            assert (found.schema_type, wrapper.payload[5]) == ("PROTOBUF", 0)
            classes = (message_class(family(event.game), version) for version in (1, 2, 3))
            assert event.sequence in {each.FromString(wrapper.payload[6:]).round for each in classes}
    packages = {"".join(subject.split(".")[2:-1]) for subject in framing.client.get_subjects()}
    assert packages == {"", "json", "v1"}


def test_versions_are_registered_in_order_and_as_they_come() -> None:
    """A registry that checks compatibility sees version 1 first, and no version before its time."""
    plan = SimulationPlan(games=3, versions=4, events=40, formats=("avro",), framings=("confluent",), version_every=20)
    framing = ConfluentFraming("mock://registry", "events")
    assert sum(map(len, Simulator(plan, {}, framing).batches(40))) == 40
    seen = set()
    for kin, message in zip(("puzzle", "shooter", "racing"), ("LevelPlayed", "MatchPlayed", "LapDriven"), strict=True):
        subject = f"events-samples.{kin}.{message}"
        versions = [framing.client.get_version(subject, each) for each in framing.client.get_versions(subject)]
        found = [each.schema.schema_str for each in sorted(versions, key=lambda each: each.schema_id or 0)]
        assert found == [payload_schema(kin, version, "avro")[1].decode() for version in (1, 2)][: len(found)]
        seen.add(len(found))
    assert max(seen) == 2


def test_a_games_versions_come_one_after_another() -> None:
    """A game's first event of a version follows one of the version before, as turnout plans schemas as they come."""
    plan = SimulationPlan(games=9, versions=6, events=900, skew=0, bad_share=0.2, framings=("confluent",))
    framing = ConfluentFraming("mock://registry", "events")
    numbers: dict[str, list[int]] = {}
    for event in itertools.chain.from_iterable(Simulator(plan, {}, framing).batches(100)):
        payload = Wrapper.FromString(event.value).payload if event.kind == GOOD else b""
        if payload:
            numbers.setdefault(event.game, []).append(int.from_bytes(payload[1:5], "big"))
    for ids in numbers.values():
        first_seen = list(dict.fromkeys(ids))
        assert (len(first_seen), first_seen) == (6, sorted(first_seen))


@pytest.mark.parametrize("name", SAMPLES)
def test_bad_framed_events_are_what_they_say(name: str) -> None:
    """Every kind of bad event exists with frames, too: an id of nobody, no payload, a body that nobody can read."""
    plan = SimulationPlan(games=6, events=600, bad_share=0.5, formats=(name,), framings=("wrapper", "confluent"))
    framed = {game for game, writing in game_writings(plan).items() if writing.framing == "confluent"}
    kinds: Counter[str] = Counter()
    for event in simulate(plan):
        if event.game not in framed:
            continue
        wrapper = Wrapper.FromString(event.value)
        kinds[event.kind] += 1
        assert wrapper.schema_id == 0
        assert (event.kind == "empty_payload") == (wrapper.payload == b"")
        if event.kind in {GOOD, "malformed_payload", "unknown_schema"}:
            assert wrapper.payload[:1] == b"\0"
            assert (event.kind == "unknown_schema") == (int.from_bytes(wrapper.payload[1:5], "big") >= 2_000_000_000)
    assert {GOOD, "unknown_schema", "empty_payload", "malformed_payload"} == kinds.keys()


def test_ids_of_a_mixed_source_never_stand_for_a_frame() -> None:
    """Where id 0 says that a frame follows, an unregistered id of turnout's own is another number."""
    plan = SimulationPlan(games=4, events=400, bad_shares={"unknown_schema": 1.0}, framings=("wrapper", "confluent"))
    own = {game for game, writing in game_writings(plan).items() if writing.framing == "wrapper"}
    assert all(Wrapper.FromString(event.value).schema_id for event in simulate(plan) if event.game in own)
    assert len(BAD_KINDS) == 6  # a further kind would change every run's bytes


def test_impossible_choices_are_refused() -> None:
    """A framing without its registry, two registries for one source, and unknown words are one clear sentence."""
    for plan, expected in (
        (SimulationPlan(framings=("confluent", "glue")), "choose one of confluent and glue"),
        (SimulationPlan(framings=("json",)), "does not write the framing 'json'"),
        (SimulationPlan(framings=()), "Name each framing once"),
        (SimulationPlan(formats=("avro", "avro")), "Name each format once"),
        (SimulationPlan(formats=("xml",)), "does not write 'xml'"),
        (SimulationPlan(framings=("confluent",)), "which is not prepared"),
    ):
        with pytest.raises(Refused, match=expected):
            Simulator(plan, {})
    with pytest.raises(Refused, match="--registry-url"):
        foreign_framing(("wrapper", "confluent"), RegistryAddress())
    with pytest.raises(Refused, match="--glue-endpoint"):
        foreign_framing(("glue",), RegistryAddress())
    assert foreign_framing(("wrapper",), RegistryAddress()) is None


def test_an_error_names_the_registry_that_is_away() -> None:
    """A producer whose registry does not answer stops with its address, and is started again."""
    plan = SimulationPlan(events=1, framings=("confluent",))
    with pytest.raises(Transient, match=r"No schema registry answers at http://127\.0\.0\.1:9/"):
        next(Simulator(plan, {}, ConfluentFraming("http://127.0.0.1:9/", "events", retries=0)).batches(1))


@pytest.mark.parametrize("command", ["simulate", "demo"])
def test_the_options_know_all_formats_and_framings(command: str) -> None:
    """The options take every format and framing, and an error lists them."""
    for option, known in (("--formats", tuple(SAMPLES)), ("--framing", FRAMINGS)):
        said = CliRunner().invoke(cli, [command, option, "xml"])
        assert said.exit_code == 2
        assert ", ".join(known) in " ".join(said.output.split())


def test_the_demo_gives_its_drivers_profile_and_registry(tmp_path: Path) -> None:
    """Ingest and groups read what the simulator wrote: the source's framing, and where its ids come from."""
    wanted = DemoOptions(1, 1, 0, 1, 1, hostile=False, framings=("wrapper", "confluent"), registry_url="http://r:8081")
    with demo._registry(Paths(tmp_path), wanted) as (same, variables):
        assert same == wanted
    assert variables == {
        "TURNOUT_SOURCE__FRAMING": "wrapper-or-confluent",
        "TURNOUT_SOURCE__REGISTRY": "demo",
        "TURNOUT_REGISTRIES__DEMO__KIND": "confluent",
        "TURNOUT_REGISTRIES__DEMO__URL": "http://r:8081",
    }
    with demo._registry(Paths(tmp_path), replace(wanted, framings=("wrapper",))) as (_, none):
        assert none == {}
    with (
        pytest.raises(Refused, match="--glue-endpoint"),
        demo._registry(Paths(tmp_path), replace(wanted, framings=("glue",))),
    ):
        pass


def test_another_terminal_reads_the_source_of_a_demo(tmp_path: Path) -> None:
    """`games pending` and `games rules plan` know the format of the demo's documents after a shell read its file."""
    kept = tmp_path / demo.SOURCE_VARIABLES
    demo._export(Paths(tmp_path), by_type.settings())
    told = subprocess.run(["/bin/sh", "-c", f". {shlex.quote(str(kept))} && env -0"], capture_output=True, check=True)
    environ = dict(each.split("=", 1) for each in told.stdout.decode().split("\0") if each)
    settings, paths = load(tmp_path, {name: each for name, each in environ.items() if name.startswith("TURNOUT_")})
    found = candidates(settings, open_store(settings, paths))
    assert found.framings == ("envelope json, framing type",)
    assert kept.stat().st_mode & 0o77 == 0
    demo._export(Paths(tmp_path), {})
    assert not kept.exists(), "it would say what an earlier demo had"


def test_the_demo_passes_every_choice_to_the_simulator(monkeypatch: pytest.MonkeyPatch) -> None:
    """The options survive the way through a command line."""
    wanted = DemoOptions(2, 3, 0.1, 0.5, 7, True, BOTH, ("wrapper", "glue"), 50, None, "http://g:5000")
    (folder,) = (each for each in simulate_command.params if each.name == "env_dir")
    monkeypatch.setattr(folder, "callback", None)  # looks for an environment
    made = simulate_command.make_context("simulate", wanted.arguments()).params
    assert {
        "games": 2,
        "versions": 3,
        "bad_share": 0.1,
        "skew": 0.5,
        "seed": 7,
        "hostile": True,
    }.items() <= made.items()
    assert [made[name] for name in ("formats", "framings", "version_every", "registry_url", "glue_endpoint")] == [
        BOTH, ("wrapper", "glue"), 50, None, "http://g:5000",
    ]  # fmt: skip


def test_two_simulators_write_into_two_sources(tmp_path: Path) -> None:
    """Each event lands in the table of the source that --into names, and no game is in both."""
    documents = {"path": str(tmp_path / "documents"), "envelope": "json", "framing": "type"}
    write_settings(tmp_path / "env", {"sources.wrappers": {}, "sources.documents": documents,
                                      "sources.documents.envelope_fields": FIELDS})  # fmt: skip

    def run(*options: str) -> Result:
        return CliRunner().invoke(cli, ["simulate", "--env-dir", str(tmp_path / "env"), "--bad-share", "0", *options])

    assert run("--games", "3", "--events", "60", "--into", "wrappers").exit_code == 0
    by_type = ["--formats", "json", "--framing", "type", "--skip-games", "3"]
    assert run("--games", "2", "--events", "40", "--into", "documents", *by_type).exit_code == 0
    wrapped = DeltaTable(tmp_path / "env" / "landing").to_pyarrow_table().column("value").to_pylist()
    plain = DeltaTable(tmp_path / "documents").to_pyarrow_table().column("value").to_pylist()
    assert (len(wrapped), len(plain)) == (60, 40)
    names = game_names(5, 1)
    assert set(names[:3]) == {Wrapper.FromString(each).game for each in wrapped}
    assert set(names[3:]) == {json.loads(each)["game"] for each in plain}
    assert "Choose one by --into" in str(run("--events", "1").exception)
    assert "Choose one by --into" in str(run("--events", "1", "--into", "nothing").exception)
