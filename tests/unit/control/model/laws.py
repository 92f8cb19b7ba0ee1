"""What always holds of steering, looked at after each thing that befalls a fleet, whatever it was."""

import json
from collections import Counter
from typing import ClassVar, Final

from pipeline.control.controller import KINDS
from pipeline.store import audit
from pipeline.store.database.states import OPEN
from pipeline.store.operations import list_operations, operation
from tests.unit.control.model.seen import Row, StoreSnapshot, has_effect, let_go, look, taken_over
from tests.unit.control.model.world import GAMES, GROUPS, Fleet

STEPS: Final = {name: [step.name for step in kind.steps] for name, kind in KINDS.items()}
OPENING: Final = {*OPEN, "bogus"}
ASSIGNING: Final = {"move", "retire", "restore"}  # each makes one new assignment of each of its games


class Laws:
    """A fleet with what was seen of it before, and what hands have done to it."""

    looks: ClassVar[int] = 0  # how often all laws were looked at, by all fleets of this process

    def __init__(self) -> None:
        super().__init__()
        self.fleet = Fleet()
        self.engine = self.fleet.engine
        self.frozen: dict[str, Row] = {}  # rows that make no sense, as they are
        self.spoilt: dict[str, list[str]] = {}  # operations a hand has written into, and the games they were about
        self.edits: Counter[str] = Counter()  # assignments changed by somebody else
        self.epochs = dict.fromkeys(GAMES, 1)
        self.groups: dict[str, dict[int, set[str | None]]] = {key: {} for key in GAMES}  # by epoch
        self.wanted: dict[str, dict[int, str]] = {name: {} for name in GROUPS}  # of groups, by version
        self.decisions: dict[str, str] = dict.fromkeys(GAMES, "running")
        self.before: dict[str, tuple[str, list[str]]] = {}  # state and steps done, by operation
        self.effects: set[tuple[str, str]] = set()  # operation and step: what the step is for was there at some time
        self.made: dict[str, set[str]] = {}  # of an operation that has ended: the games it had assigned by then
        self.ended: set[str] = set()
        self.head = ""
        self.sound = True
        self.seen = self.snapshot()

    def snapshot(self) -> StoreSnapshot:
        return look(self.fleet.store, self.fleet.store_now)

    def the_laws_hold(self) -> None:
        self.sound = False
        self.seen = self.snapshot()
        self._note()
        self.never_two_owners()
        self.epochs_never_go_back()
        self.nobody_is_overwritten()
        self.no_group_is_overwritten()
        self.the_audit_log_is_whole()
        self.targets_belong_to_one_open_operation()
        self.nonsense_stands_still()
        self.steps_are_taken_in_order_and_success_is_no_claim()
        self.the_last_request_wins()
        self.sound = True
        Laws.looks += 1

    def never_two_owners(self) -> None:
        """No two processes whose leases run would write to one game, and the store says whose it is."""
        reading = [(each.group, each.reads()) for each in self.fleet.processes]
        owners = Counter(key for _, keys in reading for key in keys)
        assert not [key for key, count in owners.items() if count > 1], reading
        for name, keys in reading:
            assert all(self.seen.places[key].held_by == name for key in keys), (name, keys)

    def epochs_never_go_back(self) -> None:
        """Each change of an assignment is somebody's, and is made once; what has ended makes none any more."""
        most = Counter(dict.fromkeys(GAMES, 1)) + self.edits
        for name, row in self.seen.rows.items():
            if name in self.spoilt:
                most.update(self.spoilt[name])
            elif row.kind in ASSIGNING:
                moved = self.made.get(name, json.loads(row.preview).keys())
                nothing = str(row.outcome).startswith("Nothing") and row.state == "failed"
                nothing |= "Nothing was done" in str(row.outcome) and row.state == "cancelled"
                most.update([] if nothing else moved)
        for key, place in self.seen.places.items():
            assert self.epochs[key] <= place.epoch <= most[key], key
            assert place.epoch >= 1 + self.edits[key]
            self.epochs[key] = place.epoch

    def nobody_is_overwritten(self) -> None:
        """What assigns follows at once upon the assignment that was shown: none that came between is undone by it."""
        for name, row in self.seen.rows.items():
            if name in self.spoilt or row.kind not in ASSIGNING or not self.seen.done.get(name):
                continue
            for key, (source, *target, epoch) in json.loads(row.preview).items():
                there = self.groups[key].get(epoch + 1)
                assert self.seen.places[key].epoch > epoch
                assert row.kind != "move" or there is None or target[0] in there, (key, source, there)
                assert row.kind != "retire" or there is None or None in there, key

    def no_group_is_overwritten(self) -> None:
        """What is wanted of a group changes with its version, and an operation follows at once upon what was shown."""
        for name, version in self.seen.versions.items():
            assert self.wanted[name].setdefault(version, self.seen.desired[name]) == self.seen.desired[name], name
            assert version == max(self.wanted[name]), name
        for name, row in self.seen.rows.items():
            if name in self.spoilt or not self.seen.done.get(name):
                continue
            if row.kind in {"start", "stop"}:
                then = "running" if row.kind == "start" else "stopped"
                for group, (_, shown) in json.loads(row.preview).items():
                    assert self.seen.versions[group] > shown
                    assert self.wanted[group].get(shown + 1, then) == then, (row.kind, group)

    def the_audit_log_is_whole(self) -> None:
        """The chain holds; each operation has begun once, and has ended once if it has."""
        rows = self.seen.rows
        for row in rows.values():
            assert (row.ended_at is None) == (row.state in OPENING)
        if self.seen.head == self.head:
            return
        verdict = audit.verify(self.engine)
        assert verdict.intact, verdict.defects
        self.head = verdict.head
        still_open = {name for name, row in rows.items() if row.state in OPENING}
        assert {each.operation_id for each in verdict.unended} == still_open
        phases: dict[str | None, list[tuple[str, str | None]]] = {}
        for entry in audit.entries(self.engine):
            if entry.action in {"resume operation", "close", "cancel", "change group"}:
                continue  # what a person did at once, perhaps about an operation
            phases.setdefault(entry.operation_id, []).append((entry.phase, entry.outcome))
        for name, row in rows.items():
            ended = [] if name in still_open else [("ended", row.state)]
            assert phases.pop(name) == [("begun", None), *ended], row.kind
        assert not phases

    def targets_belong_to_one_open_operation(self) -> None:
        for name, row in self.seen.rows.items():
            theirs = {target for target, owner in self.seen.taken.items() if owner == name}
            if row.state not in OPENING:
                assert not theirs, "ended, and its targets are not free"
            elif name not in self.spoilt:
                assert theirs == set(json.loads(row.targets))
        assert set(self.seen.taken.values()) <= self.seen.rows.keys()

    def nonsense_stands_still(self) -> None:
        for name, row in self.frozen.items():
            assert self.seen.rows[name] == row
            assert operation(self.engine, name).state == "needs_human"
        if not self.spoilt:
            return
        shown = {each.operation_id: each.state for each in list_operations(self.engine)}
        for name, row in self.seen.rows.items():
            if row.state not in OPENING and name in shown:
                assert shown[name] == row.state, "it has ended and is shown as if it had not"

    def steps_are_taken_in_order_and_success_is_no_claim(self) -> None:
        """What has succeeded has taken each step, and what each step waits for was there at some time."""
        for name, row in self.seen.rows.items():
            if name in self.spoilt:
                continue
            done = self.seen.done.get(name, [])
            assert done == STEPS[row.kind][: len(done)]
            if row.state == "cancelled" and "Nothing was done" in str(row.outcome):
                assert not done, "it was cancelled before anything was done, and did it"
            if row.state == "succeeded":
                assert len(done) == len(STEPS[row.kind])
                assert row.outcome
            state, before = self.before.get(name, ("planned", []))
            for step in done[len(before) :]:
                assert step not in {"release", "acquire", "verify"} or (name, step) in self.effects, (row.kind, step)
            if row.kind == "move":
                self._is_still_so(row, set(done) - set(before), ends=row.state == "succeeded" != state)
            self.before[name] = row.state, done

    def _is_still_so(self, row: Row, new: set[str], *, ends: bool) -> None:
        """Look whether what a move's steps have just waited for is so now, but where something came after."""
        for key, (source, group, epoch) in json.loads(row.preview).items():
            place = self.seen.places[key]
            if place.epoch > epoch + 1:
                continue
            assert "release" not in new or place.held_by != source, "it has not let go"
            assert "acquire" not in new or place.held_by in {group, None}, (
                "it has not taken it"
            )  # its lease may have ended
            assert not ends or place.reported_group == group, "nobody has told of it"

    def the_last_request_wins(self) -> None:
        """A stream is as the last pause or resume that was done says; an older one changes it no more."""
        under_way: set[str] = set()
        said: dict[str, set[str]] = {key: {self.decisions[key]} for key in GAMES}
        for name, row in self.seen.rows.items():
            if name in self.spoilt:
                under_way.update(self.spoilt[name])
            elif row.kind in {"pause", "resume"} and (row.state in OPEN or name not in self.ended):
                intent = "paused" if row.kind == "pause" else "running"
                for key in json.loads(row.parameters)["games"]:
                    if row.state == "succeeded":
                        said[key] = {intent}  # it has ended just now
                    elif row.state in OPEN or not str(row.outcome).startswith("Nothing"):
                        said[key].add(intent)
            if row.state not in OPENING:
                self.ended.add(name)
        for key in set(GAMES) - under_way:
            found = self.seen.decisions.get(key, "running")
            assert found in said[key], key
            self.decisions[key] = found
        for key in under_way:
            self.decisions[key] = self.seen.decisions.get(key, "running")

    def _note(self) -> None:
        """Keep what is so now and may be asked for later."""
        for key, place in self.seen.places.items():
            self.groups[key].setdefault(place.epoch, set()).add(place.group)
        for name, row in self.seen.rows.items():
            if name in self.spoilt:
                continue
            if row.kind in ASSIGNING and row.state not in OPENING and name not in self.made:
                preview = json.loads(row.preview)
                self.made[name] = {key for key in preview if self.seen.places[key].epoch > preview[key][-1]}
            if row.state == "planned" or name in self.ended:
                continue
            if row.kind in {"move", "retire"} and let_go(row, self.seen):
                self.effects.add((name, "release"))
            if row.kind == "move" and taken_over(row, self.seen):
                self.effects.add((name, "acquire"))
            if self.seen.done.get(name) and has_effect(row, self.seen):
                self.effects.add((name, "verify"))
