"""The sizes in docs/deploy/sizing.md are those that the script computes, and the script is sound arithmetic."""

import re
from dataclasses import replace

import pytest

from bench import sizing
from bench.sizing import Inputs, main, parsed, size
from tests.checkout import ROOT

PAGE = ROOT / "docs" / "deploy" / "sizing.md"


def test_the_page_has_the_table_that_the_script_prints(capsys: pytest.CaptureFixture[str]) -> None:
    """docs/deploy/sizing.md quotes the output of `python -m bench.sizing` as it is."""
    main([])
    found = re.search(
        r"<!-- bench.sizing -->\n\n(.*?)\n<!-- end of bench.sizing -->", PAGE.read_text("utf-8"), re.DOTALL
    )
    assert found is not None
    assert found[1].strip() == capsys.readouterr().out.strip(), "copy the output of `python -m bench.sizing`"


def test_the_measured_runs_are_not_above_the_lines() -> None:
    """No measured run of a group or of ingest took more cores than the formulas say, and the lowest is near."""
    groups = ((57.25, 1_000, 0.194), (60, 8_000, 0.370), (256.5, 20_000, 1.036))
    for commits, rate, cores in groups:
        computed = (commits * sizing.GROUP_MS_PER_COMMIT + rate * sizing.GROUP_MS_PER_EVENT) / 1000
        assert cores <= computed <= 1.25 * cores
    for rate, cores in ((1_000, 0.122), (8_000, 0.143), (20_000, 0.222)):
        assert cores <= sizing.INGEST_CORES + rate * sizing.INGEST_MS_PER_EVENT / 1000 <= 1.25 * cores


@pytest.mark.parametrize(
    ("games", "drivers", "units"), [(100, 1, 0.5), (1_000, 2, 0.5), (100_000, 159, 4.0), (700_000, 1_108, None)]
)
def test_drivers_and_lakebase_follow_from_games(games: int, drivers: int, units: float | None) -> None:
    """Games divide into drivers, drivers into connections, and beyond the largest endpoint there is no answer."""
    made = size(Inputs(games=games, rate=float(games)))
    assert (made.drivers, made.lakebase_units) == (drivers, units)
    assert (made.money is None) == (units is None)


def test_money_is_the_sum_of_its_parts() -> None:
    """Each price adds its own part of a month, and nothing without a price costs."""
    given = Inputs()
    assert size(given).money == 0
    prices = {each: 0.5 for each in Inputs.__slots__ if each.endswith("_price")}
    alone = [size(replace(given, **{name: price}, warehouse_dbu=4.0)).money for name, price in prices.items()]  # type: ignore[arg-type]
    together = size(replace(given, **prices, warehouse_dbu=4.0)).money  # type: ignore[arg-type]
    assert together == pytest.approx(sum(each for each in alone if each is not None))
    assert min(each for each in alone if each is not None) > 0


def test_a_quiet_game_and_a_longer_trigger_cost_fewer_requests() -> None:
    """Commits follow from games with rows and from the trigger, and never outnumber events."""
    base = size(Inputs(games=1_000, rate=1_000))
    assert size(Inputs(games=1_000, rate=1_000, trigger=20)).commits == base.commits / 2
    assert size(Inputs(games=1_000, rate=1_000, active=0.1)).commits == pytest.approx(base.commits / 10)
    assert size(Inputs(games=1_000, rate=5)).commits == 5


@pytest.mark.parametrize("line", ["--games 0", "--games -5", "--trigger 0", "--rate -1", "--games many"])
def test_wrong_inputs_are_refused(line: str) -> None:
    """A number that makes no sense ends with exit code 2 and no table."""
    with pytest.raises(SystemExit, match="2"):
        parsed(line.split())
