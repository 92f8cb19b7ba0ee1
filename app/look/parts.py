"""Parts of a page as HTML: sentence, health strip, figures, heads, incidents, facts, pills, steps, bars, diffs.

Pure: values in, HTML for `st.html` out. Every text is escaped here; a name that others chose has gone through
`formatting.shown` before, which removes what cannot be seen. Classes are those of `style.py`.
"""

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from app.look.tokens import COLOURS, Tone

_LEAST_BAD: Final = 30  # percent of a slot's height: one failing stream of 1,000 is seen
_LEAST_LATE: Final = 22
_NEAR: Final = 3.0  # an objective further above the data, as a multiple of it, would flatten the data
_ROOM: Final = 1.12  # above the highest point of a sparkline
_HIGH: Final = 24  # height of a sparkline in its own units, 100 wide
_GLYPHS: Final = {"done": "✓", "running": "»", "waiting": "○", "failed": "✗", "person": "▲"}


@dataclass(frozen=True, slots=True)
class StripSlot:
    """One slot of a health strip; `bad`, `late` and `starting` are shares of all streams, 0 to 1."""

    at: float
    bad: float
    late: float
    known: bool
    title: str
    starting: float = 0.0  # of which nothing is known, or not yet: not well, and no trouble


@dataclass(frozen=True, slots=True)
class Figure:
    """One number with its course; `floor` keeps noise low, `objective` is a dashed line where it is near."""

    label: str
    value: str
    unit: str
    note: str
    points: Sequence[float | None]
    tone: Tone
    objective: float | None = None
    floor: float = 0.0


@dataclass(frozen=True, slots=True)
class Fullness:
    """How full something is before and after a plan, as shares of what it may use; None is not known."""

    name: str
    before: float | None
    after: float | None
    words: str
    limited: bool = True


def sentence(text: str, meta: str, tone: Tone) -> str:
    """Return the sentence a page is about, its dot round where all is well, square in trouble, hollow if unknown."""
    about = f"<span>{_text(meta)}</span>" if meta else ""
    return (
        f'<div class="t-sentence" role="heading" aria-level="1"><i class="t-dot t-{tone}"></i>'
        f"<b>{_text(text)}</b>{about}</div>"
    )


def strip(slots: Sequence[StripSlot], begin: str, middle: str, end: str, label: str) -> str:
    """Return a health strip: a slot per time, trouble rising from below, hatched where no driver reported."""
    ends = f"<p><span>{_text(begin)}</span><span>{_text(middle)}</span><span>{_text(end)}</span></p>"
    cells = "".join(map(_slot, slots))
    return f'<div class="t-strip"><div role="img" aria-label="{_text(label)}">{cells}</div>{ends}</div>'


def figures(items: Sequence[Figure], *, faded: bool = False) -> str:
    """Return figures side by side; faded where they are the last that could be read."""
    inside = "".join(map(_figure, items))
    return f'<dl class="t-figures{" t-faded" if faded else ""}">{inside}</dl>'


def section(title: str, meta: str = "", legend: Sequence[tuple[str, str]] = ()) -> str:
    """Return the head of a panel: title, unit or scope, and a legend of (colour's name, word)."""
    about = f"<span>{_text(meta)}</span>" if meta else ""
    squares = "".join(
        f'<li><i style="background:var(--{name})"></i>{_text(word)}</li>' for name, word in legend if name in COLOURS
    )
    keys = f"<ul>{squares}</ul>" if squares else ""
    return f'<div class="t-section"><div role="heading" aria-level="2"><b>{_text(title)}</b></div>{about}{keys}</div>'


def incident(glyph: str, title: str, about: str, since: str, tone: Tone) -> str:
    """Return the words of an incident; its rule at the left is its container's."""
    line = f"<p>{_text(about)}</p>" if about else ""
    return (
        f'<div class="t-incident t-{tone}"><i>{_text(glyph)}</i><div><b>{_text(title)}</b>{line}</div>'
        f"<span>{_text(since)}</span></div>"
    )


def calm(text: str) -> str:
    """Return the line that stands where incidents would."""
    return f'<div class="t-calm"><i>✓</i>{_text(text)}</div>'


def note(text: str) -> str:
    """Return a quiet line: a scope, a hint, what is not possible."""
    return f'<div class="t-note">{_text(text)}</div>'


def facts(pairs: Sequence[tuple[str, str]]) -> str:
    """Return lines of a label and a value."""
    lines = "".join(f"<dt>{_text(label)}</dt><dd>{_text(value)}</dd>" for label, value in pairs)
    return f'<dl class="t-facts">{lines}</dl>'


def numbers(pairs: Sequence[tuple[str, str]]) -> str:
    """Return small numbers side by side, each below its label: of a card."""
    cells = "".join(f"<div><dt>{_text(label)}</dt><dd>{_text(value)}</dd></div>" for label, value in pairs)
    return f'<dl class="t-numbers">{cells}</dl>'


def pill(word: str, tone: Tone) -> str:
    """Return a status as a pill: glyph and word in `word`."""
    return f'<span class="t-pill t-pill-{tone}">{_text(word)}</span>'


def title(name: str, word: str, tone: Tone, meta: str = "", right: str = "") -> str:
    """Return the head of a card about one thing: its name, its status as a pill, what else is to say."""
    state = pill(word, tone) if word else ""
    about = f"<span>{_text(meta)}</span>" if meta else ""
    end = f'<span class="t-right">{_text(right)}</span>' if right else ""
    return (
        f'<div class="t-title"><div role="heading" aria-level="2"><b>{_text(name)}</b></div>{state}{about}{end}</div>'
    )


def steps(items: Sequence[tuple[str, str, str]]) -> str:
    """Return the steps of an operation as (state, name, fact); states: done, running, waiting, failed, person."""
    inside = "".join(
        f'<li class="t-{state if state in _GLYPHS else "waiting"}"><i>{_GLYPHS.get(state, "?")}</i>'
        f"<b>{_text(name)}</b><span>{_text(fact)}</span></li>"
        for state, name, fact in items
    )
    return f'<ol class="t-steps">{inside}</ol>'


def journal(items: Sequence[tuple[str, str, str, str]]) -> str:
    """Return the steps of an operation below each other as (state, name, times, message); states as of `steps`."""
    inside = "".join(
        f'<li class="t-{state if state in _GLYPHS else "waiting"}"><i>{_GLYPHS.get(state, "?")}</i><b>{_text(name)}</b>'
        f"<span>{_text(times)}</span>{f'<p>{_text(message)}</p>' if message else ''}</li>"
        for state, name, times, message in items
    )
    return f'<ol class="t-journal">{inside}</ol>'


def loads(items: Sequence[Fullness], limit: float | None, scale: str) -> str:
    """Return loads before and after a plan: a gain strong, a loss faded, the limit a tick; `scale` says of what."""
    tick = f'<s style="left:{_percent(limit)}%"></s>' if limit is not None else ""
    lines = "".join(
        f"<dt>{_text(each.name)}</dt><dd>{_bar(each, tick if each.limited else '')}</dd><dd>{_text(each.words)}</dd>"
        for each in items
    )
    axis = f"<dt></dt><dd><p><span>0</span><span>50 %</span><span>100 %</span></p></dd><dd>{_text(scale)}</dd>"
    return f'<dl class="t-loads">{lines}{axis if items else ""}</dl>'


def diff(lines: Sequence[tuple[str, str]]) -> str:
    """Return lines of a text as (sign, text): + added, - removed, anything else unchanged."""
    kinds = {"+": "t-plus", "-": "t-minus"}
    inside = "".join(
        f'<i class="{kinds.get(sign, "t-same")}">{sign if sign in kinds else " "} {_text(text)}\n</i>'
        for sign, text in lines
    )
    return f'<pre class="t-diff">{inside}</pre>'


def silence(head: str, about: str) -> str:
    """Return what stands in a panel that has nothing to show, or could not be read: what, since when, what was last."""
    return f'<div class="t-silence"><b>{_text(head)}</b><p>{_text(about)}</p></div>'


def _text(raw: str) -> str:
    return html.escape(raw, quote=True)


def _slot(slot: StripSlot) -> str:
    named = f' title="{_text(slot.title)}"'
    if not slot.known:
        return f'<i class="t-none"{named}></i>'
    bad = max(_LEAST_BAD, 100 * math.sqrt(_share(slot.bad))) if slot.bad > 0 else 0
    late = max(_LEAST_LATE, 100 * math.sqrt(_share(slot.late))) if slot.late > 0 else 0
    bad = min(bad, 100 - _LEAST_LATE) if late else bad  # both are seen
    late = min(late, 100 - bad)
    starting = min(100 * _share(slot.starting), 100 - bad - late)
    marks = "".join(
        f'<u class="t-{kind}" style="height:{height:.0f}%"></u>'
        for kind, height in (("bad", bad), ("late", late), ("none", starting))
        if height
    )
    return f"<i{named}>{marks}</i>"


def _share(value: float) -> float:
    return min(1.0, max(0.0, value))


def _figure(figure: Figure) -> str:
    unit = f"<small>{_text(figure.unit)}</small>" if figure.unit else ""
    note = _text(figure.note) or "&nbsp;"
    return (
        f'<div class="t-{figure.tone}"><dt>{_text(figure.label)}</dt><dd><b>{_text(figure.value)}</b>{unit}</dd>'
        f'<dd class="t-spark">{_spark(figure)}</dd><dd class="t-note">{note}</dd></div>'
    )


def _spark(figure: Figure) -> str:
    """Return a sparkline: a mask, since the page's sanitiser drops inline SVG; it takes the colour of the tone."""
    points = [None if value is None or not math.isfinite(value) else value for value in figure.points]
    known = [value for value in points if value is not None]
    if not known:
        return ""
    highest = max(*known, 0.0)
    aim = figure.objective if figure.objective is not None and figure.objective <= _NEAR * highest else None
    top = max(highest * _ROOM, aim or 0.0, figure.floor) or 1.0
    lines, areas = _paths(points, top)
    image = (
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 100 {_HIGH}' preserveAspectRatio='none'>"
        f"<path d='{areas}' fill-opacity='.16'/>"
        f"<path d='{lines}' fill='none' stroke='#000' stroke-width='1.5' vector-effect='non-scaling-stroke'/></svg>"
    )
    mask = f"<b style=\"mask-image:url('data:image/svg+xml,{quote(image, safe='/:=,.- ')}')\"></b>"
    dashed = f'<s style="top:{100 - 100 * aim / top:.0f}%"></s>' if aim is not None else ""
    last = points[-1]
    dot = f'<u style="top:{100 - 100 * max(last, 0.0) / top:.0f}%"></u>' if last is not None else ""
    return mask + dashed + dot


def _paths(points: Sequence[float | None], top: float) -> tuple[str, str]:
    """Return the path of the line and of the area below it; what is not known breaks both."""
    across = 100 / max(1, len(points) - 1)
    lines: list[str] = []
    areas: list[str] = []
    run: list[str] = []
    first = 0.0
    for number, value in enumerate([*points, None]):
        if value is not None:
            first = number * across if not run else first
            run.append(f"{number * across:.1f} {_HIGH - (_HIGH - 1) * max(value, 0.0) / top - 0.5:.1f}")
        elif run:
            last = (number - 1) * across
            drawn = run if len(run) > 1 else [*run, f"{last + 0.5:.1f} {run[0].split(' ')[1]}"]
            lines.append(f"M{'L'.join(drawn)}")
            areas.append(f"M{'L'.join(drawn)}L{last:.1f} {_HIGH}L{first:.1f} {_HIGH}Z")
            run = []
    return "".join(lines), "".join(areas)


def _bar(load: Fullness, tick: str) -> str:
    before, after = load.before, load.after if load.after is not None else load.before
    if before is None or after is None:
        return f'<i class="t-none">{tick}</i>'
    kept, rest = min(before, after), abs(after - before)
    kind = "t-gain" if after > before else "t-loss"
    return (
        f'<i><u style="width:{_percent(kept)}%"></u>'
        f'<u class="{kind}" style="width:{min(_percent(rest), 100 - _percent(kept)):.1f}%"></u>{tick}</i>'
    )


def _percent(share: float) -> float:
    return round(100 * _share(share), 1)
