"""The oracle is proven: every planted bug makes it fail, and the same lives without a bug do not."""

from pathlib import Path
from typing import Any

import pytest

from pipeline.base.errors import Refused
from pipeline.base.names import game_key
from pipeline.data.contracts import registration_batch, registry
from pipeline.data.contracts.event_types import Numbering
from pipeline.data.contracts.evolution import evolve
from pipeline.data.contracts.formats.protobuf.format import ProtobufFormat
from pipeline.data.contracts.formats.supported import format_of
from pipeline.data.contracts.game_types import Typed
from pipeline.data.contracts.given_ids import with_ids
from pipeline.data.contracts.layout import layout
from pipeline.data.contracts.policies import DEFAULTS
from pipeline.data.contracts.registration_batch import RegistrationBatch
from pipeline.data.contracts.registrations import CheckedRegistration, unattended
from pipeline.data.contracts.registries.protobuf_sources import descriptor_set
from pipeline.data.contracts.schemas import Schema
from pipeline.lake.delta import table
from pipeline.store.database.engine import writing
from tests.faults.faults import Faults
from tests.faults.life import Life
from tests.faults.mutants import EVENTS, MUTANTS, Story, _live, require_a_planted_bug_is_seen
from tests.faults.oracle import judge
from tests.tables.repair_world import SECOND, early, good
from tests.tables.restored_world import THIRD, restored_world
from tests.tables.value_world import value_world, wrapped

pytestmark = pytest.mark.timeout(120)


# Lives that lead past the place where a bug would do its harm.


# Bugs.


@pytest.mark.parametrize("name", MUTANTS)
@pytest.mark.proves("D11", "G165", "G169")
def test_the_oracle_sees_every_planted_bug(
    world: Any, faults: Faults, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """An oracle that cannot fail proves nothing: with this bug in place it must not call the tables clean."""
    require_a_planted_bug_is_seen(world, faults, monkeypatch, name)


@pytest.mark.parametrize("story", list(dict.fromkeys(story for _, story in MUTANTS.values())))
@pytest.mark.proves("G169")
def test_without_a_bug_the_same_life_is_clean(world: Any, faults: Faults, story: Story) -> None:
    """It is the planted bug that the oracle sees, not the life it was planted in."""
    life = Life(world, faults, events=EVENTS * 4)
    _live(life, story)
    verdict = judge(world.paths.root, life.log)
    assert verdict.clean, verdict


@pytest.mark.parametrize("planted", [False, True])
@pytest.mark.proves("G169", "G240")
def test_verify_sees_rows_in_columns_that_they_were_not_written_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, planted: bool
) -> None:
    """The check of event types is off, and numbers go on across full names: `player` is an item, and values agree."""
    if planted:
        monkeypatch.setattr(registration_batch, "judged", lambda *_: Typed())
        monkeypatch.setattr(ProtobufFormat, "numbering", lambda _self, _message: Numbering("protobuf"))
        layout.cache_clear()
        evolve.cache_clear()
    world = value_world(tmp_path)
    texts = ("Joined { string player = 1; int64 seconds = 2; }", "Sold { string item = 1; int64 price = 2; }")
    with writing(world.engine) as connection:
        each = [_unattended(text) for text in texts]
        ids = [done.schema_id for done in RegistrationBatch(connection, each).write()]
    world.names["Chess"] = str(game_key("Chess"))
    world.arrive(*(wrapped("Chess", schema_id, b"\x0a\5sword\x10\5") for schema_id in ids))
    world.split_all()
    balance = world.check()
    world.engine.dispose()
    layout.cache_clear()
    evolve.cache_clear()
    assert balance.values is not None
    assert balance.totals.landed == 1 + planted
    assert [(each.column, each.expected) for each in balance.values.named] == [(None, "no row: other_type")] * planted


def _unattended(text: str) -> CheckedRegistration:
    full = f"acme.{text.split(maxsplit=1)[0]}"
    content = descriptor_set(f'syntax = "proto3"; package acme; message {text}', {}).SerializeToString()
    schema = Schema(0, "protobuf", full, format_of("protobuf").canonical(full, content))
    return unattended("Chess", game_key("Chess"), schema, DEFAULTS, registry="main")


def ids_are_given_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder of given ids is ignored, and so is what tables note; the fingerprints in both are kept."""
    monkeypatch.setattr(registry, "with_ids", lambda engine, _given, marks, act: with_ids(engine, None, marks, act))
    monkeypatch.setattr(registry, "lost", lambda _stored, _given: {})
    monkeypatch.setattr(table, "joined", lambda _name, held, _new: held)


@pytest.mark.parametrize("is_planted", [True, False])
@pytest.mark.proves("G169")
def test_verify_finds_ids_that_were_given_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_planted: bool
) -> None:
    """An older store decodes rows as wrongly as they landed: the values check knows it by what its ids once meant."""
    life = restored_world(tmp_path)
    life.back_up()
    assert life.register(message=SECOND) == 2
    life.restore()
    if is_planted:
        ids_are_given_again(monkeypatch)
        assert life.register(message=THIRD) == 2
    else:
        with pytest.raises(Refused, match="lost schema 2"):
            life.register(message=THIRD)
    life.ingest(good(1), early(2))  # the old producer goes on
    life.split()
    found = life.values().values
    assert found is not None
    assert [(each.seq, each.pos) for each in found.named] == ([(1, 1)] if is_planted else [])
