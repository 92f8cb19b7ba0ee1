"""The dashboard's colours and sizes: each colour by its name, for light and for dark. Nothing else spells a colour.

`app/streamlit.toml` repeats some of them, since Streamlit reads its theme from there; a test compares the two.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal, NamedTuple

from app.formatting import Tone

__all__ = [
    "COLOURS", "FILLS", "FILL_INKS", "INKS", "SERIES", "Mode", "Pair", "Tone",
    "colour", "contrast", "mode_of", "properties",
]  # fmt: skip

Mode = Literal["light", "dark"]


class Pair(NamedTuple):
    """One colour, in both themes."""

    light: str
    dark: str


COLOURS: Final[Mapping[str, Pair]] = MappingProxyType(
    {
        "page": Pair("#F6F8FA", "#0A0E11"),
        "card": Pair("#FFFFFF", "#12181D"),
        "soft": Pair("#F0F2F5", "#1B2229"),
        "head": Pair("#F4F6F8", "#151B20"),  # heads of tables
        "cellline": Pair("#E7EBF0", "#222A31"),  # lines of tables
        "line": Pair("#E2E7EC", "#242C34"),
        "grid": Pair("#EDF0F3", "#1E262C"),  # lines in charts
        "ink": Pair("#13181D", "#E4E9ED"),
        "mute": Pair("#55616D", "#9AA6B2"),
        "primary": Pair("#0B63A5", "#1E7BBB"),
        "link": Pair("#0B63A5", "#7CC2F0"),
        "ok": Pair("#009E73", "#19A97F"),
        "ok-quiet": Pair("#C3E6DA", "#163F35"),
        "ok-quiet-ink": Pair("#0B4D3A", "#9ADBC5"),
        "bad": Pair("#D55E00", "#E8731A"),
        "bad-text": Pair("#A84300", "#FF9A57"),
        "bad-ground": Pair("#FFF9F5", "#1A140F"),
        "bad-line": Pair("#F0CDB4", "#4A3220"),
        "late": Pair("#E69F00", "#E69F00"),
        "late-text": Pair("#7A5200", "#F0B93D"),
        "late-ground": Pair("#FFFBF2", "#191610"),
        "late-line": Pair("#EBDCB0", "#44391C"),
        "risk": Pair("#F0E442", "#F0E442"),
        "busy": Pair("#56B4E9", "#56B4E9"),
        "blind": Pair("#CC79A7", "#CC79A7"),
        "still": Pair("#D5DAE0", "#343D46"),  # paused, and a fleet of which nothing is known
        "still-ink": Pair("#3C464F", "#C3CAD2"),
        "on-colour": Pair("#101010", "#101010"),  # glyphs on bad, late, risk, busy and blind
        "on-bad-pill": Pair("#FFFFFF", "#FFFFFF"),
        "pill-well": Pair("#DDF1EA", "#12362D"),
        "pill-well-ink": Pair("#00694D", "#7FD9BD"),
        "pill-late": Pair("#FBDDA0", "#57400A"),
        "pill-late-ink": Pair("#5A3A00", "#FFDF9A"),
        "pill-risk": Pair("#F5EE9B", "#4A4610"),
        "pill-risk-ink": Pair("#4F4900", "#F5EE9B"),
        "pill-bad": Pair("#B84A00", "#B84A00"),
        "pill-bad-ink": Pair("#FFFFFF", "#FFFFFF"),
        "pill-busy": Pair("#D6EBF9", "#143A55"),
        "pill-busy-ink": Pair("#0B3D5E", "#A5D8F7"),
        "pill-blind": Pair("#F2D3E4", "#4A2A3C"),
        "pill-blind-ink": Pair("#6B2450", "#F0B8D6"),
        "pill-plain": Pair("#E9ECEF", "#272F36"),
        "pill-plain-ink": Pair("#3C464F", "#C9D2DA"),
        "minus": Pair("#FCE5D8", "#3A2012"),  # a line that goes, in a diff
        "minus-ink": Pair("#8A3600", "#FFB68A"),
        "series-1": Pair("#2E86C1", "#2B6C9B"),
        "series-2": Pair("#8CC6EC", "#4B9AC9"),
        "series-3": Pair("#8793B8", "#59658F"),
        "series-4": Pair("#5FB3A3", "#397C71"),
        "series-5": Pair("#B9B3D6", "#6E6A9B"),
        "series-rest": Pair("#B4BEC8", "#4A545E"),
        "p50": Pair("#4F9BD0", "#3A7DAE"),
        "p95": Pair("#1F6FAE", "#5CB3EC"),
        "p99": Pair("#0B3556", "#D3ECFB"),
        "spark": Pair("#2E86C1", "#56B4E9"),
    }
)

SERIES: Final = ("series-1", "series-2", "series-3", "series-4", "series-5")
"""Colours of groups, in the order of their names; what is beyond them is folded into `series-rest`."""

INKS: Final = (
    *((ink, ground) for ink in ("ink", "mute", "link", "bad-text", "late-text") for ground in ("page", "card")),
    *((ink, "soft") for ink in ("ink", "mute")),
    *((ink, "head") for ink in ("ink", "mute")),
    *((ink, f"{tone}-ground") for tone in ("bad", "late") for ink in ("ink", "mute", f"{tone}-text")),
    *((f"pill-{tone}-ink", f"pill-{tone}") for tone in ("well", "late", "risk", "bad", "busy", "blind", "plain")),
    ("ok-quiet-ink", "ok-quiet"),
    ("still-ink", "still"),
    ("minus-ink", "minus"),
    *(("on-colour", ground) for ground in ("bad", "late", "risk", "busy", "blind")),
    ("on-bad-pill", "primary"),
)
"""Every ink that stands on a ground: a test computes their contrast."""

FILLS: Final[Mapping[Tone, str]] = MappingProxyType(
    {
        "well": "ok-quiet",
        "late": "late",
        "risk": "risk",
        "bad": "bad",
        "busy": "busy",
        "blind": "blind",
        "plain": "still",
    }
)
"""The fill of a cell or slot, by how it is."""

FILL_INKS: Final[Mapping[Tone, str]] = MappingProxyType(
    {tone: {"well": "ok-quiet-ink", "plain": "still-ink"}.get(tone, "on-colour") for tone in FILLS}
)
"""The ink of text on such a fill."""


def colour(name: str, mode: Mode) -> str:
    """Return one colour in one theme, for places which CSS does not reach, such as charts."""
    return COLOURS[name].light if mode == "light" else COLOURS[name].dark


def mode_of(theme: str | None) -> Mode:
    """Return the theme as Streamlit names it; light on a first run, where it does not know yet."""
    return "dark" if theme == "dark" else "light"


def properties() -> str:
    """Return all colours as custom properties, which follow Streamlit's theme by its `color-scheme`."""
    return ";".join(f"--{name}:light-dark({pair.light},{pair.dark})" for name, pair in COLOURS.items())


def contrast(ink: str, ground: str) -> float:
    """Return the contrast of two colours as WCAG 2 computes it, 1 to 21."""
    darker, lighter = sorted((_luminance(ink), _luminance(ground)))
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(hexadecimal: str) -> float:
    parts = [int(hexadecimal[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
