"""The last lines of a driver's log, for operators only."""

from app.gate import Person
from app.state import services
from app.state.services import Environment, kept
from pipeline.api import driver_logs
from pipeline.api.driver_logs import LogTail, doubt
from pipeline.base.errors import Refused
from pipeline.control.roles import Role, may

__all__ = ["LogTail", "doubt", "may_see_logs", "tail"]


def tail(environment: Environment, kind: str, name: str, actor: Person) -> LogTail:
    """Read the end of a driver's log for a person, at most 2 s old.

    Raises:
        Refused: the person is no operator, or there is no such log on this machine.
    """
    if not may_see_logs(environment, actor):
        raise Refused("Logs are shown to operators, a role that you do not have.")
    return _read(environment, kind, name)


def may_see_logs(environment: Environment, actor: Person) -> bool:
    """Return whether a person may see logs: an operator, or on a laptop without any roles everybody."""
    known = services.roles(environment)
    return not services.only_look(known, actor) and may(known, actor.name, Role.OPERATOR)


@kept(seconds=2, most=20)
def _read(environment: Environment, kind: str, name: str) -> LogTail:
    return driver_logs.read(environment.settings, environment.paths, kind, name)
