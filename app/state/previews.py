"""Previews of the pages' acts, and their submission as the person who is signed in; the controller executes them.

Nothing here draws. A preview carries its own key, so however often it is confirmed, it is submitted once.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from typing import Concatenate, Final, ParamSpec, Protocol, TypeVar

from app.state import services
from app.state.services import Environment
from pipeline.api import acts
from pipeline.api.acts import Preview, touched
from pipeline.api.environment import OpenEnvironment
from pipeline.api.operations import Operation

__all__ = [
    "Preview",
    "cancel",
    "close",
    "planned",
    "preview_drain",
    "preview_move",
    "preview_named",
    "preview_proposed",
    "preview_repair",
    "preview_undo",
    "resume",
    "submit",
    "touched",
]

_P = ParamSpec("_P")
_T = TypeVar("_T")


def planned(
    plan: Callable[Concatenate[OpenEnvironment, str, _P], _T],
) -> Callable[Concatenate[Environment, _P], _T]:
    """Return an api's plan for the environment on screen, made for the acting person."""

    @wraps(plan)
    def make(environment: Environment, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        return plan(services.opened(environment), services.actor(), *args, **kwargs)

    return make


def submit(environment: Environment, preview: Preview) -> Operation | str:
    """Submit what was shown, as the signed-in person; the same intent submitted again is the same operation.

    A text says what was done at once.

    Raises:
        Refused: the acting person lacks the role, it disturbs and has no reason, one of its targets belongs to another
            open operation, or the control store or the catalog does not answer.
    """
    attributed = replace(preview.intent, actor=services.permitted(environment, preview.act))
    with services.catalog_answers(environment):
        return preview.submit(services.opened(services.renewed(environment)), attributed)


class _OperationAct(Protocol):
    def __call__(self, environment: Environment, seen: Operation, reason: str = "", /) -> Operation: ...


def _acting(act: Callable[[OpenEnvironment, str, Operation, str], Operation]) -> _OperationAct:
    """Return an act on an operation for the environment on screen; the role is that of the operation's kind."""

    @wraps(act)
    def do(environment: Environment, seen: Operation, reason: str = "", /) -> Operation:
        return act(services.opened(environment), services.permitted(environment, seen.kind), seen, reason)

    return do


preview_move: Final = planned(acts.preview_move)
preview_drain: Final = planned(acts.preview_drain)
preview_proposed: Final = planned(acts.preview_proposed)
preview_named: Final = planned(acts.preview_named)
preview_repair: Final = planned(acts.preview_repair)
preview_undo: Final = planned(acts.preview_undo)
resume: Final = _acting(acts.resume)
close: Final = _acting(acts.close)
cancel: Final = _acting(acts.cancel)
