"""Bad documents end to end: each is refused with its reason and its bytes, and no other row and no other game waits."""

import json
from collections.abc import Sequence
from pathlib import Path

from pipeline.base.names import game_key
from protos.turnout.v1.wrapper_pb2 import Wrapper
from tests.tables.bad_documents_world import (
    BAD,
    BAD_PAYLOADS,
    NAMES,
    document,
    documents_world,
    one_pass,
    quarantined,
    rows_of,
)
from tests.tables.value_world import ValueWorld, wrapped


def require_all_landed(world: ValueWorld, players: Sequence[str]) -> None:
    """Both games have these rows, no game has an error, and verify accuses nobody."""
    report = one_pass(world)
    assert {each["error"] for each in report.values()} == {None}
    for name in NAMES:
        assert [row["player"] for row in rows_of(world, name)] == list(players)
    balance = world.check()
    assert balance.values is not None
    assert (balance.problems, balance.values.mismatches, dict(balance.values.decodable)) == ((), 0, {})


def test_each_bad_document_is_refused_with_its_bytes_and_nobody_waits(tmp_path: Path) -> None:
    """Laws L5, L6: quarantine has each bad record whole, and all others land in the same pass."""
    world = documents_world(tmp_path / "env")
    records = [record for each in BAD for record in (each.raw, *(document(name, player=each.name) for name in NAMES))]
    world.arrive(*records)
    require_all_landed(world, [each.name for each in BAD])
    held = quarantined(world)
    assert [(row["raw"], row["reason"]) for row in held] == [(each.raw, each.reason) for each in BAD]
    assert all(row["detail"] for row in held)
    world.engine.dispose()


def test_each_bad_payload_is_refused_with_its_bytes_and_nobody_waits(tmp_path: Path) -> None:
    """Laws L5, L6: the same holds for payloads of wrappers, which the decoder alone looks at."""
    world = documents_world(tmp_path / "env", None)
    ids = {name: next(iter(world.registry.snapshot().games[game_key(name)])) for name in NAMES}
    records = []
    for each in BAD_PAYLOADS:
        records.append(wrapped("Chess", ids["Chess"], each.raw))
        records += [wrapped(name, ids[name], document(name, player=each.name)) for name in NAMES]
    world.arrive(*records)
    require_all_landed(world, [each.name for each in BAD_PAYLOADS])
    found = [(Wrapper.FromString(row["raw"]).payload, row["reason"]) for row in quarantined(world)]
    assert found == [(each.raw, each.reason) for each in BAD_PAYLOADS]
    world.engine.dispose()


def test_10_000_types_cost_rows_in_quarantine_and_nothing_else(tmp_path: Path) -> None:
    """Law L6: types that no schema has are refused in the same pass, and no registration comes of them."""
    world = documents_world(tmp_path / "env")
    flood = [json.dumps({"game": "Chess", "type": f"t{number}"}).encode() for number in range(10_000)]
    world.arrive(document("Go", player="a"), *flood, document("Chess", player="a"))
    version = world.registry.latest_version()
    require_all_landed(world, ["a"])
    assert [(row["reason"], row["raw"]) for row in quarantined(world)] == [("unknown_schema", each) for each in flood]
    assert world.registry.latest_version() == version
    world.engine.dispose()
