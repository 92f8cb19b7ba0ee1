"""An environment's folder is moved: its embedded catalog shows the tables where they lay, until a person acts."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result
from deltalake import write_deltalake

from grants.applying import drift_store, ledger
from grants.catalog import Change, Denied
from grants.cli.reading import rows
from grants.model import GameTable, Securable
from grants.observing import snapshot
from grants.observing.left_places import beside
from grants.planning.entitlements import AccessIntent
from pipeline.base.errors import Refused
from pipeline.cli.main import cli
from pipeline.settings.tree import load
from pipeline.store import audit
from pipeline.store.database.engine import open_store
from tests.unit.grants.access_world import ANN, BOB, CHESS, GO, House, house_at
from tests.unit.grants.catalog_world import UC


@dataclass
class Moved:
    """An environment after its folder was moved, with Ann's grant on Chess from before."""

    house: House
    former: Path
    tables: dict[str, GameTable]  # as the catalog showed them before

    def relocate(self, *more: str, former: Path | None = None, answer: str | None = None) -> Result:
        """Run the command; raise its refusal."""
        words = ["catalog", "relocate", str(former or self.former), "--reason", "a larger disk", *more]
        done = CliRunner().invoke(cli, [*words, "--env-dir", str(self.house.world.paths.root)], input=answer)
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return done

    def shown(self) -> dict[str, GameTable]:
        return dict(self.house.catalog.tables(self.house.schema))

    def reads(self, who: str, key: str) -> bool:
        world = self.house.world
        try:
            rows(world.settings.access, world.paths, key, who, 5)
        except Denied:
            return False
        return True

    def drifted(self) -> dict[str, str]:
        """Return the sentences of what has drifted, by class and table."""
        world = self.house.world
        found = drift_store.read_drift(world.engine, self.house.catalog, world.settings.access, world.paths).findings
        return {f"{each.kind} {each.securable.path[-1]}": each.sentence for each in found}


@contextmanager
def served_at(folder: Path) -> Iterator[House]:
    engine = open_store(*load(folder))
    try:
        with house_at(engine, folder) as house:
            yield house
    finally:
        engine.dispose()


@pytest.fixture
def moved(tmp_path: Path) -> Iterator[Moved]:
    former, folder = tmp_path / "a" / "var", tmp_path / "b" / "elsewhere"
    former.mkdir(parents=True)
    with served_at(former) as house:
        for key in (CHESS, GO):
            house.make_table(key)
        house.rounds()
        assert house.do(AccessIntent(ANN, CHESS, read=True, reason="numbers")).state == "succeeded"
        tables = dict(house.catalog.tables(house.schema))
    folder.parent.mkdir()
    shutil.move(former, folder)
    with served_at(folder) as house:
        yield Moved(house, former, tables)


def grant(house: House) -> str | None:
    return house.do(AccessIntent(BOB, GO, read=True, reason="numbers")).outcome


@pytest.mark.proves("G284")
def test_the_tables_of_a_moved_environment_are_registered_at_their_place(moved: Moved) -> None:
    """Law of access: a move changes no grant. Until a person names the former folder nothing is read or granted."""
    house, place = moved.house, moved.house.world.paths.table(CHESS).uri
    house.rounds()
    observed = snapshot.read(house.world.engine).observed
    assert observed is not None
    for said in (moved.drifted()[f"other_table {CHESS}"], observed.notes[0]):
        assert moved.tables[CHESS].location in said
        assert "turnout catalog relocate" in said
    for attempt in (lambda: grant(house), lambda: moved.reads(ANN, CHESS)):
        with pytest.raises(Refused, match="turnout catalog relocate"):
            attempt()
    said = moved.relocate("--yes").output
    assert f"{moved.tables[CHESS].location} → {place}" in said
    after = moved.shown()
    assert {key: each.table_id for key, each in after.items()} == {k: each.table_id for k, each in moved.tables.items()}
    assert {key: each.location for key, each in after.items()} == {
        key: house.world.paths.table(key).uri for key in (CHESS, GO)
    }
    assert (moved.reads(ANN, CHESS), moved.reads(ANN, GO), moved.reads(BOB, GO)) == (True, False, False)
    assert moved.drifted() == {}
    assert "1 probed" in (grant(house) or "")
    assert moved.reads(BOB, GO)
    assert {(each.principal, each.key) for each in ledger.managed(house.world.engine).entitlements} == {
        (ANN, CHESS), (BOB, GO)
    }  # fmt: skip
    acts = [each for each in audit.entries(house.world.engine) if each.action == "relocate tables"]
    assert [(each.outcome, dict(each.detail)) for each in acts] == [
        (outcome, {"former": str(moved.former), "reason": "a larger disk"}) for outcome in (None, "succeeded")
    ]
    assert "Nothing has moved" in moved.relocate("--yes").output, "a second time there is nothing to do"


@pytest.mark.proves("G284")
def test_nothing_is_registered_elsewhere_before_a_person_agrees(moved: Moved) -> None:
    """A person sees each old and new place before anything changes, and may say no."""
    done = moved.relocate(answer="n\n")
    assert done.exit_code == 1
    assert moved.tables[GO].location in done.output
    assert moved.shown() == moved.tables
    assert moved.relocate(answer="y\n").exit_code == 0
    assert moved.shown() != moved.tables


def register_elsewhere(moved: Moved, place: Path) -> None:
    """Register a table under a game's name at another place, as a person may by hand, and let Bob read it."""
    name = Securable((*moved.house.schema.path, CHESS))
    moved.house.catalog.rest.write("DELETE", f"{UC}/tables/{name.full_name}", {})
    moved.house.catalog.register(name, place.as_uri(), [("salary", "long")])
    for where, privilege in zip(name.chain(), ("SELECT", "USE_SCHEMA", "USE_CATALOG"), strict=True):
        moved.house.catalog.change(Change(where, BOB, add=(privilege,)))


@pytest.mark.proves("G284")
def test_a_table_that_others_registered_elsewhere_stays_there(moved: Moved, tmp_path: Path) -> None:
    """Else who may register a table would choose who reads the game: its entry comes with grants of theirs."""
    place = tmp_path / "theirs" / "tables" / CHESS
    write_deltalake(place, pa.table({"salary": [100_000]}))
    register_elsewhere(moved, place)
    assert "catalog relocate" not in moved.drifted()[f"other_table {CHESS}"]
    done = moved.relocate("--yes")
    assert f"the catalog shows it at {place.as_uri()}" in done.stderr
    after = moved.shown()
    assert after[CHESS].location == place.as_uri()
    assert after[GO].location == moved.house.world.paths.table(GO).uri
    shutil.rmtree(place.parent.parent)  # nor when nothing lies there any more: it was not in the former folder
    with pytest.raises(Refused, match=f"shows no table in {moved.former}"):
        moved.relocate("--yes")
    assert moved.shown() == after
    with pytest.raises(Refused, match="another table than the game's"):
        moved.reads(BOB, CHESS)


@pytest.mark.proves("G284")
def test_a_former_place_with_a_table_in_it_was_not_moved(moved: Moved) -> None:
    """Where something lies in the former folder still, nothing is changed at all: it may be another table by now."""
    write_deltalake(moved.former / "tables" / CHESS, pa.table({"salary": [100_000]}))
    with pytest.raises(Refused, match="still lies at"):
        moved.relocate("--yes")
    assert moved.shown() == moved.tables
    shutil.rmtree(moved.former)
    moved.former.symlink_to(moved.house.world.paths.root)  # as people leave for what knows the old path
    moved.relocate("--yes")
    assert moved.shown()[CHESS].location == moved.house.world.paths.table(CHESS).uri


@pytest.mark.proves("G284")
def test_only_a_former_folder_with_its_tables_here_is_taken(moved: Moved, tmp_path: Path) -> None:
    """A mistyped folder, and a game whose table did not come along, are refused; nothing is changed."""
    with pytest.raises(Refused, match=moved.tables[CHESS].location):
        moved.relocate("--yes", former=tmp_path / "a")
    shutil.rmtree(moved.house.world.paths.table(GO))
    with pytest.raises(Refused, match=f"has no table at {moved.house.world.paths.table(GO).uri}"):
        moved.relocate("--yes")
    assert moved.shown() == moved.tables


def test_only_an_access_admin_relocates_tables(moved: Moved) -> None:
    """Where a table lies decides what its readers read, so the role of access is needed."""
    file = moved.house.world.paths.root / "turnout.toml"
    file.write_text(file.read_text("utf-8") + '[roles]\naccess_admins = ["max"]\n', "utf-8")
    with pytest.raises(Refused, match="needs the role access_admin"):
        moved.relocate("--yes")
    assert moved.shown() == moved.tables


@pytest.mark.parametrize(
    ("is_local", "location", "is_left"),
    [
        (True, "file:///gone/var/tables/chess", True),
        (True, "/gone/var/tables/chess", True),
        (False, "file:///gone/var/tables/chess", False),  # a machine of theirs, which we do not see
        (True, "file:///gone/var/chess", False),
        (True, "file:///gone/var/tables/go", False),
        (True, "s3://bucket/var/tables/chess", False),
        (True, "unknown://x/tables/chess", False),
        (True, "tables/chess", False),
        (True, "", False),
        (True, "file:///now/tables/chess", False),
    ],
)
def test_the_command_is_named_only_where_it_may_help(is_local: bool, location: str, is_left: bool) -> None:
    """A place that no environment had, or that we cannot look at, is no former one."""
    table = GameTable("chess", Securable(("main", "games", "chess")), "1", None, location=location)
    assert beside(table, "file:///now/tables/chess", is_local).is_left is is_left
