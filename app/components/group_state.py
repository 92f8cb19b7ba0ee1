"""How a cluster group is, in a word: what its driver suffers first, then whether it drains or progresses. Pure.

Card, table and drawer draw the word in one colour: that of the worse of the driver and what stands of the group.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from app import formatting
from app.look.tokens import Tone
from app.state.control_queries import ControlState
from listeners.process_kinds import GROUP
from listeners.status import Status
from pipeline.api.operations import Operation, moved
from pipeline.health.headlines.standings import Severity, Situation

DRAINED, DRAINING, PROGRESSING = "○ drained", "» draining", "» progressing"
TONES: Final[Mapping[str, Tone]] = {
    **{formatting.driver_text(state): tone for state, tone in formatting.DRIVER_TONES.items()},
    DRAINED: "plain",
    DRAINING: "busy",
    PROGRESSING: "busy",
    formatting.UNKNOWN_VALUE: "plain",
}
"""The tone of each word."""

_COMING: Final = (Status.STARTING, Status.BACKFILLING, Status.CATCHING_UP)
_CALM: Final = ("running", "stopped")  # of a driver: it does what it should


@dataclass(frozen=True, slots=True)
class GroupState:
    """A word with its glyph, and what it means here; empty where the word says all."""

    word: str
    about: str = ""
    severity: Severity | None = None  # of the trouble that stands of the group; None: of none, the word has a tone

    @property
    def tone(self) -> Tone:
        """What the word's colour means."""
        return TONES[self.word] if self.severity is None else self.severity


def of(steering: ControlState, known: Situation, name: str) -> GroupState:
    """Return the state of a group; a word that sounds well has the mark of its games where trouble stands of it."""
    state = _of_driver(steering, name)
    about = next((each for each in known.of_group(name) if each.is_trouble), None)
    if about is None or (state.tone == "bad" and about.severity != "bad"):
        return state
    sounds_well = state.tone in {"well", "busy"}
    word = f"! {state.word.partition(' ')[2]}" if sounds_well else state.word
    return GroupState(word, state.about, about.severity)


def tones(states: Iterable[GroupState]) -> Mapping[str, Tone]:
    """Return the tone of each word of these states, for the cells of a table; of two of one word the worse one."""
    return {each.word: each.tone for each in sorted(states, key=lambda each: each.tone == "bad")}


def _of_driver(steering: ControlState, name: str) -> GroupState:
    """Return the state of a group: trouble of its driver hides all else."""
    state = steering.fleet.state(GROUP, name)
    driver = None if state is None else state.liveness.state
    word = formatting.UNKNOWN_VALUE if driver is None else formatting.driver_text(driver)
    if state is not None and (state.is_problem or driver not in _CALM):
        return GroupState(word, formatting.shown(state.liveness.reason or "", 160) if state.is_problem else "")
    games = sum(each.group == name and each.retired_at is None for each in steering.assignments.values())
    leaving, is_drained = _leaving(steering, name), _takes_no_games(steering, name)
    if is_drained and not games:
        return GroupState(DRAINED, "takes no games") if driver == "running" else GroupState(word, "drained")
    if is_drained and leaving:
        return GroupState(DRAINING, f"{_many(games)} left{_by(leaving)}")
    if is_drained:
        return GroupState(word, f"takes no more games, {_many(games)} {'stays' if games == 1 else 'stay'}")
    if whole := steering.busy.get(f"group:{name}"):
        return GroupState(PROGRESSING, f"{formatting.shown(whole.kind, 24)}{_by([whole])}")
    changes = [*_moves(leaving, "leave"), *_moves(_coming(steering, name), "come")]
    statuses = [row.verdict.status for row in steering.fleet.rows if row.group == name]
    counts = ((statuses.count(each), formatting.STATUS_STYLES[each].word) for each in _COMING)
    changes += [f"{_many(amount)} {word}" for amount, word in counts if amount]
    return GroupState(PROGRESSING, ", ".join(changes)) if changes and driver == "running" else GroupState(word)


def _takes_no_games(steering: ControlState, name: str) -> bool:
    """Return whether a group is set to take no more games, or an open operation sets it so."""
    group = steering.groups.get(name)
    wishes = (each.parameters.get("desired", {}).get(name) for each in _open(steering))  # each as (was, then)
    return (group is not None and group.desired == "drained") or any(each and each[-1] == "drained" for each in wishes)


def _leaving(steering: ControlState, name: str) -> list[Operation]:
    return [each for each, key, to in _assigned(steering) if to != name and steering.assignments[key].group == name]


def _coming(steering: ControlState, name: str) -> list[Operation]:
    return [each for each, key, to in _assigned(steering) if to == name and steering.assignments[key].group != name]


def _assigned(steering: ControlState) -> Iterator[tuple[Operation, str, str]]:
    """Yield each open move with a game of it, and the group where it goes."""
    for each in _open(steering):
        for key, (_, to) in moved(each).items():
            if key in steering.assignments:
                yield each, key, to


def _open(steering: ControlState) -> list[Operation]:
    open_ones = {each.operation_id: each for each in steering.busy.values()}
    return list(open_ones.values())


def _moves(moving: list[Operation], does: str) -> list[str]:
    """Say how many games move; an operation stands once for each of its games."""
    if not moving:
        return []
    return [f"{_many(len(moving))} {does if len(moving) > 1 else f'{does}s'}{_by(moving)}"]


def _by(done: list[Operation]) -> str:
    who = sorted({formatting.shown(each.actor, 40) for each in done})
    return f" by {who[0]}" if len(who) == 1 else ""


def _many(count: int) -> str:
    return f"{formatting.count(count)} {'game' if count == 1 else 'games'}"
