"""What a deployment needs of the control store, which is not its own: the plane that steers hands it over."""

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol


class Groups(Protocol):
    """The control store, as far as it says what a restart disturbs, and can ask for one."""

    def disturbed(self, group: str) -> str:
        """Return which streams of a group stand still while its driver starts, and how long, as a clause."""

    def restart(self, group: str) -> int | None:
        """Ask a group's run to end in order, so that the controller starts another; None where no job runs for it."""

    def controller(self) -> object | None:
        """Return what tells the controller that runs from every other one; None where none does."""

    def runs_again(self, group: str, run_id: int | None) -> bool:
        """Return whether a group is driven, by a later run than this one if any, or no job of it should run."""


class DeployedGroups(Groups, Protocol):
    """The groups of an environment's control store, as far as a deployment reads and changes them."""

    def names(self) -> list[str]:
        """Return the groups whose drivers are jobs."""

    def require_writable(self) -> list[str]:
        """Return notes about the games' tables in the catalog.

        Raises:
            Refused: one of them is a table that turnout cannot write, such as a managed one.
        """

    def ensure(self, name: str) -> str:
        """Make a group whose driver is a job, where there is no group yet; return what was done, as a sentence."""


class OpenGroups(Protocol):
    """Opens the groups of an environment; with `is_new` its control store may be made."""

    def __call__(self, env_dir: Path, environ: Mapping[str, str], *, is_new: bool) -> DeployedGroups:
        """Open the control store that these variables name.

        Raises:
            Refused: the settings are wrong, or there is no control store; what SQLAlchemy raises where it cannot be
                reached goes on to the caller.
        """
