"""The life of games: names that may become one with their evidence, onboarding rules, retired and rejected ones.

Every query raises `Refused` where the control store cannot be read.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from pipeline.api.environment import OpenEnvironment
from pipeline.control.onboarding import candidates as found
from pipeline.control.onboarding.candidates import Candidate, Candidates
from pipeline.control.onboarding.near_rules import NearRule
from pipeline.control.onboarding.rules_file import render
from pipeline.data.ingest import pending
from pipeline.data.ingest.formats_before import read_formats
from pipeline.data.ingest.pending import Pending, Waiting
from pipeline.store import onboarding
from pipeline.store.assignments import read_assignments
from pipeline.store.database.engine import reading
from pipeline.store.database.states import PRIORITIES, Priority
from pipeline.store.game_proposals import GameProposal, open_proposals
from pipeline.store.groups import read_groups
from pipeline.store.onboarding import RefusedName
from pipeline.store.onboarding_rules import ALL_TYPES, OnboardingRule, RuleSet, read_rules
from pipeline.store.operations import list_operations
from pipeline.store.processes.leases import store_time

__all__ = [
    "ALL_TYPES",
    "PRIORITIES",
    "Candidate",
    "Candidates",
    "GameProposal",
    "GamesOverview",
    "NearRule",
    "OnboardingRule",
    "OpenNames",
    "Pending",
    "Priority",
    "RefusedName",
    "RetiredGame",
    "RuleSet",
    "Waiting",
    "candidates",
    "open_names",
    "overview",
    "schema_ids",
]

_MOST_OPEN = 1_000


@dataclass(frozen=True, slots=True)
class RetiredGame:
    """A game that no group carries until it is restored; its rows stay in bronze."""

    game_key: str
    game: str
    retired_at: float  # Unix seconds
    last_seq: int  # the newest seq in which it has rows
    cursor_seq: int | None  # the last seq that its table had, as a driver reported it; None: none did


@dataclass(frozen=True, slots=True)
class GamesOverview:
    """Rules and decided names, read at one moment (Unix seconds by the store's clock)."""

    rules: RuleSet
    rules_file: str  # the rules as a file that `turnout games rules apply` takes
    retired: tuple[RetiredGame, ...]  # the newest first
    rejected: tuple[RefusedName, ...]  # the newest first
    groups: tuple[str, ...]
    deciding: Mapping[str, str]  # game key → the id of an open operation on it
    read_at: float


@dataclass(frozen=True, slots=True)
class OpenNames:
    """What waits for a decision: proposals, the oldest first, and names without a game."""

    proposals: tuple[GameProposal, ...]
    pending: Pending


@reading()
def overview(environment: OpenEnvironment) -> GamesOverview:
    """Read rules, retired games, rejected names, and which games an open operation is about."""
    engine = environment.engine
    rules, read_at = read_rules(engine), store_time(engine)
    away = [each for each in read_assignments(engine).values() if each.retired_at is not None]
    retired = [
        RetiredGame(each.game_key, each.game, each.retired_at or 0.0, each.last_seq, each.cursor_seq) for each in away
    ]
    return GamesOverview(
        rules,
        render(rules.rules),
        tuple(sorted(retired, key=lambda each: -each.retired_at)),
        tuple(sorted(onboarding.refusals(engine).values(), key=lambda each: -each.refused_at)),
        tuple(sorted(read_groups(engine))),
        {
            target.removeprefix("game:"): each.operation_id
            for each in list_operations(engine, only_open=True, limit=_MOST_OPEN)
            for target in each.targets
            if target.startswith("game:")
        },
        read_at,
    )


@reading()
def candidates(environment: OpenEnvironment) -> Candidates:
    """Read every name that is proposed or waits, with its evidence; ingest counts names each ten seconds.

    Raises:
        Refused: the count of names cannot be read.
    """
    return found.candidates(environment.settings, environment.engine)


@reading()
def open_names(environment: OpenEnvironment) -> OpenNames:
    """Read what waits for a decision, without the evidence.

    Raises:
        Refused: the count of names cannot be read.
    """
    engine = environment.engine
    proposals = tuple(open_proposals(engine).values())
    formats = read_formats(environment.settings, engine)
    return OpenNames(proposals, pending.pending(engine, environment.settings.onboarding, formats=formats))


def schema_ids(environment: OpenEnvironment) -> Mapping[str | None, tuple[int | None, ...]]:
    """Read the schema ids of rows that names without a game have in quarantine, by exact name.

    Raises:
        Refused: quarantine cannot be read.
    """
    return found.read_schema_ids(environment.paths)
