"""Previews of the Access page's acts, planned as by `turnout grants`; each reads the catalog again."""

from collections.abc import Callable
from functools import partial, wraps
from typing import Concatenate, Final, Literal, ParamSpec

from app.state import services
from app.state.previews import Preview
from app.state.services import Environment
from grants.api import acts
from grants.api.access import Request
from grants.api.acts import CatalogOpener
from pipeline.api.environment import OpenEnvironment
from pipeline.control.acts import DirectAct

_P = ParamSpec("_P")


def _planned(
    plan: Callable[Concatenate[OpenEnvironment, str, CatalogOpener, _P], Preview],
) -> Callable[Concatenate[Environment, _P], Preview]:
    """Return an api's plan for the environment on screen and its catalog, made for the acting person."""

    @wraps(plan)
    def make(environment: Environment, /, *args: _P.args, **kwargs: _P.kwargs) -> Preview:
        catalog = partial(services.catalog, environment)
        with services.catalog_answers(environment):
            return plan(services.opened(environment), services.actor(), catalog, *args, **kwargs)

    return make


preview_change: Final = _planned(acts.preview_change)
preview_undo: Final = _planned(acts.preview_undo)
preview_approval: Final = _planned(acts.preview_approval)
preview_findings: Final = _planned(acts.preview_findings)


def decide(environment: Environment, wanted: Request, state: Literal["rejected", "withdrawn"], reason: str) -> Request:
    """Reject another person's request, or withdraw one's own.

    Raises:
        Refused: the acting person may not, no reason is given for a rejection, or another person was faster.
    """
    actor = services.permitted(environment, DirectAct.DECIDE_REQUEST if state == "rejected" else None)
    return acts.decide(services.opened(environment), actor, wanted, state, reason)
