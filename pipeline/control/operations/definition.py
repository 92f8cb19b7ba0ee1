"""What every kind of operation says of itself: who may submit it, what it disturbs, when it is possible, its steps.

Each module of this room defines its kinds; `registry` finds them. Commands, pages, the gate and the executor know of a
kind only what stands here.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeAlias, TypeVar

from sqlalchemy import Engine

from pipeline.control.operations.background_tasks import BackgroundTasks
from pipeline.control.operations.facts import GameFacts, GroupFacts
from pipeline.control.roles import Role
from pipeline.settings.tree import Paths, Settings
from pipeline.store.database.states import OperationKind
from pipeline.store.operation_events import TargetEvent
from pipeline.store.operations import Intent, Operation

if TYPE_CHECKING:
    from pipeline.data.contracts.registry import LocalRegistry

T = TypeVar("T")
Facts = TypeVar("Facts")
Act: TypeAlias = Callable[["ControlContext", Operation], "StepResult"]
Level = Literal[1, 2, 3]
"""How much an operation disturbs: 1 one game, gently; 2 one game; 3 several games, or more than games."""

UNDO: Final = "turnout ops undo"
RETIRED: Final = "It is retired: no group carries it until it is restored."
CHANGED: Final = "Nothing was done: it has changed since you looked. Review it and try again."
"""Outcome of an operation whose facts are no longer those that its preview showed."""

WAIT: Final = "Wait for it, or see `turnout ops list`."


@dataclass(frozen=True, slots=True)
class StepResult:
    """How a step stands, in one sentence."""

    state: Literal["done", "waiting", "failed"]
    message: str
    seen: Sequence[TargetEvent] = ()  # of single targets, also of steps to come


@dataclass(frozen=True, slots=True)
class ControlContext:
    """What steps act on."""

    settings: Settings
    engine: Engine
    paths: Paths
    background_tasks: BackgroundTasks = field(default_factory=BackgroundTasks)  # what takes longer than a tick may
    seen: dict[str, tuple[float, float | None]] = field(default_factory=dict)
    """The first lag (when, seconds) this process has seen of an operation it waits for: only for estimates."""
    turns: dict[str, int] = field(default_factory=dict)  # when this process last looked at an open operation, counted
    shared: dict[Any, Any] | None = None  # what was read for several operations; None: each reads for itself

    @property
    def registry(self) -> "LocalRegistry":
        """The schemas of all games, as they are now."""
        from pipeline.data.contracts.registry import LocalRegistry  # formats' libraries come with it

        return LocalRegistry(self.engine, self.paths.bronze)

    def read(self, query: Callable[[Engine], T]) -> T:
        """Return what a query finds; several operations that are only looked at share one answer."""
        if self.shared is None:
            return query(self.engine)
        if query not in self.shared:
            self.shared[query] = query(self.engine)
        answer: T = self.shared[query]
        return answer


@dataclass(frozen=True, slots=True)
class StepDefinition:
    """One step of a kind of operation."""

    name: str
    act: Act
    seconds: float  # its longest wait before a person is asked, without a `patience`
    verifies: bool = False  # it only looks whether what was done has its effect
    looks: bool = False  # it changes nothing and reads by `ControlContext.read`
    reports: bool = False  # its last message stands in the outcome
    seen: Act | None = None  # changes nothing and tells whether its effect is there, where `act` does more than look
    idle: Act | None = None  # changes nothing and waits while `act` has nothing to do: its work runs, or rests
    patience: Callable[[ControlContext, Operation], float] | None = None  # how long it may wait, by what it is about

    def limit(self, context: ControlContext, operation: Operation) -> float:
        """Return for how many seconds it may wait before a person has to look."""
        return self.seconds if self.patience is None else self.patience(context, operation)


@dataclass(frozen=True, slots=True)
class Offer(Generic[Facts]):
    """What can be done with one game or one group, as cards of a page and `turnout repair actions` offer it."""

    obstacle: Callable[[Facts], str | None]  # why it is not possible now, in one sentence
    touches: str | Callable[[Facts], str]  # what it does, in one sentence
    instead: tuple[str, ...] = ()  # offers that may help where it is not possible, the nearest first
    name: str = ""  # where it is not called as its kind
    of_retired: bool = False  # it is for retired games, the others are not
    repairs: bool = False  # it belongs to the menu of repairs; an open operation on the group is in its way, too
    needs_driver: bool = False  # it is decided at once, and done when the group's driver runs
    chooses_group: bool = False  # a person names the other group
    is_of_its_group: bool = False  # it is offered for a game, and done to the game's group


@dataclass(frozen=True, slots=True)
class Change:
    """What an operation changes of one game or group."""

    target: str  # game:KEY or group:NAME
    was: str
    then: str
    note: str = ""  # what else is to know of it, such as how long it takes


@dataclass(frozen=True, slots=True)
class OperationProposal:
    """An operation that may be submitted; without targets it would change nothing."""

    intent: Intent
    lines: Sequence[str]
    left_out: Sequence[str] = ()  # what is not done of what was wanted, and why not: a line for each game
    best_effort: bool = False  # nobody has named games, so what is left out is no failure
    changes: Sequence[Change] = ()  # where planning knows more of them than `OperationDefinition.changes`
    amount: str | None = None  # of what is acted on, such as "7,980 rows"; None: games or groups are counted

    def unchanged(self, names: Sequence[str]) -> list[str]:
        """Return those of these games or groups that it would not touch, since they are as they should be."""
        touched = {target.partition(":")[2] for target in self.intent.targets}
        return sorted(set(names) - touched)


Propose: TypeAlias = Callable[[Engine, Sequence[str], str, str, str | None], OperationProposal]
"""Plans an operation on games or groups (keys or names) for an actor with a reason; last, what it is the inverse of."""


@dataclass(frozen=True, slots=True)
class OperationDefinition:
    """One kind of operation."""

    kind: OperationKind
    role: Role  # who may submit it, and resume, close or cancel it
    weigh: Callable[[Intent], Level]  # it decides what a person must enter before it is submitted
    steps: tuple[StepDefinition, ...] = ()
    facts: Callable[[ControlContext, Operation], Mapping[str, Any]] = lambda _, operation: operation.preview
    """What its preview was about, as it is now."""
    done: Callable[[Operation], str] = lambda operation: f"{operation.kind} is done."  # the outcome of success
    inverse: OperationKind | None = None  # what undoes it; None: nothing does
    undone_by: str = UNDO  # the command that undoes it
    propose: Propose | None = None  # None: it has a planner of its own
    unchanged: str = "is already in that state"  # what is said of a game or group of which it would change nothing
    of_game: Offer[GameFacts] | None = None
    of_group: Offer[GroupFacts] | None = None
    verb: Callable[[Intent], str] = lambda intent: intent.kind  # what people call it
    about: Callable[[Intent], tuple[str, ...]] = lambda intent: intent.targets  # what they say it is of
    counts: str = "game"  # what a person confirms the number of
    has_own_reasons: bool = False  # each part of it has a reason, so it needs none of its own
    has_items: bool = False  # it journals items of access: a page draws them, and plans the inverse from them
    takes_rows: bool = False  # a person may choose which rows of quarantine it takes
    changes: Callable[[Intent], Sequence[Change]] = lambda _: ()  # of its targets, as the preview's facts have them


def of_one_game(level: Level) -> Callable[[Intent], Level]:
    """Return how an operation is weighed that has this level while it is about one game alone."""
    return lambda intent: level if len(intent.targets) == 1 and intent.targets[0].startswith("game:") else 3


def intent_of(
    what: Literal["game", "group"], kind: str, facts: Mapping[str, Any], actor: str, reason: str,
    undoes: str | None = None,
) -> Intent:  # fmt: skip
    """Return the operation to submit on those that `facts` names; `undoes` is the one it is the inverse of."""
    targets = tuple(f"{what}:{name}" for name in facts)
    return Intent(kind, targets, actor, reason, {f"{what}s": sorted(facts)}, facts, undoes=undoes)


def describe_open(operation: Operation) -> str:
    """Return an open operation for a sentence on what waits for it."""
    return f"{operation.kind} {operation.operation_id[:8]} by {operation.actor}"
