"""Options that several commands share, and how a command submits an operation and follows it."""

import functools
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeAlias, TypeVar, get_args, get_type_hints

import click

from pipeline.base.errors import Refused
from pipeline.base.names import is_said, plain
from pipeline.base.terminal import say, say_json
from pipeline.base.texts import first_lines, in_utc
from pipeline.cli.context import CommandContext
from pipeline.settings.source import Source
from pipeline.store.database.states import OperationKind, OperationState
from pipeline.store.games import find
from pipeline.store.operations import Operation, Step

LISTED: Final = click.IntRange(1, 1_000_000)
"""The most lines that a list prints; a database takes no number of any length."""

_F = TypeVar("_F", bound=Callable[..., Any])
Decorator: TypeAlias = Callable[[_F], _F]


class Finite(click.FloatRange):
    """A number with or without bounds that is neither infinite nor nan: each comparison with nan is false."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number, or fail as click's own types do."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return number


class Words(click.ParamType[tuple[str, ...]]):
    """Some of a few words, with commas between them, each once."""

    name = "words"

    def __init__(self, *known: str) -> None:
        """Take the words that may be given."""
        self.known = known

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        """Return the words in the given order, or fail as click's own types do."""
        if isinstance(value, tuple):
            return value
        words = tuple(word.strip() for word in str(value).split(","))
        if len(set(words)) < len(words) or not set(words) <= set(self.known):
            self.fail(f"{value!r} is not a list of different words of: {', '.join(self.known)}.", param, ctx)
        return words


def combine_options(*parameters: Decorator[Any]) -> Decorator[Any]:
    """Return one decorator for these options and arguments of click, which help then shows in this order."""

    def add(command: _F) -> _F:
        for parameter in reversed(parameters):
            command = parameter(command)
        return command

    return add


def source_option() -> Decorator[Any]:
    """Return the option --source, with the kinds that the setting may have."""
    kinds = get_args(get_type_hints(Source)["kind"])
    return click.option("--source", type=click.Choice(kinds), help="Overrides the setting source.kind.")


run_id_option: Final[Decorator[Any]] = click.option(
    "--run-id", type=click.IntRange(1), help="For the controller: the run of the control store that this process is."
)


def required_reason(help_text: str) -> Decorator[Any]:
    """Return the option --reason for what is not done without one.

    A reason that nobody can see is wrong use, as none at all is.
    """

    def checked(_context: click.Context, _option: click.Parameter, reason: str) -> str:
        if not is_said(reason):
            raise click.BadParameter("It must not be empty: it is kept in the audit log.")
        return reason

    return click.option("--reason", required=True, callback=checked, help=help_text)


if TYPE_CHECKING:
    from pipeline.control.operations.definition import OperationProposal  # what lists operations needs no planner

_LOOK_SECONDS: Final = 0.5
_OPTIONS: Final = combine_options(
    click.option("--reason", help="Reason, kept in the audit log; optional for small repairs of one game."),
    click.option("--dry-run", is_flag=True, help="Show the effects, and submit nothing."),
    click.option("--no-wait", is_flag=True, help="Submit and return at once; follow with `turnout ops show`."),
    click.option(
        "--json",
        "as_json",
        is_flag=True,
        help="Print the operation as one JSON object at the end; with --dry-run its preview.",
    ),
)


@dataclass(frozen=True, slots=True)
class SubmitOptions:
    """How a command submits an operation."""

    reason: str = ""
    dry_run: bool = False
    wait: bool = True
    as_json: bool = False


def submitting(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options of an operation; it gets them as `how`."""

    @functools.wraps(command)
    def gathered(*, reason: str | None, dry_run: bool, no_wait: bool, as_json: bool, **others: Any) -> Any:
        return command(how=SubmitOptions(reason or "", dry_run, not no_wait, as_json), **others)

    with_options: Callable[..., Any] = _OPTIONS(gathered)
    return with_options


def keys_of(wanted: Sequence[str], known: Mapping[str, str]) -> list[str]:
    """Find games by key or exact name; `known` is key to name.

    Raises:
        Refused: one of them does not exist.
    """
    return sorted({str(find(each, known).key) for each in wanted})


def submit_and_wait(
    context: CommandContext,
    proposal: "OperationProposal",
    how: SubmitOptions,
    named: Sequence[str] = (),
    unchanged: str = "is in that state already",
) -> NoReturn:
    """Show the proposal, submit it unless it is empty or a dry run, and follow it; end with the exit code.

    Of games or groups that a person has `named` and that it would not touch, it says that each `unchanged`.

    Where a game that was named is left out the exit code is 1, whatever becomes of the others.

    Raises:
        Refused: the actor has not the role for it, it disturbs and has no reason, or a target belongs to another
            operation.
    """
    from pipeline.control.gate import require_reason, submit

    intent, left_out = proposal.intent, proposal.left_out
    failed = 1 if left_out and not proposal.best_effort else 0
    if intent.targets and not how.dry_run:
        require_reason(intent)  # before a person reads what is not done
    same = first_lines(proposal.unchanged(named), text=lambda each: f"{each} {unchanged}")
    for each in (*proposal.lines, *(f"left out: {each}" for each in left_out), *same):
        say(each, err=how.as_json)
    if how.dry_run or not intent.targets:
        if how.as_json:
            say_json({"kind": intent.kind, "targets": intent.targets, "preview": intent.preview, "left_out": left_out})
        sys.exit(failed)
    operation = submit(context.settings, context.engine, intent)
    say(f"operation {operation.operation_id[:8]}", err=how.as_json)
    try:
        code = _follow(context, operation, how)
    except KeyboardInterrupt:
        name = operation.operation_id[:8]
        say(f"No longer waiting: the operation goes on. `turnout ops show {name}` shows its progress.", err=True)
        raise
    sys.exit(failed or code)


@contextmanager
def unchanged() -> Iterator[None]:
    """Refuse in one sentence what was changed after this command read it."""
    from pipeline.store.operations import OperationConflict

    try:
        yield
    except OperationConflict as stale:
        raise Refused("The operation was changed meanwhile; nothing was done. Look at it, and try again.") from stale


def line(operation: Operation) -> str:
    """Return an operation as a line for people."""
    from pipeline.api.operations import words

    outcome = f": {operation.outcome}" if operation.outcome else ""
    verb = words(operation).verb
    return plain(
        f"{operation.operation_id[:8]}  {in_utc(operation.requested_at)}  {verb} of {len(operation.targets)} "
        f"by {operation.actor}  {operation.state}{outcome}"
    )


def step_line(step: Step) -> str:
    """Return a step of a journal as a line for people."""
    return plain(f"  {step.number} {step.name:<8} {step.state:<8} {step.detail}")


def as_dict(operation: Operation, journal: Sequence[Step]) -> dict[str, Any]:
    """Return an operation with its journal for scripts."""
    return {**asdict(operation), "steps": [asdict(each) for each in journal]}


def _follow(context: CommandContext, operation: Operation, how: SubmitOptions) -> int:
    """Print each change of an operation's steps until it has ended or needs a person; return the exit code."""
    from pipeline.health.facts.liveness import judge_controller
    from pipeline.health.verdicts.liveness import controller_absence
    from pipeline.store.operations import operation as find
    from pipeline.store.operations import steps

    engine, metrics = context.engine, context.settings.metrics
    printed: set[str] = set()
    warned = False
    while how.wait:
        operation = find(engine, operation.operation_id)
        for each in map(step_line, steps(engine, operation.operation_id)):
            if each not in printed:
                say(each, err=True)
                printed.add(each)
        if not operation.is_open or operation.is_stuck:
            break
        if operation.state == OperationState.PLANNED and not warned:
            absence = controller_absence(judge_controller(engine, metrics))
            if absence is not None:
                warned = True
                if operation.kind == OperationKind.STOP and _stops_groups(context, operation):
                    continue
                waits = "The operation waits for it. If none runs, start `turnout controller run`."
                say(f"{absence[0].upper()}{absence[1:]}. {waits}", err=True)
        time.sleep(_LOOK_SECONDS)
    if how.as_json:
        say_json(as_dict(operation, steps(engine, operation.operation_id)))
    elif how.wait:
        say(line(operation))
    return 0 if not how.wait or operation.state == OperationState.SUCCEEDED else 1


def _stops_groups(context: CommandContext, operation: Operation) -> bool:
    """Stop groups without a controller; return whether this command may."""
    from pipeline.control.operations.definition import ControlContext
    from pipeline.control.stopping import stop_groups

    return stop_groups(ControlContext(context.settings, context.engine, context.paths), operation)
