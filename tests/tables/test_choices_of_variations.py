"""Variations as people see them, and choices about them, on real tables."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from pipeline.base.errors import Refused
from pipeline.cli.main import cli
from pipeline.control import proposals
from pipeline.control.operations.variations import propose_choice
from pipeline.data.contracts.registries.notes import Need
from pipeline.data.repair.quarantined import Selection
from pipeline.data.repair.replay import replay_all
from pipeline.data.variations.registering import Registrar
from pipeline.store.database.states import OperationKind
from pipeline.store.operations import submit
from pipeline.store.schema_needs import OpenNeed
from pipeline.store.variations import read_variations
from tests.tables.choices_world import CHESS, carried_out, rebuilt, refused
from tests.tables.registering_world import arrive, drive, killed_at, need, registry, resolve, supersets, world_of
from tests.tables.shapes_world import GAME, KEY, table
from tests.tables.value_world import ValueWorld

MOVE = ("move", b'{"x":1}')
NAMED = ("move", b'{"x":2,"name":"a"}')


@pytest.fixture
def world(tmp_path: Path) -> ValueWorld:
    """Chess, whose moves have landed and have had a name once."""
    made = world_of(tmp_path, [MOVE, NAMED])
    drive(made)
    return made


def registrar(world: ValueWorld) -> Registrar:
    return Registrar(world.engine, world.paths.bronze, world.environment)


def named(world: ValueWorld) -> str:
    """Return the variation by which names came."""
    return next(each.fingerprint for each in read_variations(world.engine, KEY) if "name" in each.form)


def test_variations_are_listed_without_values(world: ValueWorld) -> None:
    """The list has paths, kinds, places in time and counts, and nothing that a user sent."""
    arrive(world, [("sold", b'{"price":1.5,"bids":{"4711":1}}')])
    drive(world)
    env = ["--env-dir", str(world.paths.root)]
    done = CliRunner().invoke(cli, ["schemas", "variations", GAME, "--json", *env])
    assert done.exit_code == 0, done.output
    found = json.loads(done.output)
    assert [(each["type"], each["columns"], each["variations"], each["new_today"]) for each in found["types"]] == [
        ("move", 2, 2, 2), ("sold", 2, 1, 1),
    ]  # fmt: skip
    assert [each["facts"] for each in found["variations"]] == [
        ["bids.*:whole", "price:fraction"], ["name:text"], ["x:whole"]
    ]  # fmt: skip
    assert "4711" not in done.output
    shown = CliRunner().invoke(cli, ["schemas", "variations", GAME, "--type", "move", *env])
    assert shown.exit_code == 0, shown.output
    assert shown.stdout.startswith(
        "'move' v1 (schema id 1): 2 of 1,000 columns, 2 of 1,000 variations, 2 new today\n  + "
    )
    other = CliRunner().invoke(cli, ["schemas", "variations", GAME, "--type", "nope", *env])
    assert "Such are: 'move', 'sold'" in str(other.exception)


def test_rows_with_something_new_wait_while_their_type_is_pinned(world: ValueWorld) -> None:
    """A pinned type's table stays as it is; after it was unpinned a replay registers what is new, and lands it."""
    assert registrar(world).choose(CHESS, "move", ("pin",)) is not None
    assert registrar(world).choose(CHESS, "move", ("pin",)) is None
    arrive(world, [("move", b'{"x":3}'), ("move", b'{"x":4,"z":true}')])
    drive(world)
    assert ([row["x"] for row in table(world)], refused(world)) == ([1, 2, 3], ["pinned_type"])
    registrar(world).choose(CHESS, "move", ("unpin",))

    def ask(needs: Sequence[OpenNeed]) -> None:
        resolve(world, *[Need(KEY, GAME, each.registry, each.writer, each.seq, each.pos) for each in needs])

    chosen = Selection(CHESS, "pinned_type", None, None)
    (done,) = replay_all(
        world.paths, world.environment, registry(world).snapshot, {KEY: GAME}, chosen, dry_run=False, ask=ask
    )
    assert (done.error, done.done.landed) == (None, 1)
    assert (table(world)[-1]["z"], refused(world)) == (True, [])
    assert supersets(world)[-1] == ("move", 4, ("name", "x", "z"))
    checked = world.check()
    assert checked.values is not None
    assert (checked.ok, checked.values.mismatches) == (True, 0)


def test_a_refused_variation_keeps_what_landed_and_is_allowed_again(world: ValueWorld) -> None:
    """A refusal holds for rows that come later; the undo lands them, and `verify --values` knows of both."""
    variation = named(world)
    wanted = OperationKind.REFUSE_VARIATION, world.engine, GAME, "move", "ann", "names are private", variation
    proposal = propose_choice(*wanted)
    assert [line.strip() for line in proposal.lines[:2]] == [
        f"refuse 'move' of 'Chess', variation {variation}", "name:text"
    ]  # fmt: skip
    done = carried_out(world, submit(world.engine, proposal.intent))
    assert done.state == "succeeded", done.outcome
    with pytest.raises(Refused, match="refused already"):
        propose_choice(*wanted)
    arrive(world, [NAMED, MOVE, ("move", b'{"name":7}')])
    drive(world)
    assert ([row["name"] for row in table(world)], refused(world)) == ([None, "a", None, None], ["refused_variation"])
    values = world.check().values
    assert values is not None
    assert values.mismatches == 0
    undo = proposals.undo(world.settings, world.engine, done, "ann", "a mistake")
    undone = carried_out(world, submit(world.engine, undo.intent))
    assert undone.state == "succeeded", undone.outcome
    assert ([row["name"] for row in table(world)].count("a"), refused(world)) == (2, [])


def test_a_rebuild_takes_out_what_a_refused_variation_had_landed(world: ValueWorld) -> None:
    """A rebuild moves rows of a refused variation to quarantine and keeps their column; a replay lands them again."""
    variation = named(world)
    registrar(world).choose(CHESS, "move", ("refuse", variation, "shape/1\nname:text"))
    rebuilt(world)
    assert ([row["x"] for row in table(world)], refused(world)) == ([1], ["refused_variation"])
    assert "name" in table(world)[0]
    assert world.check().ok
    registrar(world).choose(CHESS, "move", ("allow", variation))
    chosen = Selection(CHESS, "refused_variation", None, None)
    (done,) = replay_all(world.paths, world.environment, registry(world).snapshot, {KEY: GAME}, chosen, dry_run=False)
    assert (done.error, refused(world)) == (None, [])
    assert sorted(row["x"] for row in table(world)) == [1, 2]


@pytest.mark.parametrize("point", ["after_publish_id", "after_publish_placed", "after_store_commit"])
def test_a_choice_that_was_killed_is_made_again(world: ValueWorld, point: str) -> None:
    """A choice is kept beside bronze with its superset, so the next process registers the same one."""
    with pytest.raises(BaseException, match=point), killed_at(point):
        registrar(world).choose(CHESS, "move", ("pin",))
    arrive(world, [("sold", b"{}")])
    resolve(world, need("sold", place=(2, 0)))
    assert supersets(world)[:2] == [("move", 1, ("name", "x")), ("move", 2, ("name", "x"))]
    assert registrar(world).choose(CHESS, "move", ("pin",)) is None
