"""Draws one game's numbers over time. Pure: values in, a chart out. Colours stand on light and on dark."""

import altair as alt
import pandas as pd

from app.state.trends import Trend

Layered = alt.LayerChart | alt.FacetChart  # what Altair says that `layer` returns


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
