"""Rows from before a name was a game land once it is a game, and nobody replays them by hand."""

import json
from pathlib import Path

import pyarrow as pa
import pytest

from pipeline.base.names import bronze_app_id, ingest_app_id
from pipeline.control.controller import KINDS
from pipeline.control.onboarding.keeper import OnboardingKeeper
from pipeline.control.operations import onboarding, renaming
from pipeline.control.operations.definition import ControlContext
from pipeline.control.operations.executor import tick
from pipeline.control.operations.onboarding import Wishes, approve, rename
from pipeline.data.contracts.catalogue.versions import read_versions
from pipeline.data.contracts.registrations import Registration
from pipeline.data.ingest.admission import begun_without
from pipeline.data.ingest.name_sketch import sketched
from pipeline.data.ingest.onboarding import Onboarding
from pipeline.data.variations.registering import Registrar
from pipeline.health.facts.placing import placing
from pipeline.lake.delta.bronze import BRONZE
from pipeline.lake.delta.table import CursorTable
from pipeline.store.database.states import OperationState
from pipeline.store.game_proposals import GameProposal, propose
from pipeline.store.games import Game, record_seen
from pipeline.store.onboarding import number_of, write_sketch
from pipeline.store.operations import Operation, change, list_operations, operation, steps, submit, submitted_under
from pipeline.store.sources import open_generation
from pipeline.store.variations import read_variations
from tests.onboarding_world import give_rules, rule
from tests.tables.registering_world import registry, two_types
from tests.tables.repair_world import CHESS, GO, SECOND, World, early, good, make_world
from tests.tables.shapes_world import KEY


def approved(world: World, name: str) -> tuple[ControlContext, Operation]:
    context = ControlContext(world.settings, world.engine, world.paths)
    proposal = approve(world.settings, world.engine, name, Wishes(), "ann", "asked for")
    return context, submit(world.engine, proposal.intent)


def until(context: ControlContext, begun: Operation, step: str, detail: str) -> None:
    """Let the controller go on until a step says this."""
    for _ in range(2_000):
        tick(context, KINDS)
        found = [each for each in steps(context.engine, begun.operation_id) if each.name == step]
        if found and detail in found[-1].detail:
            return
    raise AssertionError((steps(context.engine, begun.operation_id), operation(context.engine, begun.operation_id)))


def test_rows_from_before_an_approval_land_with_it(tmp_path: Path) -> None:
    """The operation replays what waited, once its schema is there, and each row lands once."""
    world = make_world(tmp_path)
    world.ingest(early(1, GO), good(1), early(2, GO))
    write_sketch(world.engine, sketched(pa.array([GO.name]), pa.array([2]), 1.0, 10).dumps())
    context, begun = approved(world, GO.name)
    until(context, begun, "land", "Its rows wait for a schema.")
    world.register(GO)
    assert world.register(GO, SECOND) == 2
    until(context, begun, "land", "2 rows that came before are in its table, 0 are refused.")
    assert world.rows(GO) == [(1, 0), (1, 2)]
    world.ingest(early(3, GO))
    world.split(GO)
    world.split()
    assert world.verify().complete


def test_rows_of_both_names_of_a_renamed_game_land_once(tmp_path: Path) -> None:
    """Rows that came under the new name land by the old game's schema, and the old name's rows go on."""
    world = make_world(tmp_path)
    assert world.register(CHESS, SECOND) == 2
    world.ingest(good(1), good(1, GO), early(1, GO), early(2))
    record_seen(world.engine, {CHESS.key: CHESS.name}, 1, placing())
    context = ControlContext(world.settings, world.engine, world.paths)
    planned = rename(world.settings, world.engine, CHESS.name, GO.name, "ann", "its studio renamed it")
    renamed = submit(world.engine, planned.intent)
    until(context, renamed, "schema", f"2 schemas of {CHESS.key}.")
    until(context, renamed, "land", "2 rows that came before are in its table, 0 are refused.")
    world.ingest(early(3, GO), early(4))
    world.split(GO)
    world.split()
    assert (len(world.rows(GO)), len(world.rows(CHESS))) == (3, 3)
    assert world.verify().complete


def test_a_renamed_game_keeps_its_first_type_where_only_a_further_one_is_declared(tmp_path: Path) -> None:
    """The new name's first type is that of its first row, as the old one's was; the further type waits."""
    world = two_types(tmp_path / "env")
    sold = json.dumps({"title": "sold", "type": "object", "properties": {"first": {"type": "integer"}}}).encode()
    registry(world).register_many([Registration("Chess", "sold", sold, format="json", new_type=True)])
    schemas, versions = registry(world).snapshot(), read_versions(world.engine, KEY)[KEY].versions
    assert list(renaming.registrations(schemas, versions, KEY, "Go", "ann")) == []


def test_a_rename_lists_the_choices_that_it_leaves_behind(tmp_path: Path) -> None:
    """A person sees beforehand which pins and refused variations the new name lacks, where there are any."""
    world = two_types(tmp_path / "env")
    planned = rename(world.settings, world.engine, "Chess", "Go", "ann")
    assert not any("not carried over" in line for line in planned.lines)
    registrar = Registrar(world.engine, world.paths.bronze, world.environment)
    (sold,) = read_variations(world.engine, KEY, "sold")
    registrar.choose(Game(KEY, "Chess"), "move", ("pin",))
    registrar.choose(Game(KEY, "Chess"), "sold", ("refuse", sold.fingerprint, sold.form))
    planned = rename(world.settings, world.engine, "Chess", "Go", "ann")
    assert "columns that it gets later: the pin of 'move', 1 refused variation(s) of 'sold'" in planned.lines[1]
    world.engine.dispose()


def test_rows_from_before_a_rule_for_the_exact_name_land_with_it(tmp_path: Path) -> None:
    """A rule for a name that waits already does not leave behind the rows for which it was made."""
    world = make_world(tmp_path)
    world.ingest(good(1, GO), good(2, GO))
    give_rules(world.engine, rule(GO.name))
    Onboarding(world.engine, world.settings.onboarding).admit(1.0)
    record_seen(world.engine, {GO.key: GO.name}, 2, placing())
    OnboardingKeeper(world.engine, world.settings).look()
    (begun,) = submitted_under(world.engine, [f"onboard-{number_of(world.engine, GO.key)}"]).values()
    context = ControlContext(world.settings, world.engine, world.paths)
    until(context, begun, "land", "Its rows wait for a schema.")
    world.register(GO)
    until(context, begun, "land", "2 rows that came before are in its table, 0 are refused.")
    assert world.rows(GO) == [(1, 0), (1, 1)]


def test_rows_whose_schema_comes_late_land_without_a_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An onboarding waits a while for a schema; where it comes later, the controller replays what came before, once."""
    world = make_world(tmp_path)
    world.ingest(early(1, GO), early(2, GO))
    write_sketch(world.engine, sketched(pa.array([GO.name]), pa.array([2]), 1.0, 10).dumps())
    monkeypatch.setattr(onboarding, "_SCHEMA_SECONDS", -1.0)
    context, begun = approved(world, GO.name)
    until(context, begun, "land", onboarding.LEFT_WAITING)
    change(world.engine, operation(world.engine, begun.operation_id), OperationState.SUCCEEDED, "it is a game")
    keeper = OnboardingKeeper(world.engine, world.settings)
    keeper.look()
    assert [each.kind for each in list_operations(world.engine)] == ["onboard"], "there is no schema yet"
    world.register(GO)
    assert world.register(GO, SECOND) == 2
    OnboardingKeeper(world.engine, world.settings).look()
    OnboardingKeeper(world.engine, world.settings).look()
    (replay,) = [each for each in list_operations(world.engine) if each.kind == "replay"]
    assert (replay.actor, replay.reason) == ("(controller)", "its first schema came")
    until(context, replay, "replay", "2 landed")
    assert world.rows(GO) == [(1, 0), (1, 1)]


def test_a_schema_of_a_game_by_a_rule_names_who_proposed_it(tmp_path: Path) -> None:
    """The controller registers what a person proposed, and the schema's versions name the person."""
    world = make_world(tmp_path)
    definition = json.dumps({"type": "record", "name": "t.M", "fields": [{"name": "score", "type": "long"}]}).encode()
    proposed = GameProposal(GO.key, GO.name, "dora", "new", format="avro", message="t.M", definition=definition)
    propose(world.engine, proposed)
    give_rules(world.engine, rule(GO.name))
    Onboarding(world.engine, world.settings.onboarding).admit(1.0)
    record_seen(world.engine, {GO.key: GO.name}, 2, placing())
    OnboardingKeeper(world.engine, world.settings).look()
    (begun,) = submitted_under(world.engine, [f"onboard-{number_of(world.engine, GO.key)}"]).values()
    context = ControlContext(world.settings, world.engine, world.paths)
    until(context, begun, "schema", "version 1, proposed by dora.")
    assert [each.registered_by for each in read_versions(world.engine, GO.key)[GO.key].versions] == ["dora"]


def test_the_replay_waits_for_a_micro_batch_that_does_not_know_the_game(tmp_path: Path) -> None:
    """Rows of a batch that began before would come into quarantine behind the replay, so it comes after that batch."""
    world = make_world(tmp_path)
    engine, paths, environment = world.engine, world.paths, world.settings.environment
    assert begun_without(paths, environment, engine, 1) is None, "nothing was ever ingested"
    number = open_generation(engine, "landing")
    query = Path(str(paths.ingest)) / str(number) / "query"
    bronze = CursorTable.create(paths.bronze, BRONZE, bronze_app_id(environment))
    bronze.commit([], bronze.cursor, 1, {}, also={ingest_app_id(environment, number): 0})
    for folder in ("offsets", "commits"):
        (query / folder).mkdir(parents=True)
    (query / "offsets" / "0").write_text("v1")
    assert begun_without(paths, environment, engine, 1) is None, "its last batch has landed"
    (query / "offsets" / "1").write_text("v1")
    assert begun_without(paths, environment, engine, 1) == f"{number}/1", "it is planned, and nobody knows its games"
    pins = query.parent / "games"
    pins.mkdir()
    for pinned, expected in (("0", f"{number}/1"), ("1", None), ("2", None)):
        (pins / "1").write_text(pinned)
        assert begun_without(paths, environment, engine, 1) == expected
    (pins / "1").write_text("0")
    context, begun = approved(world, "New")
    until(context, begun, "ingest", f"Ingest has begun micro-batch {number}/1 without it.")
    (query / "commits" / "1").write_text("v1")
    until(context, begun, "ingest", "Ingest knows it.")


def test_storage_that_is_away_for_a_moment_stops_no_onboarding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step looks again where a bucket did not answer, and needs no person."""
    world, away = make_world(tmp_path), True

    def look(*arguments: object) -> str | None:
        if away:
            raise OSError("the bucket does not answer")
        return None

    monkeypatch.setattr(onboarding, "begun_without", look)
    context, begun = approved(world, "New")
    until(context, begun, "ingest", "Ingest cannot be looked at: the bucket does not answer")
    away = False
    until(context, begun, "ingest", "Ingest knows it.")
