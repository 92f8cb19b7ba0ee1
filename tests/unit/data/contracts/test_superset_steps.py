"""Steps of supersets: the columns that each one added, and the choices of people."""

from pipeline.data.contracts.catalogue.differences import changes, text_diff
from pipeline.data.contracts.catalogue.superset_steps import superset_steps
from pipeline.data.contracts.formats.json.choices import chosen
from pipeline.data.contracts.formats.json.gathering import gathered
from pipeline.data.contracts.formats.json.names import UNDECLARED
from pipeline.data.contracts.formats.json.stored_supersets import dumps
from pipeline.data.contracts.formats.json.superset import ANY, Superset
from pipeline.data.contracts.schemas import Schema


def schema(number: int, superset: Superset) -> Schema:
    return Schema(number, UNDECLARED, "move", dumps(superset))


def test_a_superset_s_steps_are_its_new_columns() -> None:
    """A side column is an addition beside the first one, never a change that quarantines rows."""
    first = gathered(Superset(), [b'{"rating":1,"at":{"x":[1]}}'])
    second = gathered(first, [b'{"rating":"high"}', b'{"7":1}'])
    steps = changes(schema(1, first), schema(2, second))
    assert [(each.path, each.policy, each.column, each.type) for each in steps] == [
        ("rating", "add", "rating__v2", "string"), ("move", "add", "__other__", "string")
    ]  # fmt: skip
    assert not any(each.breaks for each in steps)
    third = gathered(second, [b'{"at":{"y":{"7":1.5}}}'])
    (inside,) = superset_steps(second, third, "move")
    assert (inside.path, inside.column, inside.type) == ("at.y", "at.y", "map of double")
    lines = [each.text for each in text_diff(schema(1, first), schema(2, second)) if each.mark == "+"]
    assert "  rating (column 2): string, optional" in lines


def test_choices_are_steps() -> None:
    """A version by which a person chose says what they chose."""
    first = gathered(Superset(), [b'{"x":1}'])
    pinned, refused = chosen(first, ("pin",)), chosen(first, ("refuse", "ab", "shape/1\nx:whole"))
    assert [str(each) for each in superset_steps(first, pinned, "move")] == ["move: is pinned"]
    assert [str(each) for each in superset_steps(pinned, chosen(pinned, ("unpin",)), "move")] == ["move: grows again"]
    assert [str(each) for each in superset_steps(first, refused, "move")] == ["move: variation ab is refused"]
    (again,) = superset_steps(refused, chosen(refused, ("allow", "ab")), "move")
    assert str(again) == "move: variation ab is allowed again"


def test_a_merge_says_where_the_values_come_from() -> None:
    """A merged column is no new one: its rows follow by the rebuild, and readers must know of it."""
    first = gathered(gathered(Superset(), [b'{"x":1}']), [b'{"x":"a"}'])
    (step,) = superset_steps(first, chosen(first, ("merge", "x", ANY)), "move")
    assert (step.column, step.type, step.policy, step.old_rows) == ("x", "string", "merge", "follow by the rebuild")
    assert (str(step), step.breaks) == ("x: its values come from x, x__v2", True)
