"""Supersets: the columns of documents that nobody declared."""

import itertools
from contextlib import suppress

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipeline.data.contracts.columns import merge
from pipeline.data.contracts.declared_types import without_older
from pipeline.data.contracts.formats.json.caps import Caps, caps_of
from pipeline.data.contracts.formats.json.columns import suffix
from pipeline.data.contracts.formats.json.definitions import MAX_DEFINITION_BYTES
from pipeline.data.contracts.formats.json.gathering import Gathering, gathered
from pipeline.data.contracts.formats.json.growth import as_of
from pipeline.data.contracts.formats.json.names import UNDECLARED
from pipeline.data.contracts.formats.json.scalar import Misfit, parsed
from pipeline.data.contracts.formats.json.shapes import facts
from pipeline.data.contracts.formats.json.splitting import NotCovered, split, written_again
from pipeline.data.contracts.formats.json.stored_supersets import dumps, loads, version_of
from pipeline.data.contracts.formats.json.superset import OTHER, Superset, lines
from pipeline.data.contracts.formats.json.undeclared import UndeclaredDecoder, declared_schema
from pipeline.data.contracts.schemas import FieldPlacement, Schema
from pipeline.data.contracts.shape import placed_columns, table_schema
from pipeline.settings.undeclared import Undeclared
from tests.unit.data.contracts.formats.json.document_world import DOCUMENTS, binary, decoder_of, is_whole, leaves

_CUT = st.lists(st.lists(DOCUMENTS, min_size=1, max_size=4), min_size=1, max_size=4)
_KINDS = (
    "1", "9007199254740993", "9223372036854775808", "2.5", "0.12345678901234567890", "true", '"x"', '{"b":1}',
    '{"77":1}', "[1]", "[2.5]", '[1,"a"]', '[{"b":1}]',
)  # fmt: skip


def _after_each_other() -> list[list[bytes]]:
    """Return two ranges in which each kind of values follows each other one, at the top and inside of an object."""
    pairs = list(itertools.permutations(_KINDS, 2))
    ranges = []
    for place in (0, 1):
        members = ",".join(f'"k{number}":{pair[place]}' for number, pair in enumerate(pairs))
        ranges.append([f"{{{members}}}".encode(), f'{{"in":{{{members}}}}}'.encode()])
    return ranges


def _columns(superset: Superset) -> list[str]:
    return [line.rsplit(" ", 2)[0] for line in lines(superset)]


def _types(superset: Superset) -> dict[str, pa.DataType]:
    """Return the type of each column of a superset by its path; of structs those of their members."""
    schema = Schema(1, UNDECLARED, "move", dumps(superset))
    columns = placed_columns(schema, FieldPlacement(superset.column_names()))
    waiting, found = [(each.name, each.type) for each in columns], dict[str, pa.DataType]()
    while waiting:
        path, kind = waiting.pop()
        if pa.types.is_struct(kind):
            waiting += [(f"{path}.{each.name}", each.type) for each in kind.fields]
        elif pa.types.is_list(kind):
            waiting.append((f"{path}[]", kind.value_type))
        elif pa.types.is_map(kind):
            waiting.append((f"{path}{{}}", kind.item_type))
        else:
            found[path] = kind
    return found


def _grown(ranges: list[list[bytes]]) -> list[Superset]:
    """Return the supersets after each range, the empty one first; a range is gathered until all of it is covered."""
    found = [Superset()]
    for each in ranges:
        for _ in range(4):
            found.append(gathered(found[-1], each))
            if found[-1] is found[-2]:
                break
        else:
            raise AssertionError("a range is still not covered")
    return found


def test_a_whole_number_is_nothing_new_in_a_column_of_doubles() -> None:
    """A double column takes whole numbers, and a fraction among a field's first documents makes it one."""
    superset = gathered(Superset(), [b'{"a":1}', b'{"a":2.5}'])
    assert _columns(superset) == ["'a' double a"]
    assert superset is gathered(superset, [b'{"a":3}'])


def test_other_kinds_under_a_name_open_side_columns() -> None:
    """A column keeps its name and type for good."""
    found = _grown([[b'{"id":1}'], [b'{"id":"x"}'], [b'{"id":2.5}', b'{"id":9223372036854775808}']])[-1]
    expected = ["'id' long id", "'id' text id__v2", "'id' double id__v3", "'id' digits id__v4"]
    assert expected == _columns(found)
    documents = [b'{"id":1}', b'{"id":"1"}', b'{"id":1.0}', b'{"id":9223372036854775808}', b'{"id":9007199254740993}']
    batch = decoder_of(found).decode(binary([written_again(found, each) for each in documents])).batch
    values = [[value for value in row.values() if value is not None] for row in batch.to_pylist()]
    assert values == [[1], ["1"], [1.0], ["9223372036854775808"], [9007199254740993]]


def test_a_number_that_a_double_rounds_lands_as_text() -> None:
    """No digit is lost."""
    superset = gathered(Superset(), [b'{"a":2.5}', b'{"a":9007199254740993}', b'{"a":0.12345678901234567890}'])
    assert _columns(superset) == ["'a' double a", "'a' digits a__v2"]
    assert split(superset, b'{"a":9007199254740993}') == {"a\x7f2": "9007199254740993"}
    assert split(superset, b'{"a":0.12345678901234567890}') == {"a\x7f2": "0.12345678901234567890"}


def test_a_struct_stays_one() -> None:
    """Ids and keys beyond 300 land in a map beside a struct."""
    many = ",".join(f'"k{each}":1' for each in range(299))
    documents = [[b'{"a":{"x":1}}'], [f'{{"a":{{{many}}}}}'.encode()], [b'{"a":{"y":1,"4711":1}}']]
    found = _grown(documents)[-1]
    assert split(found, b'{"a":{"x":1,"y":1,"4711":1}}') == {"a": {"x": "1"}, "a\x7f2": {"y": "1", "4711": "1"}}
    assert found.columns() == 301


def test_maps_of_unlike_values_are_split_by_entries() -> None:
    """A map has values of one type; the others are in a map beside it."""
    superset = gathered(Superset(), [b'{"a":{"1":1,"2":"x","3":null}}'])
    assert _columns(superset) == ["'a' {}text a", "'a' {}long a__v2"]
    assert split(superset, b'{"a":{"1":1,"2":"x","3":null}}') == {"a": {"2": "x"}, "a\x7f2": {"1": "1"}}


def test_names_are_those_of_columns() -> None:
    """Keys differ by case, look like columns of turnout's own, or like a side column: none takes another one's name."""
    found = _grown([[b'{"a":1}'], [b'{"A":1,"_seq":1,"a__v2":1,"b.c":1}'], [b'{"a":"x"}']])[-1]
    names = [line.split(" ")[2].lower() for line in lines(found)]
    assert len(names) == len(set(names))
    assert {"a", "a__v2", "a__v3"} < set(names)
    assert not any(name.startswith("_") for name in names)


@settings(max_examples=50)
@given(st.lists(DOCUMENTS, max_size=5).flatmap(lambda each: st.tuples(st.just(each), st.permutations(each))))
def test_a_range_is_a_set_of_documents(both: tuple[list[bytes], list[bytes]]) -> None:
    """The next superset does not depend on the order of a range's documents, nor on how often each is read."""
    one, other = both
    assert list(lines(gathered(Superset(), one))) == list(lines(gathered(Superset(), [*other, *other])))


@settings(max_examples=20)
@example(_after_each_other())
@given(_CUT)
def test_columns_never_change(ranges: list[list[bytes]]) -> None:
    """Whatever comes, a column keeps its path, name, kind, type and the number of the superset that opened it."""
    found = _grown(ranges)
    for before, after in itertools.pairwise(found):
        assert {line.rsplit(" ", 1)[0] for line in lines(before)} <= {line.rsplit(" ", 1)[0] for line in lines(after)}
        assert _types(before).items() <= _types(after).items()


@settings(max_examples=25)
@given(_CUT)
def test_a_superset_holds_its_history(ranges: list[list[bytes]]) -> None:
    """Which superset covered a row first is known from the newest one."""
    found = _grown(ranges)
    assert [as_of(found[-1], each.version) for each in found] == found


@settings(max_examples=25)
@given(_CUT)
def test_a_value_never_moves(ranges: list[list[bytes]]) -> None:
    """A document lands alike under every superset that covers it, so the table does not depend on when it was read."""
    found = _grown(ranges)
    for document in (each for documents in ranges for each in documents):
        places = []
        for superset in found:
            with suppress(NotCovered):
                places.append(split(superset, document))
        assert places
        assert all(each == places[0] for each in places)


@settings(max_examples=25)
@given(_CUT)
def test_covered_is_what_can_be_split(ranges: list[list[bytes]]) -> None:
    """Decoding lands exactly the documents that detection calls known."""
    found = _grown(ranges)
    for document in (each for documents in ranges for each in documents):
        for superset in found:
            covered = not superset.beyond(parsed(document), len(document))
            try:
                split(superset, document)
            except NotCovered:
                assert not covered
            else:
                assert covered


@settings(max_examples=25)
@given(_CUT)
def test_no_value_is_lost(ranges: list[list[bytes]]) -> None:
    """Each value of a document lands, as it was written, and the existing decoder takes what is written again."""
    found = _grown(ranges)[-1]
    documents = [each for documents in ranges for each in documents]
    for document in documents:
        parts = split(found, document)
        if not is_whole(parts):
            assert leaves(parsed(document)) == leaves(parts)
    if not found.columns() and not found.other:
        return
    again = [written_again(found, each) for each in documents]
    decoder = decoder_of(found)
    batch = decoder.decode(binary(again))
    assert batch.refused == []
    single = [decoder.decode(binary([each])).batch.to_pylist()[0] for each in again]
    assert single == batch.batch.to_pylist()


def test_a_full_superset_closes_for_good() -> None:
    """Beyond the cap documents land whole, and what landed in columns still does."""
    gathering = Gathering(Superset(caps=Caps(columns=3)))
    documents = [b'{"a":1}', b'{"b":1,"c":1}', b'{"d":1}', b'{"a":2}']
    assert [gathering.add(each) is not None for each in documents] == [True, True, False, False]
    closed = gathering.superset()
    assert closed.closed
    assert closed is gathered(closed, [b'{"e":1}'])
    assert split(closed, b'{"d":1}') == {OTHER: '{"d":1}'}
    assert split(closed, b'{"a":2}') == {"a": "2"}


def test_a_superset_ends_at_its_type_s_variations() -> None:
    """The cap counts the variations of all registrations of a type, not of one range."""
    begun = gathered(Superset(caps=Caps(variations=2)), [b'{"a":1}'])
    assert not begun.closed
    full = gathered(loads(dumps(begun)), [b'{"b":1}', b'{"c":1}'])
    assert full.closed
    assert [column.split()[0] for column in _columns(full)] == ["'a'", "'b'"]


def test_a_superset_keeps_its_caps() -> None:
    """Size and depth of a document decide whether it lands, so they are kept with the superset."""
    assert caps_of(Undeclared()) == Caps()
    small = Superset(caps=caps_of(Undeclared(most_bytes=20, most_levels=2)))
    documents = [b'{"a":[1]}', b'{"b":[[1]]}', b'{"c":"01234567890123"}']
    superset = loads(dumps(gathered(small, documents)))
    assert superset.caps == small.caps
    assert _columns(superset) == ["'a' []long a"]
    for refused in documents[1:]:
        with pytest.raises(Misfit):
            split(superset, refused)
    decoded = UndeclaredDecoder(superset).decode(binary(documents))
    assert [each.reason for each in decoded.refused] == ["malformed_payload"] * 2


def test_a_document_that_is_too_wide_alone_closes_nothing() -> None:
    """One hostile document takes no column from the others."""
    wide = ("{" + ",".join(f'"k{each}":1' for each in range(1001)) + "}").encode()
    superset = gathered(Superset(), [wide, b'{"a":1}'])
    assert not superset.closed
    assert _columns(superset) == ["'a' long a"]
    assert is_whole(split(superset, wide))
    with pytest.raises(NotCovered):
        split(gathered(Superset(), [b'{"a":1}']), wide)


def test_keys_whose_names_collide_close_the_superset() -> None:
    """Two keys that were chosen for one hash make no table with two columns of one name."""
    seen: dict[str, str] = {}
    for number in range(20_000):
        key = "".join(chr(0x4E00 + part) for part in divmod(number, 150))
        if (twin := seen.setdefault(suffix(key), key)) != key:
            break
    superset = gathered(Superset(), [f'{{"a":1,"{key}":1}}'.encode(), f'{{"{twin}":1}}'.encode()])
    assert superset.closed
    assert superset.columns() == 0
    assert is_whole(split(superset, f'{{"{key}":1}}'.encode()))


def test_few_values_in_many_objects_are_bounded() -> None:
    """A superset's declared schema stays small, also where each column lies in objects of its own."""
    gathering = Gathering(Superset())
    for number in range(400):
        path = [f"{number}{'x' * 99}{level}" for level in range(25)]
        gathering.add("".join([*(f'{{"{key}":' for key in path), "1", "}" * 25]).encode())
    assert gathering.closed
    assert len(declared_schema("T", gathering.superset()).definition) < MAX_DEFINITION_BYTES
    many = ",".join(f'"{number}k":{{"{"x" * 200}":{{"{"y" * 200}":1}}}}' for number in range(900))
    alone = f"{{{many}}}".encode()
    assert not gathered(Superset(), [alone]).closed
    assert is_whole(split(gathered(Superset(), [alone]), alone))


def test_a_flood_of_shapes_is_bounded() -> None:
    """Random keys cost bounded memory; the columns that were first stay."""
    gathering = Gathering(Superset())
    for number in range(3000):
        gathering.add(f'{{"a":1,"k{number}x":1}}'.encode())
    assert gathering.closed
    assert len(list(facts(gathering.new))) == gathering.superset().columns() == 1000
    assert split(gathering.superset(), b'{"a":1}') == {"a": "1"}


@pytest.mark.parametrize(
    "document", [b"", b"[]", b"null", b"{", b'{"a":NaN}', b'{"a":1,"a":2}', b'{"a":"\\ud800"}', b'{"\\ud800":1}',
                 b'{"a":{"7":"\\ud800"}}', b"\xff", b'{"a":' + b"[" * 10_000, b'{"a":' + b"[" * 33 + b"]" * 33 + b"}"]
)  # fmt: skip
def test_a_bad_document_adds_nothing(document: bytes) -> None:
    """A bad document opens no column; its row goes to quarantine."""
    gathering = Gathering(Superset())
    assert gathering.add(document) is None
    assert gathering.known is gathering.superset()
    with pytest.raises(Misfit):
        split(gathered(Superset(), [b'{"a":1}']), document)


def test_ids_stand_in_no_superset() -> None:
    """No player's id is a column."""
    secret = "a81bc81b-dead-4e5d-abff-90865d1e13b1"
    superset = gathered(Superset(), [f'{{"a":{{"{secret}":{{"{secret}":"s"}}}},"{secret}":1}}'.encode()])
    assert not any(secret in line for line in lines(superset))


def test_a_new_column_takes_no_name_of_another_event_type() -> None:
    """A column of the table belongs to one event type; a column's name is free inside of a struct."""
    gathering = Gathering(Superset(), taken=frozenset({"sold", "a"}))
    gathering.add(b'{"Sold":1,"in":{"sold":2},"A":3}')
    names = [line.split()[-3] for line in lines(gathering.superset())]
    assert names == [f"A__{suffix('A')}", f"Sold__{suffix('Sold')}", "in", "in.sold"]


def test_the_columns_of_a_table_need_the_newest_superset_alone() -> None:
    """A table of a type with many registrations has its columns at once: the newest superset holds all."""
    superset, placed = Superset(), list[tuple[Schema, FieldPlacement]]()
    for version in range(1, 60):
        superset = gathered(superset, [f'{{"k{version}":{version % 2 or 2.5},"x":"a"}}'.encode()])
        schema = Schema(version, UNDECLARED, "move", dumps(superset))
        assert version_of(schema.definition) == version
        placed.append((schema, FieldPlacement(superset.column_names())))
    declared = Schema(60, "json", "move", declared_schema("move", gathered(Superset(), [b'{"y":true}'])).definition)
    kept = without_older([*placed, (declared, FieldPlacement())])
    assert [each.schema_id for each, _ in kept] == [59, 60]
    each_one = merged([placed_columns(*each) for each in placed])
    assert sorted(table_schema(placed), key=str) == sorted(each_one, key=str)


def merged(every: list[pa.Schema]) -> pa.Schema:
    found = every[0]
    for each in every[1:]:
        found = merge(found, each)
    return found
