"""What may become a game: names that wait and names that people propose, each with what is known of it.

Called by `turnout games propose | pending | reject` and by the page Games.
"""

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from sqlalchemy import Engine

from pipeline.base.errors import Refused
from pipeline.base.names import game_key
from pipeline.control import gate
from pipeline.control.acts import DirectAct
from pipeline.control.onboarding.near_rules import NearRule, NearRules
from pipeline.data.contracts.registry import LocalRegistry, Registration
from pipeline.data.ingest import pending as waiting_names
from pipeline.data.ingest.formats_before import read_formats
from pipeline.data.ingest.pending import Pending, Waiting, approval, pending
from pipeline.data.repair.quarantined import Selection, opened
from pipeline.health.facts.loads import read_loads
from pipeline.health.verdicts.placement.capacity import TYPICAL_CORES, Load, Loads, choose
from pipeline.lake.delta.quarantine import UNKNOWN_GAME
from pipeline.lake.storage.location import Location
from pipeline.settings.tree import Paths, Settings
from pipeline.store import audit, game_proposals
from pipeline.store.game_proposals import GameProposal, open_proposals
from pipeline.store.groups import read_groups
from pipeline.store.onboarding_rules import OnboardingRule, RuleSet, read_rules

_MOST_COUNTS: Final = 1_000  # names of which the schema ids are read


@dataclass(frozen=True, slots=True)
class Candidate:
    """One name with its evidence; None is not known."""

    game: str
    proposal: GameProposal | None
    waiting: Waiting | None  # rows, times, why it waits; None: nothing has arrived, as far as the bounded list says
    rule: str | None  # the onboarding rule that its name matches
    near: NearRule | None  # the rule that it nearly matches, where it matches none
    group: str | None  # where it would be placed now; None: there is no room
    schema_ids: tuple[int | None, ...] | None = None  # of its rows in quarantine; None: nobody has looked


@dataclass(frozen=True, slots=True)
class Candidates:
    """All names that may become games, and how the sources pack their records."""

    names: tuple[Candidate, ...]  # proposals first, the oldest first; then names that wait, as in `pending`
    framings: tuple[str, ...]  # of each source: envelope and framing
    seen: Pending


def propose(settings: Settings, engine: Engine, bronze: Location, proposal: GameProposal) -> Candidate:
    """Write a proposal, and return it with its evidence.

    Raises:
        Refused: the actor has not the role, or gives no reason; or as `as_proposed`.
    """
    gate.permit(settings, engine, proposal.proposed_by, DirectAct.PROPOSE_GAME, proposal.reason)
    as_proposed(settings, engine, bronze, proposal)
    game_proposals.propose(engine, proposal)
    return next(each for each in candidates(settings, engine).names if each.game == proposal.game)


def as_proposed(settings: Settings, engine: Engine, bronze: Location, proposal: GameProposal) -> Candidate:
    """Return a name with its evidence as if it were proposed; nothing is written.

    Raises:
        Refused: the name cannot become a game, or is one; its group does not exist; or its schema fits no table.
    """
    approval(engine, settings.onboarding, proposal.game, proposal.proposed_by)
    if proposal.group is not None and proposal.group not in read_groups(engine):
        raise Refused(f"No such group: {proposal.group}. Create it first: `turnout groups create {proposal.group}`.")
    if proposal.definition is not None and proposal.message and proposal.format:
        registration = Registration(proposal.game, proposal.message, proposal.definition, format=proposal.format)
        LocalRegistry(engine, bronze).require_possible(registration)
    rules, formats = read_rules(engine), read_formats(settings, engine)
    waits = {each.game: each for each in pending(engine, settings.onboarding, formats=formats).names}
    loads = _loads(settings, engine)
    return _candidate(proposal.game, proposal, waits.get(proposal.game), rules, NearRules(rules), loads)


def rejection(engine: Engine, name: str) -> tuple[str, ...]:
    """Return what a rejection of a name would do, as lines.

    Raises:
        Refused: it cannot name a game, or is one.
    """
    waiting_names.require_rejectable(engine, name)
    proposal = open_proposals(engine).get(game_key(name))
    ends = () if proposal is None else (f"The proposal of {proposal.proposed_by} ends: {proposal.reason}",)
    stays = "Schemas and rules do not make it a game until its approval. Its rows stay in bronze."
    return (f"{name!r} leaves the list.", stays, *ends)


def reject(settings: Settings, engine: Engine, name: str, actor: str, reason: str | None) -> None:
    """Keep a name from becoming a game until its approval, and remove its proposal.

    Raises:
        Refused: the actor has not the role; or the name cannot name a game, or is one.
    """
    detail = {"game": name, "reason": reason}
    act = audit.Act(actor, "refuse", (waiting_names.target(name),), detail=detail)
    with gate.acting(settings, engine, DirectAct.REJECT_GAME, act):
        waiting_names.reject(engine, name, actor, reason)
        game_proposals.discard(engine, game_key(name))


def candidates(settings: Settings, engine: Engine) -> Candidates:
    """Return every name that is proposed or waits, from the control store alone."""
    rules, formats = read_rules(engine), read_formats(settings, engine)
    seen = pending(engine, settings.onboarding, formats=formats)
    loads, near = _loads(settings, engine), NearRules(rules)
    waiting, proposed = {each.game: each for each in seen.names}, open_proposals(engine)
    names = dict.fromkeys([*(each.game for each in proposed.values()), *waiting])
    by_name = {each.game: each for each in proposed.values()}
    found = (_candidate(name, by_name.get(name), waiting.get(name), rules, near, loads) for name in names)
    framings = (f"envelope {each.envelope}, framing {each.framing}" for each in settings.every_source.values())
    return Candidates(tuple(found), tuple(framings), seen)


def with_samples(paths: Paths, names: Collection[Candidate]) -> tuple[Candidate, ...]:
    """Return names with the schema ids of their rows, which are read from quarantine.

    Raises:
        Refused: quarantine cannot be read.
    """
    ids = read_schema_ids(paths)
    return tuple(replace(each, schema_ids=ids.get(each.game, ())) for each in names)


def read_schema_ids(paths: Paths) -> Mapping[str | None, tuple[int | None, ...]]:
    """Return the schema ids of rows in quarantine by the names that sent them, those with the most rows.

    Raises:
        Refused: quarantine cannot be read.
    """
    with opened(paths, {}, Selection(reason=UNKNOWN_GAME), twins=True) as quarantined:
        return {each.game: each.schema_ids for each in quarantined.counts(_MOST_COUNTS)}


def _loads(settings: Settings, engine: Engine) -> Loads:
    return read_loads(engine, None, settings.placement.max_games_per_group, settings.metrics)


def _candidate(
    name: str, proposal: GameProposal | None, waiting: Waiting | None, rules: RuleSet, near: NearRules, loads: Loads
) -> Candidate:
    said = None if proposal is None else proposal.format
    match = rules.match(name, said if waiting is None else waiting.format)
    rule = None if match is None else match.rule
    group = _suggested(proposal, rule, loads)
    return Candidate(name, proposal, waiting, None if rule is None else rule.name, near.of(name), group)


def _suggested(proposal: GameProposal | None, rule: OnboardingRule | None, loads: Loads) -> str | None:
    """Return the group a game would get now: the proposed one, its rule's, or the one that placement would choose."""
    named = (proposal.group if proposal is not None else None) or (rule.group if rule is not None else None)
    if named is not None:
        return named
    expected = None if proposal is None else proposal.events_per_second
    cores = TYPICAL_CORES if expected is None else Load(expected, commits_per_second=0.2).cores or TYPICAL_CORES
    priority = (proposal.priority if proposal is not None else None) or (rule.priority if rule else "normal")
    target = choose(cores, priority, loads.groups.values(), loads.max_games)
    return None if target is None else target.name


def lines(each: Candidate) -> list[str]:
    """Return a name with its evidence as lines; raw texts are in them."""
    proposal, waiting = each.proposal, each.waiting
    arrived = "nothing has arrived" if waiting is None else f"{waiting.rows:,} rows have arrived"
    arrived += f" from {', '.join(waiting.sources)}" if waiting is not None and waiting.sources else ""
    found = [f"{each.game!r}: {arrived}; rule {each.rule or '-'}; group {each.group or 'none has room'}"]
    if each.near is not None:
        found.append(f"  nearly rule {each.near}")
    if proposal is not None:
        load = "load not given" if proposal.events_per_second is None else f"{proposal.events_per_second:g} events/s"
        readers = f", readers {', '.join(proposal.readers)}" if proposal.readers else ""
        schema = f", schema {proposal.message}" if proposal.message else ""
        found.append(f"  proposed by {proposal.proposed_by}: {proposal.reason} ({load}{readers}{schema})")
    if each.schema_ids is not None:
        found.append(f"  schema ids {', '.join(map(str, each.schema_ids)) or 'none in quarantine'}")
    return found


def as_dict(each: Candidate) -> dict[str, Any]:
    """Return a name with its evidence for scripts."""
    tree = asdict(each)
    if tree["proposal"] is not None:
        del tree["proposal"]["definition"]
    return tree
