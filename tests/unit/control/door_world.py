"""A further kind of process, as a plane beside control would hand it over: an entry point names it, no module does."""

from pathlib import Path
from typing import Final

from pipeline.control.kinds import ControlledKind, Tile, Upkeep
from pipeline.health.incidents.causes import Action
from pipeline.health.verdicts.alert import Alert
from pipeline.health.verdicts.processes import DriverState, FleetFacts, ProcessKind

KIND: Final = "door"
NAME: Final = "main"


def _judge(facts: FleetFacts) -> list[DriverState]:
    liveness = facts.judge(KIND, NAME)
    return [DriverState(KIND, NAME, liveness, not liveness.is_live)]


DOOR: Final = ControlledKind(
    ProcessKind(
        KIND,
        _judge,
        alert=Alert("TurnoutDoorShut", "page", "max(turnout_door_open) == 0", "1m", "The door is shut", "Nobody.", "/"),
        moves_rows=True,
        is_late=True,
    ),
    duties=lambda _engine, _settings: [Upkeep("local", kind=KIND, name=NAME)],
    command=lambda _: ("door", "run"),
    restart_command=lambda _: "turnout door restart",
    tile=Tile(step=lambda _, shown: Action(f"Open the door {shown}", "groups", {})),
)


def install(folder: Path) -> None:
    """Write what an installed package has that hands a kind over; `folder` must be on the path."""
    about = folder / "turnout_door-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: turnout-door\nVersion: 1\n", "utf-8")
    (about / "entry_points.txt").write_text(f"[turnout.processes]\ndoor = {__name__}:DOOR\n", "utf-8")
