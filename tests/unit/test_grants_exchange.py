import re
from collections.abc import Mapping
from pathlib import Path
from unicodedata import normalize

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from grants.formats import exchange_sql, exchange_terraform
from grants.formats.exchange import FORMATS, Format, Row, parse, parse_yaml, render_rows, render_yaml
from grants.formats.policy import KINDS
from grants.formats.yaml_nodes import MAX_BYTES
from grants.model import KNOWN, PrincipalKind, Securable, folded
from pipeline.errors import Refused
from pipeline.names import game_key

SCHEMA = Securable(("main", "games"))
ACCESS = Path(__file__).parents[2] / "docs" / "access.md"
CATALOG = Securable(("main",))
END_OF_2026 = 1_798_761_600
HOSTILE = (
    "`", "``", "'", '"', "\\", "\\n", "\n", "\r\n", "\t", "\x85", "\u2028", "\u202e", "\ufeff", "\x07", "é", "ß", "文",
    "🎲", "${", "$${", "$$${", "%{", "%%{", "$%{", "}", ";", "--", "#", "//", "/*", "*/", "turnout:", "{}", "[x]", "*",
    "&a", "!!x", ": ", "- ", "; GRANT SELECT ON CATALOG `main` TO `x`;", "\\u0041", "null", "~", " ", "a", "B",
    "account users",
)  # fmt: skip
texts = st.lists(st.sampled_from(HOSTILE) | st.characters(exclude_categories=["Cs"]), max_size=6).map("".join)
said = texts.filter(lambda text: bool(text.strip()) and "\0" not in text)
games = texts.filter(lambda text: bool(text) and "\0" not in text)
untils = st.none() | st.integers(0, 4_000_000_000) | st.integers(0, 40_000).map((86_400).__mul__)


def key(name: str) -> str:
    return str(game_key(name))


def row(
    principal: str, game: str, kind: PrincipalKind | None = None, until: int | None = None, reason: str = "why",
    ticket: str | None = None,
) -> Row:  # fmt: skip
    return Row(principal, kind, key(game), game, until, reason, ticket)


def known(rows: list[Row]) -> dict[str, str]:
    return {each.key: each.game for each in rows}


def composed(rows: list[Row]) -> bool:
    """Tell whether Terraform leaves the principals' names as they are."""
    return all(normalize("NFC", each.principal) == each.principal for each in rows)


def ordered(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda each: each.order)


@st.composite
def many(draw: st.DrawFn) -> list[Row]:
    """Rows with hostile texts in which nothing contradicts, in any order."""
    principals = draw(st.lists(said, max_size=4, unique_by=folded))
    kinds = [draw(st.none() | st.sampled_from(KINDS)) for _ in principals]
    names = draw(st.lists(games, min_size=1, max_size=4, unique_by=key))
    terms = draw(st.lists(st.tuples(untils, said, st.none() | said), min_size=1, max_size=3))
    return [
        Row(principal, kind, key(name), name, *draw(st.sampled_from(terms)))
        for principal, kind in zip(principals, kinds, strict=True)
        for name in draw(st.permutations(names))
        if draw(st.booleans())
    ]


@pytest.mark.parametrize("form", FORMATS)
@given(rows=many())
@example(rows=[])
def test_what_is_exported_is_imported_as_it_was(form: Format, rows: list[Row]) -> None:
    """Every format carries rows with any names there and back unchanged, or refuses to write them."""
    if form == "terraform" and not composed(rows):
        with pytest.raises(Refused, match="NFC"):
            render_rows(form, rows, SCHEMA)
        return
    text = render_rows(form, rows, SCHEMA)
    assert ordered(rows) == parse(form, text, SCHEMA, known(rows))
    assert text == render_rows(form, reversed(rows), SCHEMA)


@given(rows=many())
def test_no_name_ends_a_line_or_a_comment(rows: list[Row]) -> None:
    """A comment is one visible line, so no name, reason or ticket becomes a statement or hides one."""
    text = exchange_sql.render_sql(rows, SCHEMA)
    for line in (line for line in text.split("\n") if line.startswith("-- turnout:")):
        assert line.isprintable()
        assert not set("`;$") & set(line)
        assert line.endswith("}")
    if all(each.principal.isprintable() for each in rows):
        whole = (
            (render_yaml(rows) + exchange_terraform.render_terraform(rows, SCHEMA) + text) if composed(rows) else text
        )
        assert all(line.isprintable() for line in whole.split("\n"))


def test_sql_gives_what_surrounds_a_table_first_and_once() -> None:
    """USE CATALOG and USE SCHEMA of everybody come once and before any SELECT; names are back-ticked and doubled."""
    rows = [row("b`ob", "Chess", until=END_OF_2026), row("ann", "Chess"), row("ann", "Go")]
    chess, go = key("Chess"), key("Go")
    statements = [line for line in exchange_sql.render_sql(rows, SCHEMA).splitlines() if not line.startswith("--")]
    assert [
        "GRANT USE CATALOG ON CATALOG `main` TO `ann`;",
        "GRANT USE CATALOG ON CATALOG `main` TO `b``ob`;",
        "GRANT USE SCHEMA ON SCHEMA `main`.`games` TO `ann`;",
        "GRANT USE SCHEMA ON SCHEMA `main`.`games` TO `b``ob`;",
        f"GRANT SELECT ON TABLE `main`.`games`.`{chess}` TO `ann`;",
        f"GRANT SELECT ON TABLE `main`.`games`.`{go}` TO `ann`;",
        f"GRANT SELECT ON TABLE `main`.`games`.`{chess}` TO `b``ob`;",
    ] == statements


def test_terraform_has_one_resource_for_each_pair_and_keeps_the_rest() -> None:
    """A pair's resource names all of its privileges: Terraform would take from the principal what it does not name."""
    table = Securable(("main", "games", key("Chess")))
    direct: Mapping[Securable, Mapping[str, frozenset[str]]] = {
        SCHEMA: {"ANN": frozenset({"USE_SCHEMA", "CREATE_TABLE"}), "bob": frozenset({"MODIFY"})},
        table: {"ann": frozenset({"MODIFY", "NEW THING"})},
    }
    rows = [row("ann", "Chess"), row("ann", "Go")]
    text = exchange_terraform.render_terraform(rows, SCHEMA, direct)
    assert text.count('resource "databricks_grant"') == 4
    assert 'privileges = ["USE_CATALOG"]' in text
    assert 'privileges = ["USE_SCHEMA", "CREATE_TABLE"]' in text
    assert 'privileges = ["SELECT", "MODIFY", "NEW THING"]' in text
    assert "databricks_grants" not in text
    assert rows == exchange_terraform.parse(text, SCHEMA, known(rows))


@given(st.lists(said, min_size=2, max_size=8, unique_by=folded))
def test_terraforms_names_are_legal_and_unique(principals: list[str]) -> None:
    """However alike principals look, each pair has a resource name of its own that Terraform accepts."""
    labels = [exchange_terraform._label(securable, name) for name in principals for securable in (SCHEMA, CATALOG)]
    assert len(labels) == len(set(labels))
    assert all(label.isascii() and label.replace("_", "a").isalnum() and label[0].isalpha() for label in labels)


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("${x}", r'"$${x}"'),
        ("%{if}", r'"%%{if}"'),
        ("$${x}", r'"\u0024$${x}"'),
        ("$ {", '"$ {"'),
        ('a"\\\n', r'"a\"\\\u000a"'),
        ("\U000e0041", r'"\U000e0041"'),
    ],
)
def test_terraform_computes_nothing_from_a_name(text: str, written: str) -> None:
    """`${` and `%{` of a name are escaped, so that HCL has them as text."""
    assert written == exchange_terraform._string(text)


def test_terraform_does_not_turn_a_name_into_another() -> None:
    """HCL composes letters (NFC); a name that this would change is refused instead of given to somebody else."""
    with pytest.raises(Refused, match="NFC"):
        exchange_terraform.render_terraform([row("e\u0301va", "Chess")], SCHEMA)


def test_yaml_joins_what_shares_terms_and_games() -> None:
    """Many principals with the same games are one entry, so that a whole matrix stays readable as a policy."""
    rows = [row(f"p{who}", f"Game {game}", "group", END_OF_2026) for who in range(60) for game in range(500)]
    text = render_yaml(rows)
    assert text.count("principals:") == 1
    assert "    until: 2026-12-31\n" in text
    assert f'      - "{key("Game 7")}" # "Game 7"\n' in text
    assert ordered(rows) == parse_yaml(text, known(rows))


@pytest.mark.parametrize("change", [{"until": END_OF_2026}, {"reason": "other"}, {"ticket": "T-1"}])
def test_yaml_joins_nothing_else(change: dict[str, str]) -> None:
    """Rows that differ in one term only, of one principal or of two, come back each with its own."""
    first = row("ann", "Chess")
    for other in (row("bob", "Chess", **change), row("ann", "Go", **change)):  # type: ignore[arg-type] # fields by name
        assert parse_yaml(render_yaml([first, other]), known([first, other])) == ordered([first, other])


def test_everybodys_grant_makes_a_policy_that_allows_it() -> None:
    """What was read from a catalog can be exported and read again, also where everybody may read."""
    rows = [row("Account Users", "Chess", "group")]
    assert parse_yaml(render_yaml(rows), known(rows)) == rows
    assert "allow_everyone: false" in render_yaml([row("ann", "Chess")])


def test_a_policy_nobody_could_read_is_not_written() -> None:
    """An export over the size that is read back is refused with what to do."""
    with pytest.raises(Refused, match="export fewer"):
        render_yaml([row(f"p{index}", "Chess", reason=f"{index}" * 500) for index in range(MAX_BYTES // 500)])


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize(
    ("first", "second"),
    [
        (row("ann", "Chess"), row("ann", "Chess", reason="other")),
        (row("ann", "Chess"), row("Ann", "Go")),
        (row("ann", "Chess", "user"), row("ann", "Go", "group")),
    ],
)
def test_rows_that_contradict_are_not_exported(form: Format, first: Row, second: Row) -> None:
    """One cell has one set of terms, and one principal one spelling and kind, in every format."""
    with pytest.raises(Refused):
        render_rows(form, [first, second], SCHEMA)
    assert render_rows(form, [first, first], SCHEMA) == render_rows(form, [first], SCHEMA)


@pytest.mark.parametrize(
    "change",
    [{"principal": " "}, {"principal": "a\0"}, {"reason": ""}, {"ticket": ""}, {"game": "\ud800"}, {"key": "a.b"},
     {"key": ""}, {"until": 10**15}],
)  # fmt: skip
def test_a_row_that_no_file_can_carry_is_none(change: dict[str, str]) -> None:
    """What would come back as something else is refused before it is written."""
    whole = {"principal": "ann", "kind": None, "key": "k", "game": "g", "until": None, "reason": "r", "ticket": None}
    Row(**whole)  # type: ignore[arg-type] # fields by name
    with pytest.raises(Refused):
        Row(**(whole | change))  # type: ignore[arg-type] # likewise


GOOD = row("ann", "Chess", "user", END_OF_2026, "why", "T-1")
CHESS = key("Chess")


def refusals(form: Format, text: str) -> list[str]:
    with pytest.raises(Refused) as refused:
        parse(form, text, SCHEMA, {CHESS: "Chess"})
    return [line.removeprefix("  - ") for line in str(refused.value).splitlines()[1:]]


@pytest.mark.parametrize(
    ("old", "new", "line", "part"),
    [
        ("GRANT SELECT", "GRANT MODIFY", 5, "is not understood"),
        ("GRANT SELECT", "REVOKE SELECT", 5, "is not understood"),
        ("GRANT SELECT", "DROP TABLE x;\nGRANT SELECT", 5, "'DROP TABLE x;' is not understood"),
        ("GRANT SELECT", "/* x */ GRANT SELECT", 5, "is not understood"),
        ("SELECT ON TABLE `main`.`games`.", "SELECT ON SCHEMA `main`.", 5, "neither a game's table"),
        (f"SELECT ON TABLE `main`.`games`.`{CHESS}`", "SELECT ON SCHEMA `main`.`games`", 5, "USE_SCHEMA alone"),
        ("ON TABLE", "ON SCHEMA", 5, "is a table by its name"),
        ("`main`.`games`.", "`other`.`games`.", 5, "neither a game's table"),
        (f"`{CHESS}`", "`chess; drop`", 5, "cannot be part of"),
        (f"`{CHESS}`", "`zork_aaaaaaaaaaaa`", 5, "there is no game with the key"),
        (f"`{CHESS}` TO `ann`", f"`{CHESS}` TO `bob`", 5, "the comment says principal 'ann'"),
        ("TO `ann`;\n-- turnout", "TO `ann`\n-- turnout", 3, "is not understood"),
        ("GRANT USE CATALOG ON CATALOG `main` TO `ann`;", "", 5, "'ann' gets no USE_CATALOG on main"),
        (
            "GRANT USE SCHEMA ON",
            "GRANT USE SCHEMA ON SCHEMA main.games TO bob;\nGRANT USE SCHEMA ON",
            3,
            "nothing to read",
        ),
        (
            "GRANT USE SCHEMA ON",
            "GRANT USE CATALOG ON CATALOG main TO ann;\nGRANT USE SCHEMA ON",
            3,
            "in line 2 already",
        ),
        ('"game": "Chess"', '"game": "Go"', 5, "the comment says game 'Go'"),
        ('"reason": "why", ', "", 5, "it has no reason"),
        ('"reason": "why"', '"reason": " "', 5, "empty reason"),
        ('"reason": "why"', '"reason": 7', 4, "reason cannot be '7'"),
        ('"reason": "why"', '"reason": "why", "reason": "x"', 4, "a field stands twice"),
        ('"user"', '"robot"', 4, "kind cannot be"),
        ('"until": "2026-12-31"', '"until": "soon"', 5, "is no date"),
        ('"ticket"', '"card"', 4, "'card' is no term"),
        ('{"principal"', '{{"principal"', 4, "not valid JSON"),
        ("-- turnout: {", "-- turnout: " + "[" * 100_000 + "{", 4, "not valid JSON"),
        ("GRANT SELECT", "-- turnout: {}\nGRANT SELECT", 4, "belong to no statement"),
        ("GRANT SELECT", "-- and \\\nGRANT SELECT", 5, "ends with a backslash"),
        ("GRANT USE SCHEMA", '-- turnout: {"reason": "x"}\nGRANT USE SCHEMA', 4, "terms belong above SELECT"),
        ("GRANT SELECT", "GRANT \u017fELECT", 5, "is not understood"),
    ],
)
def test_sql_that_says_something_else_is_refused_in_its_line(old: str, new: str, line: int, part: str) -> None:
    """Whatever a statement or comment says beyond or below what rows can say is told of, never dropped."""
    text = exchange_sql.render_sql([GOOD], SCHEMA)
    assert old in text
    found = refusals(
        "sql",
        text.replace(old, new, 1) if old != "`main`.`games`." else text.replace(f"{old}`{CHESS}", f"{new}`{CHESS}"),
    )
    assert any(each.startswith(f"line {line}: ") and part in each for each in found), found


def test_the_documents_sql_is_what_is_written() -> None:
    """The SQL in docs/access.md is the export of one row."""
    example, *_ = re.findall(
        r"^```sql\n([^~]*?-- turnout:.*?)^```", ACCESS.read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
    [read] = parse("sql", example, SCHEMA, {CHESS: "Chess"})
    assert exchange_sql.render_sql([read], SCHEMA).endswith(example)


def test_sql_of_people_is_read() -> None:
    """Casing, spacing, plain names and comments of other people do not matter."""
    text = f"""-- for the quarter
        grant use catalog on catalog main to Ann; Grant Use
        Schema ON schema main . games TO ann;
        -- turnout: {{"reason": "numbers", "until": "2026-12-31"}}
        -- she asked by phone
        grant select on table main.games.{CHESS} to ann"""
    assert [row("ann", "Chess", None, END_OF_2026, "numbers")] == parse("sql", text, SCHEMA, {CHESS: "Chess"})


@pytest.mark.parametrize(
    ("old", "new", "line", "part"),
    [
        ('"SELECT"', '"SELECT", "MODIFY"', 16, "is not what turnout gives there"),
        ('"SELECT"', "", 16, "'nothing' on table"),
        ('"SELECT"', '"ALL_PRIVILEGES"', 16, "is not what turnout gives there"),
        ('["SELECT"]', '"SELECT"', 19, "privileges must be a list"),
        ('  table      = "main.games', '  table      = "main.other', 16, "neither a game's table"),
        ("  table     ", "  schema    ", 16, "is a table by its name"),
        ("  table     ", "  volume    ", 17, "volume is not understood"),
        ('  privileges = ["SELECT"]', '  privileges = ["SELECT"]\n  depends_on = [x]', 20, "is not understood"),
        ('  privileges = ["SELECT"]', "", 16, "a resource has principal, privileges"),
        (
            '= "ann"\n  privileges = ["SELECT"]',
            '= "${var.who}"\n  privileges = ["SELECT"]',
            18,
            "computed by Terraform",
        ),
        ('= "ann"\n  privileges = ["SELECT"]', '= "$$${x}"\n  privileges = ["SELECT"]', 18, "computed by Terraform"),
        ('= "ann"\n  privileges = ["SELECT"]', '= "\\x"\n  privileges = ["SELECT"]', 18, "computed by Terraform"),
        ('= "ann"\n  privileges = ["SELECT"]', '= var.who\n  privileges = ["SELECT"]', 18, "is not understood"),
        (
            '= "ann"\n  privileges = ["SELECT"]',
            '= "bob"\n  privileges = ["SELECT"]',
            16,
            "comment says principal 'ann'",
        ),
        ('["SELECT"]\n}', '["SELECT"]\n', 16, "has no end"),
        ('["SELECT"]\n', '["SELECT"]\n  # turnout: {}\n', 20, "terms stand above"),
        ('["SELECT"]\n}', '["SELECT"]\n}\n\n# turnout: {}\n', 22, "belong to no resource"),
        ('["SELECT"]\n}', '["SELECT"]\n}\n\nmodule "x" {}\n', 22, "is not understood"),
        ('"databricks_grant" "catalog', '"databricks_grants" "catalog', 3, "is not understood"),
        ('"table_', '"schema_games_ann_x" {}\nresource "databricks_grant" "table_', 16, "a resource has principal"),
        ("# turnout: {", '# turnout: {"kept": ["MODIFY"], ', 16, "is not what turnout gives there"),
    ],
)
def test_terraform_that_says_something_else_is_refused_in_its_line(old: str, new: str, line: int, part: str) -> None:
    """Whatever a resource says beyond or below what rows can say is told of, never dropped."""
    text = exchange_terraform.render_terraform([GOOD], SCHEMA)
    assert old in text
    found = refusals("terraform", text.replace(old, new, 1))
    assert any(each.startswith(f"line {line}: ") and part in each for each in found), found


def test_two_resources_of_one_name_or_pair_are_refused() -> None:
    """Terraform would refuse the first and flap on the second; neither is guessed at."""
    text = exchange_terraform.render_terraform([GOOD], SCHEMA)
    _, _, block = text.rpartition("# turnout")
    again = block[block.index("resource") :]
    found = refusals("terraform", f"{text}\n{again}\n{again.replace('table_', 'other_', 1)}")
    assert len(found) == 3, found
    assert any("line 22: the name table_" in each for each in found)
    assert sum("stands in line 16 already; keep one" in each for each in found) == 2


@pytest.mark.parametrize("form", ["sql", "terraform"])
def test_a_principal_is_one_thing_in_a_file(form: Format) -> None:
    """Two spellings or kinds of one principal in a file are told of with their lines."""
    games = {CHESS: "Chess", key("Go"): "Go"}
    text = render_rows(form, [row("ann", "Chess", "user"), row("ann", "Go", "user")], SCHEMA)
    before, mark, last = text.rpartition("turnout:")
    with pytest.raises(Refused, match=r"line \d+: 'Ann' \(user\) is 'ann' \(user\) in line \d+"):
        parse(form, before + mark + last.replace("ann", "Ann"), SCHEMA, games)
    with pytest.raises(Refused, match=r"line \d+: 'ann' \(group\) is 'ann' \(user\) in line \d+"):
        parse(form, before + mark + last.replace('"user"', '"group"'), SCHEMA, games)


@pytest.mark.parametrize("form", FORMATS)
@given(text=st.text(max_size=100), cut=st.integers(0, 1000), much=st.integers(0, 40))
def test_any_damage_is_refused_or_means_the_same_kind_of_thing(form: Format, text: str, cut: int, much: int) -> None:
    """A damaged file ends in rows of known games or in a sentence, never in another error."""
    whole = render_rows(form, [GOOD, row("bob", "Chess", "group")], SCHEMA)
    damaged = whole[:cut] + text + whole[cut + much :]
    try:
        found = parse(form, damaged, SCHEMA, {CHESS: "Chess"})
    except Refused:
        return
    assert {CHESS} >= {each.key for each in found}
    assert not {each.principal for each in found} & KNOWN
