"""Guards how lists are shortened for people."""

import pytest

from pipeline.base.texts import exact, first_lines, join_limited, some_are


@pytest.mark.parametrize(
    ("items", "named"),
    [([], ""), (["a"], "a"), (["a", "b"], "a, b"), (["a", "b", *"c" * 1_500], "a, b and 1,500 more")],
)
def test_a_line_names_the_first_and_counts_the_others(items: list[str], named: str) -> None:
    """Nothing is left out without a count, and nothing is counted where all are named."""
    assert join_limited(items, 2) == named


def test_lines_end_with_the_count_of_what_is_left_out() -> None:
    """The same holds of a list with one item a line."""
    assert first_lines(["a", "b"], 2) == ["a", "b"]
    assert first_lines(["a", "b", "c"], 2) == ["a", "b", "and 1 more"]


@pytest.mark.parametrize(
    ("some", "count", "said"),
    [(1, 1, "its only game is"), (1, 3, "1 of its 3 games is"), (39, 39, "all its 39 games are")],
)
def test_all_neighbours_are_called_all(some: int, count: int, said: str) -> None:
    """A share of neighbours reads as a person says it: never `39 of its 39`."""
    assert some_are(some, count, "game") == said


def test_only_what_is_shown_is_spelled() -> None:
    """Of 10,000 games a table's cell spells three: the others cost nothing."""
    spelled: list[int] = []

    def text(number: int) -> str:
        spelled.append(number)
        return f"game {number}"

    assert join_limited(range(10_000), 2, text) == "game 0, game 1 and 9,998 more"
    assert first_lines(range(10_000), 1, text) == ["game 0", "and 9,999 more"]
    assert spelled == [0, 1, 0]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Chess", "Chess"),
        ("Chess ", "'Chess '"),
        ("Che\u200bss", r"'Che\u200bss'"),
        ("two  blanks", "'two  blanks'"),
        ("", "''"),
        ("L" * 90, "L" * 79 + "…"),
        ("L" * 90 + " ", "'" + "L" * 77 + "…'"),
    ],
)
def test_a_text_to_decide_about_hides_no_letter(text: str, shown: str) -> None:
    """A text is quoted with escapes where blanks or invisible characters would make it look like another one."""
    assert exact(text, 80) == shown
