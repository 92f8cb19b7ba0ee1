"""The words people read: nothing unknown looks like a number, nothing foreign acts."""

import re
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app import formatting
from listeners.status import STATUSES, Status
from pipeline.health.facts.fleet import Fleet, read_fleet
from pipeline.settings.tree import Paths, Settings
from pipeline.store.database.engine import open_store
from tests.browser.seed import Seeded, fleet_of_forty, seed

NOW = 1_800_000_000.0


def fleet_of(folder: Path, *games: Seeded, heartbeat_ages: dict[str, float] | None = None) -> Fleet:
    seed(folder, games, now=NOW, heartbeat_ages=heartbeat_ages or {"ingest": 1, "a": 1, "b": 1}, history=False)
    return read_fleet(open_store(Settings(), Paths(folder)), NOW)


def test_every_status_has_a_look_of_its_own() -> None:
    """Each status has its own glyph and word, and only trouble and work in progress have a colour."""
    assert set(STATUSES) == set(formatting.STATUS_STYLES)
    assert len(STATUSES) == len({look.glyph for look in formatting.STATUS_STYLES.values()})
    assert len(STATUSES) == len({look.word for look in formatting.STATUS_STYLES.values()})
    quiet = formatting.STATUS_STYLES[Status.RUNNING].colour
    assert all(formatting.STATUS_STYLES[status].colour != quiet for status in Status if status.is_trouble)


@pytest.mark.parametrize(
    ("expected", "seconds"),
    [
        ("–", None),
        ("0 s", 0),
        ("0 s", -3),
        ("8 s", 8.9),
        ("59 s", 59.99),
        ("1 min", 60),
        ("59 min", 3599),
        ("5 h 10 min", 18_600),
        ("3 d 2 h", 266_400),
    ],
)
def test_ages_are_human(expected: str, seconds: float | None) -> None:
    """An age is told in the largest units that matter, and an unknown one is a dash."""
    assert expected == formatting.age(seconds)


def test_unknown_numbers_are_dashes() -> None:
    """No unknown number is shown as 0."""
    assert {formatting.UNKNOWN_VALUE} == {
        formatting.duration(None),
        formatting.count(None),
        formatting.rate(None),
        formatting.clock(None),
        formatting.moment(None),
    }
    for value in (float("inf"), float("-inf"), float("nan")):
        assert {formatting.UNKNOWN_VALUE} == {
            formatting.age(value),
            formatting.duration(value),
            formatting.count(value),
            formatting.rate(value),
        }
    assert formatting.duration(1.6) == "1.6 s"
    assert formatting.rate(0.04) != "0.0"
    assert formatting.clock(NOW) == "08:00:00 UTC"


@pytest.mark.parametrize(
    ("cores", "said"),
    [
        (None, "\u2013"), (float("nan"), "\u2013"), (0.0, "0 cores"), (5e-18, "0 cores"), (-3e-17, "0 cores"),
        (0.0002, "<0.001 cores"), (0.0012, "0.0012 cores"), (0.032, "0.032 cores"), (0.1349, "0.13 cores"),
        (1.96, "2 cores"), (9.96, "10 cores"), (14.4, "14 cores"),
        (1234.0, "1\u202f234 cores"), (-0.516, "-0.52 cores"),
    ],
)  # fmt: skip
def test_cores_have_two_digits_and_a_unit(cores: float | None, said: str) -> None:
    """No exponent, nothing that rounding left of a sum, and unknown is no 0."""
    assert formatting.cores(cores) == said


@given(st.text())
@example("\u202egnihton\u202c \u2066spoof\u2069\nsecond \u200bline\x1b[31m")
def test_shown_text_has_no_invisible_power(text: str) -> None:
    """Nothing that reverses, hides or breaks a line survives in a foreign text."""
    seen = formatting.shown(text)
    assert seen
    assert len(seen) <= 300
    assert not set(seen) & set("\n\r\t\x00\x1b\u200b\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def test_markdown_is_escaped() -> None:
    """A foreign text in a Markdown place keeps its letters and loses its meaning."""
    assert (
        formatting.escaped("[x](javascript:y) :red[z] <b> **n**")
        == r"\[x\]\(javascript\:y\) \:red\[z\] \<b\> \*\*n\*\*"
    )


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("Run `turnout repair retry x_1`; then `kill 7`.", "Run turnout repair retry x_1; then kill 7."),
        ("a game named `b` or `turnout`", "a game named `b` or `turnout`"),
    ],
)
def test_a_command_has_no_backticks_on_a_page(text: str, seen: str) -> None:
    """Advice that quotes a command is drawn without the marks that only Markdown hides; other names keep theirs."""
    assert formatting.shown(text) == seen


@pytest.mark.parametrize(("text", "written"), [
    ("ann@example.com", r"ann:small[]\@example\.com"),
    ("see HTTPS://evil.example/x", r"see HTTP:small[]S\:\/\/evil\.example\/x"),
    ("http://evil.example", r"http:small[]\:\/\/evil\.example"),
    ("Www.evil.example", r"Www:small[]\.evil\.example"),
])  # fmt: skip
def test_an_address_becomes_no_link(text: str, written: str) -> None:
    """Markdown links addresses that a backslash does not hide from it; each is parted by what is not seen."""
    assert written == formatting.escaped(text)
    assert text == re.sub(r"\\(.)", r"\1", formatting.escaped(text).replace(":small[]", ""))


def test_the_headline_counts_trouble_worst_first(tmp_path: Path) -> None:
    """The sentence on top states how many streams fail, are unknown, lag or are at risk, and nothing that is well."""
    fleet = fleet_of(tmp_path, *fleet_of_forty())
    assert fleet.judgement.headline == "3 of 40 streams failing, 1 lagging, 1 at risk"


def test_the_headline_names_a_degraded_group(tmp_path: Path) -> None:
    """A group of which at least half is in trouble is told as one incident."""
    games = [Seeded(f"g{n}", "b", {"status": "STALLED"} if n < 18 else {}) for n in range(20)]
    assert fleet_of(tmp_path, *games).judgement.headline == "18 of 20 streams failing; group b degraded (18 of 20)"


def test_the_headline_names_a_silent_driver(tmp_path: Path) -> None:
    """A silent driver makes its games unknown, and the sentence says which group is silent."""
    games = [Seeded("one", "a", {}), Seeded("two", "b", {})]
    fleet = fleet_of(tmp_path, *games, heartbeat_ages={"ingest": 1, "a": 1, "b": 180})
    assert fleet.judgement.headline == "1 of 2 streams unknown; 1 group silent (b)"


def test_the_headline_names_a_group_that_never_started(tmp_path: Path) -> None:
    """A group that has games but never had a driver is named."""
    fleet = fleet_of(tmp_path, Seeded("one", "a", {}), Seeded("two", "c", None), heartbeat_ages={"ingest": 1, "a": 1})
    assert fleet.judgement.headline == "1 of 2 streams unknown; 1 group down (c)"


def test_a_fleet_that_is_fed_nothing_is_not_well(tmp_path: Path) -> None:
    """All streams may be well while ingest is dead: the sentence says so."""
    fleet = fleet_of(tmp_path, Seeded("one", "a", {}), Seeded("two", "a", {}), heartbeat_ages={"ingest": 130, "a": 1})
    assert fleet.judgement.headline == "2 streams level with bronze; ingest silent"
    never = fleet_of(tmp_path / "never", Seeded("one", "a", {}), heartbeat_ages={"a": 1})
    assert never.judgement.headline == "1 stream level with bronze; ingest was never started"


def test_a_healthy_fleet_is_stated_plainly(tmp_path: Path) -> None:
    """When nothing is wrong the sentence says so, and what is paused or catching up is told beside it."""
    games = [Seeded("one", "a", {}), Seeded("two", "a", {"status": "PAUSED"}), Seeded("three", "a", {})]
    assert fleet_of(tmp_path, *games).judgement.headline == "3 streams healthy (1 paused)"
