"""The file of derived streams: read whole, or refused with every problem and its line."""

import pytest

from pipeline.base.errors import Refused
from pipeline.control.derived.definition_file import parse, render
from pipeline.data.derived.definitions import SilverDefinition, dumps, loads

FILE = """\
derived:
  - name: chess_sold
    kind: silver
    game: Chess
    type: acme.Sold
    dedupe: {within: 90m, id: order.number}
    mask: {name: drop, buyer.email: hash}
  - {name: all_2048, kind: silver, game: 2048, dedupe: {within: 1d}}
  - {name: plain, kind: silver, game: Go}
"""


def test_a_file_of_streams_is_read_and_written_back() -> None:
    """`apply` takes the file that is written of definitions, with the very same ones, as the store keeps them."""
    found = parse(FILE)
    assert found == (
        SilverDefinition(
            "chess_sold", "Chess", "acme.Sold", 5400, "order.number", (("buyer.email", "hash"), ("name", "drop"))
        ),
        SilverDefinition("all_2048", "2048", None, 86_400),
        SilverDefinition("plain", "Go"),
    )
    assert parse(render(found)) == found
    assert loads(dumps(found)) == found
    assert parse("derived: []") == ()


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{name: a, kind: gold, game: Go}", "kind must be silver"),
        ("{name: a, game: Go}", "kind is missing"),
        ("{name: ../a, kind: silver, game: Go}", "cannot name a table"),
        ("{name: a, kind: silver, game: Go, dedupe: {within: 0s}}", "within must be such as"),
        ("{name: a, kind: silver, game: Go, dedupe: {within: 32d}}", "within must be such as"),
        ("{name: a, kind: silver, game: Go, dedupe: {id: x}}", "within is missing"),
        ("{name: a, kind: silver, game: Go, mask: {x: blur}}", "a mask must be one of hash, drop"),
        ("{name: a, kind: silver, game: Go, mask: {'x..y': drop}}", "no path of a column"),
        ("{name: a, kind: silver, game: Go, masks: {x: drop}}", "is not a field of a derived stream"),
    ],
)
def test_a_stream_that_makes_no_sense_is_refused(line: str, problem: str) -> None:
    """A definition that turnout does not understand is refused, with the line where it stands."""
    with pytest.raises(Refused, match=rf"1 problem\(s\).*\n  - line 2: .*{problem}"):
        parse(f"derived:\n- {line}")


def test_all_problems_of_streams_come_at_once() -> None:
    """A person corrects a file once, not problem by problem."""
    text = """\
derived:
- {name: a, kind: silver}
- {name: a, kind: silver, game: Go}
- {name: B, kind: bronze, game: Go}
"""
    with pytest.raises(Refused) as refused:
        parse(text)
    lines = [int(each.split()[2].rstrip(":")) for each in str(refused.value).splitlines()[1:]]
    assert lines == [2, 3, 4, 4]
