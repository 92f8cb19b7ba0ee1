"""The policies for changes of a schema, one for each kind of change; chosen per registration, safe by default."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from pipeline.base.errors import Refused
from pipeline.base.names import shown

CHOICES: Final[Mapping[str, tuple[str, ...]]] = {  # docs/schemas.md describes each; the first is the default
    "add": ("add", "quarantine", "refuse"),
    "widen": ("widen", "side-column", "quarantine", "refuse"),
    "remove": ("keep", "quarantine", "refuse"),
    "rename": ("keep", "add", "quarantine", "refuse"),
    "format": ("keep", "quarantine", "refuse"),
    "value": ("refuse", "add", "quarantine"),
    "incompatible": ("refuse", "side-column", "quarantine"),
    "name": ("refuse", "side-column", "quarantine"),
    "reuse": ("refuse", "side-column", "quarantine"),
}
"""The kinds of change, each with its possible policies."""


@dataclass(frozen=True, slots=True)
class Policies:
    """The policy of every kind of change; defaults where none was chosen."""

    chosen: tuple[tuple[str, str], ...] = ()  # (kind, policy), sorted

    def of(self, kind: str) -> str:
        """Return the policy of a kind of change."""
        return dict(self.chosen).get(kind, CHOICES[kind][0])


DEFAULTS: Final = Policies()


def parse_policies(words: Iterable[str]) -> Policies:
    """Parse choices such as `incompatible=side-column`.

    Raises:
        Refused: naming every invalid choice, with the valid ones.
    """
    chosen: dict[str, str] = {}
    problems: list[str] = []
    for word in words:
        kind, _, policy = word.partition("=")
        if kind not in CHOICES:
            problems.append(f"{shown(word)}: the kinds of change are {', '.join(CHOICES)}")
        elif policy not in CHOICES[kind]:
            problems.append(f"{shown(word)}: the policies of {kind} are {', '.join(CHOICES[kind])}")
        elif chosen.setdefault(kind, policy) != policy:
            problems.append(f"{shown(word)}: {kind} already has the policy {chosen[kind]}")
    if problems:
        lines = "".join(f"\n  - {problem}" for problem in problems)
        raise Refused(f"{len(problems)} invalid policy choice(s), write each as kind=policy:{lines}")
    return Policies(tuple(sorted(chosen.items())))


def landing(policies: Policies, kept_out: Iterable[str] = ()) -> Policies | None:
    """Return policies that would land the rows that these quarantine; None where these quarantine none.

    `kept_out` are further kinds of change to let in: those for which a registry's schema waits for a person.
    """
    chosen = dict(policies.chosen)
    for kind in {*kept_out, *(kind for kind, policy in policies.chosen if policy == "quarantine")}:
        chosen[kind] = lands(kind)
    made = Policies(tuple(sorted(chosen.items())))
    return None if made == policies else made


def lands(kind: str) -> str:
    """Return the first policy of a kind of change by which its rows land."""
    return next(policy for policy in CHOICES[kind] if policy not in {"quarantine", "refuse"})
