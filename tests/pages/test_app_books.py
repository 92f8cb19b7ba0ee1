"""The Books page: closed days with their sums, and nothing that is not known shown as closed or as no day."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from tests.browser.books_world import CHESS, GO, LUDO, with_books, with_revisions
from tests.browser.seed import fleet_of_forty, seed
from tests.unit.app.app_world import drawn_alive, drawn_html, pages_of

Opening = Callable[..., AppTest]


@pytest.fixture
def opening(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Opening]:
    seed(tmp_path, fleet_of_forty(), now=time.time(), history=False)
    with_books(tmp_path)
    with pages_of(tmp_path, monkeypatch) as opened:
        yield opened


def test_books_are_games_by_days(opening: Opening) -> None:
    """A closed day has today's sum of accepted rows, a corrected one its mark; days that nobody knows are no zero."""
    app = opening("books")
    assert drawn_html(app)[0].startswith("1 day needs a person to close")
    matrix = {row.pop("Game"): row for row in app.dataframe[0].value.to_dict("records")}
    assert list(matrix) == [CHESS, GO, LUDO]
    days = ("2024-10-04", "2024-10-05", "2024-10-06")
    assert [[matrix[game][day] for day in days] for game in matrix] == [
        ["± 996", "✓ 900", "○"],
        ["", "▲", ""],
        ["?", "?", "?"],
    ]
    assert matrix[LUDO]["Open days"] == "not known: its table cannot be read"


def test_a_day_says_its_sums_and_why_it_waits(opening: Opening) -> None:
    """A day that needs a person comes first; a closed day has person, reason and hash, all as plain text."""
    app = opening("books")
    rows = app.dataframe[1].value.to_dict("records")
    names = ("Game", "Day", "State", "Accepted", "Late", "Reasons", "Closed by", "Hash")
    lost, waits = (row["Reasons"] for row in rows[:2])
    assert lost == "Bronze lost rows that may have been of the day <b>."
    assert [[row[name] for name in names] for row in rows] == [
        [GO, "2024-10-05", ["▲ needs a person"], "12", "0", lost, "", ""],
        [CHESS, "2024-10-06", ["○ open"], "12", "0", waits, "", ""],
        [CHESS, "2024-10-05", ["✓ closed"], "900", "0", "agreed <i>", "ann", "2abcdef1"],
        [CHESS, "2024-10-04", ["✓ closed, corrected"], "996", "5", "agreed <i>", "ann", "1abcdef1"],
    ]  # fmt: skip
    assert "<i>" not in drawn_alive(app)
    assert list(opening("books", q="basalt").dataframe[1].value["Game"]) == [GO]


def test_the_newest_revision_is_shown_and_names_the_earlier_one(opening: Opening, tmp_path: Path) -> None:
    """A day that is open again shows its last signed numbers, marked, with the people who reopened it."""
    with_revisions(tmp_path)
    app = opening("books")
    matrix = {row["Game"]: row for row in app.dataframe[0].value.to_dict("records")}
    assert [matrix[CHESS][day] for day in ("2024-10-04", "2024-10-05")] == ["✓ 1\u202f001", "↻ 900"]
    assert drawn_html(app)[0].startswith("2 days need a person to close")
    rows = {row["Day"]: row for row in app.dataframe[1].value.to_dict("records") if row["Game"] == CHESS}
    assert list(rows) == ["2024-10-06", "2024-10-05", "2024-10-04 · revision 2"]
    assert rows["2024-10-05"]["State"] == ["↻ reopened"]
    assert rows["2024-10-05"]["Reasons"].startswith("It was reopened by eve, approved by bob: wrong <u>")
    assert "Revision 1 by ann had 1 000 accepted rows." in rows["2024-10-04 · revision 2"]["Reasons"]
    assert "<u>" not in drawn_alive(app)
