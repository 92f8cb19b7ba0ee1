import itertools
import json
import math
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench import idle, neighbours, outage, policies, sustain
from bench.load import Arrivals, done_at
from bench.log import Commit
from bench.numbers import Spread
from pipeline.base.names import game_key
from pipeline.data.contracts.evolution import evolve
from pipeline.data.contracts.formats.protobuf.decoder import Decoder
from pipeline.data.contracts.formats.protobuf.messages import canonical
from pipeline.data.contracts.policies import parse_policies
from pipeline.data.contracts.schemas import PLAIN, FieldPlacement, Schema, SchemaSet
from pipeline.data.streams.writing.job import READ, SplitJob
from pipeline.data.streams.writing.split import split
from pipeline.demo.samples.sample import FAMILIES
from pipeline.demo.simulator import game_names
from pipeline.lake.delta.bronze import BRONZE
from pipeline.lake.storage.places import located
from protos.turnout.v1.wrapper_pb2 import Wrapper

Split = Callable[[Iterator[pa.RecordBatch], SplitJob], Iterator[pa.RecordBatch]]


@given(st.lists(st.sampled_from(neighbours.KINDS), min_size=1, max_size=3, unique=True), st.integers(1, 4))
def test_every_disturbed_window_stands_between_two_quiet_ones(kinds: list[str], repeats: int) -> None:
    """Drift over time must meet quiet and disturbed windows alike."""
    planned = neighbours.schedule(kinds, repeats)
    assert planned[0] == planned[-1] == neighbours.QUIET
    assert Counter(planned[1::2]) == dict.fromkeys(kinds, repeats)
    assert set(planned[::2]) == {neighbours.QUIET}


def test_a_window_is_held_against_the_quiet_ones_beside_it() -> None:
    """A slow drift of everything is no rise, and the quiet windows tell how large noise alone is."""
    kinds = ["quiet", "hot", "quiet", "poison", "quiet"]
    found = neighbours.ratios(kinds, [1.0, 1.5, 2.0, 5.0, 3.0])
    assert found == {"hot": [1.0], "poison": [2.0], "quiet": [2.0, 1.5]}
    assert neighbours.beside(kinds, "poison") == [2, 4]


def test_work_is_done_when_its_own_game_reaches_it() -> None:
    """A commit of one game says nothing of another one, and what never lands is not quick."""
    work = Arrivals(
        keys=["chess", "go"],
        game=np.array([0, 0, 1]),
        seq=np.array([1, 2, 1]),
        rows=np.array([1, 1, 1]),
        source_at=np.zeros(3),
        bronze_at=np.zeros(3),
    )
    log = [Commit(1, 5.0, 1, 1, 1, 1, 1), Commit(2, 9.0, 1, 1, 1, 2, 2)]
    assert [5.0, 9.0, math.inf] == done_at(work, {"chess": log}).tolist()


def test_a_window_too_short_for_a_slope_is_refused_before_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run of minutes does not end without its result: a slope needs three blocks of four triggers."""
    monkeypatch.setattr(sys, "argv", ["sustain", "--minutes", "0.9", "--trigger", "5"])
    with pytest.raises(SystemExit):
        sustain._options()
    monkeypatch.setattr(sys, "argv", ["sustain", "--minutes", "1", "--trigger", "5"])
    assert sustain._options().minutes == 1


def _traffic(games: int, rate: float, factor: int) -> neighbours.Traffic:
    versions = range(1, 6)
    ids = {pair: at for at, pair in enumerate(itertools.product(game_names(games, 1), versions), 1)}
    return neighbours.Traffic(games, rate, factor, ids)


@pytest.mark.parametrize("kind", ["quiet", "poison", "hot"])
def test_only_the_disturbed_game_is_disturbed(kind: str) -> None:
    """The others' events must be the same in every window, or their latency would tell of the load instead."""
    calm, traffic = _traffic(4, 400.0, 50), _traffic(4, 400.0, 50)
    traffic.kind = kind
    usual, batch = next(calm.batches()), next(traffic.batches())
    victim = traffic.victim
    seen = [[(each.game, each.sequence, each.kind) for each in some if each.game != victim] for some in (usual, batch)]
    assert seen[0] == seen[1]
    mine, before = [[each for each in some if each.game == victim] for some in (batch, usual)]
    assert {"malformed_payload" if kind == "poison" else "good"} == {each.kind for each in mine}
    assert len(mine) == len(before) + (49 * 50 if kind == "hot" else 0)


def test_the_backlog_is_as_old_as_the_first_commit_somebody_lacks() -> None:
    """One game that is behind makes a backlog, however far the others are; none makes none."""
    commits = [(1, 10.0), (2, 20.0), (3, 30.0)]
    assert outage.waiting_age(commits, [2, 1], now=35.0) == 15.0
    assert outage.waiting_age(commits, [], now=35.0) == 0.0


def test_caught_up_means_for_good() -> None:
    """A moment at which the backlog looks small between two peaks is not the end of it."""
    moments = [0.0, 1.0, 2.0, 3.0, 4.0]
    assert outage.settled_at(moments, [50.0, 9.0, 11.0, 9.0, 10.0], allowed=10.0) == 3.0
    assert outage.settled_at(moments, [50.0, 9.0, 9.0, 9.0, 11.0], allowed=10.0) is None
    assert outage.settled_at(moments, [1.0] * 5, allowed=10.0) == 0.0


def test_phases_are_read_from_the_page_of_metrics() -> None:
    """What limits a catch-up is told by the passes themselves, and other metrics are not taken for them."""
    page = (
        "# HELP turnout_group_pass_phase_seconds_total x\n"
        'turnout_group_pass_phase_seconds_total{cluster_group="a",phase="decode"} 1.5\n'
        'turnout_group_pass_phase_seconds_total{cluster_group="a",phase="write"} 2.0\n'
        'turnout_group_pass_phase_seconds_created{cluster_group="a",phase="write"} 99.0\n'
    )
    assert outage.phase_seconds(page) == {"decode": 1.5, "write": 2.0}


def test_between_two_looks_is_what_was_used_since_the_first() -> None:
    """A process that began meanwhile used all it has used in between; the seconds are those between the looks."""
    first = outage.Look("starting", 10.0, {"ingest": {"jvm": 4.0}}, {})
    second = outage.Look("live", 20.0, {"ingest": {"jvm": 9.0}, "group": {"jvm": 5.0}}, {"decode": 3.0})
    (found,) = outage.between([first, second])
    assert (found["name"], found["seconds"]) == ("starting", 10.0)
    assert found["cores"] == {"ingest": {"jvm": 0.5}, "group": {"jvm": 0.5}}
    assert found["phase_seconds"] == {"decode": 3.0}


def _window(games: int, cpu_seconds: float) -> idle.Window:
    return idle.Window(games, 10.0, {"driver": cpu_seconds / 2, "jvm": cpu_seconds / 2}, 1.0, 10, {})


def test_an_idle_games_cost_is_the_difference_per_game_and_second() -> None:
    """The cost of the live games is in both windows and counts for none of the idle ones."""
    windows = [_window(10, 2.0)], [_window(1010, 2.1)]
    assert pytest.approx(idle.cost_ms(*windows)) == [0.01]
    assert pytest.approx(idle.cost_ms(*windows, role="jvm")) == [0.005]


def test_two_drivers_take_turns_so_that_drift_meets_both() -> None:
    """ABBA: over two repeats each stands as early as the other."""
    found = idle.turns(2)
    assert found == [0, 1, 1, 0]
    places = [[at for at, each in enumerate(found) if each == who] for who in (0, 1)]
    assert sum(places[0]) == sum(places[1])


@given(st.integers(1, 5))
def test_every_variant_goes_first_equally_often(count: int) -> None:
    """Who goes first in a round may meet a colder machine: over all rounds no variant does so more than another."""
    rounds = [policies.order(count, at) for at in range(2 * count)]
    assert all(sorted(each) == list(range(count)) for each in rounds)
    sums = [sum(each.index(who) for each in rounds) for who in range(count)]
    assert len(set(sums)) == 1


@given(st.lists(st.floats(0.5, 2.0), min_size=1, max_size=60))
def test_a_medians_interval_holds_the_median(values: list[float]) -> None:
    """The interval is made of measured values and never leaves the median outside."""
    found = policies.median_interval(values)
    assert min(values) <= found.low <= found.median <= found.high <= max(values)


def test_a_medians_interval_narrows_with_more_values() -> None:
    """Of 25 values the interval is from the 8th to the 18th, as the binomial distribution has it."""
    assert Spread(12.0, 7.0, 17.0) == policies.median_interval([float(each) for each in range(25)])


def test_costs_are_compared_within_a_round() -> None:
    """Each pass is held against the other variant's pass of the same round, not against one minutes away."""
    values = {"unchecked": [1.0, 10.0], "plain": [2.0, 10.0], "versions": [2.0, 10.0], "policies": [3.0, 20.0]}
    found = policies.ratios(values)
    assert found["quarantine's checks"] == [2.0, 1.0]
    assert found["several versions with policies"] == [1.5, 2.0]


def _registered(family: str, *, changed: bool) -> list[tuple[Schema, FieldPlacement]]:
    held: list[tuple[Schema, FieldPlacement]] = []
    for version in range(1, 5):
        name, definition = policies.schema(family, version, changed=changed)
        made = Schema(version, "protobuf", name, canonical(name, definition))
        steps, placement = evolve(tuple(held), made, parse_policies(["incompatible=side-column"]))
        assert not any(step.policy in {"refuse", "quarantine"} for step in steps)
        held.append((made, placement))
    return held


@pytest.mark.parametrize("family", FAMILIES)
def test_policies_have_work_to_do_and_plain_versions_have_none(family: str) -> None:
    """A measurement of placements without any would always be held."""
    plain = _registered(family, changed=False)
    assert [placement for _, placement in plain] == [PLAIN] * 4
    assert len({schema.definition for schema, _ in plain}) == 4
    changed = [placement.names for _, placement in _registered(family, changed=True)]
    assert changed[0] == ()
    assert changed[1][0][0].endswith("_renamed")
    assert changed[2][0][1].endswith("__v2")


def test_all_versions_read_the_very_same_bytes() -> None:
    """Variants differ in their schemas alone: every row decodes with each of them, and none is refused."""
    rows = policies.sample_rows(3, 200)
    for family in FAMILIES:
        payloads = pa.array([Wrapper.FromString(row.wrapper).payload for row in rows if row.family == family])
        for schema, _ in _registered(family, changed=True):
            decoded = Decoder(schema).decode(payloads)
            assert (len(payloads), []) == (decoded.batch.num_rows, decoded.refused)


def test_a_pass_has_rows_of_every_game() -> None:
    """Games without rows would make no commit, and a pass would look cheap."""
    assert len({row.game for row in policies.sample_rows(3, 60)}) == 3
    with pytest.raises(ValueError, match="give more --rows"):
        policies.sample_rows(300, 100)


def _split(run: Split, rows: list[policies.Row], tables: Path) -> dict[str, Any]:
    schemas = {family: _registered(family, changed=False)[0][0] for family in FAMILIES}
    numbered = {family: replace(schemas[family], schema_id=at) for at, family in enumerate(FAMILIES, 1)}
    games = {game_key(row.game): (numbered[row.family].schema_id,) for row in rows}
    values: dict[str, list[Any]] = {
        "game_key": [game_key(row.game) for row in rows],
        "game": [row.game for row in rows],
        "schema_id": [numbered[row.family].schema_id for row in rows],
        "seq": [1] * len(rows),
        "pos": list(range(len(rows))),
        "prev_seq": [0] * len(rows),
        "raw": [row.wrapper for row in rows],
    }
    arrays = [pa.array(values.get(name, [None] * len(rows)), BRONZE.field(name).type) for name in READ]
    schema_set = SchemaSet(1, games, {each.schema_id: each for each in numbered.values()})
    job = SplitJob(dict.fromkeys(games, 0), schema_set, located(tables))
    (done,) = run(iter([pa.RecordBatch.from_arrays(arrays, names=READ)]), job)
    report: dict[str, dict[str, Any]] = json.loads(done.column("report")[0].as_py())
    return report["games"]


def test_without_checks_good_rows_are_the_same_and_afterwards_checks_are_back(tmp_path: Path) -> None:
    """The variants do the same work but for the checks, and workers serve all variants in turn."""
    rows = policies.sample_rows(3, 60)
    checked, unchecked = (_split(run, rows, tmp_path) for run in (split, policies.unchecked_split))
    assert sum(file["rows"] for game in unchecked.values() for file in game["files"]) == 60
    for key, game in unchecked.items():
        files = zip(checked[key]["files"], game["files"], strict=True)
        for with_checks, without in files:
            assert (with_checks["rows"], with_checks["stats"]) == (without["rows"], without["stats"])
            assert with_checks["size"] == pytest.approx(without["size"], rel=0.01)  # entries of a map have no order
    wrapper = Wrapper.FromString(rows[0].wrapper)
    wrapper.payload = b"\x08\x01"  # a number where a text should be: only the checks see it
    with_bad = [rows[0]._replace(wrapper=wrapper.SerializeToString()), *rows[1:]]
    refused = _split(split, with_bad, tmp_path)[game_key(rows[0].game)]["rejects"]
    assert refused == {"malformed_payload": 1}
