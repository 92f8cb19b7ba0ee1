"""The faults that a demo offers, as people learn them: what each does, what turnout then shows, and how it ends.

Pure: the page Break it, `turnout demo faults` and docs/demo.md say what stands here; `breaker` does it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

TargetKind = Literal["group", "driver", "game", "promised", "source", "store"]
"""`driver`: a group, or `ingest`. `promised`: a game with the demo's output contract. `source` and `store`: the demo
has one of each, without a name."""


@dataclass(frozen=True, slots=True)
class Sign:
    """One thing that an operator should see."""

    seconds: int  # after the fault began, at most
    where: str  # a page or a command
    what: str


@dataclass(frozen=True, slots=True)
class Fault:
    """One way to break a demo."""

    name: str
    title: str  # the button: a verb and its object
    target: TargetKind
    does: str
    signs: tuple[Sign, ...]
    mend: str  # by the dashboard
    undo: str | None  # the button that ends it; None: it is over once it is done
    limit_seconds: float = 0.0  # it ends by itself then; 0: it is over once it is done

    @property
    def is_named(self) -> bool:
        """Whether a person names the target."""
        return self.target not in {"source", "store"}

    @property
    def is_of_a_game(self) -> bool:
        """Whether its target is a game."""
        return self.target in {"game", "promised"}


POISON_PER_SECOND: Final = 60
"""Refused rows of a poisoned game, rows of a breaking schema, and rows that break a contract."""

QUARANTINE_ROWS: Final = 2_000
"""Refused rows of one burst."""

LATE_ROWS: Final = 50
"""Rows of a closed day that come at once."""

_ALL: Final = (
    Fault(
        "kill",
        "Kill driver",
        "group",
        "Sends SIGKILL to a group's driver and to every process that it started, as the system does when memory ends.",
        (
            Sign(10, "Fleet", "the group has no driver; its games say so, and no other group is affected"),
            Sign(60, "Fleet", "the controller has started a driver again, and the games catch up"),
        ),
        "Nothing to do: the controller restarts it. Groups lists the death and its reason.",
        None,
    ),
    Fault(
        "freeze",
        "Freeze driver",
        "driver",
        "Sends SIGSTOP to a driver and to every process that it started: it lives, holds its memory and does nothing.",
        (
            Sign(30, "Fleet", "the driver is silent: heartbeats are missing, its games are unknown and never healthy"),
            Sign(330, "Groups", "the controller has killed it, because it hung, and has started another one"),
        ),
        "Restart the group on the page Groups: after a minute the controller kills the driver, and another one starts.",
        "Thaw driver",
        900.0,
    ),
    Fault(
        "crash",
        "Let driver crash",
        "group",
        "Kills a group's driver, and each further one as soon as it drives the group.",
        (
            Sign(10, "Fleet", "the group has no driver, and its games say so"),
            Sign(90, "Groups", "several deaths in a row, and a longer pause before each further start"),
        ),
        "Move the group's games to the other group on the page Groups: they land again while it crashes.",
        "Let it live",
        900.0,
    ),
    Fault(
        "starve",
        "Starve driver",
        "driver",
        "Stops a driver and its processes for nine tenths of each second, as a machine without free CPU does.",
        (
            Sign(60, "Fleet", "passes take several times as long as before; where they cannot keep up, games lag"),
            Sign(60, "Groups", "the driver beats and fails in nothing; the load of its group rises"),
        ),
        "Move games to the other group on the page Groups until the group keeps up.",
        "Feed driver",
        900.0,
    ),
    Fault(
        "disk",
        "Fill the disk",
        "group",
        "Lets every write of a group's workers fail, as on a full disk. Reads, heartbeats and the control store go on.",
        (
            Sign(30, "Fleet", "all games of the group fail for one reason: File too large"),
            Sign(30, "Fleet", "one incident for the whole group with the cause storage, and no row is refused"),
        ),
        "Free the disk: the games catch up by themselves. A game that was parked meanwhile needs a retry on its page.",
        "Free the disk",
        900.0,
    ),
    Fault(
        "lock",
        "Lock the control store",
        "store",
        "Holds the lock for writes of the control store's file, as a backup that hangs does. Reads go on.",
        (
            Sign(
                30,
                "Fleet",
                "one incident, control store, over all games; nobody is called dead, and nothing is healthy",
            ),
            Sign(30, "Operations", "nothing can be submitted, and the page says why"),
        ),
        "Release the lock: rows wait in the source meanwhile, and every process goes on by itself.",
        "Release the lock",
        120.0,
    ),
    Fault(
        "silence",
        "Stop the source",
        "source",
        "Ends the simulator, so that no event arrives. Drivers, broker and tables are well.",
        (
            Sign(30, "Fleet", "no events arrive; no game is behind"),
            Sign(30, "Fleet", "an incident with the cause source silent, which names the usual gap between rows"),
        ),
        "turnout is well: the producers are not. Start the source again.",
        "Start the source",
        900.0,
    ),
    Fault(
        "poison",
        "Poison game",
        "game",
        f"Sends {POISON_PER_SECOND} rows a second of one game that no decoder accepts, beside its good rows.",
        (
            Sign(15, "Game", "refused rows as malformed_payload, a new one every second; good rows still land"),
            Sign(60, "Fleet", "an incident with the cause poison data, or schema soon after a release of the game"),
        ),
        "Read the refused rows, name their producer, and let it be mended. No other game is affected.",
        "Mend the producer",
        900.0,
    ),
    Fault(
        "quarantine",
        "Fill quarantine",
        "game",
        f"Sends {QUARANTINE_ROWS} rows of one game at once that no decoder accepts.",
        (
            Sign(15, "Game", f"{QUARANTINE_ROWS} refused rows in one minute, then none"),
            Sign(15, "Repairs", f"{QUARANTINE_ROWS} rows of the game in quarantine"),
        ),
        "Replay the game on the page Repairs: it says that the rows are refused again, and why. They stay as evidence.",
        None,
    ),
    Fault(
        "schema",
        "Send a breaking schema",
        "game",
        "Deploys a release of one game in which a text has become a number. The default policy refuses that schema, "
        "so the release registers it with the policy quarantine and begins to send.",
        (
            Sign(15, "Schemas", "a version whose rows go to quarantine; Audit has the registration that was refused"),
            Sign(60, "Fleet", "an incident with the cause schema; the older versions' rows still land"),
        ),
        "On the page Schemas register the version again with incompatible=side-column; then replay the game.",
        "Roll the release back",
        900.0,
    ),
    Fault(
        "contract",
        "Break the contract",
        "promised",
        f"Sends {POISON_PER_SECOND} rows a second of the game with an output contract, beside its good rows: they "
        "decode well, and their player is none that the contract promises.",
        (
            Sign(
                30, "Game", "the tab Contract counts the rows by rule, the tab Refused has them; good rows still land"
            ),
            Sign(60, "Fleet", "an incident with the cause contract"),
        ),
        "Read the rule and the refused rows, name their producer, and let it be mended. Its rows stay in quarantine: a "
        "replay refuses them again while the rule is the same.",
        "Mend the producer",
        900.0,
    ),
    Fault(
        "late",
        "Send late rows",
        "promised",
        f"Sends {LATE_ROWS} good rows at once, whose event time is in the last day that the game's books have closed.",
        (
            Sign(15, "Game", f"{LATE_ROWS} rows land in the game's table and in silver; no window of gold counts them"),
            Sign(450, "Books", "the day keeps hash and sums; the next day that closes has an entry, and both say so"),
        ),
        "Nothing to do: `turnout books show` has the entry, and `turnout books verify` computes the hash again.",
        None,
    ),
)

FAULTS: Final[Mapping[str, Fault]] = {each.name: each for each in _ALL}
"""Faults by name, in the order in which the page shows them."""
