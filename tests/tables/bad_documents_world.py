"""Documents that no game wants, beside good ones of two games, in one pass over all games."""

import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from pipeline.base.names import game_key
from pipeline.data.contracts.policies import parse_policies
from pipeline.data.contracts.profile import SourceProfile
from pipeline.data.contracts.registrations import Registration
from pipeline.data.streams.writing.columns import landing_schema
from pipeline.data.streams.writing.job import READ, SplitJob
from pipeline.lake.delta.data_files import DataFile
from pipeline.lake.delta.opening import open_table
from pipeline.lake.delta.quarantine import QUARANTINE, without_present
from pipeline.store.games import Game
from tests.tables.repair_world import split_rows
from tests.tables.value_world import ValueWorld, value_world
from tests.unit.data.contracts.formats.json.json_world import obj

NAMES: Final = ("Chess", "Go")
SIDE: Final = parse_policies(["incompatible=side-column", "name=side-column", "value=add", "reuse=side-column"])


INTEGER, STRING = {"type": "integer"}, {"type": "string"}
JOINED: Final = obj(game=STRING, type=STRING, player=STRING, level=INTEGER)
BY_TYPE: Final = SourceProfile(
    envelope="json", framing="type", fields=(("game", "game"), ("type", "type")), undeclared="quarantine"
)


class Bad(NamedTuple):
    """A document that is refused, and the reason."""

    name: str
    raw: bytes
    reason: str


def document(game: str, **fields: Any) -> bytes:
    return json.dumps({"game": game, "type": "Joined"} | fields).encode()


def documents_world(folder: Path, profile: SourceProfile | None = BY_TYPE) -> ValueWorld:
    """An environment in which both games have declared the type `Joined`."""
    world = value_world(folder)
    world.profile = profile
    for name in NAMES:
        world.names[name] = str(game_key(name))
        declare(world, name, "Joined", JOINED)
    return world


def declare(world: ValueWorld, game: str, title: str, given: Mapping[str, Any], *, new_type: bool = False) -> int:
    definition = json.dumps({**given, "title": title}).encode()
    wanted = Registration(game, title, definition, SIDE, format="json", new_type=new_type)
    return world.registry.register_many([wanted])[0].schema_id


def with_text(text: bytes) -> bytes:
    """A document of Chess with this after its type."""
    return b'{"game":"Chess","type":"Joined",' + text + b"}"


def deep(levels: int) -> bytes:
    return with_text(b'"player":' + b"[" * levels + b"]" * levels)


_DRAW = random.Random("keys")
_KEYS = b",".join(b'"%016x":%d' % (_DRAW.getrandbits(64), number) for number in range(100_000))
BAD: Final = (
    Bad("text that is not UTF-8", with_text(b'"player":"\xff\xfe"'), "malformed_wrapper"),
    Bad("a key that is not UTF-8", with_text(b'"\xff":1'), "malformed_wrapper"),
    Bad("half of a pair", with_text(b'"player":"\\ud800"'), "malformed_wrapper"),
    Bad("the other half in a key", with_text(b'"\\udc00":1'), "malformed_wrapper"),
    Bad("a key twice", with_text(b'"level":1,"level":2'), "malformed_payload"),
    Bad("the game twice", with_text(b'"game":"Go"'), "malformed_wrapper"),
    Bad("NaN", with_text(b'"level":NaN'), "malformed_wrapper"),
    Bad("minus infinity", with_text(b'"level":-Infinity'), "malformed_wrapper"),
    Bad("beyond a double", with_text(b'"level":1e999'), "malformed_payload"),
    Bad("10 MB", with_text(b'"player":"' + b"x" * 10_000_000 + b'"'), "malformed_wrapper"),
    Bad("10,000 levels", deep(10_000), "malformed_wrapper"),
    Bad("40 levels", deep(40), "malformed_payload"),
    Bad("a column of turnout's", with_text(b'"_seq":1,"_pos":1,"_type":"Sold"'), "malformed_payload"),
    Bad("a path as a key", with_text(b'"player.name":1'), "malformed_payload"),
    Bad("another case of a key", with_text(b'"Player":"a"'), "malformed_payload"),
    Bad("100,000 random keys", with_text(_KEYS), "malformed_wrapper"),
    Bad("a key without a name", with_text(b'"":1'), "malformed_payload"),
    Bad("no end", with_text(b'"level":1')[:-1], "malformed_wrapper"),
    Bad("two documents", with_text(b'"level":1') * 2, "malformed_wrapper"),
    Bad("nothing", b"", "malformed_wrapper"),
    Bad("a list", b"[" + with_text(b'"level":1') + b"]", "malformed_wrapper"),
    Bad("a mark before it", b"\xef\xbb\xbf" + with_text(b'"level":1'), "malformed_wrapper"),
    Bad("no type", b'{"game":"Chess"}', "malformed_framing"),
    Bad("a type that is no name", b'{"game":"Chess","type":"level-up"}', "unknown_schema"),
    Bad("a type with a zero", b'{"game":"Chess","type":"Joined\\u0000"}', "malformed_framing"),
    Bad("an empty name", document(""), "invalid_name"),
    Bad("the key of a game", document(str(game_key("Chess"))), "unknown_game"),
    Bad("another case of a name", document("CHESS"), "unknown_game"),
    Bad("a letter of another alphabet", document("\u0421hess"), "unknown_game"),
    Bad("a space after a name", document("Chess "), "unknown_game"),
    Bad("a name with a path", document("../Go"), "unknown_game"),
    Bad("257 bytes of a name", document("C" * 257), "invalid_name"),
)
"""Each is refused alone, with its bytes."""
BAD_PAYLOADS: Final = tuple(
    each._replace(reason="malformed_payload")
    for each in BAD
    if each.raw and each.reason in {"malformed_wrapper", "malformed_payload"} and each.name != "the game twice"
)
"""The same as payloads of wrappers, whose game and schema are known."""


def one_pass(world: ValueWorld) -> dict[str, Any]:
    """Split all games' rows in one task as a pass does, commit each game that lacks nothing, and return the report."""
    games = [Game(game_key(name), name) for name in sorted(world.names)]
    expected = {game: world.stream(game).position for game in games}
    rows = open_table(world.paths.bronze).to_pyarrow_table(columns=list(READ))
    cursors = {str(game.key): position.cursor for game, position in expected.items()}
    job = SplitJob(cursors, world.registry.snapshot(), world.paths.tables)
    report, rejects = split_rows(rows, job)
    held = [key for key, each in report.items() if each["needs"]]
    rejects = rejects.filter(pc.invert(pc.is_in(rejects["game_key"], pa.array(held, pa.string()))))
    new = without_present(rejects, world.paths.quarantine).select(QUARANTINE.names)
    if new.num_rows:
        world.append_quarantine(new)
    for game in games:
        if game.key in report and game.key not in held:
            files = [DataFile(**file) for file in report[game.key]["files"]]
            cursor = max(seq for seq, _ in report[game.key]["links"])
            world.stream(game).commit(files, expected[game], cursor, landing_schema(job.schema_set, game.key))
    return report


def rows_of(world: ValueWorld, game: str) -> list[dict[str, Any]]:
    """Return the rows of a game's table in the order of bronze."""
    order = [("_seq", "ascending"), ("_pos", "ascending")]
    found: list[dict[str, Any]] = (
        DeltaTable(world.paths.table(game_key(game))).to_pyarrow_table().sort_by(order).to_pylist()
    )
    return found


def quarantined(world: ValueWorld) -> list[dict[str, Any]]:
    order = [("seq", "ascending"), ("pos", "ascending")]
    found: list[dict[str, Any]] = DeltaTable(world.paths.quarantine).to_pyarrow_table().sort_by(order).to_pylist()
    return found
