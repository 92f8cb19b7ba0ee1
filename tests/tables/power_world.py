"""A disk that forgets what was not synced, and an environment whose power is cut at each effect.

The disk keeps the least that POSIX promises: of a file the bytes of its last fsync, of a folder the names of its last
fsync. So a cut empties files, removes names, and undoes renames, links and deletions. All else is as the system has it,
as a cut may also take nothing.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pytest
from sqlalchemy import Engine

from listeners.sample import Lane
from pipeline.base import failpoints
from pipeline.data import query_log
from pipeline.data.contracts.registry import LocalRegistry
from pipeline.data.ingest import checkpoint
from pipeline.data.ingest.bronze_progress import plan_of
from pipeline.data.ingest.checkpoint import LandedBatches
from pipeline.data.ingest.query import Ingest
from pipeline.data.maintenance.run import one_round
from pipeline.data.pins import pin
from pipeline.data.repair.quarantined import Selection
from pipeline.data.repair.rebuild import rebuild
from pipeline.data.repair.replay import replay_all
from pipeline.data.streams.active_games import ActiveGames
from pipeline.data.streams.passes import Passes
from pipeline.data.verify.balance import verify
from pipeline.lake.delta.quarantine import QUARANTINE
from pipeline.lake.delta.table import CursorTable
from pipeline.lake.storage.places import located
from pipeline.settings.maintenance import Maintenance
from pipeline.settings.tree import Paths, Settings, load
from pipeline.store.database.engine import open_store
from pipeline.store.games import known_games
from protos.turnout.v1.wrapper_pb2 import Wrapper
from tests.tables import repair_world
from tests.tables.bronze_rows import BronzeRows
from tests.tables.ingest_world import Rows, batch_of
from tests.tables.repair_world import CHESS, FIRST, GO

ALL: Final = "all"
PARTS: Final = (ALL, "bronze", "quarantine", "tables", "checkpoints")
"""Parts of which a cut takes the unsynced; the rest of the environment is as the system had it."""

Image: TypeAlias = dict[Path, bytes | None]
"""Contents of the files of a folder by their places in it; None for a folder."""

_STORE: Final = "control.db"  # SQLite syncs its own commits
_NAMES: Final = (CHESS.name, GO.name, CHESS.name, CHESS.name)  # of a batch's rows; one is refused
ROWS: Final = len(_NAMES)


def source(batch: int) -> Rows:
    """Return a micro-batch as Spark reads it again and again."""
    rows = [Wrapper(game=name, schema_id=1, payload=_payload(batch, at)) for at, name in enumerate(_NAMES)]
    made = batch_of([(name, 0) for name in _NAMES], 0, [f"{batch}.parquet"] * ROWS)
    values = pa.array([each.SerializeToString() for each in rows], pa.binary())
    return Rows([made.set_column(made.schema.get_field_index("value"), "value", values)])


def _payload(batch: int, at: int) -> bytes:
    return repair_world.BROKEN if at == ROWS - 1 else FIRST.payload(points=batch * ROWS + at + 1)


class SparkLog:
    """The two logs of a checkpoint, as Spark writes them: a draft, a rename, and no fsync."""

    def __init__(self, query: Path) -> None:
        self._query = query

    def batches(self, log: str) -> list[int]:
        return query_log.batches(located(self._query / log))

    def write(self, log: str, batch: int, text: str) -> None:
        (self._query / log).mkdir(parents=True, exist_ok=True)
        head = "v1\n{}\n" if log == "offsets" else "v1\n"
        draft = self._query / log / f".{batch}.tmp"
        draft.write_text(head + text)
        draft.replace(self._query / log / str(batch))
        if failpoints.on_hit is not None:
            failpoints.on_hit(f"after_{log}")  # Spark's effect, no fail-point of ours


class Disk:
    """Return the content of a folder after a power cut at this moment."""

    def __init__(self, root: Path, held: Path) -> None:
        """Begin with all there is on disk; `held` is a folder for what keeps inodes from being used again."""
        self.root, self._held = root, held
        self._lock = Lock()
        self._contents: dict[int, bytes] = {}
        self._names: dict[int, dict[str, tuple[int, bool]]] = {}  # folder → name → inode, whether it is a folder
        self._kept: dict[int, int] = {}  # folder → a handle of it
        self._reads: dict[tuple[int, int, int], bytes] = {}
        held.mkdir()
        for folder, _, files in os.walk(root):
            self._note(Path(folder))
            for name in files:
                self._note(Path(folder, name))

    def close(self) -> None:
        for handle in self._kept.values():
            os.close(handle)

    def sync(self, handle: int) -> None:
        """Take the place of `os.fsync`."""
        path = Path(f"/proc/self/fd/{handle}").readlink()
        if path.is_relative_to(self.root):
            with self._lock:
                self._note(path)

    def _note(self, path: Path) -> None:
        inode = path.stat().st_ino
        if path.is_dir():
            if inode not in self._kept:
                self._kept[inode] = os.open(path, os.O_RDONLY)
            with os.scandir(path) as entries:
                self._names[inode] = {each.name: (each.inode(), each.is_dir()) for each in entries}
            for name, (at, is_folder) in self._names[inode].items():
                if not is_folder:
                    self._hold(path / name, at)
            return
        self._hold(path, inode)
        self._contents[inode] = path.read_bytes()

    def _hold(self, path: Path, inode: int) -> None:
        if not (self._held / str(inode)).exists():
            os.link(path, self._held / str(inode))

    def left(self, part: str) -> Image:
        """Return the folder as it is after a cut of one part of it, or of all."""
        with self._lock:
            image: Image = {}
            kept = self._names[self.root.stat().st_ino]
            for name in {*kept, *(each.name for each in self.root.iterdir())}:
                if name.startswith(_STORE) or part not in {ALL, name}:
                    self._as_it_is(Path(name), image)
                elif name in kept:
                    self._as_kept(Path(name), *kept[name], image)
            return image

    def _as_it_is(self, place: Path, image: Image) -> None:
        path = self.root / place
        if path.is_dir():
            image[place] = None
            for each in path.iterdir():
                self._as_it_is(place / each.name, image)
        elif path.exists() and not path.name.endswith("-shm"):
            image[place] = self._read(path)

    def _as_kept(self, place: Path, inode: int, is_folder: bool, image: Image) -> None:
        image[place] = None if is_folder else self._contents.get(inode, b"")
        for name, entry in self._names.get(inode, {}).items() if is_folder else ():
            self._as_kept(place / name, *entry, image)

    def _read(self, path: Path) -> bytes:
        """Read a file, or take what was read of it before: most do not change."""
        found = path.stat()
        key = found.st_ino, found.st_size, found.st_mtime_ns
        if key not in self._reads:
            self._reads[key] = path.read_bytes()
        return self._reads[key]


def write(image: Image, folder: Path) -> None:
    """Make a folder with this content."""
    folder.mkdir()
    for place, content in sorted(image.items()):  # a folder before what is in it
        if content is None:
            (folder / place).mkdir()
        else:
            (folder / place).write_bytes(content)


@dataclass
class Environment:
    """An environment whose source has some batches; a stand-in of Spark writes its checkpoint and syncs nothing."""

    env: Path
    batches: int = 2
    settings: Settings = field(init=False)
    paths: Paths = field(init=False)
    engine: Engine = field(init=False)

    def __post_init__(self) -> None:
        self.settings, self.paths = load(self.env, {})
        self.engine = open_store(self.settings, self.paths)

    def register(self, *games: str) -> None:
        for name in games:
            LocalRegistry(self.engine).register(name, "t.M", FIRST.descriptor_set)

    def ingest(self) -> None:
        """Land what the source has: as a start of ingest, then batch by batch as Spark does it."""
        spark: Any = None
        ingest = Ingest(spark, self.settings, self.paths, self.engine, lambda _: None)
        ingest._bronze.settle()
        ingest._quarantine.settle()
        query = ingest._checkpoint / "query"
        landed = LandedBatches(ingest._bronze.transaction_version(ingest._batch_app), ingest._quarantine.cursor)
        checkpoint.mend(query, landed, 1, partial(plan_of, ingest._bronze, ingest._batch_app))
        checkpoint.require_bronze(query, landed, ingest._bronze.table_id)
        checkpoint.passed_offset(query, landed)
        checkpoint.keep_bronze(query, ingest._bronze.table_id)
        spark_log = SparkLog(Path(query))
        planned, committed = spark_log.batches("offsets"), spark_log.batches("commits")
        first = planned[-1] if planned and (not committed or committed[-1] < planned[-1]) else len(planned)
        for batch in range(first, self.batches):
            spark_log.write("offsets", batch, json.dumps({"t": {"0": batch + 1}}))
            ingest._batch(source(batch), batch)  # type: ignore[arg-type]
            spark_log.write("commits", batch, json.dumps({"nextBatchWatermarkMs": 0}))

    def split(self) -> None:
        """Run one pass over all that bronze has above the cursors, as the first of a driver."""
        world = self._world()
        streams = {str(game.key): world.stream(game) for game in (CHESS, GO) if str(game.key) in self._known()}
        quarantine = CursorTable.create(self.paths.quarantine, QUARANTINE, "turnout/group/a")
        pins = located(self.paths.checkpoints / "demux" / "a" / "query" / "pins")
        version = pin(pins, len(list(pins.files())), LocalRegistry(self.engine).latest_version)
        with ThreadPoolExecutor(1) as pool:
            active = ActiveGames(self.paths.checkpoints, "a")
            passes = Passes(self.paths.tables, quarantine, pool, active)
            schemas = LocalRegistry(self.engine).snapshot(version)
            outcome = passes.apply(BronzeRows(world), streams, schemas, Lane.RUN, repeated=True)
        assert not outcome.failures, outcome.failures

    def replay(self) -> None:
        """Register the game that was unknown, and land its rows."""
        self.register(GO.name)
        replay_all(
            self.paths,
            self.settings.environment,
            LocalRegistry(self.engine).snapshot,
            self._known(),
            Selection(),
            dry_run=False,
        )

    def rebuild(self) -> None:
        snapshot = LocalRegistry(self.engine).snapshot
        rebuild(self.paths, self.settings.environment, self.engine, snapshot, CHESS)

    def maintain(self) -> None:
        """Merge all that can be, and delete what was merged."""
        eager = Maintenance(small_files=2, bronze_commits=2, bronze_age_minutes=0.0)
        for days in (0, 30):
            now = time.time() + days * 86_400
            done = one_round(replace(self.settings, maintenance=eager), self.paths, now, thorough=True)
            assert not [each.error for each in done.tables if each.error]

    def rest(self) -> None:
        """Go on after a cut, without a person."""
        self.ingest()
        self.split()

    def require_exact(self) -> None:
        """Require that each row of the source is in bronze once, and in its game's table or in quarantine once."""
        balance = verify(self.paths, self.settings.environment)
        assert balance.ok, balance.problems
        assert balance.totals.bronze_rows == ROWS * self.batches
        assert balance.totals.pending == 0

    def close(self) -> None:
        self.engine.dispose()

    def _world(self) -> repair_world.World:
        return repair_world.World(self.paths, self.settings, self.engine)

    def _known(self) -> dict[str, str]:
        return known_games(self.engine)


def states(env: Path, folder: Path, act: Callable[[Environment], None], parts: tuple[str, ...] = PARTS) -> list[str]:
    """Do something in an environment, and make `folder/N` for each state in which a cut at an effect may leave it.

    Returns the point of each state, in their order.
    """
    disk, found, points = Disk(env, folder / "held"), set[int](), list[str]()

    def cut(point: str) -> None:
        for part in parts:
            image = disk.left(part)
            tables = {place: content for place, content in image.items() if not place.name.startswith(_STORE)}
            state = hash(frozenset(tables.items()))
            if state not in found:
                found.add(state)
                write(image, folder / str(len(points)))
                points.append(f"{point}, {part}")

    environment = Environment(env)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", disk.sync)
        patch.setattr(failpoints, "on_hit", cut)
        act(environment)
        cut("the end")
    environment.close()
    disk.close()
    return points


def land(environment: Environment) -> None:
    """Land a second batch, and let a pass apply it."""
    environment.batches = 2
    environment.ingest()
    environment.split()


def keep_small(environment: Environment) -> None:
    land(environment)
    environment.maintain()


def replay(environment: Environment) -> None:
    environment.replay()
    environment.split()


ACTS: Final[Mapping[str, Callable[[Environment], None]]] = {
    "land": land,
    "replay": replay,
    "rebuild": Environment.rebuild,
    "maintain": keep_small,
}


def begun(env: Path) -> Path:
    """Make an environment whose first batch is in the games' tables, and return its folder."""
    env.mkdir()
    environment = Environment(env, batches=1)
    environment.register(CHESS.name)
    environment.ingest()
    environment.split()
    environment.close()
    return env


def problems(folder: Path, act: Callable[[Environment], None], most: int | None = None) -> list[str]:
    """Act in the environment `folder/env`, cut at each effect, go on from each state, and return what is wrong.

    With `most`, only that many of the states are looked at, spread over all.
    """
    points, found = states(folder / "env", folder, act), []
    step = 1 if most is None else max(len(points) // most, 1)
    for number in range(len(points) - 1, -1, -step):
        after = Environment(folder / str(number))
        try:
            after.rest()
            after.require_exact()
        except Exception as error:  # noqa: BLE001 - all of them are shown at once
            found.append(f"{number} {points[number]}: {type(error).__name__}: {error}")
        after.close()
    return found


def main(env: Path) -> None:
    """Begin an environment and land a second batch, for a test that traces this process."""
    environment = Environment(begun(env))
    land(environment)
    environment.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
