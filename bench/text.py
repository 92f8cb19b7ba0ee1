"""Measurements as a text table. Pure."""

from collections.abc import Mapping, Sequence

from bench.numbers import Spread, spread


def number(value: float | None) -> str:
    """Return a number with three significant digits or all digits before the point; unknown is a dash."""
    if value is None:
        return "-"
    if value == float("inf"):
        return "never"
    size = abs(value)
    digits = 0 if size >= 100 else 1 if size >= 10 else 2
    return f"{value:,.{digits}f}"


def ranged(value: Spread | None) -> str:
    """Return `median (low-high)`."""
    return "-" if value is None else f"{number(value.median)} ({number(value.low)}–{number(value.high)})"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return rows under a header: the first column to the left, the others to the right."""
    grid = [list(header), *[list(row) for row in rows]]
    widths = [max(len(row[at]) for row in grid) for at in range(len(header))]
    lines = [_line(row, widths) for row in grid]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(lines)


def milliseconds(what: str, runs: Mapping[str, Sequence[float]]) -> str:
    """Return the seconds of each thing's runs in milliseconds, under `what`: median, least, most."""
    spreads = [(name, spread([1000 * each for each in took])) for name, took in runs.items()]
    rows = [(name, *(f"{each:.0f}" for each in (of.median, of.low, of.high))) for name, of in spreads]
    return table((what, "median ms", "least", "most"), rows)


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    first = row[0].ljust(widths[0])
    rest = [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
    return "  ".join([first, *rest]).rstrip()
