"""Small environments for the tests of `turnout verify`, written as they are: right or wrong."""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
from deltalake import CommitProperties, Transaction, write_deltalake

from pipeline.base.names import MALFORMED, GameKey, game_key, stream_app_id
from pipeline.settings.tree import Paths

ENVIRONMENT = "test"
NAMES = {str(game_key(name)): name for name in ("Chess", "碁 Go!", "chess")}
CHESS, GO, CHESS_TWIN = NAMES

Place = tuple[int, int]
Refusal = tuple[str, int, int, str]
"""A row of quarantine: game key, seq, pos, reason."""


@dataclass
class Row:
    """One row of bronze."""

    key: str
    seq: int
    pos: int
    prev: int | None
    refused: str | None = None
    game: str | None = None


@dataclass
class World:
    """The contents of an environment's tables."""

    bronze: list[Row] = field(default_factory=list)
    tables: dict[str, list[Place | tuple[int | None, None]]] = field(default_factory=dict)
    cursors: dict[str, int] = field(default_factory=dict)
    quarantine: list[Refusal] | None = None

    def refuse(self, key: str, place: Place, reason: str = "malformed_payload") -> None:
        """Add a row to quarantine."""
        self.quarantine = [*(self.quarantine or []), (key, *place, reason)]

    def write(self, root: Path) -> Paths:
        """Write all tables into an empty folder."""
        paths = Paths(root)
        append_bronze(paths, self.bronze)
        for key, places in self.tables.items():
            append_table(paths, key, places, self.cursors.get(key))
        if self.quarantine is not None:
            append_quarantine(paths, self.quarantine)
        return paths


def append_bronze(paths: Paths, rows: Sequence[Row]) -> None:
    """Commit rows to bronze."""
    columns = {
        "game_key": pa.array([row.key for row in rows], pa.string()),
        "game": pa.array([row.game or NAMES.get(row.key) for row in rows], pa.string()),
        "seq": pa.array([row.seq for row in rows], pa.int64()),
        "pos": pa.array([row.pos for row in rows], pa.int32()),
        "prev_seq": pa.array([row.prev for row in rows], pa.int64()),
        "refused": pa.array([row.refused for row in rows], pa.string()),
    }
    write_deltalake(Path(paths.bronze), pa.table(columns), mode="append")


def append_quarantine(paths: Paths, refusals: Sequence[Refusal]) -> None:
    """Commit rows to quarantine."""
    columns = {
        "game_key": pa.array([refusal[0] for refusal in refusals], pa.string()),
        "seq": pa.array([refusal[1] for refusal in refusals], pa.int64()),
        "pos": pa.array([refusal[2] for refusal in refusals], pa.int32()),
        "reason": pa.array([refusal[3] for refusal in refusals], pa.string()),
    }
    write_deltalake(Path(paths.quarantine), pa.table(columns), mode="append")


def append_table(
    paths: Paths,
    key: str,
    places: Sequence[Place | tuple[int | None, None]],
    cursor: int | None,
    *,
    generation: int = 1,
    payload: Mapping[str, pa.Array] | None = None,
) -> None:
    """Commit rows to a game's table, and its cursor with them unless it is None."""
    columns = {
        **(payload or {}),
        "_pos": pa.array([pos for _, pos in places], pa.int32()),
        "_seq": pa.array([seq for seq, _ in places], pa.int64()),
    }
    moved = [] if cursor is None else [Transaction(stream_app_id(ENVIRONMENT, GameKey(key), generation), cursor)]
    properties = CommitProperties(app_transactions=moved)
    write_deltalake(
        Path(paths.table(key)), pa.table(columns), mode="append", schema_mode="merge", commit_properties=properties
    )


def clean() -> World:
    """Two games: Chess landed up to 3 (one row refused by its stream), Go up to 2 with seq 4 still to come."""
    world = World(
        bronze=[
            Row(CHESS, 1, 0, 0),
            Row(CHESS, 1, 1, 0),
            Row(GO, 1, 2, 0),
            Row(GO, 2, 0, 1),
            Row(CHESS, 3, 0, 1),
            Row(CHESS, 3, 1, 1),
            Row(GO, 4, 0, 2),
            Row(GO, 4, 1, 2, "invalid_name"),
            Row(MALFORMED, 4, 2, 0, "malformed_wrapper"),
        ],
        tables={CHESS: [(1, 0), (1, 1), (3, 0)], GO: [(1, 2), (2, 0)]},
        cursors={CHESS: 3, GO: 2},
    )
    world.refuse(CHESS, (3, 1))
    world.refuse(GO, (4, 1), "invalid_name")
    world.refuse(MALFORMED, (4, 2), "malformed_wrapper")
    return world


def random_world(dice: random.Random) -> World:
    """Return a world in balance: a few games, batches and rows, some refused, some tables behind or absent."""
    world = World(quarantine=[] if dice.random() < 0.8 else None)
    keys = [CHESS, GO, CHESS_TWIN][: dice.randint(1, 3)]
    for key in keys:
        if dice.random() < 0.8:
            world.tables[key] = []
            world.cursors[key] = dice.randint(1, 6)
    last_seqs: dict[str, int] = {}
    for seq in range(1, 6):
        rows = sorted(dice.choice(keys) for _ in range(dice.randint(0, 5)))
        for pos, key in enumerate(rows):
            refused = "invalid_name" if world.quarantine is not None and dice.random() < 0.15 else None
            world.bronze.append(Row(key, seq, pos, last_seqs.get(key, 0), refused))
            if refused is not None:
                world.refuse(key, (seq, pos), refused)
            elif seq <= world.cursors.get(key, 0):
                if world.quarantine is not None and dice.random() < 0.2:
                    world.refuse(key, (seq, pos))
                else:
                    world.tables[key].append((seq, pos))
        last_seqs |= dict.fromkeys(rows, seq)
    for key, cursor in world.cursors.items():
        world.cursors[key] = min(cursor, max(last_seqs.values(), default=0))
    return world


def edit_randomly(world: World, dice: random.Random) -> None:
    """Change one thing, of any kind, if the world has it."""
    full = [key for key, rows in world.tables.items() if rows]
    refused = world.quarantine or []
    beside = [row for row in world.bronze if sum(each.seq == row.seq for each in world.bronze) > 1]
    match dice.randint(0, 8):
        case 0 if full:
            rows = world.tables[dice.choice(full)]
            rows.remove(dice.choice(rows))
        case 1 if full:
            rows = world.tables[dice.choice(full)]
            rows.append(dice.choice(rows))
        case 2 if full and len(world.tables) > 1:
            source, target = dice.choice(full), dice.choice(list(world.tables))
            row = world.tables[source].pop()
            world.tables[target].append(row)
        case 3 if refused:
            refused.remove(dice.choice(refused))
        case 4 if refused:
            refused.append(dice.choice(refused))
        case 5 if full and world.quarantine is not None:
            key = dice.choice(full)
            seq, pos = dice.choice(world.tables[key])
            if seq is not None and pos is not None:
                world.refuse(key, (seq, pos))
        case 6 if world.bronze:
            dice.choice(world.bronze).prev = dice.randint(0, 5)
        case 7 if world.cursors:
            world.cursors[dice.choice(list(world.cursors))] = dice.randint(1, 6)
        case 8 if beside:
            world.bronze.remove(dice.choice(beside))
        case _:
            pass


def oracle(world: World) -> dict[str, int]:
    """Count every kind of fault the slow and plain way, place by place."""
    found: Counter[str] = Counter()
    owner = {(row.seq, row.pos): row.key for row in world.bronze}
    held = {key: Counter(rows) for key, rows in world.tables.items()}
    refused = {(key, (seq, pos)) for key, seq, pos, _ in world.quarantine or []}
    for row in world.bronze:
        home = (row.seq, row.pos)
        if home in held.get(row.key, {}) or (row.key, home) in refused:
            continue
        passed = row.seq <= world.cursors.get(row.key, 0)
        found["lost" if passed or row.refused else "pending"] += 1
    for key, places in held.items():
        for place, times in places.items():
            found["duplicated"] += 0 if None in place else times - 1
            found["misrouted"] += place in owner and owner[place] != key
            found["phantom"] += (times if None in place else 1) if place not in owner else 0
            found["early"] += place[0] is not None and place[0] > world.cursors.get(key, 0)
    found["phantom"] += sum(owner.get(place) != key for key, place in refused if place not in held.get(key, {}))
    head = max((row.seq for row in world.bronze), default=0)
    found["beyond_bronze"] += sum(cursor > head for key, cursor in world.cursors.items() if key in world.tables)
    passed_over: set[int] = set()  # seqs that a wrong link of a game leaves out
    for key in {row.key for row in world.bronze}:
        before = 0
        for seq in sorted({row.seq for row in world.bronze if row.key == key}):
            reported = {row.prev for row in world.bronze if row.key == key and row.seq == seq}
            found["broken_chain"] += reported != {before}
            passed_over |= {each for each in range(before + 1, seq) if each <= max(each or 0 for each in reported)}
            before = seq
    somewhere = {*owner, *(place for places in held.values() for place in places), *(place for _, place in refused)}
    for seq in {row.seq for row in world.bronze} - passed_over:
        last = max(row.pos for row in world.bronze if row.seq == seq)
        found["bronze_holes"] += sum((seq, pos) not in somewhere for pos in range(last))
    return {kind: times for kind, times in found.items() if times}
