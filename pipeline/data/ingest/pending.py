"""Games and waiting names for operators: list them with reasons, approve and refuse names.

Called by the command line; the ingest driver acts on it at its next micro-batch.
"""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from sqlalchemy import Engine

from pipeline.base.errors import Refused
from pipeline.base.names import MAX_NAME_BYTES, GameKey, game_key, is_game_name, plain
from pipeline.base.texts import first_lines, in_utc
from pipeline.data.ingest.formats_before import FormatsBefore
from pipeline.data.ingest.onboarding import OnboardingRoll, confusable_form, onboarding_candidate
from pipeline.settings import tree as settings
from pipeline.store import onboarding as store
from pipeline.store.games import arrived, known_groups, known_priorities
from pipeline.store.onboarding import Onboarded, OnboardingCandidate, RefusedName
from pipeline.store.onboarding_rules import RuleSet, read_rules


@dataclass(frozen=True, slots=True)
class Game:
    """A game as an operator sees it."""

    game_key: str
    game: str
    how: str  # schema, name, prefix or approval
    since: float  # Unix seconds
    group: str | None  # None: no row of it has arrived, or no group exists yet
    looks_like: tuple[str, ...]  # other games that an operator may confuse with it
    by: str | None  # who approved it
    reason: str | None
    priority: str
    rule: str | None  # the onboarding rule that its name matched when it became a game
    arrived: bool = False  # rows of it have arrived


@dataclass(frozen=True, slots=True)
class Waiting:
    """A name without a game. The true number of its rows lies between `rows - error` and `rows`."""

    game_key: str
    game: str
    rows: int
    error: int
    first_seen: float  # Unix seconds; since when it is in the list
    last_seen: float
    sources: tuple[str, ...]  # topics and landing tables from which it came, the first three
    why: str
    looks_like: tuple[str, ...]  # games and other waiting names that an operator may confuse with it
    rule: str | None  # the onboarding rule that its name matches
    comes: bool  # its next rows make it a game, or the controller does by a rule for formats
    format: str | None = None  # of its payloads; None: not known before it is a game


@dataclass(frozen=True, slots=True)
class Pending:
    """The names without a game, within the sketch's bounds."""

    names: tuple[Waiting, ...]  # the names with the most certain rows first
    distinct: int  # estimate of all names ever seen, including refused and onboarded ones
    rows: int  # of all of them
    refused: tuple[RefusedName, ...]  # newest first
    beyond: int = 0  # estimate of the names that wait and that the list has no room for


def games(engine: Engine) -> list[Game]:
    """Return every game in the order of its onboarding, then those that a schema makes one once ingest looks."""
    onboarded, refused, rules = store.onboarded(engine), store.refusals(engine), read_rules(engine)
    roll, groups, priorities = OnboardingRoll(onboarded), known_groups(engine), known_priorities(engine)
    for key, name, at in store.first_registered(engine):
        candidate = onboarding_candidate(name, rules, (name,))
        if key not in roll.games and name not in refused and candidate is not None:
            onboarded.append(Onboarded(0, candidate, at))
            roll.add(candidate, at)
    there = arrived(engine)
    return [
        replace(
            _game(each, roll, groups.get(each.candidate.game_key), priorities.get(each.candidate.game_key, "normal")),
            arrived=each.candidate.game_key in there,
        )
        for each in onboarded
    ]


def pending(
    engine: Engine,
    limits: settings.Onboarding,
    now: float | None = None,
    rules: RuleSet | None = None,
    formats: FormatsBefore | None = None,
) -> Pending:
    """Return the waiting names, each with its reason; by rules that would be applied, where they are given.

    Without `formats` rules for formats are for no name.
    """
    from pipeline.data.ingest import name_sketch

    rules = rules or read_rules(engine)
    sketch = name_sketch.loads(store.read_sketch(engine))
    refused = store.refusals(engine)
    onboarded = store.onboarded(engine)
    roll = OnboardingRoll(onboarded, refused)
    _, registered = store.registered_above(engine, 0)
    owners = {*dict(reversed(registered)).values()}  # the first name of a key owns it
    waiting = sketch.without([*roll.games.values(), *refused]).names
    alike: dict[str, list[str]] = {}
    for name in waiting:
        alike.setdefault(confusable_form(name), []).append(name)
    moment = time.time() if now is None else now
    rows = []
    for name, seen in waiting.items():
        lookalikes = roll.confusable(name) + [other for other in alike[confusable_form(name)] if other != name]
        known = None if formats is None else formats.of(name, seen.sources)
        candidate = onboarding_candidate(name, rules, owners, known)
        obstacle = _obstacle(name, candidate, roll, limits, rules, moment)
        match = rules.match(name, known)
        by_format = match is not None and bool(match.rule.formats)
        why = obstacle or ("the controller makes it a game" if by_format else "it becomes a game with its next rows")
        rule = None if match is None else match.rule.name
        rows.append(Waiting(game_key(name), name, *seen, why, tuple(lookalikes), rule, obstacle is None, known))
    rows.sort(key=lambda row: (row.error - row.rows, row.first_seen, row.game))
    newest = sorted(refused.values(), key=lambda each: -each.refused_at)
    decided = len(refused) + sum(game.candidate.how in {"prefix", "approval"} for game in onboarded)
    beyond = max(0, sketch.distinct - len(rows) - decided) if sketch.floor else 0  # no floor: nothing was crowded out
    return Pending(tuple(rows), sketch.distinct, sketch.rows, tuple(newest), beyond)


def target(name: str) -> str:
    """Return the audit log's label for an approved or rejected name.

    Raises:
        Refused: it cannot name a game.
    """
    return f"game:{_checked(name)}"


def approval(
    engine: Engine, limits: settings.Onboarding, name: str, actor: str, reason: str | None = None,
    now: float | None = None,
) -> OnboardingCandidate:  # fmt: skip
    """Return the right by which a person's approval makes a game of a name, whether or not it has arrived.

    Raises:
        Refused: it cannot name a game, is one already, its key is another game's, or there are too many games.
    """
    rules = read_rules(engine)
    rule = None if (match := rules.match(name)) is None else match.rule.name
    candidate = OnboardingCandidate(_checked(name), name, "approval", None, actor, reason, rule)
    roll = OnboardingRoll(store.onboarded(engine))
    if roll.games.get(candidate.game_key) == name:
        raise Refused(f"{name!r} is already a game; see `turnout games list`.")
    obstacle = roll.obstacle(candidate, limits, rules, time.time() if now is None else now)
    if obstacle is not None:
        raise Refused(f"{name!r} cannot become a game: {obstacle}.")
    return candidate


def approve(
    engine: Engine, limits: settings.Onboarding, name: str, actor: str, reason: str | None, now: float | None = None
) -> Game:
    """Onboard a name at once, without an operation; this undoes a refusal.

    Raises:
        Refused: as `approval`.
    """
    moment = time.time() if now is None else now
    candidate = approval(engine, limits, name, actor, reason, moment)
    if not store.approve(engine, candidate, moment):
        raise Refused(f"{name!r} or its key has just become a game; see `turnout games list`.")
    return _game(Onboarded(0, candidate, moment), OnboardingRoll([*store.onboarded(engine)]), None)


def reject(engine: Engine, name: str, actor: str, reason: str | None, now: float | None = None) -> None:
    """Refuse a name: it must not become a game, and is not listed, until an operator approves it.

    Raises:
        Refused: it cannot name a game, or is one.
    """
    require_rejectable(engine, name)
    if not store.refuse(engine, RefusedName(name, actor, reason, time.time() if now is None else now)):
        raise Refused(f"{name!r} has just become a game; only waiting names can be refused.")


def require_rejectable(engine: Engine, name: str) -> None:
    """Go on only where a name may be refused.

    Raises:
        Refused: it cannot name a game, or is one.
    """
    if store.onboarded_names(engine).get(_checked(name)) == name:
        raise Refused(f"{name!r} is a game; only waiting names can be refused.")


def render_games(known: Sequence[Game]) -> str:
    """Return the games as lines of text; names are quoted, with everything invisible escaped."""
    lines = [
        f"{_day(each.since)}  {each.how:<8}  {each.group or '-':<12}  {each.priority:<6}  {each.game_key:<54}  "
        f"{_named(each)}{'' if each.arrived else '  nothing has arrived'}"
        for each in known
    ]
    return "\n".join(map(plain, [*lines, f"{len(known)} game(s)"]))


def render_pending(seen: Pending, limit: int) -> str:
    """Return the waiting names as lines of text; names are quoted, with everything invisible escaped."""
    lines = first_lines(seen.names, limit, _line)
    if seen.beyond:
        lines.append(f"about {seen.beyond:,} more names wait, for which onboarding.max_pending leaves no room")
    lines += [f"refused by {each.actor}: {each.game!r}" for each in seen.refused[:limit]]
    lines.append(f"about {seen.distinct:,} names without a game sent {seen.rows:,} rows")
    return "\n".join(map(plain, lines))


def games_for_json(known: Sequence[Game]) -> list[dict[str, Any]]:
    """Return the games as a list for scripts."""
    return [asdict(each) for each in known]


def pending_for_json(seen: Pending, limit: int) -> dict[str, Any]:
    """Return the waiting names for scripts, with `names`, `distinct`, `rows` and `refused`."""
    return {**asdict(seen), "names": [asdict(each) for each in seen.names[:limit]]}


def _game(each: Onboarded, roll: OnboardingRoll, group: str | None, priority: str = "normal") -> Game:
    candidate = each.candidate
    lookalikes = tuple(roll.confusable(candidate.game))
    return Game(
        candidate.game_key,
        candidate.game,
        candidate.how,
        each.onboarded_at,
        group,
        lookalikes,
        candidate.actor,
        candidate.reason,
        priority,
        candidate.rule,
    )


def _obstacle(
    name: str,
    candidate: OnboardingCandidate | None,
    roll: OnboardingRoll,
    limits: settings.Onboarding,
    rules: RuleSet,
    now: float,
) -> str | None:
    """Return why a name is not a game; None: its next rows make it one."""
    if candidate is None:
        obstacle = roll.obstacle(OnboardingCandidate(game_key(name), name, "approval"), limits, rules, now)
        wants = rules.waiting_for_format(name)
        rule = "no rule" if wants is None else f"the rule {wants.name!r} is for {' and '.join(wants.formats)} only"
        return obstacle or f"no registered schema and {rule}: approve or reject it"
    return roll.obstacle(candidate, limits, rules, now)


def _checked(name: str) -> GameKey:
    if not is_game_name(name) or any("\ud800" <= letter <= "\udfff" for letter in name):  # not valid UTF-8
        raise Refused(f"{name!r} cannot name a game: use 1 to {MAX_NAME_BYTES} bytes of UTF-8 without NUL.")
    return game_key(name)


def _line(each: Waiting) -> str:
    count = f"{each.rows:,}" if not each.error else f"{each.rows - each.error:,} to {each.rows:,}"
    origin = f" from {', '.join(each.sources)}" if each.sources else ""
    return f"{count} rows  {_day(each.first_seen)} to {_day(each.last_seen)}{origin}  {_named(each)}: {each.why}"


def _named(each: Game | Waiting) -> str:
    like = f"  LOOKS LIKE {', '.join(map(repr, each.looks_like))}" if each.looks_like else ""
    return f"{each.game!r}{like}"


def _day(at: float) -> str:
    return in_utc(at, "%Y-%m-%d %H:%M")
