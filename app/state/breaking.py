"""What the page Break it asks of the demo that runs this environment; nothing where none does."""

from collections.abc import Collection

from app.person import identity
from app.state import services
from app.state.services import Environment
from pipeline.base.errors import Refused
from pipeline.control.acts import DirectAct
from pipeline.demo import promise
from pipeline.demo.breaking import channel
from pipeline.demo.breaking.channel import ChannelAnswer


def is_offered() -> bool:
    """Return whether a demo of this machine and user runs the environment on screen, and does faults."""
    try:
        return not identity.person().by_platform and channel.is_offered(services.open_environment().paths)
    except Refused:
        return False


def look(environment: Environment) -> ChannelAnswer:
    """Return which faults have not ended.

    Raises:
        Refused: no demo offers faults here.
    """
    _require_local(environment)
    return channel.look(environment.paths)


def promised(environment: Environment) -> Collection[str]:
    """Return the keys of the games with the demo's output contract.

    Raises:
        Refused: the control store cannot be read.
    """
    return promise.promised(services.engine(environment))


def begin(environment: Environment, fault: str, target: str) -> str:
    """Have the demo do a fault, and return what it did.

    Raises:
        Refused: no demo offers faults here, the person has not the role, or the demo refuses.
    """
    _require_role(environment)
    return channel.begin(environment.paths, fault, target).said


def undo(environment: Environment, fault: str, target: str) -> str:
    """Have the demo end a fault, and return what it did.

    Raises:
        Refused: no demo offers faults here, the person has not the role, or the demo refuses.
    """
    _require_role(environment)
    return channel.undo(environment.paths, fault, target).said


def _require_role(environment: Environment) -> None:
    _require_local(environment)
    services.permitted(environment, DirectAct.BREAK_IT)


def _require_local(environment: Environment) -> None:
    """Go on only where the person is the user who started this dashboard: a platform's people break nothing.

    Raises:
        Refused: they are signed in by a platform, or the environment keeps its control store elsewhere.
    """
    if identity.person().by_platform or environment.settings.store.url:
        raise Refused("Only a demo on this machine can be broken.")
