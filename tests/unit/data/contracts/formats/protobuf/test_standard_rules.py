"""Rules of protovalidate in a definition refuse what it refuses: `record_verdicts.py` recorded its verdicts."""

from dataclasses import replace

import pyarrow as pa
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from pipeline.data.contracts.formats.protobuf.messages import canonical
from pipeline.data.contracts.formats.protobuf.standard_rules import MOST_RULES
from pipeline.data.contracts.formats.supported import decoder, given_rules
from pipeline.data.contracts.promised import promised
from pipeline.data.contracts.schemas import PLAIN, FieldPlacement, Schema
from pipeline.data.output_contracts.masks import judge
from pipeline.data.output_contracts.rules import GivenRules, OutputContract
from pipeline.data.verify.promises import refusing
from protos.turnout.v1.standard_rules_pb2 import FieldRules, RuledOptions
from tests.unit.data.contracts.definition_world import bundle, define
from tests.unit.data.contracts.formats.protobuf.ruled_world import DEFINITION, recorded, schema_of


def test_every_verdict_is_that_of_protovalidate() -> None:
    """Rules that are translated refuse the very messages that protovalidate does, of unset and zero values, too."""
    differing, judged = [], 0
    contract = OutputContract("c", ("g",), protovalidate="quarantine")
    for schema, payloads in recorded():
        assert given_rules(schema).unchecked == ()
        decoded = decoder(schema).decode(pa.array([each for each, _ in payloads], pa.binary()))
        assert len(decoded.rows) == len(payloads)
        own = promised([contract], schema, PLAIN)
        rows = pa.Table.from_batches([decoded.batch])
        refused = judge(rows, own, None).refused
        wrong = [False] * len(payloads) if refused is None else refused.tolist()
        one_by_one = [bool(refusing(rows.slice(place, 1), None, own)) for place in range(len(payloads))]
        differing += [
            (schema.message, payload, right, *found)
            for (payload, right), *found in zip(payloads, wrong, one_by_one, strict=True)
            if found != [not right] * 2
        ]
        judged += len(payloads)
    assert (differing, judged > 700) == ([], True)


def test_the_rest_is_named_as_not_checked() -> None:
    """No rule that is not translated passes silently as checked."""
    found = given_rules(schema_of("Unchecked"))
    assert [each.name for each in found.rules] == ["protovalidate:h"]
    assert sorted(found.unchecked) == sorted(
        [
            "the message: cel",
            "the message: oneof",
            "a: cel",
            "b: gt or lt, which is outside of a range",
            "c: uri",
            "d: map of a map",
            "d.b: within a map",
            "d.c: within a map",
            "e: unique",
            "f: timestamp rules",
            "g: required, of a number with a negative zero",
            "h: min_bytes",
            "i: const",
            "j: required, of a oneof",
            "l: pattern, with a quotation or single bytes",
            "m: float rules with ignore",
            "n: gt, of a number that is not finite",
            "o: string rules",
        ]
    )


def test_a_rule_follows_its_column() -> None:
    """A column that a game's table has under another name keeps the rule of its field."""
    placement = FieldPlacement((("a", "a_2"), ("a.b", "b_2")))
    (found,) = promised([OutputContract("c", ("g",), protovalidate="stop")], schema_of("NestedRequired"), placement)
    assert [(each.column, each.action) for each in found.rules] == [
        ("a_2", "stop"),
        ("a_2.b_2", "stop"),
        ("a_2.c", "stop"),
    ]


def test_rules_of_a_definition_do_nothing_unless_a_contract_says_so() -> None:
    """A `.proto` with rules surprises nobody: without the switch no row is judged by them."""
    (found,) = promised([OutputContract("c", ("g",))], schema_of("Required"), PLAIN)
    assert found.rules == ()


def test_a_changed_rule_is_another_schema_with_the_same_columns() -> None:
    """The set of schemas that a pass pins has the rules (L5), so a definition with other rules is another one."""
    files = FileDescriptorSet.FromString(DEFINITION)
    (own,) = (each for each in files.file[-1].message_type if each.name == "Required")
    own.field[0].ClearField("options")
    one = schema_of("Required")
    two = replace(one, definition=canonical(one.message, files.SerializeToString()))
    assert one.definition != two.definition
    assert decoder(one).arrow_schema == decoder(two).arrow_schema
    assert canonical(one.message, one.definition) == one.definition
    assert (len(given_rules(one).rules), given_rules(two)) == (1, GivenRules())


def ruled(*rules: bytes) -> Schema:
    """Return a message with these rules on its fields, as bytes of their options."""
    file = define({"M": {f"f{number}": (number, "string") for number in range(1, len(rules) + 1)}})
    for field, rule in zip(file.message_type[0].field, rules, strict=True):
        field.options.MergeFromString(RuledOptions(rules=[rule]).SerializeToString())
    return Schema(1, "protobuf", "t.M", canonical("t.M", bundle(file)))


def test_rules_that_nobody_can_read_are_named() -> None:
    """Options of a later release, predefined rules and damaged bytes are never taken for checked ones."""
    later, predefined = b"\x72\x02\xa0\x06", b"\x72\x03\xc0\x3e\x01"  # string: rule 100 without a value, rule 1000
    found = given_rules(ruled(b"\xff", later + b"\x01", predefined, b"\xf8\x07\x01"))
    assert found.rules == ()
    assert found.unchecked == (
        "f1: rules that are not valid",
        "f2: rules that are not valid",
        "f3: a predefined rule",
        "f4: rule 127 of a later protovalidate",
    )


def test_rules_beyond_the_bound_are_named() -> None:
    """A definition cannot cost each row thousands of masks, and what is left out is not called checked."""
    found = given_rules(ruled(*[FieldRules(required=True).SerializeToString()] * (MOST_RULES + 1)))
    assert len(found.rules) == MOST_RULES
    assert found.unchecked == (f"f{MOST_RULES + 1}: beyond {MOST_RULES} rules",)
