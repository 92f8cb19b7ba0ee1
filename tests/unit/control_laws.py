"""What always holds of steering, looked at after each step of a fleet, whatever befell it."""

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

from sqlalchemy import Row, select

from pipeline.store import audit, decisions, seats
from pipeline.store.operations import OPEN, listed, operation
from pipeline.store.tables import audit_head, operation_steps, operation_targets
from pipeline.store.tables import operations as operations_table
from tests.unit.control_world import GAMES, Fleet

STEPS: Final = {
    "move": ["assign", "release", "take", "see"],
    "pause": ["decide", "see"],
    "resume": ["decide", "see"],
    "retry": ["decide", "see"],
}


@dataclass
class Known:
    """What was seen of an operation so far."""

    row: Row[Any]
    steps_done: list[str] = field(default_factory=list)


class Laws:
    """A fleet with what was seen of it before, and what hands have done to it."""

    def __init__(self) -> None:
        super().__init__()
        self.fleet = Fleet()
        self.engine = self.fleet.engine
        self.known: dict[str, Known] = {}
        self.frozen: dict[str, Row[Any]] = {}  # rows that make no sense, as they are
        self.spoilt: dict[str, list[str]] = {}  # operations a hand has written into, and the games they were about
        self.edits: Counter[str] = Counter()  # assignments changed by somebody else
        self.epochs = dict.fromkeys(GAMES, 1)
        self.desired: dict[str, set[str]] = {key: {"running"} for key in GAMES}
        self.ended: list[str] = []
        self.head = ""
        self.sound = True

    def the_laws_hold(self) -> None:
        self.sound = False
        self.never_two_owners()
        self.epochs_never_go_back()
        self.the_audit_log_is_whole()
        self.targets_belong_to_one_open_operation()
        self.nonsense_stands_still()
        self.steps_are_taken_in_order_and_success_is_no_claim()
        self.the_last_wish_wins()
        self.sound = True

    def never_two_owners(self) -> None:
        """No two drivers whose leases run would write to one game, and the store says who does."""
        reading = [(name, each.reads()) for name, each in self.fleet.drivers.items()]
        owners = Counter(key for _, keys in reading for key in keys)
        assert not [key for key, count in owners.items() if count > 1], reading
        there = seats.seats(self.engine)
        for name, keys in reading:
            assert all(there[key].held_by == name for key in keys), (name, keys)

    def epochs_never_go_back(self) -> None:
        """Each change of an assignment is somebody's, and is made once; what says that it moved nothing has not."""
        there = seats.seats(self.engine)
        most = Counter(dict.fromkeys(GAMES, 1)) + self.edits
        for row in self.rows().values():
            if row.operation_id in self.spoilt:
                most.update(self.spoilt[row.operation_id])
            elif row.kind == "move":
                moved = not (row.state == "failed" and str(row.outcome).startswith("Nothing"))
                most.update(dict.fromkeys(json.loads(row.parameters)["assignments"], int(moved)))
        for key, seat in there.items():
            assert self.epochs[key] <= seat.epoch <= most[key], key
            assert seat.epoch >= 1 + self.edits[key]
            self.epochs[key] = seat.epoch

    def the_audit_log_is_whole(self) -> None:
        """The chain holds; each operation has begun once, and has ended once if it has."""
        with self.engine.connect() as connection:
            head = connection.scalar(select(audit_head.c.hash))
        rows = self.rows()
        if head != self.head:
            verdict = audit.verify(self.engine)
            assert verdict.intact, verdict.defects
            self.head = verdict.head
            still_open = {name for name, row in rows.items() if row.state in {*OPEN, "bogus"}}
            assert {each.operation_id for each in verdict.unended} == still_open
            phases: dict[str | None, list[tuple[str, str | None]]] = {}
            for entry in audit.entries(self.engine):
                if entry.action in {"resume operation", "close"}:
                    continue  # what a person did about an operation
                phases.setdefault(entry.operation_id, []).append((entry.phase, entry.outcome))
                if entry.phase == "ended" and entry.operation_id not in self.ended:
                    self.ended.append(str(entry.operation_id))
                    self._note_desired(rows[str(entry.operation_id)])
            for name, row in rows.items():
                ended = [] if name in still_open else [("ended", row.state)]
                assert phases.pop(name) == [("begun", None), *ended], row.kind
            assert not phases
        for row in rows.values():
            assert (row.ended_at is None) == (row.state in {*OPEN, "bogus"})

    def targets_belong_to_one_open_operation(self) -> None:
        with self.engine.connect() as connection:
            taken = {row.target: row.operation_id for row in connection.execute(select(operation_targets))}
        rows = self.rows()
        for name, row in rows.items():
            theirs = {target for target, owner in taken.items() if owner == name}
            if row.state not in {*OPEN, "bogus"}:
                assert not theirs, "ended, and its targets are not free"
            elif name not in self.spoilt:
                assert theirs == set(json.loads(row.targets))
        assert set(taken.values()) <= rows.keys()

    def nonsense_stands_still(self) -> None:
        rows = self.rows()
        for name, row in self.frozen.items():
            assert rows[name] == row
            assert operation(self.engine, name).state == "needs_human"
        shown = {each.operation_id: each.state for each in listed(self.engine)}
        for name, row in rows.items():
            if row.state not in {*OPEN, "bogus"}:
                assert shown[name] == row.state, "it has ended and is shown as if it had not"

    def steps_are_taken_in_order_and_success_is_no_claim(self) -> None:
        """What has succeeded has taken each step; the old driver has let go where a step says so."""
        with self.engine.connect() as connection:
            rows = connection.execute(select(operation_steps).order_by(operation_steps.c.number)).all()
        there = seats.seats(self.engine)
        for name, row in self.rows().items():
            if name in self.spoilt:
                continue
            done = [each.name for each in rows if each.operation_id == name and each.state == "done"]
            assert done == STEPS[row.kind][: len(done)]
            if row.state == "succeeded":
                assert len(done) == len(STEPS[row.kind])
                assert row.outcome
            before = self.known.setdefault(name, Known(row)).steps_done
            if "release" in done and "release" not in before:
                for key, (source, _, epoch) in json.loads(row.preview).items():
                    assert there[key].epoch > epoch + 1 or there[key].held_by != source, "it has not let go"
            if "take" in done and "take" not in before:
                for key, (_, group, epoch) in json.loads(row.preview).items():
                    told = there[key].epoch > epoch + 1 or there[key].held_by in {
                        group,
                        None,
                    }  # its lease may have ended
                    assert told, "it has not taken it"
            if row.kind == "move" and row.state == "succeeded" and self.known[name].row.state != "succeeded":
                for key, (_, group, epoch) in json.loads(row.preview).items():
                    assert there[key].epoch > epoch + 1 or there[key].told_group == group, "nobody has told of it"
            self.known[name] = Known(row, done)

    def the_last_wish_wins(self) -> None:
        """A stream is as the last pause or resume said that was done, whatever an older one still tries."""
        under_way: set[str] = set()
        for row in self.rows().values():
            if row.operation_id in self.spoilt:
                under_way.update(self.spoilt[row.operation_id])
            elif row.kind in {"pause", "resume"} and row.state in OPEN:
                under_way.update(json.loads(row.parameters)["games"])
        made = decisions.decided(self.engine)
        for key in GAMES:
            found = made[key].desired if key in made else "running"
            assert key in under_way or found in self.desired[key], key

    def _note_desired(self, row: Row[Any]) -> None:
        """Keep what an operation that has ended came to for its games."""
        if row.kind not in {"pause", "resume"} or row.operation_id in self.spoilt:
            return
        said = "paused" if row.kind == "pause" else "running"
        for key in json.loads(row.parameters)["games"]:
            if row.state == "succeeded":
                self.desired[key] = {said}
            elif not str(row.outcome).startswith("Nothing"):
                self.desired[key].add(said)

    def rows(self) -> dict[str, Row[Any]]:
        with self.engine.connect() as connection:
            return {row.operation_id: row for row in connection.execute(select(operations_table))}
