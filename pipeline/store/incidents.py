"""Incidents as the control store keeps them: open ones, and ended ones for a month.

`pipeline/control/incident_keeper.py` alone writes them, a look at a time; pages and commands read them. Both do so by
`pipeline/health/facts/incidents.py`.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Final

from sqlalchemy import Connection, Engine, delete, insert, select, update

from pipeline.store.database.engine import reading, writing
from pipeline.store.database.report_tables import incident_looks, incidents
from pipeline.store.database.states import Cause, IncidentTone
from pipeline.store.processes.leases import store_now

KEPT_SECONDS: Final = 30 * 86_400.0
"""Seconds for which ended incidents are kept."""

MOST_KEPT: Final = 5_000
"""The most ended incidents that are kept, the newest."""

DAY_SECONDS: Final = 86_400.0

STALE_SECONDS: Final = 60.0
"""Seconds without a look after which incidents are out of date."""

_LOOK: Final = 1


@dataclass(frozen=True, slots=True)
class KeptIncident:
    """A row of table `incidents`."""

    incident_id: str
    cause: str
    scope: str
    finding: str  # JSON, as `games`
    games: str
    group_name: str | None
    since: float
    joined_at: float
    ended_at: float | None
    outlook: str | None
    tone: IncidentTone


_KEPT: Final = tuple(incidents.c[name] for name in KeptIncident.__slots__)


@dataclass(frozen=True, slots=True)
class LastLook:
    """The last judgement of causes; an old one says nothing about now."""

    kept_by: str  # controller | ingest
    looked_at: float  # Unix seconds by the store's clock
    read_at: float

    @property
    def age_seconds(self) -> float:
        """How long ago that was."""
        return max(0.0, self.read_at - self.looked_at)

    @property
    def is_stale(self) -> bool:
        """Whether what was judged then says nothing of now."""
        return self.age_seconds > STALE_SECONDS


def read_kept(engine: Engine, since: float | None = None) -> list[KeptIncident]:
    """Return the open incidents, and those that ended after `since`, by default within a day, in no order.

    Raises:
        Refused: the control store cannot be read.
    """
    with reading(), engine.connect() as connection:
        after = connection.execute(select(store_now())).scalar_one() - DAY_SECONDS if since is None else since
        return _read(connection, after)


def read_last_look(engine: Engine) -> LastLook | None:
    """Return who judged causes last, and when; None where nobody ever did.

    Raises:
        Refused: the control store cannot be read.
    """
    with reading(), engine.connect() as connection:
        row = connection.execute(select(incident_looks.c.kept_by, incident_looks.c.looked_at, store_now())).first()
    return None if row is None else LastLook(*row)


def count_open(connection: Connection) -> dict[str, tuple[int, int]] | None:
    """Return the open incidents and their games by cause, 0 included; None where nobody has judged causes lately."""
    row = connection.execute(select(incident_looks.c.kept_by, incident_looks.c.looked_at, store_now())).first()
    if row is None or LastLook(*row).is_stale:
        return None
    counted = {str(cause): (0, 0) for cause in Cause}
    still_open = select(incidents.c.cause, incidents.c.games).where(incidents.c.ended_at.is_(None))
    for cause, games in connection.execute(still_open):
        amount, members = counted[cause]
        counted[cause] = (amount + 1, members + len(json.loads(games)))
    return counted


def keep(
    engine: Engine,
    kept_by: str,
    now: float,
    ended_after: float,
    judge: Callable[[Sequence[KeptIncident]], Sequence[KeptIncident]],
) -> None:
    """Replace the open incidents by what `judge` makes of them and of those that ended after a moment.

    Processes that keep them at one moment wait for each other, so the second sees what the first has written.
    """
    with writing(engine) as connection:
        row = {"kept_by": kept_by, "looked_at": store_now()}
        if not connection.execute(update(incident_looks).values(row)).rowcount:
            connection.execute(insert(incident_looks).values(look_id=_LOOK, **row))
        before = _read(connection, ended_after)
        known = {each.incident_id: each for each in before}
        for each in judge(before):
            if each.incident_id not in known:
                connection.execute(insert(incidents).values(asdict(each)))
            elif each != known[each.incident_id]:
                own = incidents.c.incident_id == each.incident_id
                connection.execute(update(incidents).where(own).values(asdict(each)))
                if each.ended_at is not None:
                    _forget(connection, now)


def _read(connection: Connection, ended_after: float) -> list[KeptIncident]:
    wanted = incidents.c.ended_at.is_(None) | (incidents.c.ended_at > ended_after)
    return [KeptIncident(*row) for row in connection.execute(select(*_KEPT).where(wanted))]


def _forget(connection: Connection, now: float) -> None:
    """Delete ended incidents that are old, or too many."""
    connection.execute(delete(incidents).where(incidents.c.ended_at < now - KEPT_SECONDS))
    ended = select(incidents.c.ended_at).where(incidents.c.ended_at.is_not(None))
    oldest = connection.scalar(ended.order_by(incidents.c.ended_at.desc()).offset(MOST_KEPT).limit(1))
    if oldest is not None:
        connection.execute(delete(incidents).where(incidents.c.ended_at <= oldest))
