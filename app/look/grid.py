"""The status grid: one chart with a cell per game, in blocks per group, up to a thousand and more.

Pure. Cells are placed by expressions on the chart's width, so they fill any screen; only trouble has a glyph. A click
returns the game's key, never a position. A cell says since when, not how long: its data changes when its game does.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from app import formatting
from app.look import axes, tokens
from app.look.axes import Chart
from app.look.tokens import Mode, Tone
from listeners.status import Status

PICK: Final = "picked"
"""Name of the grid's selection; it carries the key of the game that was clicked."""

_MOST_NAMED: Final = 60  # games: more of them have no room for their names
_MOST_LARGE: Final = 400  # games: more of them get lower cells
_PER_LINE: Final = 60  # cells without names, over the whole width
_NAMED_PER_LINE: Final = 10
_HEAD, _GAP, _BETWEEN, _ASIDE = 22, 3, 12, 16  # px: a block's head; between cells, blocks above and beside each other
_LETTER: Final = 7.4  # px, about, of a bold letter of 12.5 px
_BLIND: Final = len(Status)  # the code of every cell where nothing is known of the whole fleet
_MARKS: Final[Mapping[Tone, int]] = {"bad": _BLIND + 1, "late": _BLIND + 2, "busy": _BLIND + 3}
_MARK: Final = "!"  # of a game whose stream is well, and which an open incident names


@dataclass(frozen=True, slots=True)
class GridCell:
    """One game; `status` is of its stream, `note` its cause in a few words.

    `mark` is the tone of an open incident that its status does not show: its stream runs, and its rows are refused.
    """

    key: str
    name: str
    status: Status
    since: float | None = None
    note: str = ""
    mark: Tone | None = None


@dataclass(frozen=True, slots=True)
class Block:
    """One group: its name, "73 of 79 well", "load 58 %"."""

    title: str
    well: str
    load: str
    cells: Sequence[GridCell]


def grid(blocks: Sequence[Block], mode: Mode, *, blind: bool = False) -> Chart:
    """Return the grid; `blind`: nothing is known of the whole fleet, which is one fact, so every cell is grey."""
    games = sum(len(block.cells) for block in blocks)
    named = games <= _MOST_NAMED
    beside = 1 if named or len(blocks) < 3 else 2 if len(blocks) < 5 else 4
    per_line = _NAMED_PER_LINE if named else _PER_LINE // beside
    height = 26 if named else 17 if games <= _MOST_LARGE else 14
    cells, heads, whole = _placed(blocks, beside, per_line, height, blind=blind)
    width = f"((width - {_ASIDE * (beside - 1)}) / {beside})"
    left = f"datum.b * ({width} + {_ASIDE})"
    step = f"({width} + {_GAP}) / {per_line}"
    at = f"{left} + datum.c * ({step})"
    layers = [
        _boxes(mode, f"{at} + ({step} - {_GAP}) / 2", f"{step} - {_GAP}", height),
        _glyphs(mode, at, step, height, named=named),
        *_heads(mode, left, width),
    ]
    spec = axes.chart_spec(mode, whole, layers)
    spec["padding"] = 0
    return Chart(spec, {"cells": cells, "heads": heads})


def legend(blocks: Sequence[Block], *, blind: bool = False) -> list[tuple[str, str]]:
    """Return what the colours on screen say, as (colour's name, word): the calm ones last."""
    if blind:
        return [("still", "unknown")]
    cells = [cell for block in blocks for cell in block.cells]
    words: dict[str, list[str]] = {}
    for status in reversed(Status):
        style = formatting.STATUS_STYLES[status]
        if any(cell.status == status and cell.mark is None for cell in cells):
            words.setdefault(tokens.FILLS[style.tone], []).append(style.word)
    marked = [
        (tokens.FILLS[tone], f"{_MARK} runs, in an incident{' that recovers' if tone == 'busy' else ''}")
        for tone in _MARKS
        if any(cell.mark == tone for cell in cells)
    ]
    return [*marked, *((fill, ", ".join(named)) for fill, named in words.items())]


def _boxes(mode: Mode, x: str, width: str, height: int) -> dict[str, Any]:
    return {
        "data": {"name": "cells"},
        "transform": [
            {"calculate": f"{_words()}[datum.code]", "as": "status"},
            {
                "calculate": "isValid(datum.since) ? utcFormat(datum.since * 1000, '%d %b %H:%M UTC') : "
                f"'{formatting.UNKNOWN_VALUE}'",
                "as": "at",
            },
        ],
        "params": [{"name": PICK, "select": {"type": "point", "fields": ["key"], "on": "click"}}],
        "mark": {
            "type": "rect",
            "cornerRadius": 3,
            "cursor": "pointer",
            "x": {"expr": x},  # its middle, and so is y
            "y": {"expr": f"datum.y + {height / 2:g}"},
            "width": {"expr": width},
            "height": height,
        },
        "encoding": {
            "fill": axes.palette(mode, _fills()),
            "tooltip": [
                {"field": "name", "type": "nominal", "title": "game"},
                {"field": "key", "type": "nominal", "title": "key"},
                {"field": "status", "type": "nominal", "title": "status"},
                {"field": "at", "type": "nominal", "title": "since"},
                {"field": "note", "type": "nominal", "title": "cause"},
            ],
        },
    }


def _glyphs(mode: Mode, x: str, step: str, height: int, *, named: bool) -> dict[str, Any]:
    """Return the glyphs of those in trouble; with room for it, the names of all."""
    marks = [formatting.STATUS_STYLES[status].glyph for status in Status]
    marks[Status.RUNNING.severity] = ""
    glyph = f"{[*marks, '?', *(_MARK for _ in _MARKS)]!r}[datum.code]"
    words = f"trim({glyph} + ' ' + datum.name)" if named else glyph
    place = f"{x} + 8" if named else f"{x} + ({step} - {_GAP}) / 2"
    return {
        "data": {"name": "cells"},
        "transform": [{"calculate": words, "as": "words"}],
        "mark": {
            "type": "text",
            "align": "left" if named else "center",
            "baseline": "middle",
            "fontSize": 12 if named else height - 6,
            "font": axes.FONT,
            "limit": {"expr": f"{step} - {_GAP} - {14 if named else 0}"},
            "x": {"expr": place},
            "y": {"expr": f"datum.y + {height / 2:g}"},
        },
        "encoding": {"text": {"field": "words", "type": "nominal"}, "color": axes.palette(mode, _inks())},
    }


def _heads(mode: Mode, left: str, width: str) -> list[dict[str, Any]]:
    """Return a block's name, how many of it are well, and its load at the right."""
    text = {"type": "text", "baseline": "top", "font": axes.FONT, "y": {"expr": "datum.y + 3"}}
    ink, mute = tokens.colour("ink", mode), tokens.colour("mute", mode)
    kinds = (
        ("title", {"fontSize": 12.5, "fontWeight": 600, "color": ink, "x": {"expr": left}, "align": "left"}),
        ("well", {"fontSize": 12, "color": mute, "x": {"expr": f"{left} + datum.w"}, "align": "left"}),
        ("load", {"fontSize": 12, "color": mute, "x": {"expr": f"{left} + {width}"}, "align": "right"}),
    )
    return [
        {"data": {"name": "heads"}, "mark": {**text, **mark}, "encoding": {"text": {"field": name, "type": "nominal"}}}
        for name, mark in kinds
    ]


def _placed(
    blocks: Sequence[Block], beside: int, per_line: int, height: int, *, blind: bool
) -> tuple[pa.Table, pa.Table, int]:
    """Return the cells and heads with their places, and the height of all."""
    cells: list[dict[str, Any]] = []
    heads: list[dict[str, Any]] = []
    y = 0
    for first in range(0, len(blocks), beside):
        row = blocks[first : first + beside]
        for column, block in enumerate(row):
            title = formatting.shown(block.title, 40)
            wide = round(len(title) * _LETTER) + 14
            heads.append({"b": column, "y": y, "title": title, "w": wide, "well": block.well, "load": block.load})
            cells += [
                _cell(cell, column, place % per_line, y + _HEAD + place // per_line * (height + _GAP), blind=blind)
                for place, cell in enumerate(block.cells)
            ]
        lines = max(-(-len(block.cells) // per_line) for block in row)
        y += _HEAD + lines * (height + _GAP) + _BETWEEN
    kinds = {"key": pa.string(), "name": pa.string(), "code": pa.int8(), "b": pa.int8(), "c": pa.int8()}
    kinds |= {"y": pa.int16(), "since": pa.float64(), "note": pa.string()}
    texts = {"title": pa.string(), "well": pa.string(), "load": pa.string()}
    return (
        axes.table(cells, kinds),
        axes.table(heads, {"b": pa.int8(), "y": pa.int16(), "w": pa.int16(), **texts}),
        max(y - _BETWEEN, _HEAD),
    )


def _cell(cell: GridCell, block: int, column: int, y: int, *, blind: bool) -> dict[str, Any]:
    return {
        "key": cell.key,
        "name": formatting.shown(cell.name, 60),
        "code": _BLIND if blind else _code(cell),
        "b": block,
        "c": column,
        "y": y,
        "since": cell.since,
        "note": formatting.shown(cell.note, 120) if cell.note else formatting.UNKNOWN_VALUE,
    }


def _code(cell: GridCell) -> int:
    return cell.status.severity if cell.mark is None else _MARKS[cell.mark]


def _fills() -> list[str]:
    of_statuses = (tokens.FILLS[formatting.STATUS_STYLES[status].tone] for status in Status)
    return [*of_statuses, "still", *(tokens.FILLS[tone] for tone in _MARKS)]


def _inks() -> list[str]:
    of_statuses = (tokens.FILL_INKS[formatting.STATUS_STYLES[status].tone] for status in Status)
    return [*of_statuses, "still-ink", *(tokens.FILL_INKS[tone] for tone in _MARKS)]


def _words() -> str:
    of_statuses = (formatting.STATUS_STYLES[status].word for status in Status)
    return repr([*of_statuses, "unknown", *("running, in an incident" for _ in _MARKS)])
