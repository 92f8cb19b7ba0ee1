"""The table that ends a run of the proofs: what each did and what came of it, one row for each proof.

`oracle.judge` records its verdicts here, tests the faults they caused; `conftest` keeps them with the test's report,
which also crosses the border of a process, and prints the table.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

DAMAGE: Final = ("lost", "duplicated", "misrouted", "corrupted", "unexplained")
VALUES: Final = ("values_compared", "value_mismatches")
_COUNTED: Final = ("faults", "events", *DAMAGE, *VALUES)
_HEADS: Final = ("proof", "tests", *(name.replace("_", " ") for name in _COUNTED), "95 % bound", "minutes", "outcome")


@dataclass
class Figures:
    """The record of one test; a test that judges several times says it of the same events, so the last time counts."""

    faults: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    discarded: bool = False


@dataclass
class Proof:
    """All tests of one function, summed up."""

    tests: int = 0
    seconds: float = 0.0
    failed: int = 0
    counts: dict[str, int] = field(default_factory=dict)

    def add(self, found: Mapping[str, int]) -> None:
        """Add what one test recorded."""
        for name, count in found.items():
            self.counts[name] = self.counts.get(name, 0) + count


_current = Figures()


def begin() -> None:
    """Forget what was recorded before: a test begins."""
    global _current  # noqa: PLW0603 - one test runs in a process at a time
    _current = Figures()


def record(counts: Mapping[str, int]) -> None:
    """Record what a test counted, by column; it replaces what the same test recorded before."""
    _current.counts = dict(counts)


def record_faults(faults: int) -> None:
    """Record a number of faults that went off."""
    _current.faults += faults


def discard() -> None:
    """Count nothing of this test: it planted the damage that the oracle has just found."""
    _current.discarded = True


def recorded() -> dict[str, int]:
    """Return what the running test has recorded, by column; nothing is in it that was not counted."""
    if _current.discarded:
        return {}
    faults = {"faults": _current.faults} if _current.faults else {}
    return faults | _current.counts


def table(reports: Iterable[Any]) -> list[str]:
    """Return the lines of the table, the longest proof first; empty where no test recorded anything.

    Args:
        reports: pytest's reports of all phases of all tests; the property `figures` holds what a test recorded.
    """
    proofs: dict[str, Proof] = {}
    for report in reports:
        name = report.nodeid.rpartition("::")[2].partition("[")[0]
        proof = proofs.setdefault(name, Proof())
        proof.seconds += report.duration
        proof.failed += report.failed
        if report.when == "teardown":
            proof.tests += 1
            proof.add(dict(report.user_properties).get("figures", {}))
    if not any(proof.counts for proof in proofs.values()):
        return []
    ordered = sorted(proofs.items(), key=lambda item: -item[1].seconds)
    total = Proof(
        sum(each.tests for each in proofs.values()),
        sum(each.seconds for each in proofs.values()),
        sum(each.failed for each in proofs.values()),
    )
    for each in proofs.values():
        total.add(each.counts)
    return _aligned([_HEADS, *(_cells(name, proof) for name, proof in ordered), _cells("all", total)])


def _cells(name: str, proof: Proof) -> tuple[str, ...]:
    counts = [f"{proof.counts[each]:,}" if each in proof.counts else "-" for each in _COUNTED]
    is_bounded = proof.counts.get("faults") and "events" in proof.counts
    bound = f"{3 / proof.counts['faults']:.4f}" if is_bounded else "-"
    outcome = f"{proof.failed} FAILED" if proof.failed else "passed"
    return name, str(proof.tests), *counts, bound, f"{proof.seconds / 60:.1f}", outcome


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[at]) for row in rows) for at in range(len(_HEADS))]
    return [
        "  ".join(
            [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        )
        for row in rows
    ]
