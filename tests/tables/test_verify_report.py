"""The report says the verdict, the totals and the worst games, and its exit code is the verdict."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.base.errors import Refused
from pipeline.data.verify.balance import Balance, Counts, FaultPlace, GameBalance, verify
from pipeline.data.verify.report import as_dict, render_balance, run
from pipeline.data.verify.values import Values
from pipeline.settings.tree import Paths
from tests.tables.verify_world import CHESS, ENVIRONMENT, GO, clean


def balance_of(*games: GameBalance, problems: tuple[FaultPlace, ...] = ()) -> Balance:
    totals = sum((game.counts for game in games), Counts())
    return Balance(games, totals, {"malformed_payload": 3}, problems, bronze_version=7)


def test_json_keys(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The JSON document has every promised key, and games do not include the malformed wrappers."""
    code = run(verify(clean().write(tmp_path), ENVIRONMENT), as_json=True)
    reported = json.loads(capsys.readouterr().out)
    promised = "bronze_rows games landed quarantined pending lost duplicated misrouted phantom early broken_chain"
    assert {*promised.split(), "ok", "by_reason", "problems"} <= reported.keys()
    assert (code, reported["ok"], reported["games"], reported["bronze_rows"]) == (0, True, 2, 9)
    assert reported["problems"] == []


def test_exit_codes(tmp_path: Path) -> None:
    """Pending rows fail only a verification that asks for completeness; a lost row fails both."""
    paths = clean().write(tmp_path / "pending")
    assert (run(verify(paths, ENVIRONMENT)), run(verify(paths, ENVIRONMENT), complete=True)) == (0, 1)
    world = clean()
    world.tables[CHESS].pop()
    paths = world.write(tmp_path / "lost")
    assert (run(verify(paths, ENVIRONMENT)), run(verify(paths, ENVIRONMENT), complete=True)) == (1, 1)


def test_the_table_has_the_last_word_on_its_generation(tmp_path: Path) -> None:
    """A copy from before a rebuild has its old generation's cursor, and its rows are not early for that."""
    assert run(verify(clean().write(tmp_path), ENVIRONMENT, {CHESS: 2})) == 0


def test_nothing_ingested(tmp_path: Path) -> None:
    """A missing bronze table is refused, not reported as balanced."""
    with pytest.raises(Refused, match="nothing to verify"):
        verify(Paths(tmp_path), ENVIRONMENT)


def test_text_names_the_place(tmp_path: Path) -> None:
    """The text says which game, seq and pos is wrong, and that faults were found."""
    world = clean()
    world.tables[CHESS].remove((1, 1))
    text = render_balance(verify(world.write(tmp_path), ENVIRONMENT))
    assert f"lost: {CHESS}, 1, 1: in bronze, but neither in the table nor in quarantine" in text
    assert f"{CHESS}: lost 1 (cursor 3)" in text
    assert f"{GO}:" not in text
    assert "NOT OK" in text.splitlines()[-1]


def test_text_is_bounded_and_sorted() -> None:
    """At most 20 games are listed, the worst first, and the rest is counted."""
    games = [GameBalance(f"game_{number:02}", None, None, Counts(lost=number)) for number in range(26)]
    lines = render_balance(balance_of(*games)).splitlines()
    listed = [line.split(":")[0].strip() for line in lines if line.startswith("  game_")]
    assert listed == [f"game_{number:02}" for number in range(25, 5, -1)]
    assert "  and 5 more" in lines
    assert "25 game(s) not in balance:" in lines


def test_text_of_pending() -> None:
    """Pending games are out of balance only with `complete`."""
    balance = balance_of(GameBalance(GO, "Go", 4, Counts(bronze_rows=5, landed=3, pending=2)))
    assert "not in balance" not in render_balance(balance)
    assert "2 row(s) are still pending" in render_balance(balance)
    assert f"{GO}: pending 2 (cursor 4)" in render_balance(balance, complete=True)
    assert "NOT COMPLETE" in render_balance(balance, complete=True)


def test_a_sample_claims_nothing_of_other_rows() -> None:
    """The verdict and the JSON of a sample name how many of the landed rows were compared."""
    values = Values(10, 2, 2, 1.0, 0, {}, (), {}, {})
    balance = replace(balance_of(GameBalance("g", "G", 5, Counts(bronze_rows=8, landed=8))), values=values)
    verdict = render_balance(balance).splitlines()[-1]
    assert verdict.endswith("once, and no value of the 2 sampled rows differs.")
    assert "2 of 8 rows" in render_balance(balance)
    assert (as_dict(balance)["value_rows"], as_dict(balance)["value_rows_landed"]) == (2, 8)
    whole = replace(balance, values=replace(values, rows=8, sample=None))
    assert render_balance(whole).splitlines()[-1].endswith("once, and no value differs.")


def test_unknown_place_is_no_number() -> None:
    """A place whose row carries no position is a dash in text and null in JSON, never 0."""
    balance = balance_of(problems=(FaultPlace("phantom", GO, None, None, None, "nowhere"),))
    assert f"phantom: {GO}, -, -: nowhere" in render_balance(balance)
    assert as_dict(balance)["problems"][0]["seq"] is None
