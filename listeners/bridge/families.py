"""Renders what the bridge knows as metric families: those of the drivers, and how old its own knowledge is. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from listeners.families import PREFIX, families
from listeners.process_kinds import labels_of
from listeners.totals import MetricsSnapshot, SelfCounts

_SERVE: Final = f"{PREFIX}metrics_serve_"
_OF_PASSES: Final = frozenset(
    f"{PREFIX}stream_{name}"
    for name in ("rows", "rejects", "type_rows", "commits", "errors", "caught_up_rows", "latency_seconds")
)


@dataclass(frozen=True, slots=True)
class Readings:
    """How reading one place goes."""

    is_up: bool  # its newest reading succeeded, not long ago
    read_at: float | None  # Unix seconds; None: it never succeeded
    failures: int


@dataclass(frozen=True, slots=True)
class Known:
    """What the bridge knows at one moment."""

    snapshot: MetricsSnapshot  # of all drivers, without what each counts of its own telemetry
    own: Mapping[tuple[str, str], SelfCounts]  # by kind and name of the driver
    places: Mapping[str, Readings]  # the control store and the tables
    newest: Mapping[str, float]  # time of the newest row by table, Unix seconds
    late: Mapping[tuple[str, str], bool] = field(default_factory=dict)
    """Whether a driver's rows are missing, for each driver that sends heartbeats, by kind and name."""

    are_passes_known: bool = True  # False: counters of games would stand still, and are left out


def bridge_families(known: Known) -> Iterator[Metric]:
    """Yield every metric family with at least one known sample."""
    for family in families(known.snapshot):
        if known.are_passes_known or family.name not in _OF_PASSES:
            yield family
    yield from _own(known.own)
    for family in _serve(known):
        if family.samples:
            yield family


def _own(own: Mapping[tuple[str, str], SelfCounts]) -> Iterator[Metric]:
    """Yield what each driver counts of its own telemetry, with the labels by which a scrape tells drivers apart."""
    merged: dict[str, Metric] = {}
    for (kind, name), counts in own.items():
        for each in families(MetricsSnapshot({}, None, {}, {}, None, counts)):
            family = merged.setdefault(each.name, Metric(each.name, each.documentation, each.type))
            for sample in each.samples:
                family.add_sample(sample.name, labels_of(kind, name), sample.value)
    yield from merged.values()


def _serve(known: Known) -> Iterator[Metric]:
    places = known.places.items()
    yield _gauge(
        "up",
        "1 if `turnout metrics serve` can read this place, 0 otherwise.",
        ("place",),
        (((place,), float(each.is_up)) for place, each in places),
    )
    yield _gauge(
        "read_timestamp_seconds",
        "When the place was last read.",
        ("place",),
        (((place,), each.read_at) for place, each in places),
    )
    yield _gauge(
        "newest_timestamp_seconds",
        "Time of the newest row that was read of the metrics table.",
        ("table",),
        (((table,), at) for table, at in known.newest.items()),
    )
    yield _gauge(
        "driver_late",
        "1 for a driver that beats while its rows in the metrics tables do not come, 0 for the others that beat.",
        ("kind", "cluster_group"),
        (
            ((kind, labels_of(kind, name).get("cluster_group", "")), float(late))
            for (kind, name), late in known.late.items()
        ),
    )
    failures = CounterMetricFamily(f"{_SERVE}read_failures", "Failed readings of the place.", labels=("place",))
    for place, each in places:
        failures.add_metric((place,), each.failures)
    yield failures


def _gauge(
    name: str, meaning: str, labels: Sequence[str], samples: Iterable[tuple[Sequence[str], float | None]]
) -> Metric:
    family = GaugeMetricFamily(_SERVE + name, meaning, labels=labels)
    for values, amount in samples:
        if amount is not None:
            family.add_metric(values, amount)
    return family
