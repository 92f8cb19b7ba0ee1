"""A foreign registry in a schedule, and the writers whose rows worlds have. Drivers ask it by the real resolution."""

from functools import partial
from typing import Final

from sqlalchemy import Engine

from pipeline.data.contracts.registries.answers import Absent, Answer, Away, Found
from pipeline.data.contracts.registries.patience import Patience
from pipeline.data.contracts.registries.resolution import Resolution
from tests.model.schedule_tasks import Event, Scheduler
from tests.model.schedule_world import FIRST, KNOWN, LATE, OTHER, REGISTRY, THIRD

PATIENT: Final = Patience(away=0.5, away_most=4.0, absent=1.0, absent_for=2.0, refused=5.0)
IMPATIENT: Final = Patience(absences=1, absent_for=0.0)
_MEANS: Final = {KNOWN: FIRST, LATE: FIRST, OTHER: THIRD}  # it never has another one


class ForeignRegistry:
    """One registry, which all drivers of a schedule ask."""

    def __init__(self, scheduler: Scheduler, back_at: float, *, is_away: bool) -> None:
        """It answers from `back_at` on, and with `is_away` only when `is_away` ends as well."""
        self.is_away, self.has_late = is_away, False
        self._scheduler, self._back_at = scheduler, back_at

    def resolve(self, writer: bytes) -> Answer:
        self._scheduler.point("registry")
        if self.is_away or self._scheduler.now < self._back_at:
            return Away("it is switched off")
        if writer not in _MEANS or (writer == LATE and not self.has_late):
            return Absent("it has no such schema")
        return Found("protobuf", _MEANS[writer], {b"": "t.M"})


class Asking(Resolution):
    """The real resolution, on the clock of a schedule."""

    def __init__(
        self, engine: Engine, registry: ForeignRegistry, scheduler: Scheduler, patience: Patience = PATIENT
    ) -> None:
        clock = partial(getattr, scheduler, "now")
        super().__init__(engine, {REGISTRY: registry}, clock, steady=clock, patience=patience)
        for asking in self._asking.values():
            asking.wake = Event(scheduler)  # type: ignore[assignment]
