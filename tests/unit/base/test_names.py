import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.base.names import (
    LAYERS,
    derived_table_key,
    game_key,
    is_game_name,
    is_group_name,
    parted_table_key,
    rule_table_name,
)

_NAMES = st.text(min_size=1, max_size=60)


@given(_NAMES)
def test_a_key_is_safe_everywhere(name: str) -> None:
    """Whatever the name, its key holds only a-z, 0-9 and '_', starts with neither '_' nor '.', and is short."""
    key = game_key(name)
    assert re.fullmatch(r"[a-z0-9][a-z0-9_]{0,39}_[a-z2-7]{12}", key)


@given(_NAMES, _NAMES)
@pytest.mark.proves("G82")
def test_two_names_never_share_a_key(one: str, other: str) -> None:
    """Names are exact: case twins, spaces and other scripts keep keys of their own."""
    assert (game_key(one) == game_key(other)) == (one == other)


@pytest.mark.proves("G82")
def test_the_key_of_a_known_name_never_changes() -> None:
    """Tables outlive releases, so a key that was once given stays."""
    assert game_key("Zelda: Echoes") == "zelda_echoes_j24jihwittr7"


@pytest.mark.parametrize(
    ("name", "expected"), [("a", True), ("ü" * 128, True), ("ü" * 129, False), ("", False), ("a\0b", False)]
)
def test_a_name_is_1_to_256_bytes_without_nul(name: str, expected: bool) -> None:
    """The limit counts bytes, not characters."""
    assert expected is is_game_name(name)


@pytest.mark.parametrize(("name", "expected"), [("a", True), ("eu-1", True), ("-a", False), ("A", False), ("", False)])
def test_group_names_are_plain(name: str, expected: bool) -> None:
    """A group's name becomes part of paths and query names, so it is restricted."""
    assert expected is is_group_name(name)


@given(_NAMES)
def test_no_game_has_the_key_of_a_silver_or_gold_table(name: str) -> None:
    """A key says of itself whether it is a game's or a derived table's, whatever a game is named."""
    assert parted_table_key(game_key(name)) is None
    assert parted_table_key(game_key(f"silver__{name}")) is None
    for kind in LAYERS:
        assert parted_table_key(derived_table_key(kind, rule_table_name(name, "a"))) == (
            kind,
            rule_table_name(name, "a"),
        )
