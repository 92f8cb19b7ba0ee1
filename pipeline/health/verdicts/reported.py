"""What the control store has of games and groups, as the judgement takes it: reported, assigned, wanted."""

from dataclasses import dataclass

from listeners.sample import StreamState
from pipeline.store.backends import backend_kind


@dataclass(frozen=True, slots=True)
class AssignedGame:
    """One game: the group that should carry it, and what was last reported of its stream."""

    game_key: str
    group: str | None
    reported: StreamState | None
    retired_at: float | None = None


@dataclass(frozen=True, slots=True)
class GroupIntent:
    """A group's desired state and backend."""

    desired: str  # running | drained | stopped
    backend: str = "none"  # what starts its driver; `none`: not turnout
    created_at: float | None = None  # Unix seconds; None: not read

    @property
    def is_supervised(self) -> bool:
        """Whether the controller starts and restarts its driver."""
        return backend_kind(self.backend).starts
