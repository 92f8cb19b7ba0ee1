import json
import re
from collections.abc import Iterator, Mapping
from unicodedata import normalize

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from grants.formats import exchange_sql, exchange_terraform
from grants.formats.exchange import FORMATS, Format, ReadRow, render_rows, render_yaml
from grants.formats.expiry import spelled_until
from grants.formats.policy import KINDS, KnownTable, cells, parse
from grants.model import PrincipalKind, Securable, folded
from pipeline.base.errors import Refused
from pipeline.base.names import game_key
from pipeline.base.yaml_nodes import MAX_BYTES
from tests.checkout import ROOT

SCHEMA = Securable(("main", "games"))
ACCESS = ROOT / "docs" / "access.md"
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
) -> ReadRow:  # fmt: skip
    return ReadRow(principal, kind, key(game), game, until, reason, ticket)


def composed(rows: list[ReadRow]) -> bool:
    """Return whether Terraform leaves the principals' names as they are."""
    return all(normalize("NFC", each.principal) == each.principal for each in rows)


def ordered(rows: list[ReadRow]) -> list[ReadRow]:
    return sorted(rows, key=lambda each: each.order)


@st.composite
def many(draw: st.DrawFn) -> list[ReadRow]:
    """Rows with hostile texts in which nothing contradicts, in any order."""
    principals = draw(st.lists(said, max_size=4, unique_by=folded))
    kinds = [draw(st.none() | st.sampled_from(KINDS)) for _ in principals]
    names = draw(st.lists(games, min_size=1, max_size=4, unique_by=key))
    terms = draw(st.lists(st.tuples(untils, said, st.none() | said), min_size=1, max_size=3))
    return [
        ReadRow(principal, kind, key(name), name, *draw(st.sampled_from(terms)))
        for principal, kind in zip(principals, kinds, strict=True)
        for name in draw(st.permutations(names))
        if draw(st.booleans())
    ]


def policy_rows(text: str, rows: list[ReadRow]) -> list[ReadRow]:
    """Return what a policy says, as rows."""
    names = {each.key: each.game for each in rows}
    read = parse(text, names)
    return [
        ReadRow(cell.principal, read.kinds.get(folded(cell.principal)), cell.key, names[cell.key], *cell[2:])
        for cell in cells(read, names)
    ]


@given(rows=many())
@example(rows=[])
def test_an_exported_policy_says_what_its_rows_say(rows: list[ReadRow]) -> None:
    """A policy carries rows with any names there and back unchanged, in whatever order they were written."""
    text = render_yaml(rows)
    assert ordered(rows) == policy_rows(text, rows)
    assert text == render_yaml(reversed(rows))


_TICKED = r"`((?:[^`]|``)*)`"
_SQL = re.compile(
    r"-- (?P<comment>[^\n]*)\n|GRANT (?P<privilege>[A-Z ]+) ON (?:CATALOG|SCHEMA|TABLE) "
    rf"(?P<on>{_TICKED}(?:\.{_TICKED})*)"
    r" TO `(?P<who>(?:[^`]|``)*)`;\n"
)
_HCL = re.compile(
    r'\n|# (?P<comment>[^\n]*)\n|resource "databricks_grant" "\w+" \{\n  (?:catalog|schema|table) +'
    r'= "(?P<on>[\w.]+)"\n  principal  = "(?P<who>(?:[^"\\\n]|\\[^\n])*)"\n'
    r'  privileges = \["(?P<privilege>\w+)"\]\n\}\n'
)


def unescaped(text: str) -> str:
    """Return what Terraform reads between the quotes of a text in which it computes nothing."""
    assert {"$$", "%%"} >= set(re.findall(r"([$%]+)\{", text))
    plain = re.sub(r"\\U(........)", lambda match: chr(int(match[1], 16)), re.sub(r"([$%])[$%]\{", r"\1{", text))
    return str(json.loads(f'"{plain}"'))


def pieces(form: Format, text: str) -> Iterator[tuple[str, ...]]:
    """Yield the comments of an export, and its statements as (privilege, securable, principal): there is no more."""
    pattern, position = (_SQL if form == "sql" else _HCL), 0
    while position < len(text):
        match = pattern.match(text, position)
        assert match is not None, text[position:]
        position = match.end()
        if match["comment"] is not None:
            yield (match["comment"],)
        elif match["who"] is not None and form == "sql":
            path = ".".join(each.replace("``", "`") for each in re.findall(_TICKED, match["on"]))
            yield match["privilege"].replace(" ", "_"), path, match["who"].replace("``", "`")
        elif match["who"] is not None:
            yield match["privilege"], match["on"], unescaped(match["who"])


def terms(one: ReadRow) -> dict[str, str | None]:
    until = None if one.until is None else spelled_until(one.until)
    each = {"principal": one.principal, "kind": one.kind, "game": one.game, "until": until, "reason": one.reason}
    return {name: value for name, value in {**each, "ticket": one.ticket}.items() if value is not None}


@pytest.mark.parametrize("form", ["sql", "terraform"])
@given(rows=many())
@example(rows=[])
def test_an_export_says_what_its_rows_say_and_nothing_else(form: Format, rows: list[ReadRow]) -> None:
    """Whatever names and reasons hold, each row is one SELECT below its terms, each principal gets USE_* once."""
    if form == "terraform" and not composed(rows):
        with pytest.raises(Refused, match="NFC"):
            render_rows(form, rows, SCHEMA)
        return
    text = render_rows(form, rows, SCHEMA)
    _, *found = pieces(form, text)
    expected: list[tuple[str, ...]] = []
    for one in ordered(rows):
        expected += [("USE_CATALOG", "main", one.principal), ("USE_SCHEMA", "main.games", one.principal)]
    expected = sorted(set(expected))
    given = [each for each in found if len(each) == 3]
    assert expected == sorted(each for each in given if each[0] != "SELECT")
    assert [("SELECT", f"main.games.{one.key}", one.principal) for one in ordered(rows)] == given[len(expected) :]
    comments = [json.loads(each[0].removeprefix("turnout: ")) for each in found if len(each) == 1]
    assert list(map(terms, ordered(rows))) == comments
    assert text == render_rows(form, reversed(rows), SCHEMA)


@given(rows=many())
def test_no_name_ends_a_line_or_a_comment(rows: list[ReadRow]) -> None:
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
    assert '"kept": ["CREATE_TABLE"]' in text


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
    assert ordered(rows) == policy_rows(text, rows)


@pytest.mark.parametrize("change", [{"until": END_OF_2026}, {"reason": "other"}, {"ticket": "T-1"}])
def test_yaml_joins_nothing_else(change: dict[str, str]) -> None:
    """Rows that differ in one term only, of one principal or of two, come back each with its own."""
    first = row("ann", "Chess")
    for other in (row("bob", "Chess", **change), row("ann", "Go", **change)):  # type: ignore[arg-type] # fields by name
        assert policy_rows(render_yaml([first, other]), [first, other]) == ordered([first, other])


def test_everybodys_grant_makes_a_policy_that_allows_it() -> None:
    """What was read from a catalog can be exported and read again, also where everybody may read."""
    rows = [row("Account Users", "Chess", "group")]
    assert policy_rows(render_yaml(rows), rows) == rows
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
def test_rows_that_contradict_are_not_exported(form: Format, first: ReadRow, second: ReadRow) -> None:
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
    ReadRow(**whole)  # type: ignore[arg-type] # fields by name
    with pytest.raises(Refused):
        ReadRow(**(whole | change))  # type: ignore[arg-type] # likewise


def test_the_documents_sql_is_what_is_written() -> None:
    """The SQL in docs/access.md is the export of one row."""
    example, *_ = re.findall(
        r"^```sql\n([^~]*?-- turnout:.*?)^```", ACCESS.read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
    written = exchange_sql.render_sql([row("analysts", "Chess", "group", END_OF_2026, "Quarterly numbers")], SCHEMA)
    assert written.endswith(example)


def test_silver_and_gold_tables_stand_apart_from_games_in_a_policy() -> None:
    """An exported policy names silver and gold tables by their streams, and gives them again as it is read."""
    sold = ReadRow("ann", None, "silver__sold", "Chess: silver sold", None, "why", None)
    text = render_yaml([row("ann", "Chess"), sold])
    known = {"silver__sold": KnownTable("sold", key("Chess"))}
    names = {key("Chess"): "Chess"}
    found = cells(parse(text, names, known), names, known)
    assert {each.key for each in found} == {key("Chess"), "silver__sold"}
    assert "GRANT SELECT ON TABLE `main`.`games`.`silver__sold` TO `ann`;" in render_rows("sql", [sold], SCHEMA)
