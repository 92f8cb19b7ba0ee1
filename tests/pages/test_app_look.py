"""The look: colours that are readable, parts that hostile names cannot leave, charts whose specs stay equal."""

import json
import math
import tomllib
from html.parser import HTMLParser
from typing import Any

import pytest

from app import formatting
from app.look import parts, rows, style, tokens, vega
from listeners.status import STATUSES, Status
from tests.checkout import ROOT

_HOSTILE = "</b><img src=x onerror=alert(1)><script>1</script>\"' style=position:fixed &amp; `{expr}`"


class _Tags(HTMLParser):
    """Collects tags and text of what a part has drawn."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.text += data


def _all_parts(text: str) -> dict[str, str]:
    figure = parts.Figure(text, text, text, text, [1.0, None, 2.0], "bad", objective=1.5)
    return {
        "sentence": parts.sentence(text, text, "bad"),
        "strip": parts.strip([parts.StripSlot(0, 0.1, 0.1, True, text)], text, text, text, text),
        "figures": parts.figures([figure]),
        "section": parts.section(text, text, [("series-1", text), (text, text)]),
        "incident": parts.incident(text, text, text, text, "late"),
        "calm": parts.calm(text),
        "note": parts.note(text),
        "facts": parts.facts([(text, text)]),
        "numbers": parts.numbers([(text, text)]),
        "pill": parts.pill(text, "well"),
        "title": parts.title(text, text, "well", text, text),
        "steps": parts.steps([("done", text, text), (text, text, text)]),
        "loads": parts.loads([parts.Fullness(text, 0.2, 0.3, text)], 0.85, text),
        "diff": parts.diff([("+", text), ("-", text), (text, text)]),
        "silence": parts.silence(text, text),
    }


@pytest.mark.parametrize("name", _all_parts("x"))
def test_a_hostile_name_stays_text(name: str) -> None:
    """Law: a name that others chose is text wherever a part shows it; it opens no tag and adds no attribute."""
    tame, hostile = _Tags(_all_parts("x")[name]), _Tags(_all_parts(_HOSTILE)[name])
    assert (hostile.tags, hostile.attributes) == (tame.tags, tame.attributes)
    assert _HOSTILE in hostile.text


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_every_ink_is_readable_on_its_ground(mode: tokens.Mode) -> None:
    """Law: text has a contrast of 4.5 against what it stands on, in both themes."""
    weak = {
        (ink, ground): round(value, 2)
        for ink, ground in tokens.INKS
        if (value := tokens.contrast(tokens.colour(ink, mode), tokens.colour(ground, mode))) < 4.5
    }
    assert weak == {}


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_marks_are_visible_on_the_card(mode: tokens.Mode) -> None:
    """Law: lines and dots that carry a meaning have a contrast of 3 against the card."""
    card = tokens.colour("card", mode)
    marks = ("ok", "bad", "p50", "p95", "p99", "spark", "primary")
    assert not [name for name in marks if tokens.contrast(tokens.colour(name, mode), card) < 3]


def test_statuses_are_told_without_colour() -> None:
    """Law: every status has a glyph and a word of its own, and trouble never has the colour of calm."""
    styles = [formatting.STATUS_STYLES[status] for status in STATUSES]
    assert len({each.glyph for each in styles}) == len({each.word for each in styles}) == len(STATUSES)
    assert {"well"} == {each.tone for each in styles if each.word == "running"}
    assert not [each.word for each in styles if each.tone == "well" and each.word != "running"]


def test_the_theme_is_that_of_the_tokens() -> None:
    """Law: Streamlit's own elements have the colours of the dashboard's parts."""
    theme = tomllib.loads((ROOT / "app" / "streamlit.toml").read_text("utf-8"))["theme"]
    known = {
        "primaryColor": "primary",
        "backgroundColor": "card",
        "secondaryBackgroundColor": "soft",
        "textColor": "ink",
        "linkColor": "link",
        "borderColor": "line",
    }
    for mode in ("light", "dark"):
        assert {name: tokens.colour(token, mode) for name, token in known.items()} == {
            name: theme[mode][name] for name in known
        }


def test_every_class_of_a_part_has_a_rule() -> None:
    """Law: no part is drawn without its style, and the style knows every colour it names."""
    css = style.block()
    used = {name for part in _all_parts("x").values() for name in _classes(part)}
    assert not sorted(name for name in used - {"t-same"} if f".{name}" not in css)
    named = {each.split(")")[0] for each in css.split("var(--")[1:]}
    assert named <= set(tokens.COLOURS)


def _classes(page: str) -> set[str]:
    return {name for chunk in page.split('class="')[1:] for name in chunk.split('"')[0].split()}


def test_one_failing_stream_of_a_thousand_is_seen() -> None:
    """Law: the smallest trouble fills a third of its slot, and a slot without a report is hatched, never green."""
    slots = [
        parts.StripSlot(0, 0.001, 0, True, ""),
        parts.StripSlot(0, 0.0, 0.001, True, ""),
        parts.StripSlot(0, 0, 0, False, ""),
    ]
    drawn = parts.strip(slots, "", "", "", "x")
    assert 'class="t-bad" style="height:30%"' in drawn
    assert 'class="t-late" style="height:22%"' in drawn
    assert '<i class="t-none"' in drawn
    starting = parts.strip([parts.StripSlot(0, 0.0, 0.0, True, "", starting=0.5)], "", "", "", "x")
    assert 'class="t-none" style="height:50%"' in starting
    both = parts.strip([parts.StripSlot(0, 1.0, 0.5, True, "")], "", "", "", "x")
    assert "height:78%" in both
    assert "height:22%" in both


def test_a_sparkline_breaks_where_nothing_is_known() -> None:
    """Law: a missing value is a gap in the line and no dot at its end; a line of nothing known is not drawn."""
    drawn = parts.figures([parts.Figure("a", "1", "", "", [1, 2, None, 3, math.nan], "plain")])
    assert drawn.count("M0.0") == 2  # line and area of the first run; the second begins later
    assert "<u" not in drawn
    assert "mask-image" not in parts.figures([parts.Figure("a", "–", "", "", [None, None], "plain")])


def test_a_small_noise_stays_low() -> None:
    """Law: a sparkline starts at zero and has a floor, so that noise does not look like trouble."""
    drawn = parts.figures([parts.Figure("refused", "0.2", "/s", "", [0.1, 0.2], "plain", floor=3.0)])
    assert '<u style="top:93%"' in drawn


_FRAME = vega.Frame(1_700_000_000.0, 60, 1_700_003_600.0, events=[vega.ChartMark(1_700_000_600.0, "deploy 1")])


def _charts(frame: vega.Frame, values: list[float | None]) -> dict[str, vega.Chart]:
    cells = [vega.GridCell(f"k{n}", f"game {n}", STATUSES[n % len(STATUSES)], 5.0, "why") for n in range(len(values))]
    return {
        "throughput": vega.throughput(frame, {"a": values, "b": values}),
        "latency": vega.latency(frame, {"p50": values, "p95": values, "p99": values}, 60.0),
        "bars": vega.bars(frame, [("landed", "series-1", values), ("refused", "late", values)]),
        "backlog": vega.backlog(frame, values, None),
        "load": vega.load(frame, values, 0.85),
        "grid": vega.grid([vega.Block("group a", "1 of 2 well", "load 3 %", cells)], frame.mode),
    }


@pytest.mark.parametrize("name", _charts(_FRAME, [1.0]))
def test_a_spec_stays_equal_between_refreshes(name: str) -> None:
    """Law: all changes of time lie in the datasets, so that a refresh replaces no node of the page."""
    later = vega.Frame(1_700_000_060.0, 60, 1_700_003_660.0)
    one, other = _charts(_FRAME, [1.0, None, 3.0])[name], _charts(later, [9.0, 2.0, math.nan])[name]
    assert one.spec == other.spec
    json.dumps(one.spec)
    assert _names(one.spec) == set(one.datasets)


@pytest.mark.parametrize("name", _charts(_FRAME, [1.0]))
def test_datasets_are_lean(name: str) -> None:
    """Law: Vega cannot calculate with 64-bit integers, and no chart of an hour is above 30 kB."""
    tables = _charts(_FRAME, [float(n) for n in range(60)])[name].datasets.values()
    assert "int64" not in {str(kind) for table in tables for kind in table.schema.types}
    assert sum(table.nbytes for table in tables) < 30_000


def test_a_missing_slot_is_no_point_of_a_chart() -> None:
    """Law: a missing slot breaks the line: it is null, never 0."""
    chart = vega.throughput(_FRAME, {"a": [1.0, None], "b": [math.nan, 2.0]})
    rows = chart.datasets["series"].to_pylist()
    assert [row["high"] for row in rows] == [1.0, None, None, 2.0]
    assert rows[1]["said"] == formatting.UNKNOWN_VALUE


def test_a_minute_between_two_gaps_is_drawn_whole() -> None:
    """Each slot of the throughput is a rectangle as wide as the slot, so that no group floats over a missing one."""
    chart = vega.throughput(_FRAME, {"a": [None, 1.0, None], "b": [2.0, 2.0, 2.0]})
    (row,) = (each for each in chart.datasets["series"].to_pylist() if each["what"] == "a" and each["high"])
    assert row["to"] - row["t"] == 60_000
    assert "rect" in {layer["mark"]["type"] for layer in chart.spec["layer"] if isinstance(layer.get("mark"), dict)}


def test_small_groups_are_folded_in_grey() -> None:
    """Law: five groups have a colour, in the order of their names; the others are one grey area of their sum."""
    groups: dict[str, vega.Values] = {f"g{n}": [float(n), None] for n in range(8)}
    assert [word for _, word in vega.legend(groups)] == ["g3", "g4", "g5", "g6", "g7", "3 more"]
    assert vega.folded(groups)[-1][2] == [3.0, None]


def test_many_events_are_counted_not_heaped() -> None:
    """Law: words stand on two lanes where there is room, and count the events without words that lie below them."""
    events = [vega.ChartMark(1_700_000_000.0 + 60 * n, f"event {n}") for n in range(10)]
    chart = vega.backlog(vega.Frame(1_700_000_000.0, 60, 1_700_003_600.0, events=events), [1.0], None)
    words = ["event 0", "event 1 +5", *[" "] * 5, "event 7", "event 8 +1", " "]
    assert chart.datasets["events"]["label"].to_pylist() == words
    assert chart.datasets["events"]["lane"].to_pylist()[:2] == [0, 1]


def test_words_count_no_event_of_another_time() -> None:
    """Law: a mark speaks of its own moment, so that starts of an hour ago are not counted beside a replay of now."""
    starts = [vega.ChartMark(60.0 * n, "a starts") for n in range(4)]
    made = [*starts, vega.ChartMark(3000.0, "replay")]
    chart = vega.backlog(vega.Frame(0.0, 60, 3600.0, events=made), [1.0], None)
    assert chart.datasets["events"]["label"].to_pylist() == ["a starts", "a starts +2", " ", " ", "replay"]


def test_the_newest_of_very_many_events_are_marked() -> None:
    """Law: what happened last is drawn, however much happened before."""
    made = [vega.ChartMark(100.0 * n, "b restarts") for n in range(36)]
    chart = vega.backlog(vega.Frame(0.0, 60, 3600.0, events=made), [1.0], None)
    assert chart.datasets["events"]["t"].to_pylist()[-1] == 3_500_000.0


@pytest.mark.parametrize("gap", [0.0, 20.0, 90.0, 200.0, 500.0])
def test_words_of_events_never_lie_over_each_other(gap: float) -> None:
    """Law: whatever the distance of events, no two words of one lane share a place, and at most six have words."""
    made = [vega.ChartMark(100.0 + gap * n, "b restarts") for n in range(18)]
    chart = vega.backlog(vega.Frame(0.0, 60, 3600.0, events=made), [1.0], None)
    ends, words = {0: 0.0, 1: 0.0}, 0
    for row in chart.datasets["events"].to_pylist():
        if row["label"].strip():
            at, wide = row["t"] / 1000, len(row["label"]) * 5.6 / 520 * 3600
            begin, end = (at - wide, at) if row["near"] else (at, at + wide)
            assert begin >= ends[row["lane"]]
            assert end <= 3600.0
            ends[row["lane"]], words = end, words + 1
    assert 1 <= words <= 6


def test_words_at_the_end_of_the_axis_do_not_meet_those_before() -> None:
    """Law: the words of the last event stand left of it, so an event somewhat before it takes the other lane."""
    made = [vega.ChartMark(0.77 * 3600, "schema 2 Chess"), vega.ChartMark(0.97 * 3600, "3 drivers start")]
    chart = vega.backlog(vega.Frame(0.0, 60, 3600.0, events=made), [1.0], None)
    assert chart.datasets["events"]["lane"].to_pylist() == [0, 1]


def test_a_fleet_nobody_knows_of_is_grey() -> None:
    """Law: where nothing is known of the whole fleet no cell keeps the colour of its last status."""
    cells = [vega.GridCell(str(n), str(n), Status.RUNNING) for n in range(3)]
    chart = vega.grid([vega.Block("a", "", "", cells)], "light", blind=True)
    fills = chart.spec["layer"][0]["encoding"]["fill"]["scale"]["range"]
    assert {tokens.colour("still", "light")} == {fills[code] for code in chart.datasets["cells"]["code"].to_pylist()}


@pytest.mark.parametrize(("games", "groups", "beside", "high"), [(40, 2, 1, 26), (300, 4, 2, 17), (1000, 8, 4, 14)])
def test_the_grid_fits_any_fleet(games: int, groups: int, beside: int, high: int) -> None:
    """Law: cells have one place each, in as many blocks beside each other as the number of games needs."""
    blocks = [
        vega.Block(
            f"group {g}", "", "", [vega.GridCell(f"{g}-{n}", "x", Status.RUNNING) for n in range(games // groups)]
        )
        for g in range(groups)
    ]
    chart = vega.grid(blocks, "light")
    places = {(row["b"], row["c"], row["y"]) for row in chart.datasets["cells"].to_pylist()}
    assert games == len(places)
    assert beside == 1 + max(b for b, _, _ in places)
    assert high == chart.spec["layer"][0]["mark"]["height"]
    assert chart.spec["height"] >= high + max(y for _, _, y in places)


def _names(spec: dict[str, Any]) -> set[str]:
    return {layer["data"]["name"] for layer in spec["layer"]}


def test_rows_are_high_only_where_a_text_needs_more_lines() -> None:
    """A table of short names stays low; one name that its column would cut makes all rows high enough for it."""
    assert rows.height_of(["Chess", "Go"], 120) == rows.LOW
    assert rows.height_of(["Chess", "The Extraordinary Chronicles"], 120) == rows.TALL
    assert rows.table_height(3, rows.LOW, 620) == 4 * rows.LOW + 2
    assert rows.table_height(300, rows.TALL, 620) == 620
