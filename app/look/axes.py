"""What all charts share: time axis, value axis, objective, marked events, colours, tables.

Pure. A spec stays equal while its page refreshes: the ends of the axis, the objective and the events lie in datasets.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from app import formatting
from app.look import tokens
from app.look.tokens import Mode

Values = Sequence[float | None]
"""One value per slot, from the frame's first; None or not a number where nobody knows."""

FONT: Final = "'Source Sans', sans-serif"
WHEN: Final = {"calculate": "utcFormat(datum.t, '%d %b %H:%M')", "as": "when"}
_SPAN: Final = "domain('x')[1] - domain('x')[0]"  # milliseconds
_WHEN_LABEL: Final = (
    f"utcFormat(datum.value, {_SPAN} > 2 * 86400000 ? '%d %b' : {_SPAN} < 8 * 60000 ? '%H:%M:%S' : '%H:%M')"
)
_MOST_EVENTS: Final = 6
_MOST_MARKS: Final = 20
_LETTER: Final = 5.6  # px: a letter of a mark's words
_ROOM: Final = 3  # letters between the words of two events, or for a count of the others
_IN_SECONDS: Final = 120
_LOW: Final = 150  # a chart below this height has few ticks


@dataclass(frozen=True, slots=True)
class ChartMark:
    """What is marked in a chart: `deploy 1.8.2`, `2 games a→b`, `schema 7`, `b restarts`."""

    at: float
    label: str


@dataclass(frozen=True, slots=True)
class Frame:
    """What the charts of one page share: their time axis, which ends at now, the marked events, theme and height.

    `width` is that of the plot in px on a screen of 1,280 px: the words of events share it.
    """

    since: float
    slot_seconds: int
    until: float
    mode: Mode = "light"
    events: Sequence[ChartMark] = ()
    height: int = 170
    width: int = 520


@dataclass(frozen=True, slots=True)
class Chart:
    """A spec, and the tables it names."""

    spec: dict[str, Any]
    datasets: dict[str, pa.Table] = field(default_factory=dict)

    def whole(self) -> dict[str, Any]:
        """Return what `st.vega_lite_chart(theme=None, alt=…)` takes; `alt` names the picture.

        Beside a description Streamlit would log a warning at each refresh.
        """
        return {**self.spec, "datasets": dict(self.datasets)}


def timed_chart(
    frame: Frame,
    layers: list[dict[str, Any]],
    datasets: dict[str, pa.Table],
    *,
    floor: float,
    objective: float | None = None,
    words: str | None = None,
) -> Chart:
    """Return a chart over time: what is drawn, then the objective, then the events above it."""
    said = words or (f"objective {_aim(objective)}" if objective is not None else "")
    datasets = {
        **datasets,
        "frame": table(
            [{"t": frame.since * 1000, "y": floor, "label": " "}, {"t": frame.until * 1000, "y": floor, "label": " "}],
            {"t": pa.float64(), "y": pa.float32(), "label": pa.string()},
        ),
        "objective": table(
            [{"y": floor if objective is None else objective, "label": said, "on": 0 if objective is None else 1}],
            {"y": pa.float32(), "label": pa.string(), "on": pa.int8()},
        ),
        "events": _events(frame),
    }
    y = layers[0]["encoding"]["y"]
    high = {**y, "field": "y"}
    warm, mute = tokens.colour("bad-text", frame.mode), tokens.colour("mute", frame.mode)
    text: dict[str, Any] = {
        "type": "text",
        "aria": False,
        "align": "left",
        "baseline": "bottom",
        "fontSize": 10.5,
        "font": FONT,
    }
    above = {**text, "y": {"expr": "-4 - 12 * datum.lane"}, "dx": {"expr": "datum.near ? 2 : -2"}, "color": mute}
    above["align"] = {"expr": "datum.near ? 'right' : 'left'"}
    rule: dict[str, Any] = {"type": "rule", "aria": False, "strokeDash": [2, 3], "color": mute}
    rule |= {"y": {"expr": "-3 - 12 * datum.lane"}, "y2": {"expr": "height"}}
    room = {**text, "y": -16, "color": "transparent"}
    spec = chart_spec(
        frame.mode,
        frame.height,
        [
            *layers,
            {
                "data": {"name": "frame"},
                "mark": {"type": "point", "aria": False, "opacity": 0},
                "encoding": {"x": time_axis(), "y": high},
            },
            {
                "data": {"name": "frame"},
                "mark": room,
                "encoding": {"x": time_axis(), "text": {"field": "label"}},
            },
            {
                "data": {"name": "objective"},
                "mark": {
                    "type": "rule",
                    "aria": False,
                    "strokeDash": [5, 4],
                    "color": warm,
                    "strokeWidth": 1.3,
                    "opacity": {"expr": "datum.on"},
                },
                "encoding": {"y": high},
            },
            {
                "data": {"name": "objective"},
                "mark": {**text, "color": warm, "dx": 6, "dy": -2},
                "encoding": {"x": {"value": 0}, "y": high, "text": {"field": "label"}},
            },
            {"data": {"name": "events"}, "mark": rule, "encoding": {"x": time_axis()}},
            {
                "data": {"name": "events"},
                "mark": above,
                "encoding": {"x": time_axis(), "text": {"field": "label"}},
            },
        ],
    )
    return Chart(spec, datasets)


def chart_spec(mode: Mode, height: int, layers: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a whole spec; its charts stand on the card, so the ground is transparent."""
    return {
        "background": "transparent",
        "height": height,
        "padding": {"left": 0, "right": 8, "top": 2, "bottom": 0},
        "layer": layers,
        "config": {
            "font": FONT,
            "view": {"stroke": None},
            "axis": {
                "domain": False,
                "ticks": False,
                "labelColor": tokens.colour("mute", mode),
                "labelFontSize": 11,
                "labelFont": FONT,
                "gridColor": tokens.colour("grid", mode),
                "labelPadding": 6,
            },
        },
    }


def time_axis() -> dict[str, Any]:
    """Return the time axis; its ends lie in the dataset `frame`."""
    return {
        "field": "t",
        "type": "temporal",
        "title": None,
        "scale": {"type": "utc", "nice": False},
        "axis": {"labelExpr": _WHEN_LABEL, "tickCount": 6, "grid": False, "labelFlush": False},
    }


def value_axis(name: str, frame: Frame, label: str) -> dict[str, Any]:
    """Return the value axis, of one width in all charts, so that charts above each other align."""
    few = 3 if frame.height < _LOW else 5
    return {
        "field": name,
        "type": "quantitative",
        "title": None,
        "scale": {"zero": True, "nice": False},
        "axis": {"labelExpr": label, "tickCount": few, "grid": True, "minExtent": 40, "maxExtent": 40},
    }


def palette(mode: Mode, names: Sequence[str]) -> dict[str, Any]:
    """Return the colour of a mark, by its `code`: the place of a name in `names`."""
    shades = [tokens.colour(name, mode) for name in names]
    scale = {"domain": list(range(len(shades))), "range": shades}
    return {"field": "code", "type": "nominal", "scale": scale, "legend": None}


def tooltip() -> list[dict[str, Any]]:
    """Return what a mark says under the pointer; its layer transforms with `WHEN`."""
    words = {"when": "from, UTC", "what": "series", "said": "value"}
    return [{"field": name, "type": "nominal", "title": title} for name, title in words.items()]


def _aim(seconds: float) -> str:
    """Return an objective as people say it: 60 s, not 1 min."""
    return f"{seconds:g} s" if seconds <= _IN_SECONDS else formatting.age(seconds)


def _events(frame: Frame) -> pa.Table:
    """Return the newest events within the axis, with words on two lanes where they find room.

    Words count the events without words that lie below them, and no others, so that each counts at its moment. The
    words of an event near the end of the axis stand left of it, towards those of the event before; they have none
    where they would begin before the axis.
    """
    whole = max(1.0, frame.until - frame.since)
    inside = sorted((each for each in frame.events if frame.since <= each.at <= frame.until), key=lambda each: each.at)
    rows: list[dict[str, Any]] = []
    taken = [-math.inf, -math.inf]
    said: dict[int, tuple[float, float, int]] = {}  # by row: from when to when its words lie, and how many they hide
    for each in inside[-_MOST_MARKS:]:
        words = formatting.shown(each.label, 24)
        wide = (len(words) + _ROOM) * _LETTER / frame.width * whole
        near = each.at + wide > frame.until
        begin, end = (each.at - wide, each.at) if near else (each.at, each.at + wide)
        lane = next((lane for lane, last in enumerate(taken) if last <= begin), None)
        if lane is not None and len(said) < _MOST_EVENTS and begin >= frame.since:
            taken[lane] = end
            said[len(rows)] = begin, end, 0
        else:
            words, lane = " ", 0
            for row in reversed(said):
                first, last, hidden = said[row]
                if first <= each.at <= last:
                    said[row] = first, last, hidden + 1
                    break
        rows.append({"t": each.at * 1000, "label": words, "lane": lane, "near": near})
    for row, (_, _, hidden) in said.items():
        if hidden:
            rows[row]["label"] += f" +{hidden}"
    return table(rows, {"t": pa.float64(), "label": pa.string(), "lane": pa.int8(), "near": pa.bool_()})


def slots_of(frame: Frame, values: Values, *, middle: bool) -> list[tuple[float, float | None]]:
    """Return (Unix seconds, value) per slot: of its middle for lines, of its beginning for bars."""
    begin = frame.since + (frame.slot_seconds / 2 if middle else 0.0)
    return [(begin + number * frame.slot_seconds, finite(value)) for number, value in enumerate(values)]


def finite(value: float | None) -> float | None:
    """Return a value that a chart can draw, None for any other."""
    return None if value is None or not math.isfinite(value) else float(value)


def table(rows: Sequence[Mapping[str, Any]], kinds: Mapping[str, pa.DataType]) -> pa.Table:
    """Return rows as a table of these kinds: lean ones, and no int64, which Vega cannot calculate with."""
    return pa.table({name: pa.array([row[name] for row in rows], kind) for name, kind in kinds.items()})
