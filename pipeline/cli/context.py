"""What a command works with: the settings of its environment, the control store, who runs it, and the gate to acts."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.base.actor import current_user
from pipeline.control.acts import DirectAct
from pipeline.settings.tree import Paths, Settings, load

if TYPE_CHECKING:
    from pipeline.api.environment import OpenEnvironment
    from pipeline.data.contracts.registry import LocalRegistry


class CommandContext:
    """An environment, opened for one command."""

    def __init__(self, env_dir: Path, source: str | None = None) -> None:
        """Read the settings, with the source kind of the command line laid over them, and open the control store."""
        from pipeline.store.database.engine import open_store

        self.settings, self.paths = load_with_source(env_dir, source)
        self.engine = open_store(self.settings, self.paths)

    @property
    def environment(self) -> "OpenEnvironment":
        """The environment for queries and acts."""
        from pipeline.api.environment import OpenEnvironment

        return OpenEnvironment(self.settings, self.paths, self.engine)

    @property
    def registry(self) -> "LocalRegistry":
        """The schemas of all games, as they are now."""
        from pipeline.data.contracts.registry import LocalRegistry

        return LocalRegistry(self.engine, self.paths.bronze)

    @property
    def actor(self) -> str:
        """Who runs the command."""
        return current_user()

    def names(self) -> dict[str, str]:
        """Return the inventory: key → name of every game."""
        from pipeline.store.games import known_games

        return {str(key): name for key, name in known_games(self.engine).items()}

    def permitted(self, act: DirectAct, reason: str = "") -> str:
        """Return who runs the command, where they may do what the store writes with its own audit entry.

        Raises:
            Refused: they have not the role for it, or it disturbs and has no reason.
        """
        from pipeline.control import gate

        actor = self.actor
        gate.permit(self.settings, self.engine, actor, act, reason)
        return actor

    def permitted_on(self, kind: str) -> str:
        """Return who runs the command, where they have the role for a kind of operation.

        Raises:
            Refused: they have not.
        """
        from pipeline.control import gate

        actor = self.actor
        gate.require_role(self.settings, self.engine, actor, kind)
        return actor

    @contextmanager
    def acting(
        self, kind: DirectAct, targets: Sequence[str], action: str | None = None, **detail: Any
    ) -> Iterator[str]:
        """Enter the block with the user of the command if the role allows it; the audit log gets its begin and end.

        It calls the act `action`, or as roles do where None.

        Raises:
            Refused: they have not the role, or it disturbs and has no reason.
        """
        from pipeline.control import gate
        from pipeline.store.audit import Act

        actor = self.actor
        with gate.acting(self.settings, self.engine, kind, Act(actor, action or kind, tuple(targets), detail=detail)):
            yield actor


def load_with_source(env_dir: Path, source: str | None) -> tuple[Settings, Paths]:
    """Read the settings, with the source kind of the command line laid over them."""
    environ = dict(os.environ)
    if source is not None:
        environ["TURNOUT_SOURCE__KIND"] = source
    return load(env_dir, environ)
