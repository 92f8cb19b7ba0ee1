"""The load of a measurement: the real simulator and the real ingest driver in an environment of their own.

The simulator sends on a fixed schedule whatever the readers do (open loop). Both run in processes that are told
apart from what is measured.
"""

import json
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from bench.log import Commit, Follower
from bench.numbers import Floats, Ints, applied_at
from pipeline.demo.framings.by_type import BY_TYPE, FIELDS
from pipeline.health.facts.placing import placing
from pipeline.lake.delta.log import json_lines
from pipeline.platforms.local.child_processes import Child, Children, turnout
from pipeline.settings.tree import Paths, Settings, load
from pipeline.store.database.engine import open_store
from pipeline.store.games import assigned, known_games, register_group

GROUP = "a"
_START_SECONDS = 240.0


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is sent."""

    games: int
    rate: float  # events per second
    versions: int = 5
    bad_share: float = 0.01
    skew: float = 1.1
    seed: int = 1
    formats: str = "protobuf"  # dealt to the games in turn, with commas
    undeclared: int = 0  # of the games: they send documents without a schema, into a source of their own

    def simulators(self) -> dict[str, list[str]]:
        """Return the options of each simulator by its name; each sends its games' share of the events."""
        if not self.undeclared:
            return {"simulate": self.arguments()}
        rate = self.rate * self.undeclared / self.games
        declared = replace(self, games=self.games - self.undeclared, rate=self.rate - rate)
        others = replace(self, games=self.undeclared, rate=rate, formats="json")
        by_type = ["--framing", BY_TYPE, "--into", "documents", "--skip-games", str(declared.games)]
        return {
            "simulate": [*declared.arguments(), "--into", "wrappers"],
            "documents": [*others.arguments(), *by_type],
        }

    def arguments(self) -> list[str]:
        """Return the options of `turnout simulate`."""
        names = ("games", "rate", "versions", "bad_share", "skew", "seed")
        numbers = [part for name in names for part in (f"--{name.replace('_', '-')}", f"{getattr(self, name):g}")]
        return [*numbers, "--formats", self.formats]


def undeclared_sources(landing: str) -> dict[str, dict[str, object]]:
    """Return the tables of settings with the source of wrappers, and one of documents without a schema at a place."""
    documents: dict[str, object] = {"path": landing, "envelope": "json", "framing": BY_TYPE}
    return {"sources.wrappers": {}, "sources.documents": documents, "sources.documents.envelope_fields": {**FIELDS}}


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Bronze as work to do: one item per game and bronze commit that brought it rows which were not refused."""

    keys: list[str]  # the games
    game: Ints  # index into keys
    seq: Ints
    rows: Ints
    source_at: Floats  # the oldest row's source commit
    bronze_at: Floats  # the bronze commit


class Ended(Exception):
    """A process of the load or a contender ended by itself; the message shows the end of its log."""


def write_settings(root: Path, tables: Mapping[str, Mapping[str, object]]) -> tuple[Settings, Paths]:
    """Write the environment's settings file and read it back."""
    root.mkdir(parents=True)
    lines = []
    for table, values in tables.items():
        lines += [f"[{table}]", *(f"{json.dumps(key)} = {json.dumps(value)}" for key, value in values.items())]
    (root / "turnout.toml").write_text("\n".join(lines) + "\n", "utf-8")
    return load(root, {})


class Load:
    """The processes of one measurement beside its contenders."""

    def __init__(self, settings: Settings, paths: Paths, children: Children) -> None:
        """Start nothing yet."""
        self._engine, self.paths, self._children = open_store(settings, paths), paths, children
        self.landings = [str(paths.landing)]
        self._started: dict[str, Child] = {}

    def start(self, name: str, *arguments: str) -> None:
        """Start a turnout command on the environment."""
        command = turnout(*arguments, "--env-dir", str(self.paths.root))
        self._started[name] = self._children.start(name, command)

    def start_ingest(self) -> None:
        """Start ingest and wait until its query runs."""
        self.start("ingest", "ingest", "run")
        self.await_query(Path(self.paths.ingest) / "1")

    def send(self, wanted: Wanted) -> list[str]:
        """Start the simulators and wait until every game is known; return the games' keys."""
        for name, arguments in wanted.simulators().items():
            self.start(name, "simulate", *arguments, "--start-time", str(time.time()))
        self.until(lambda: len(known_games(self._engine)) >= wanted.games, f"{wanted.games} games in the control store")
        return sorted(known_games(self._engine))

    def await_query(self, checkpoint: Path) -> None:
        """Wait until a query has made its checkpoint."""
        self.until((checkpoint / "query" / "metadata").exists, f"query in {checkpoint}")

    def until(self, condition: Callable[[], bool], what: str, seconds: float = _START_SECONDS) -> None:
        """Look every half second until something is so.

        Raises:
            Ended: a process ended first.
            TimeoutError: it did not become so in time.
        """
        deadline = time.monotonic() + seconds
        while not condition():
            self.look()
            if time.monotonic() > deadline:
                raise TimeoutError(f"no {what} within {seconds:g} s")
            time.sleep(0.5)

    def look(self) -> None:
        """Raise `Ended` if a process has ended by itself."""
        for child in self._children.dead():
            raise Ended(f"{child.name} ended:\n{self._children.tail(child.name)}")

    def pids(self) -> dict[str, int]:
        """Return the process id of each process by name."""
        return {name: child.process.pid for name, child in self._started.items() if child.process is not None}

    def stop(self, name: str, seconds: float = 60.0) -> None:
        """End one process in order and wait for it."""
        process = self._started.pop(name).process
        if process is not None:
            process.terminate()
            process.wait(seconds)
            self._children.forget(name)

    def last_seqs(self) -> dict[str, int]:
        """Return each game's last bronze seq in the control store."""
        return {each.game_key: each.last_seq for each in assigned(self._engine, GROUP)}

    def landing_behind(self) -> bool:
        """Return whether ingest's newest micro-batch did not reach the newest commit of a landing table."""
        offsets = Path(self.paths.ingest) / "1" / "query"
        newest = max((int(each.name) for each in (offsets / "commits").iterdir() if each.name.isdigit()), default=None)
        if newest is None:
            return True
        _version, *lines = json_lines((offsets / "offsets" / str(newest)).read_text("utf-8"))
        reached = {each["reservoirId"]: each for each in map(json.loads, lines) if "reservoirId" in each}
        return any(_is_behind(reached, DeltaTable(landing)) for landing in self.landings)

    def games_behind(self) -> int:
        """Return how many games' tables lag behind the control store's last bronze seqs."""
        behind = 0
        for key, head in self.last_seqs().items():
            commits = Follower(Path(self.paths.table(key))).read()
            behind += max((each.seq_to or 0 for each in commits), default=0) < head
        return behind


@contextmanager
def prepared(settings: Settings, paths: Paths) -> Iterator[Load]:
    """Make the environment's store and group; whatever is started inside the block ends with it."""
    register_group(open_store(settings, paths), GROUP, placing())
    with Children(paths.logs) as children:
        yield Load(settings, paths, children)


def _is_behind(reached: Mapping[str, Mapping[str, object]], landing: DeltaTable) -> bool:
    offset = reached.get(str(landing.metadata().id))
    if offset is None:
        return True
    # Delta's offset is (version, index): a negative index stands before a version's first file.
    return int(str(offset["reservoirVersion"])) < landing.version() + (1 if int(str(offset["index"])) < 0 else 0)


def prove(paths: Paths, *options: str) -> subprocess.CompletedProcess[str]:
    """Run `turnout verify` on the environment, which proves its completeness."""
    command = [*turnout("verify", "--env-dir", str(paths.root), "--json", *options)]
    return subprocess.run(command, capture_output=True, text=True)


def landed(paths: Paths) -> tuple[Floats, Floats]:
    """Return for each landing file that reached bronze when it was written and when bronze had it.

    What never reached bronze is not known here; `turnout verify` does not know it either.
    """
    pairs: dict[str, tuple[float, int]] = {}
    columns = ["topic", "seq", "source_time"]
    for batch in DeltaTable(paths.bronze).to_pyarrow_dataset().to_batches(columns=columns):
        found = pa.Table.from_batches([batch]).group_by(["topic", "seq"]).aggregate([("source_time", "min")])
        for row in found.to_pylist():
            pairs[row["topic"]] = (row["source_time_min"].timestamp(), row["seq"])
    written, seqs = zip(*pairs.values(), strict=True)
    return np.array(written), _had_at(Path(paths.bronze), seqs)


def arrivals(bronze: Path) -> Arrivals:
    """Read which games had rows in which bronze commits, and when each reached the source and bronze."""
    parts = []
    columns = ["game_key", "seq", "source_time", "refused"]
    for batch in DeltaTable(bronze).to_pyarrow_dataset().to_batches(columns=columns):
        rows = pa.Table.from_batches([batch])
        rows = rows.filter(pc.is_null(rows.column("refused")))
        parts.append(rows.group_by(["game_key", "seq"]).aggregate([("source_time", "min"), ("seq", "count")]))
    items = pa.concat_tables(parts).combine_chunks().sort_by([("game_key", "ascending"), ("seq", "ascending")])
    games = items.column("game_key").combine_chunks().dictionary_encode()
    games = games.combine_chunks() if isinstance(games, pa.ChunkedArray) else games
    seq = items.column("seq").to_numpy()
    micros = items.column("source_time_min").cast(pa.int64()).to_numpy()
    return Arrivals(
        keys=games.dictionary.to_pylist(),
        game=games.indices.to_numpy(),
        seq=seq,
        rows=items.column("seq_count").to_numpy(),
        source_at=micros / 1e6,
        bronze_at=_had_at(bronze, seq.tolist()),
    )


def _had_at(bronze: Path, seqs: Sequence[int]) -> Floats:
    """Return when bronze had each of these seqs: a large micro-batch is several of them in one commit."""
    reached = [(commit.seq_to, commit.at) for commit in Follower(bronze).read() if commit.seq_to is not None]
    return np.array(applied_at(seqs, reached))


def done_at(work: Arrivals, commits: Mapping[str, Sequence[Commit]]) -> Floats:
    """Return for each item of work when its game's table held it, infinity when it does not."""
    done = np.full(work.seq.size, np.inf)
    for index, key in enumerate(work.keys):
        mine = work.game == index
        reached = [(each.seq_to, each.at) for each in commits.get(key, ()) if each.seq_to is not None]
        done[mine] = applied_at(work.seq[mine].tolist(), reached)
    return done
