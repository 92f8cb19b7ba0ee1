"""Metrics of a controller."""

from listeners.totals import ControllerMetrics, DerivedMetrics

NOW = 9_000.0
CONTROLLER_METRICS = ControllerMetrics(
    is_controller_running=True,
    supervised_groups=1,
    open_operations={"needs_human": 1},
    oldest_stuck_since=NOW,
    evacuations={"b": (1, NOW)},
    access_read_at=NOW,
    drift={"extra": 1},
    overdue_access=1,
    source_age_seconds=1.0,
    source_rows=1,
    source_silent_after=12.0,
    sources={"games": (1.0, 1)},
    maintenance_overdue_seconds=0.0,
    last_round=(NOW, True),
    last_good_round_at=NOW,
    mistrusted={"main": NOW},
    incidents={"schema": (1, 2)},
    derived=[DerivedMetrics("sold", "g", "a", 1, 1, 1, 1.0, ("Refused", NOW), NOW, False, 3, ("sales",))],
    left_out_types={"g": 2},
    books_due={"g": NOW},
    contract_readers={"sales": ["BI"]},
    stale_contracts={("sales", "g"): True},
)
