"""Renders metric families as requests of OTLP/HTTP in JSON, under the names and labels that a scrape shows.

Pure; `sender` posts them. JSON needs no library: the encoding is proto3's, with int64 as decimal strings, enums as
numbers and names in lowerCamelCase (https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding).
"""

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any, Final

from prometheus_client import Metric
from prometheus_client.samples import Sample

POINTS: Final = 5_000
"""Most data points of one request: collectors bound the bytes of a request."""

_CUMULATIVE: Final = 2  # AggregationTemporality
_NANOS: Final = 1_000_000_000
_Labels = tuple[tuple[str, str], ...]


def requests_of(
    families: Iterable[Metric],
    resource: Mapping[str, str],
    labels: Mapping[str, str],
    since: float | None,
    now: float,
    points: int = POINTS,
) -> Iterator[bytes]:
    """Yield the bodies of as many requests as the families need.

    Args:
        families: counters, gauges and histograms.
        resource: attributes of the process that sends.
        labels: attributes that each data point gets unless it has them, as those of a target in a scrape.
        since: when the process began to count (Unix seconds); None: its counters began at several times.
        now: the time of the data points (Unix seconds).
        points: most data points of one request.
    """
    waiting: list[dict[str, Any]] = []
    size = 0
    for family in families:
        name, found = _points(family, labels, since, now)
        while found:
            part, found = found[: points - size], found[points - size :]
            waiting.append(_metric(family, name, part))
            size += len(part)
            if size == points:
                yield _request(waiting, resource)
                waiting, size = [], 0
    if waiting:
        yield _request(waiting, resource)


def _request(metrics: list[dict[str, Any]], resource: Mapping[str, str]) -> bytes:
    scoped = {"scope": {"name": "turnout"}, "metrics": metrics}
    body = {"resourceMetrics": [{"resource": {"attributes": _attributes(resource)}, "scopeMetrics": [scoped]}]}
    return json.dumps(body, separators=(",", ":"), allow_nan=False).encode()


def _metric(family: Metric, name: str, points: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a metric without a unit: a receiver that makes Prometheus names of units would change ours."""
    described = {"name": name, "description": family.documentation}
    if family.type == "counter":
        sums = {"dataPoints": points, "aggregationTemporality": _CUMULATIVE, "isMonotonic": True}
        return {**described, "sum": sums}
    if family.type == "histogram":
        return {**described, "histogram": {"dataPoints": points, "aggregationTemporality": _CUMULATIVE}}
    return {**described, "gauge": {"dataPoints": points}}


def _points(
    family: Metric, labels: Mapping[str, str], since: float | None, now: float
) -> tuple[str, list[dict[str, Any]]]:
    """Return the metric's name as a scrape shows it, and its data points."""
    times = {"timeUnixNano": _nanos(now)}
    if since is not None and family.type != "gauge":
        times["startTimeUnixNano"] = _nanos(since)
    if family.type == "histogram":
        return family.name, [
            {"attributes": _attributes({**labels, **dict(own)}), **times, **_histogram(samples)}
            for own, samples in _by_labels(family.samples).items()
        ]
    name = f"{family.name}_total" if family.type == "counter" else family.name
    return name, [
        {"attributes": _attributes({**labels, **sample.labels}), **times, "asDouble": float(sample.value)}
        for sample in family.samples
        if sample.name == name
    ]


def _by_labels(samples: Iterable[Sample]) -> dict[_Labels, list[Sample]]:
    found: dict[_Labels, list[Sample]] = {}
    for sample in samples:
        own = tuple((name, value) for name, value in sample.labels.items() if name != "le")
        found.setdefault(own, []).append(sample)
    return found


def _histogram(samples: Iterable[Sample]) -> dict[str, Any]:
    """Return one histogram; a scrape's buckets are cumulative, these are not."""
    buckets = sorted((float(each.labels["le"]), int(each.value)) for each in samples if "le" in each.labels)
    sums = [each.value for each in samples if each.name.endswith("_sum")]
    below = [0, *(count for _, count in buckets)]
    return {
        "count": str(below[-1]),
        **({"sum": float(sums[0])} if sums else {}),
        "explicitBounds": [edge for edge, _ in buckets if not math.isinf(edge)],
        "bucketCounts": [str(high - low) for low, high in pairwise(below)],
    }


def _attributes(labels: Mapping[str, str]) -> list[dict[str, Any]]:
    return [{"key": name, "value": {"stringValue": value}} for name, value in labels.items()]


def _nanos(unix_seconds: float) -> str:
    return str(int(unix_seconds * _NANOS))
