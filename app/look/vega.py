"""Charts as Vega-Lite: throughput, latency, bars, backlog, load, and the grid of all games.

Pure: values in, a dict out. A spec stays equal while its page refreshes, since all that changes lies in the datasets:
Vega then updates in place. Missing values break a line and are never 0. Colours come from `tokens`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from app import formatting
from app.look import axes, tokens
from app.look.axes import Chart, ChartMark, Frame, Values
from app.look.grid import Block, GridCell, grid

__all__ = [
    "QUANTILES",
    "Block",
    "Chart",
    "ChartMark",
    "Frame",
    "GridCell",
    "Values",
    "backlog",
    "bars",
    "folded",
    "grid",
    "latency",
    "legend",
    "load",
    "throughput",
]  # fmt: skip

_GAP: Final = 0.08  # between two bars, on each side, as a share of a slot
_DECADES: Final = [1, 10, 60, 600, 3600, 36000]  # seconds, ticks of a latency
_STEPS: Final = (5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200)  # seconds between ticks
_TIME_TICKS: Final = (
    "sequence(0, domain('y')[1] * 1.001, "
    + "".join(f"domain('y')[1] <= {3.5 * step:g} ? {step} : " for step in _STEPS)
    + "86400)"
)
_RATE_LABEL: Final = (
    "datum.value >= 1e6 ? format(datum.value / 1e6, '~g') + ' M' : "
    "datum.value >= 1000 ? format(datum.value / 1000, '~g') + ' k' : format(datum.value, '~g')"
)
_TIME_LABEL: Final = (
    "datum.value < 60 ? format(datum.value, '~g') + ' s' : "
    "datum.value < 3600 ? format(datum.value / 60, '~g') + ' min' : format(datum.value / 3600, '~g') + ' h'"
)


def folded(by_group: Mapping[str, Values]) -> list[tuple[str, str, Values]]:
    """Return (word, colour's name, values) of the five largest groups in the order of their names, then of the rest."""
    size = {name: _sum(values) or 0.0 for name, values in by_group.items()}
    largest = sorted(sorted(size, key=lambda name: (-size[name], name))[: len(tokens.SERIES)])
    kept: list[tuple[str, str, Values]] = [
        (name, token, by_group[name]) for name, token in zip(largest, tokens.SERIES, strict=False)
    ]
    rest = [values for name, values in by_group.items() if name not in largest]
    if rest:
        kept.append((f"{len(rest)} more", "series-rest", [_sum(each) for each in zip(*rest, strict=True)]))
    return kept


def legend(by_group: Mapping[str, Values]) -> list[tuple[str, str]]:
    """Return the legend of `throughput` for the head of its panel."""
    return [(token, formatting.shown(word, 24)) for word, token, _ in folded(by_group)]


QUANTILES: Final = (("p50", "p50"), ("p95", "p95"), ("p99", "p99"))
"""The legend of `latency`."""


def throughput(frame: Frame, by_group: Mapping[str, Values], unit: str = "/s") -> Chart:
    """Return values of groups stacked over time, such as rows per second."""
    data = _stacked(frame, folded(by_group), unit, gap=0.0)
    rects = _rects(frame, [*tokens.SERIES, "series-rest"], _RATE_LABEL)
    rects["mark"] |= {"cornerRadius": 0, "stroke": tokens.colour("card", frame.mode), "strokeWidth": 0.5}
    return axes.timed_chart(frame, [rects], {"series": data}, floor=1.0)


def latency(frame: Frame, quantiles: Mapping[str, Values], objective: float | None) -> Chart:
    """Return quantiles (`p50`, `p95`, `p99`) over time in seconds, on a log axis from 1 s."""
    rows: list[dict[str, Any]] = []
    for code, (name, _) in enumerate(QUANTILES):
        for at, value in axes.slots_of(frame, quantiles.get(name, ()), middle=True):
            high = None if value is None else max(1.0, value)
            rows.append({"t": at * 1000, "high": high, "code": code, "what": name, "said": formatting.duration(value)})
    y = axes.value_axis("high", frame, _TIME_LABEL)
    y["scale"] = {"type": "log", "domainMin": 1, "nice": False}
    y["axis"] |= {"values": _DECADES}
    line = {
        "data": {"name": "series"},
        "transform": [axes.WHEN],
        "mark": {"type": "line", "interpolate": "linear", "invalid": "break-paths-filter-domains"},
        "encoding": {
            "x": axes.time_axis(),
            "y": y,
            "color": axes.palette(frame.mode, [token for token, _ in QUANTILES]),
            "strokeWidth": {
                "field": "code",
                "type": "ordinal",
                "scale": {"domain": [0, 1, 2], "range": [1.4, 1.8, 2.2]},
                "legend": None,
            },
            "tooltip": axes.tooltip(),
        },
    }
    table = axes.table(
        rows, {"t": pa.float64(), "high": pa.float32(), "code": pa.int8(), "what": pa.string(), "said": pa.string()}
    )
    return axes.timed_chart(frame, [line], {"series": table}, floor=100.0, objective=objective)


def bars(
    frame: Frame, series: Sequence[tuple[str, str, Values]], unit: str = "/s", line: tuple[float, str] | None = None
) -> Chart:
    """Return bars stacked per slot; a series is (word, colour's name, values), such as landed and refused rows.

    `line` is a value that they compare with, and what it is.
    """
    data = _stacked(frame, series, unit)
    rects = _rects(frame, [token for _, token, _ in series], _RATE_LABEL)
    aim, words = line or (None, None)
    return axes.timed_chart(frame, [rects], {"series": data}, floor=1.0, objective=aim, words=words)


def backlog(frame: Frame, seconds: Values, objective: float | None) -> Chart:
    """Return the age of the oldest waiting event per slot, in seconds."""
    data = _stacked(frame, [("backlog", "series-3", seconds)], None)
    rects = _rects(frame, ["series-3"], _TIME_LABEL, {"expr": _TIME_TICKS})
    return axes.timed_chart(frame, [rects], {"series": data}, floor=30.0, objective=objective)


def load(frame: Frame, shares: Values, limit: float | None) -> Chart:
    """Return the load of a group per slot, of what it may use, 0 to 100 %, and its limit."""
    percent = [None if share is None else 100 * share for share in map(axes.finite, shares)]
    data = _stacked(frame, [("load", "series-2", percent)], " %")
    rects = _rects(frame, ["series-2" if frame.mode == "light" else "series-1"], "datum.value + ' %'", [0, 100])
    words = None if limit is None else f"limit {limit:.0%}".replace("%", " %")
    aim = None if limit is None else 100 * limit
    return axes.timed_chart(frame, [rects], {"series": data}, floor=100.0, objective=aim, words=words)


def _rects(frame: Frame, names: Sequence[str], label: str, ticks: Any = None) -> dict[str, Any]:
    y = axes.value_axis("low", frame, label)
    if ticks is not None:
        y["axis"] |= {"values": ticks}
    return {
        "data": {"name": "series"},
        "transform": [axes.WHEN],
        "mark": {"type": "rect", "cornerRadius": 1, "invalid": "filter"},
        "encoding": {
            "x": axes.time_axis(),
            "x2": {"field": "to"},
            "y": y,
            "y2": {"field": "high"},
            "fill": axes.palette(frame.mode, names),
            "tooltip": axes.tooltip(),
        },
    }


def _stacked(frame: Frame, series: Sequence[tuple[str, str, Values]], unit: str | None, gap: float = _GAP) -> pa.Table:
    """Return rows with `low` and `high` of each series; `code` is its place in the palette, `gap` a share of a slot."""
    base: dict[int, float] = {}
    rows: list[dict[str, Any]] = []
    space = frame.slot_seconds * gap
    codes = {"series-rest": len(tokens.SERIES)}
    for place, (word, token, values) in enumerate(series):
        what = formatting.shown(word, 40)
        for number, (at, value) in enumerate(axes.slots_of(frame, values, middle=False)):
            low = base.get(number, 0.0)
            high = None if value is None else low + value
            base[number] = low if high is None else high
            said = formatting.duration(value) if unit is None else f"{formatting.rate(value)}{unit}"
            rows.append(
                {
                    "t": (at + space) * 1000,
                    "to": (at + frame.slot_seconds - space) * 1000,
                    "low": None if high is None else low,
                    "high": high,
                    "code": codes.get(token, place),
                    "what": what,
                    "said": formatting.UNKNOWN_VALUE if value is None else said,
                }
            )
    kinds = {"t": pa.float64(), "to": pa.float64(), "low": pa.float32(), "high": pa.float32(), "code": pa.int8()}
    return axes.table(rows, {**kinds, "what": pa.string(), "said": pa.string()})


def _sum(values: Values) -> float | None:
    """Return the sum of what is known; None where nothing is."""
    known = [each for each in map(axes.finite, values) if each is not None]
    return sum(known) if known else None
