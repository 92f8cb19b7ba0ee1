"""Rules of output contracts at the edge refuse what a pass would send to quarantine, and nothing else."""

import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.base.names import game_key
from pipeline.data.contracts.formats.supported import FORMATS, columns
from pipeline.data.contracts.promised import own_path, promised
from pipeline.data.contracts.registry import LocalRegistry
from pipeline.data.contracts.schemas import FieldPlacement
from pipeline.data.output_contracts.rules import ContractRule, OutputContract, dumps
from pipeline.demo.samples.supported import payload_schema
from pipeline.edge import known as known_module
from pipeline.edge.judging import Judge, Judged
from pipeline.edge.known import Knowledge, Known
from pipeline.settings.tree import load
from pipeline.store import output_contracts
from pipeline.store.database.engine import open_store
from pipeline.store.output_contracts import read_contracts
from protos.turnout.v1.wrapper_pb2 import Wrapper
from tests.unit.data.contracts.formats.malformed_world import WORLDS, mutant
from tests.unit.data.contracts.formats.protobuf.ruled_world import recorded
from tests.unit.data.contracts.formats.protobuf.ruled_world import schema_of as ruled_schema
from tests.unit.edge.edge_world import GAME, PRODUCER, known_of, payload, schema_of, wrapper
from tests.unit.edge.pass_world import promising, quarantined, rules_by_chance

RECORD_BYTES = 2 * 1024 * 1024
LOW = ContractRule("low", "round", "quarantine", max=3)


def judged(known: Known, *wrappers: bytes) -> Judged:
    judge = Judge(known, RECORD_BYTES)
    outcome, suspects = judge.glance(wrappers, PRODUCER)
    judge.settle(outcome, suspects)
    return outcome


def refused(outcome: Judged) -> Mapping[int, tuple[str, ...]]:
    return {each.row: (each.reason, each.detail, each.field) for each in outcome.refused}


def contract(*rules: ContractRule, types: tuple[str, ...] = ()) -> OutputContract:
    return OutputContract("promise", (GAME,), event_types=types, rules=rules)


def events(contents: list[bytes], draw: Random) -> list[bytes]:
    """Return wrappers, some without an id, and with times in and out of range."""
    made = []
    for content in contents:
        event = Wrapper(game=GAME, schema_id=1, payload=content, event_id=draw.choice(["", "a", "A1"]))
        if draw.random() < 0.5:
            event.event_time.seconds = draw.choice([0, 1_800_000_000, 2**60])
        made.append(event.SerializeToString())
    return made


@pytest.mark.parametrize("format_name", FORMATS)
@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_the_edge_refuses_what_a_pass_would_quarantine(format_name: str, seed: int) -> None:
    """With rules of any kind, at any path and layout, both agree on each event, to reason, sentence and field."""
    world, draw = WORLDS[format_name](seed), Random(seed)
    schema = replace(world.schema, schema_id=1)
    own = columns(schema)
    first = next((each for each in own.names if "." not in each), None)
    names = ((first, "moved"),) if first is not None and draw.random() < 0.3 else ()
    placement = FieldPlacement(names, struct=draw.choice([None, None, "t_M"]) if own.names else None)
    rules = rules_by_chance(own, draw)
    if names:
        rules += (ContractRule("moved", "moved", "quarantine", required=True),)
    known = promising(known_of(schema, placement=placement), contract(*rules))
    wrappers = events([*(world.whole() for _ in range(5)), *(mutant(world, draw).content for _ in range(4))], draw)
    with TemporaryDirectory() as folder:
        assert quarantined(known.schemas, wrappers, Path(folder)) == refused(judged(known, *wrappers)), rules


def test_a_refusal_names_the_field_and_the_rules() -> None:
    """A producer learns the reason code, the field as its schema has it, and the rules, without any value."""
    placement = FieldPlacement((("board", "board_2"), ("board.width", "across")))
    wide = ContractRule("wide", "board_2.across", "quarantine", max=0)
    moves = ContractRule("moves", "moves[]", "quarantine", max=0)
    named = ContractRule("named", "_event_id", "quarantine", required=True)
    known = promising(known_of(schema_of(), placement=placement), contract(wide, moves), contract(named))
    outcome = judged(known, wrapper(), wrapper(event_id=""))
    assert [(each.reason, each.field, each.rules) for each in outcome.refused] == [
        ("contract", "payload.board.width", ("promise/wide", "promise/moves")),
        ("contract", "payload.board.width", ("promise/wide", "promise/moves", "promise/named")),
    ]
    sentences = outcome.refused[0].detail.split("; ")
    assert sentences == ["breaks the output contract promise/wide", "breaks the output contract promise/moves"]
    (only,) = judged(promising(known_of(schema_of()), contract(named)), wrapper(event_id="")).refused
    assert (only.field, only.event_id) == ("event_id", "")


def test_warnings_and_stops_refuse_nothing() -> None:
    """A pass lands a row that breaks a warning and waits before a stop, so the edge passes both on."""
    events = [wrapper(payload(number)) for number in range(1, 6)]
    for action in ("warn", "stop"):
        known = promising(known_of(schema_of()), contract(replace(LOW, action=action)))
        assert judged(known, *events).rows == [0, 1, 2, 3, 4]
    stop = ContractRule("stop", "round", "stop", max=4)
    assert judged(promising(known_of(schema_of()), contract(LOW, stop)), *events).rows == [0, 1, 2, 4]


def test_no_rule_judges_the_time_of_the_log() -> None:
    """An event gets the log's time later: such a rule refuses nothing, and where it may stop a stream no rule does."""
    late = ContractRule("late", "_source_time", "quarantine", required=True)
    stop = replace(late, action="stop")
    assert judged(promising(known_of(schema_of()), contract(late)), wrapper()).refused == []
    assert len(judged(promising(known_of(schema_of()), contract(late, LOW)), wrapper(payload(9))).refused) == 1
    assert judged(promising(known_of(schema_of()), contract(stop, LOW)), wrapper(payload(9))).refused == []


def test_a_rule_that_cannot_be_judged_refuses_nothing() -> None:
    """A pass fails on such a rule and lets its game wait, so the edge passes the game's events on."""
    odd = ContractRule("odd", "player_id", "quarantine", pattern="(")
    assert judged(promising(known_of(schema_of()), contract(odd)), wrapper()).rows == [0]


def test_rules_of_protovalidate_refuse_what_it_refuses() -> None:
    """Each recorded verdict of protovalidate is the edge's, too, where the contract's switch is quarantine."""
    judged_rows = 0
    for schema, payloads in recorded():
        events = [wrapper(content) for content, _ in payloads]
        known = known_of(schema)
        switched = promising(known, OutputContract("own", (GAME,), protovalidate="quarantine"))
        wrong = [row for row, (content, right) in enumerate(payloads) if not right or not content]
        assert [each.row for each in judged(switched, *events).refused] == wrong
        warned = promising(known, OutputContract("own", (GAME,), protovalidate="warn"))
        assert {each.reason for each in judged(warned, *events).refused} <= {"empty_payload"}
        judged_rows += len(events)
    assert judged_rows > 700


def test_only_games_with_such_rules_pay_for_them() -> None:
    """Payloads of a game without rules that refuse are judged at a glance; with them each schema is decoded once."""
    warned = promising(known_of(schema_of()), contract(replace(LOW, action="warn")))
    _, suspects = Judge(warned, RECORD_BYTES).glance([wrapper()], PRODUCER)
    assert not suspects
    schemas = [schema_of(schema_id=1), schema_of("avro", 2)]
    known = promising(known_of(*schemas), contract(LOW))
    calls = [wrapper(payload(9, each.format), schema_id=each.schema_id) for each in schemas for _ in range(5)]
    judge = Judge(known, RECORD_BYTES)
    outcome, suspects = judge.glance(calls, PRODUCER)
    assert sorted(map(len, suspects.values())) == [5, 5]
    judge.settle(outcome, suspects)
    assert len(outcome.refused) == 10


def test_games_of_one_schema_keep_their_own_rules() -> None:
    """Payloads of several games are decoded together, and each event is judged by its own game's rules alone."""
    schema, other = schema_of(), game_key("Go")
    known = promising(known_of(schema), contract(LOW))
    high = OutputContract("high", ("Go",), rules=(replace(LOW, name="high", max=6),))
    games = {**known.schemas.games, other: (1,)}
    set_ = replace(known.schemas, games=games, contracts={**known.schemas.contracts, other: (high,)})
    judge = Judge(replace(known, schemas=set_), RECORD_BYTES)
    events = [wrapper(payload(number), game=game) for number in (1, 5, 9) for game in ("Go", GAME)]
    outcome, suspects = judge.glance(events, replace(PRODUCER, games=(GAME, "Go")))
    judge.settle(outcome, suspects)
    assert [(each.row, *each.rules) for each in outcome.refused] == [
        (3, "promise/low"), (4, "high/high"), (5, "promise/low"),
    ]  # fmt: skip


def test_a_rule_is_for_its_event_types_only() -> None:
    """Rules of another event type refuse nothing of this one."""
    last = schema_of().message.rpartition(".")[2]
    for name, rows in {"acme.Sold": [0], last: []}.items():
        known = promising(known_of(schema_of()), contract(LOW, types=(name,)))
        assert judged(known, wrapper(payload(9))).rows == rows


def test_an_edge_learns_a_new_contract(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A running edge refuses by a contract from the next look at the store on, and not before it is in force."""
    monkeypatch.setattr(known_module, "REFRESH_SECONDS", 0.01)
    settings_, paths = load(tmp_path, {})
    engine = open_store(settings_, paths)
    LocalRegistry(engine, paths.bronze).register(GAME, *payload_schema("puzzle", 3))
    knowledge = Knowledge(engine, paths.bronze, refuses_unknown=False)
    assert judged(knowledge.now, wrapper(payload(9))).rows == [0]
    output_contracts.apply(engine, dumps([contract(LOW)]), read_contracts(engine).number, "ann", "a test")
    learnt = threading.Event()
    knowledge.start(lambda known: learnt.set() if known.schemas.contracts else None)
    assert learnt.wait(20)
    knowledge.stop()
    assert [each.rules for each in judged(knowledge.now, wrapper(payload(9))).refused] == [("promise/low",)]
    engine.dispose()


def test_a_field_is_where_its_definition_has_it() -> None:
    """A path in the table leads back to the field of the payload, through renamed columns, members and lists."""
    placement = FieldPlacement((("a", "a_2"), ("a.b", "b_2"), ("c", "a")))
    for own, placed in {"a": "a_2", "a.b": "a_2.b_2", "a[].b[]": "a_2[].b_2[]", "c": "a", "d.e": "d.e"}.items():
        assert own_path(placed, placement) == own
    (found,) = promised([OutputContract("c", (GAME,), protovalidate="stop")], ruled_schema("NestedRequired"),
                        FieldPlacement((("a", "a_2"), ("a.b", "b_2"))))  # fmt: skip
    assert [own_path(each.column, placement) for each in found.rules] == ["a", "a.b", "a.c"]
