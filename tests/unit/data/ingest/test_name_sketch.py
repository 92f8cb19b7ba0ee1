"""That names which are no games cost nothing that grows: the sketch, the ingest task, many names."""

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.base.errors import Refused
from pipeline.base.names import game_key
from pipeline.data.ingest import name_sketch
from pipeline.data.ingest.name_sketch import EMPTY, merged, sketched
from tests.unit.data.ingest.sketch_laws import NOW, _task, require_names_cost_next_to_nothing

_BATCHES = st.lists(st.dictionaries(st.sampled_from("abcdefghij"), st.integers(1, 9), min_size=1), max_size=8)


@settings(deadline=None)
@given(_BATCHES, st.integers(1, 6))
def test_the_list_is_bounded_and_its_counts_hold(batches: list[dict[str, int]], limit: int) -> None:
    """However names come, no more are listed than allowed, and true counts lie within what is told of them."""
    true: Counter[str] = Counter()
    sketch = EMPTY
    for at, batch in enumerate(batches):
        true.update(batch)
        one = sketched(pa.array(list(batch)), pa.array(list(batch.values())), float(at), limit)
        sketch = name_sketch.loads(merged(sketch, one, limit).dumps())
    assert len(sketch.names) <= limit
    assert sum(true.values()) == sketch.rows
    for name, seen in sketch.names.items():
        assert seen.rows - seen.error <= true[name] <= seen.rows
        assert 0 <= seen.first_seen <= seen.last_seen < len(batches)
    assert all(count <= sketch.floor for name, count in true.items() if name not in sketch.names)
    if len(true) <= limit:
        assert dict(true) == {name: seen.rows for name, seen in sketch.names.items()}


def test_a_name_keeps_the_first_sources_it_came_from() -> None:
    """A sketch keeps the first three sources of a name, and reads a sketch of an earlier build, which has none."""
    sketch = EMPTY
    for number in (2, 1, 2, 3, 4):
        came = sketched(pa.array(["Chess"]), pa.array([1]), NOW, 5, {"Chess": [f"topic {number}"]})
        sketch = name_sketch.loads(merged(sketch, came, 5).dumps())
    assert sketch.names["Chess"].sources == ("topic 2", "topic 1", "topic 3")
    old = sketch.dumps().replace(', ["topic 2", "topic 1", "topic 3"]', "")
    assert name_sketch.loads(old).names["Chess"] == (5, 0, NOW, NOW, ())


@pytest.mark.parametrize("count", [0, 1, 50, 3_000, 20_000, 300_000])
def test_the_number_of_names_is_about_right(count: int) -> None:
    """About how many names there were is told within 5 %, whether they came at once, in parts, or again."""
    names = [f"name {number}" for number in range(count)]
    parts = [names[: count // 2], names[count // 3 :]]
    sketch = EMPTY
    for part in parts:
        sketch = merged(sketch, sketched(pa.array(part, pa.string()), pa.array([1] * len(part), pa.int64()), NOW, 5), 5)
    assert sketch.distinct == pytest.approx(count, rel=0.05)


def test_a_busy_name_is_found_in_a_flood() -> None:
    """A name with real traffic stays on top of the list while a hundred thousand names come once each."""
    sketch = EMPTY
    for batch in range(20):
        names = ["a real game", *(f"{batch} {number}" for number in range(5_000))]
        rows = pa.array([8] + [1] * 5_000)
        sketch = merged(sketch, sketched(pa.array(names), rows, NOW + batch, 1_000), 1_000)
    busiest = max(sketch.names, key=lambda name: sketch.names[name].rows - sketch.names[name].error)
    assert busiest == "a real game"
    assert sketch.names[busiest] == (160, 0, NOW, NOW + 19, ())


def test_a_task_tells_names_under_a_prefix_busiest_first(tmp_path: Path) -> None:
    """The longest prefix that fits gets the name, and a name that is a game or fits none is no candidate."""
    names = ["p1", "pp1", "pp2", "pp2", "other", "pgame", "p2", "p2", "p1", "p1"]
    report = _task(tmp_path, names, {"pgame": game_key("pgame")}, ("pp", "p"), 1)
    assert report["unknown"]["candidates"] == {"pp": ["pp2", "pp1"], "p": ["p1", "p2"]}
    assert {"malformed_wrapper": 9, game_key("pgame"): 1} == report["counts"]
    assert {game_key("pgame"): "pgame"} == report["routed"]
    assert report["reasons"] == {"unknown_game": 9}


@pytest.mark.proves("G85")
def test_two_hundred_thousand_names_cost_next_to_nothing(tmp_path: Path) -> None:
    """Goal G10: what ingest keeps after many random names is as small as after fifty thousand."""
    require_names_cost_next_to_nothing(tmp_path, batches=4)


HUGE = name_sketch.EMPTY.dumps().replace('"rows": 0', f'"rows": {10**400}')


HALF = name_sketch.EMPTY.dumps().replace('"names": {', '"names": {"\\ud800": [1, 0, 1.0, 2.0]')


@pytest.mark.parametrize("text", [HUGE, HALF, "[" * 100_000, "purple"], ids=["huge", "half", "deep", "purple"])
def test_what_a_hand_has_spoilt_is_refused_in_a_sentence(text: str) -> None:
    """A broken sketch does not stop ingest from starting: it catches this error and no other."""
    assert text != name_sketch.EMPTY.dumps()
    with pytest.raises(Refused, match="Delete the row"):
        name_sketch.loads(text)
