from pathlib import Path

import pytest
from sqlalchemy import Engine

from pipeline.errors import Refused
from pipeline.names import GameKey
from pipeline.settings import load
from pipeline.store import games, onboarding
from pipeline.store.engine import open_store
from pipeline.store.onboarding import Wish


def _groups(engine: Engine, *names: str) -> dict[str, set[str]]:
    return {name: {str(each.game_key) for each in games.assigned(engine, name)} for name in names}


def test_games_are_shared_out_evenly_and_stay(engine: Engine) -> None:
    """A new game gets the group with the fewest games; a new game or group moves nobody."""
    games.register_group(engine, "a")
    games.register_group(engine, "b")
    games.record_seen(engine, {f"g{number}": f"Game {number}" for number in range(10)}, 1)
    before = _groups(engine, "a", "b")
    assert [len(keys) for keys in before.values()] == [5, 5]
    games.register_group(engine, "c")
    games.record_seen(engine, {"g99": "Game 99"}, 2)
    assert {**before, "c": {"g99"}} == _groups(engine, "a", "b", "c")


def test_games_found_before_any_group_wait_for_the_first(engine: Engine) -> None:
    """Ingest may run before a group exists; nothing is forgotten."""
    games.record_seen(engine, {"g1": "One"}, 1)
    assert {"a": set()} == _groups(engine, "a")
    games.register_group(engine, "a")
    assert {"a": {"g1"}} == _groups(engine, "a")


def test_the_last_seq_is_kept_and_never_goes_back_at_a_start(engine: Engine) -> None:
    """What a crash left untold is repaired from bronze's heads; what is newer stays."""
    games.record_seen(engine, {"g1": "One", "g2": "Two"}, 5)
    games.record_heads(engine, {"g1": 9, "g2": 3, "malformed_wrapper": 4})
    games.register_group(engine, "a")
    assert {each.game_key: each.last_seq for each in games.assigned(engine, "a")} == {"g1": 9, "g2": 5}


def test_a_store_that_cannot_be_reached_is_named(tmp_path: Path) -> None:
    """An unreachable store is one sentence that says which setting to check."""
    settings, paths = load(tmp_path, {"TURNOUT_STORE__URL": "postgresql+psycopg://nobody@127.0.0.1:1/none"})
    with pytest.raises(Refused, match=r"control store cannot be opened.*store\.url"):
        open_store(settings, paths)


def test_only_onboarded_names_are_repaired_at_a_start(engine: Engine) -> None:
    """A game whose first rows were not told before a crash is found again; a key of bronze that is no game's is not."""
    onboarding.onboard(engine, [Wish(GameKey("g1"), "One", "approval")])
    games.record_heads(engine, {"g1": 4, "g2": 5, "malformed_wrapper": 9})
    assert games.known_games(engine) == {"g1": "One"}
    assert games.known_groups(engine) == {"g1": None}
    games.register_group(engine, "a")
    assert games.known_groups(engine) == {"g1": "a"}
    assert [each.last_seq for each in games.assigned(engine, "a")] == [4]
