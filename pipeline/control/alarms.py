"""What alarms the controller: every alarm of every part of it, kept until that part has nothing to say any more.

The controller's loop runs each of its parts here, so one that breaks is an alarm and the others go on.
"""

import logging
import re
from collections.abc import Callable, Iterable
from typing import Final

from sqlalchemy.exc import SQLAlchemyError

_log = logging.getLogger("turnout")
_MAX_MESSAGE: Final = 500  # characters of an error that are kept
_NUMBERS: Final = re.compile(r"\d+")


class Alarms:
    """The alarms of the controller's parts, in the order in which the parts first ran."""

    def __init__(self) -> None:
        """Begin without any."""
        self._by_part: dict[str, tuple[str, ...]] = {}

    @property
    def text(self) -> str | None:
        """All alarms, one a line; None where there is none."""
        return "\n".join(each for alarms in self._by_part.values() for each in alarms) or None

    def run(self, part: str, act: Callable[[], Iterable[str]]) -> None:
        """Let a part of the controller do what is due; what it returns alarms until it runs again.

        Raises:
            SQLAlchemyError: the control store is away, which is no alarm of one part.
        """
        try:
            alarms = tuple(" ".join(each.split()) for each in act())
        except SQLAlchemyError:
            raise
        except Exception as error:  # noqa: BLE001 - the other parts must go on
            problem = " ".join(f"{type(error).__name__}: {error}".split())[:_MAX_MESSAGE]
            alarms = (f"{part} cannot go on: {problem}. The controller's log has the traceback.",)
            if self._is_new(part, alarms[0]):
                _log.exception("%s", alarms[0])
        else:
            for each in alarms:
                if self._is_new(part, each):
                    _log.error("%s", each)
        self._by_part[part] = alarms

    def _is_new(self, part: str, alarm: str) -> bool:
        """Return whether an alarm differs from those before by more than its numbers, such as minutes."""
        return _NUMBERS.sub("", alarm) not in {_NUMBERS.sub("", each) for each in self._by_part.get(part, ())}
