"""Events of an operation's targets: the first time that something was seen stays."""

from sqlalchemy import Engine

from pipeline.store.operation_events import TargetEvent, note_events, read_events
from pipeline.store.operations import Intent, about_target, begin_step, submit

CHESS, GO = "game:chess", "game:go"


def test_an_event_is_kept_as_it_was_first_seen(engine: Engine) -> None:
    """A second look writes what is new and changes nothing; each event has the store's time."""
    own = submit(engine, Intent("move", (CHESS, GO), "ann")).operation_id
    note_events(engine, [(own, TargetEvent(CHESS, "release", "a let go"))])
    (first,) = read_events(engine, [own])[own]
    later = [
        TargetEvent(CHESS, "release", "later"),
        TargetEvent(GO, "release", "a let go"),
        TargetEvent(GO, "release", "x"),
    ]
    note_events(engine, [(own, each) for each in later])
    found = read_events(engine, [own])[own]
    assert found[0] == first
    assert first.at is not None
    assert [(each.target, each.detail) for each in found] == [(CHESS, "a let go"), (GO, "x")]
    assert read_events(engine, [own], GO) == {own: [found[1]]}
    assert read_events(engine, ["nothing"]) == {}


def test_operations_are_found_by_a_target_whether_open_or_ended(engine: Engine) -> None:
    """The newest come first, with their journals; a key that only looks alike is another game's."""
    one = submit(engine, Intent("pause", ("game:a_b",), "ann"))
    submit(engine, Intent("pause", ("game:a-b", "game:axb", "game:a_bc"), "ann"))
    begin_step(engine, one, "decide")
    ((found, journal),) = about_target(engine, "game:a_b", 5)
    assert (found.operation_id, [each.name for each in journal]) == (one.operation_id, ["decide"])
    assert about_target(engine, "game:a%", 5) == []
