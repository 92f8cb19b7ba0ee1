import pyarrow as pa

from bench import decode, envelopes, shapes
from pipeline.data.contracts.formats.json.superset import Superset
from pipeline.data.contracts.formats.supported import decoder


def test_formats_are_compared_on_the_same_values() -> None:
    """The comparison is fair: all formats have the same twenty columns, and the same values in them."""
    rows = decode.values(50)
    avro, protobuf = decode.avro_schema(), decode.protobuf_schema()
    read = decoder(avro).decode(pa.array(decode.avro_payloads(avro, rows), pa.binary()))
    other = decoder(protobuf).decode(pa.array(decode.protobuf_payloads(protobuf, rows), pa.binary()))
    assert read.batch.schema.names == other.batch.schema.names
    assert len(read.batch.schema) == 20
    same = [name for name in read.batch.schema.names if name not in {"price", "day", "items"}]
    assert read.batch.select(same).to_pylist() == other.batch.select(same).to_pylist()
    documents = decoder(decode.json_schema()).decode(pa.array(decode.json_payloads(rows), pa.binary()))
    assert sorted(documents.batch.schema.names) == sorted(read.batch.schema.names)
    same = [name for name in same if name != "replay"]
    assert documents.batch.select(same).to_pylist() == other.batch.select(same).to_pylist()
    items, others = (each.batch.column("items").to_pylist() for each in (read, other))
    assert [sorted(each) for each in items] == [sorted(each) for each in others]  # protobuf's maps have no order


def test_each_contender_opens_all_documents() -> None:
    """A contender that refuses documents would be measured at less work than the others."""
    assert {each.work() for each in envelopes.contenders(50).values()} == {50}


def test_each_contender_decodes_all_but_the_malformed() -> None:
    """A contender that refuses payloads would be measured at less work than the others."""
    counts = {name: each.work() for name, each in decode.contenders(200).items()}
    assert {name: 198 if "malformed" in name else 200 for name in counts} == counts
    report = decode.report({name: [1.0, 2.0] for name in counts})
    assert "at least 500 thousand payloads of avro" in report
    assert "at least 250 thousand payloads of json" in report
    assert "HELD: what nobody declared takes 1.000 times the CPU" in report


def test_a_flood_of_shapes_holds_little() -> None:
    """A flood costs bounded memory, as its superset is closed by the caps."""
    costs = shapes.measure(200)
    assert [each["documents"] for each in costs.values()] == [1_000, 200, 200, 200]
    superset = shapes.gathered(Superset(), shapes.flood(1_100))
    assert superset.closed
    assert superset.columns() <= 1_000
