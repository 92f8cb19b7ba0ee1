"""Draws: the status grid of the fleet, and one game's numbers over time. Pure: values in, a chart out.

Colours stand on light and on dark; raw names appear in tooltips only, which show text and nothing else.
"""

from typing import Any, Final

import altair as alt
import pandas as pd

from app import formatting
from app.state.trends import Trend
from pipeline.store.fleet import Fleet, GameRow

Layered = alt.LayerChart | alt.FacetChart  # what Altair says that `layer` returns

GRID_PICK: Final = "picked"
"""Name of the grid's selection; it carries the key of the game that was clicked, never a position."""

_CELL_HEIGHT: Final = 28
_MIN_COLUMNS: Final = 20
_MAX_COLUMNS: Final = 50
_NO_GROUP: Final = "no group"


def status_grid(fleet: Fleet, rows: tuple[GameRow, ...]) -> Layered:
    """Return one chart with a cell per game, in blocks per cluster group; a game keeps its place while it is there."""
    cells, labels = _layout(fleet, rows)
    columns = int(cells["column"].max()) + 1
    lines = int(cells["line"].max()) + 1
    x = alt.X("column:O", axis=None, scale=alt.Scale(domain=list(range(max(columns, _MIN_COLUMNS))), padding=0.06))
    y = alt.Y("line:O", axis=None, scale=alt.Scale(domain=list(range(lines)), padding=0.08))
    pick = alt.selection_point(name=GRID_PICK, fields=["key"], on="click", empty=False)
    base = alt.Chart(cells).encode(x=x, y=y, tooltip=[alt.Tooltip(f"{name}:N") for name in _TOOLTIP])
    boxes = (
        base.mark_rect(cornerRadius=2, cursor="pointer")
        .encode(color=alt.Color("colour:N", scale=None))
        .add_params(pick)
    )
    glyphs = base.mark_text(fontSize=14, fontWeight="bold", cursor="pointer").encode(
        text="glyph:N", color=alt.Color("ink:N", scale=None)
    )
    titles = alt.Chart(labels).mark_text(align="left", fontSize=12, dy=4, color="#888888")
    return alt.layer(boxes, glyphs, titles.encode(x=alt.value(4), y=y, text="label:N")).properties(
        height=lines * _CELL_HEIGHT
    )


_TOOLTIP: Final = ("game", "key", "status", "since", "group", "lane", "lag")


def _layout(fleet: Fleet, rows: tuple[GameRow, ...]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Place the cells: per group a line with its name, then its games by key, as many to a line as fit."""
    blocks: dict[str, list[GameRow]] = {}
    for row in sorted(rows, key=lambda row: (row.group is None, row.group or "", row.game_key)):
        blocks.setdefault(row.group or _NO_GROUP, []).append(row)
    widest = max(len(members) for members in blocks.values())
    width = min(_MAX_COLUMNS, max(_MIN_COLUMNS, widest))
    cells: list[dict[str, Any]] = []
    labels: list[dict[str, Any]] = []
    line = 0
    for group, members in blocks.items():
        whole = [row for row in fleet.rows if (row.group or _NO_GROUP) == group]  # a filter hides games, not trouble
        bad = sum(row.in_trouble for row in whole)
        title = group if group == _NO_GROUP else f"group {formatting.shown(group)}"
        labels.append({"line": line, "label": f"{title}: {len(whole) - bad} of {len(whole)} well"})
        for place, row in enumerate(members):
            cells.append({"line": line + 1 + place // width, "column": place % width, **_cell(fleet, row)})
        line += 1 + -(-len(members) // width)
    return pd.DataFrame(cells), pd.DataFrame(labels)


def _cell(fleet: Fleet, row: GameRow) -> dict[str, str]:
    style = formatting.STATUS_STYLES[row.verdict.status]
    since = row.verdict.since
    return {
        "key": row.game_key,
        "game": formatting.shown(row.game, 80),
        "status": formatting.status_text(row.verdict.status),
        "since": f"{formatting.age(fleet.read_at - since)} ago" if since is not None else formatting.UNKNOWN_VALUE,
        "group": formatting.shown(row.group) if row.group is not None else _NO_GROUP,
        "lane": row.live.lane if row.live is not None else formatting.UNKNOWN_VALUE,
        "lag": formatting.duration(row.lag_seconds),
        "glyph": style.glyph,
        "colour": style.colour,
        "ink": style.ink,
    }


def over_time(trend: Trend, field: str, unit: str, colour: str, limit: float | None = None) -> Layered:
    """Return one number of a trend over its whole time; where nothing was committed there is a gap, not a zero.

    `field` is a field of Point, `unit` stands on the axis, `limit` is drawn as a dashed line.
    """
    frame = pd.DataFrame(
        {
            "from": [_utc(point.at - trend.slice_seconds) for point in trend.points],
            "to": [_utc(point.at) for point in trend.points],
            "value": [getattr(point, field) for point in trend.points],
            "passes": [point.passes for point in trend.points],
        }
    )
    scale = alt.Scale(type="utc", domain=[trend.since * 1000, trend.until * 1000])
    axis = alt.Axis(format="%H:%M", tickCount=6, grid=False)
    bars = (
        alt.Chart(frame)
        .mark_bar(color=colour, stroke=None)
        .encode(
            x=alt.X("from:T", title=None, scale=scale, axis=axis),
            x2="to:T",
            y=alt.Y("value:Q", title=unit, scale=alt.Scale(zero=True), axis=alt.Axis(tickCount=4)),
            y2=alt.datum(0),
            tooltip=[
                alt.Tooltip("from:T", title="from", format="%H:%M:%S UTC", timeUnit="utchoursminutesseconds"),
                alt.Tooltip("value:Q", title=unit, format=",.3~f"),
                alt.Tooltip("passes:Q", title="passes"),
            ],
        )
    )
    layers: list[alt.Chart] = [bars]
    if limit is not None:
        line = alt.Chart(pd.DataFrame({"limit": [limit]})).mark_rule(color="#D55E00", strokeDash=[5, 4])
        layers.append(line.encode(y="limit:Q", tooltip=alt.Tooltip("limit:Q", title="objective, seconds")))
    return alt.layer(*layers).properties(height=150)


def _utc(at: float) -> pd.Timestamp:
    return pd.Timestamp(at, unit="s", tz="UTC")
