import contextlib
import re
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grants.formats.expiry import parse_until, spelled_until
from grants.formats.policy import MAX_CELLS, MAX_PATTERNS, KnownTable, PolicyCell, cells, check_until, parse
from pipeline.base.errors import Refused
from pipeline.base.names import game_key
from pipeline.base.yaml_nodes import MAX_BYTES
from tests.checkout import ROOT


def known(*names: str) -> dict[str, str]:
    return {game_key(name): name for name in names}


GAMES = known("Block Party", "game_1", "game_2", "Game_3", "no", "2048", "odd [EU]")
END_OF_2026 = 1_798_761_600
ACCESS = ROOT / "docs" / "access.md"
DOCUMENTED, *_ = re.findall(r"^```yaml\n(version: .*?)^```", ACCESS.read_text("utf-8"), re.MULTILINE | re.DOTALL)
WHOLE = DOCUMENTED.replace("max_days: 90", "max_days: 30")
"""The example of the documents, with another limit than the one that holds where none is given."""


def policy(*grants: str, head: str = "version: 1") -> str:
    return "\n".join([head, "grants:", *(f"  - {{{grant}}}" for grant in grants)])


def problems(text: str, games: Mapping[str, str] = GAMES) -> list[tuple[int, str]]:
    """Return (line, sentence) of everything a policy is refused for."""
    with pytest.raises(Refused) as refused:
        parse(text, games)
    _, *found = str(refused.value).splitlines()
    split = [line.removeprefix("  - line ").split(": ", 1) for line in found]
    return [(int(line), said) for line, said in split]


def named(entry: str) -> tuple[list[str], tuple[str, ...]]:
    """Return the names an entry of `games` stands for, and the warnings."""
    read = parse(policy(f"principals: [a], games: [{entry}], reason: r"), GAMES)
    return [GAMES[cell.key] for cell in cells(read, GAMES)], read.warnings


def test_a_policy_says_who_reads_what_until_when() -> None:
    """Every principal of an entry reads every game of it, under the entry's terms, in a stable order."""
    read = parse(WHOLE, GAMES)
    terms = (END_OF_2026, "Quarterly numbers", "DATA-12")
    keys = sorted(game_key(name) for name in ("Block Party", "game_1", "game_2"))
    assert [PolicyCell(who, key, *terms) for who in ("analysts", "ann@example.com") for key in keys] == cells(
        read, GAMES
    )
    assert read.kinds == {"ann@example.com": "user"}
    assert (read.max_days, read.allow_everyone, read.warnings) == (30, False, ())


def test_everything_wrong_is_said_at_once_with_its_line() -> None:
    """One refusal names all that is wrong, each in the line where it stands."""
    text = """version: 1
extra: 1
max_days: ten
allow_everyone: yes
grants:
  - principals: [ann]
    games: [zork, game_1]
    until: 2026-12-31 10:00
    reason: x
  - games: ["*"]
    reason: ~
    reason: z
  - principals: [{group: a, user: b}, [c], "", {robot: r}, 'account users']
    games: game_1
    until: 2026-02-30
    reason: [x]
  - nothing
"""
    expected = {
        2: "'extra' is not a field", 3: "max_days must be", 4: "allow_everyone must be true or false",
        7: "there is no game 'zork'", 8: "no time zone", 10: "principals is missing", 11: "reason is empty",
        12: "has reason twice", 14: "games must be a list", 15: "not an existing day", 16: "reason must be a text",
        17: "a grant must be a mapping",
    }  # fmt: skip
    found = problems(text)
    assert {*expected, 13} == {line for line, _ in found}
    assert all(part in dict(found)[line] for line, part in expected.items())
    said = {each for line, each in found if line == 13}
    for part in (
        "one of user, group",
        "a principal must be a text",
        "is empty",
        "'robot' is not a field",
        "means everybody",
    ):
        assert any(part in each for each in said), part


@pytest.mark.parametrize(
    ("text", "line", "part"),
    [
        ("version: 1\ngrants: [", 2, "not valid YAML"),
        ("version: 1\ngrants:\n\t- x", 3, "not valid YAML"),
        ("version: 1\ngrants: []\n---\nversion: 1", 3, "not valid YAML"),
        ("version: 1\ngrants:\n  - principals: &x [a]", 3, "anchor or alias 'x'"),
        ("version: 1\ngrants: *x", 2, "anchor or alias 'x'"),
        ("version: 1\ngrants: !!python/object/apply:os.system [ls]", 2, "the tag"),
        ("version: 1\ngrants: " + "[" * 100_000, 2, "nested deeper"),
        ("version: 1\ngrants: \x07", 2, "is not allowed in YAML"),
        ("version: 1\n# \ud800", 2, "is not allowed in YAML"),
        ("version: 1\n#" + "x" * MAX_BYTES, 1, "longer than"),
        ("version: 1\n#" + "é" * (MAX_BYTES // 2), 1, "longer than"),
        ("- a", 1, "must be a mapping"),
        ("version: 2\ngrants: []", 1, "version must be 1"),
        ("version: '1'\ngrants: []", 1, "version must be 1"),
        ("grants: []", 1, "version is missing"),
        ("version: 1", 1, "grants is missing"),
        ("version: 1\ngrants:", 2, "grants must be a list"),
        ("version: 1\nmax_days: 0\ngrants: []", 2, "max_days must be"),
        ("version: 1\n? [a]\n: b\ngrants: []", 2, "is not a field"),
        ("version: 1\n<<: {grants: []}", 2, "'<<' is not a field"),
    ],
)
def test_what_is_no_policy_is_refused_in_its_line(text: str, line: int, part: str) -> None:
    """Broken YAML, bombs, foreign objects and missing heads are told of, and nothing of them is made or guessed."""
    assert any(at == line and part in said for at, said in problems(text)), problems(text)


def test_an_empty_policy_is_not_one_that_names_nobody() -> None:
    """A file that lost its content must not read as a wish to take all access away."""
    for text in ("", "# all gone\n"):
        with pytest.raises(Refused, match="empty"):
            parse(text, GAMES)
    assert cells(parse("version: 1\ngrants: []", GAMES), GAMES) == []


@pytest.mark.parametrize(
    ("entry", "names"),
    [
        ("game_1", {"game_1"}),
        (game_key("Game_3"), {"Game_3"}),
        ("game_*", {"game_1", "game_2"}),
        ("'*_3'", {"Game_3"}),
        ("'game_[!1]'", {"game_2"}),
        ("'*'", set(GAMES.values())),
        ("no", {"no"}),
        ("2048", {"2048"}),
        ("'odd [[]EU]'", {"odd [EU]"}),
        ("game_1, game_1, 'game_?'", {"game_1", "game_2"}),
    ],
)
def test_games_are_keys_names_or_patterns_of_names(entry: str, names: set[str]) -> None:
    """A pattern is matched on exact names with their case; what YAML takes for a number or truth is still a name."""
    assert (sorted(names, key=game_key), ()) == named(entry)


def test_a_doubtful_pattern_is_a_warning() -> None:
    """A pattern that matches nothing, or is itself a game's name, is told of and refused by nobody."""
    assert "line 3: the pattern 'zork_*' matches no game." in named("'zork_*'")[1]
    found, warnings = named("'odd [EU]'")
    assert not found
    assert any("has exactly that name" in said and game_key("odd [EU]") in said for said in warnings)


def test_nobody_takes_over_an_entry_by_a_games_name() -> None:
    """A new game named like a pattern or like another game's key changes nothing for those who were meant."""
    meant = known("game_1", "game_2")
    grown = meant | known("game_*", game_key("game_1"))
    by_key = parse(policy(f"principals: [a], games: [{game_key('game_1')}], reason: r"), grown)
    by_pattern = parse(policy("principals: [a], games: ['game_*'], reason: r"), grown)
    assert [game_key("game_1")] == [cell.key for cell in cells(by_key, grown)]
    assert any("is also the name of another game" in said for said in by_key.warnings)
    assert set(meant) < {cell.key for cell in cells(by_pattern, grown)}


@pytest.mark.parametrize("term", ["until: 2026-12-30", "reason: other", "ticket: T-1"])
def test_one_cell_has_one_set_of_terms(term: str) -> None:
    """Two entries may name one cell only under the same terms, however its principal and game are written."""
    first = "principals: [Ann], games: [game_1], until: 2026-12-31, reason: r"
    same = first.replace("Ann", "aNN").replace("game_1", "'game_*'")
    read = cells(parse(policy(first, same), GAMES), GAMES)
    assert sorted((cell.principal, GAMES[cell.key]) for cell in read) == [("Ann", "game_1"), ("Ann", "game_2")]
    field = term.split(":", maxsplit=1)[0]
    kept = ", ".join(part for part in same.split(", ") if not part.startswith(field))
    [(line, said)] = problems(policy(first, f"{kept}, {term}"))
    assert (line, "'game_1' for 'Ann' is already in line 3" in said) == (4, True)


def test_a_principal_is_of_one_kind() -> None:
    """What is a user in one line cannot be a group in another."""
    both = policy("principals: [user: ann, group: Ann], games: [game_1], reason: r")
    assert problems(both) == [(3, "'Ann' is a group here and a user above; keep one kind")]


def test_everybody_is_named_only_where_that_is_allowed() -> None:
    """`account users` needs allow_everyone: true, in any casing and order of the file."""
    text = policy("principals: [Account Users], games: [game_1], reason: r")
    assert "allow_everyone" in problems(text)[0][1]
    assert "allow_everyone" in problems(f"{text}\nallow_everyone: false")[0][1]
    assert [cell.principal for cell in cells(parse(f"{text}\nallow_everyone: true", GAMES), GAMES)] == ["Account Users"]


def test_temporary_grants_last_no_longer_than_max_days() -> None:
    """An end later than max_days from now is refused with its line; one that is past is told of, and stays."""
    read = parse(WHOLE, GAMES)
    longest = END_OF_2026 - 30 * 86_400
    assert check_until(read, longest) == ()
    with pytest.raises(Refused, match=r"line 5: until 2026-12-31 is more than 30 days ahead"):
        check_until(read, longest - 1)
    assert check_until(read, END_OF_2026 - 1) == ()
    assert check_until(read, END_OF_2026) == ("line 5: it expired at 2026-12-31 and grants nothing.",)
    assert cells(read, GAMES)


def test_a_game_that_went_away_is_told_of() -> None:
    """A policy read earlier does not lose a named game in silence when the inventory does."""
    read = parse(policy("principals: [a], games: [game_1, game_2], reason: r"), GAMES)
    with pytest.raises(Refused, match=r"line 3: there is no game 'game_1'"):
        cells(read, known("game_2"))


def test_a_policy_is_of_a_bounded_size() -> None:
    """A small file cannot ask for endless work: cells and patterns are counted before they are made."""
    games = known(*(f"g{index}" for index in range(500)))
    people = ", ".join(f"p{index}" for index in range(MAX_CELLS // 500 + 1))
    patterns = ", ".join(f"'{index}*'" for index in range(MAX_PATTERNS + 1))
    assert "use groups" in problems(policy(f"principals: [{people}], games: ['*'], reason: r"), games)[0][1]
    assert "patterns" in problems(policy(f"principals: [a], games: [{patterns}], reason: r"), games)[0][1]


@pytest.mark.parametrize(
    ("text", "until"),
    [
        ("2026-12-31", END_OF_2026),
        ("2027-01-01T00:00:00Z", END_OF_2026),
        ("2027-01-01 02:00+02:00", END_OF_2026),
        ("2026-12-31T23:59:59z", END_OF_2026 - 1),
        ("1969-12-31", 0),
    ],
)
def test_a_day_ends_in_utc_and_a_time_has_a_zone(text: str, until: int) -> None:
    """A date means its end in UTC; a time is what it is in its zone."""
    assert until == parse_until(text)


@pytest.mark.parametrize(
    "text",
    [
        "2026-12-31T10:00", "2026-02-30", "20261231", "2026-W01-1", "31.12.2026", "tomorrow", "9999-12-31", "",
        "2026-12-31T10:00:00.5Z", "\uff12026-12-31", "2026-12-31T25:00Z", "2026-12-31T10:00+99:00",
    ],
)  # fmt: skip
def test_no_other_time_is_guessed(text: str) -> None:
    """What is not exactly a date or a time with zone is refused."""
    with pytest.raises(Refused):
        parse_until(text)


@given(st.integers(-62_135_596_800 + 86_400, 253_402_214_400) | st.integers(-700_000, 2_900_000).map((86_400).__mul__))
def test_a_time_is_read_as_it_was_spelled(until: int) -> None:
    """Spelling a time and reading it again changes nothing."""
    assert until == parse_until(spelled_until(until))


@given(st.text(max_size=200) | st.text("[]{}:,-&*!|>'\"#%@` \n\tab1~?", max_size=80))
def test_any_text_is_a_policy_or_refused(text: str) -> None:
    """Nothing that can be typed ends in another error than a sentence."""
    for each in (text, f"version: 1\ngrants:\n  - {text}"):
        with contextlib.suppress(Refused):
            cells(parse(each, GAMES), GAMES)


TABLES = {
    "silver__chess_sold": KnownTable("chess_sold", game_key("game_1")),
    "gold__chess_hours": KnownTable("chess_hours", game_key("game_1")),
    "silver__go_sold": KnownTable("go_sold", game_key("game_2")),
}


@pytest.mark.parametrize(
    ("entry", "keys"),
    [
        ("derived: [chess_sold]", {"silver__chess_sold"}),
        ('derived: ["*_sold"]', {"silver__chess_sold", "silver__go_sold"}),
        ("derived_of: [game_1]", {"silver__chess_sold", "gold__chess_hours"}),
        ('derived_of: ["game_*"]', set(TABLES)),
        ("derived: [go_sold], derived_of: [game_1], games: [no]", {*TABLES, game_key("no")}),
    ],
)
def test_an_entry_names_silver_and_gold_tables_without_their_games(entry: str, keys: set[str]) -> None:
    """Tables are chosen by name, by pattern, or as all of a game, and give no game that is not named itself."""
    read = parse(policy(f"principals: [a], {entry}, reason: r"), GAMES, TABLES)
    assert {each.key for each in cells(read, GAMES, TABLES)} == keys
    assert read.warnings == ()


def test_a_table_that_is_not_in_force_is_a_problem_and_an_empty_choice_a_warning() -> None:
    """An unknown name is refused with its line; patterns and games that have no table yet are only noted."""
    with pytest.raises(Refused, match="line 3: there is no silver or gold table 'game_1' in force"):
        parse(policy("principals: [a], derived: [game_1], reason: r"), GAMES, TABLES)
    read = parse(policy('principals: [a], derived: ["x*"], derived_of: [no], reason: r'), GAMES, TABLES)
    assert cells(read, GAMES, TABLES) == []
    assert [each.partition(": ")[2] for each in read.warnings] == [
        "the pattern 'x*' matches no silver or gold table.", "'no' has no silver or gold table in force."
    ]  # fmt: skip
