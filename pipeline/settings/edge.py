"""The settings of the gRPC edge: `[edge]`."""

from dataclasses import dataclass
from typing import Annotated, Literal

from pipeline.settings.parsing import Range


@dataclass(frozen=True, slots=True)
class EdgeSettings:
    """What `turnout edge run` takes from producers: see docs/edge.md."""

    unknown_games: Literal["pass", "refuse"] = "pass"
    """What the edge does with events of names that are not games and that no onboarding rule covers: `pass` them on to
    ingest, which refuses them as `unknown_game` and lists the names for approval, or `refuse` them."""

    deadline_seconds: Annotated[float, Range(1, 300)] = 20.0
    """Longest time that a request waits for the log. Then it ends with a status, and nobody knows which of its events
    are in the log: the client sends them again with the same event ids. A shorter deadline of the client counts."""

    events_in_flight: Annotated[int, Range(1_000, 90_000)] = 50_000
    """Most events of all producers that wait for the log. Further requests get `RESOURCE_EXHAUSTED` with a delay, and
    streams are read no further."""

    producer_events_in_flight: Annotated[int, Range(1_000, 90_000)] = 10_000
    """Most events of one producer that wait for the log."""
