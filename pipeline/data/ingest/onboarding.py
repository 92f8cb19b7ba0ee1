"""Which names become games: those with a registered schema, an onboarding rule, or an operator's approval.

The ingest query decides before each micro-batch and pins the result. A name without a game costs nothing that grows:
its rows are refused, and only its place in a bounded sketch is kept.
"""

import copy
import logging
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from sqlalchemy import Engine

from pipeline.base.errors import Refused
from pipeline.base.names import GameKey, game_key
from pipeline.settings import tree as settings
from pipeline.store import onboarding as store
from pipeline.store.database.states import OnboardedBy
from pipeline.store.onboarding import Onboarded, OnboardingCandidate, RefusedName
from pipeline.store.onboarding_rules import RuleSet, read_rules

_log = logging.getLogger("turnout")
_HOUR: Final = 3600.0
# Of all games; the rest stays free for names that an operator registered, named in a rule or approved.
_PREFIX_SHARE: Final = 0.5
_INVISIBLE: Final = {"Cc", "Cf", "Zs"}  # controls, formats such as a zero-width joiner, blanks
_SAVE_SECONDS: Final = 10.0  # between two writes of the sketch: the most that a crash loses of it


class OnboardingRoll:
    """The games and the refused names, and what limits new ones. In memory only."""

    def __init__(self, games: Iterable[Onboarded] = (), refused: Mapping[str, RefusedName] | None = None) -> None:
        """Begin with the state in the store."""
        self.games: dict[GameKey, str] = {}
        self.refused = dict(refused or {})
        self._by_prefix: list[tuple[float, str | None]] = []  # (when, rule) of each by a prefix, in order
        self._by_form: dict[str, list[str]] = defaultdict(list)
        for each in games:
            self.add(each.candidate, each.onboarded_at)

    def add(self, candidate: OnboardingCandidate, at: float) -> None:
        """Treat a name as a game from now on."""
        self.games[candidate.game_key] = candidate.game
        self._by_form[confusable_form(candidate.game)].append(candidate.game)
        if candidate.prefix is not None:
            self._by_prefix.append((at, candidate.rule))

    def confusable(self, name: str) -> list[str]:
        """Return the games that an operator may confuse with this name: same letters in another case, form or width."""
        return [game for game in self._by_form.get(confusable_form(name), ()) if game != name]

    def plan(
        self, candidates: Sequence[OnboardingCandidate], limits: settings.Onboarding, rules: RuleSet, now: float
    ) -> list[OnboardingCandidate]:
        """Return the candidates that are granted, in order: each counts towards the limits of those after it."""
        trial = copy.deepcopy(self)
        granted = []
        for candidate in candidates:
            if candidate.game_key in trial.games or trial.obstacle(candidate, limits, rules, now) is not None:
                continue
            trial.add(candidate, now)
            granted.append(candidate)
        return granted

    def obstacle(
        self, candidate: OnboardingCandidate, limits: settings.Onboarding, rules: RuleSet, now: float
    ) -> str | None:
        """Return why a name cannot become a game now, as the end of a sentence; None when it can."""
        owner = self.games.get(candidate.game_key)
        if owner is not None and owner != candidate.game:
            return f"its key {candidate.game_key} belongs to the game {owner!r}: rename one of the two"
        refusal = self.refused.get(candidate.game)
        if refusal is not None and candidate.how != "approval":
            return f"{refusal.actor} refused it: approve it to undo that"
        if len(self.games) >= limits.max_games:
            return f"there are {len(self.games)} games, the limit of onboarding.max_games: raise it"
        return None if candidate.prefix is None else self._obstacle_by_prefix(candidate, limits, rules, now)

    def _obstacle_by_prefix(
        self, candidate: OnboardingCandidate, limits: settings.Onboarding, rules: RuleSet, now: float
    ) -> str | None:
        """Limit automatic onboarding: an hourly rate, a share of all games, and no name that resembles a game."""
        if lookalikes := self.confusable(candidate.game):
            return f"it looks like {lookalikes[0]!r}: approve it if both are meant"
        if len(self._by_prefix) >= limits.max_games * _PREFIX_SHARE:
            return "games by prefix fill their half of onboarding.max_games: approve it"
        rule = rules.by_name.get(candidate.rule or "")
        if rule is None:
            return "its rule is not in force any more: approve it"
        recent = Counter(each for at, each in self._by_prefix if at > now - _HOUR)
        if recent[rule.name] >= rule.max_new_per_hour:
            used_up = f"has used up its max_new_per_hour of {rule.max_new_per_hour}"
            return f"the rule {rule.name!r} {used_up}: wait, or approve it"
        return None


def confusable_form(name: str) -> str:
    """Return what confusable names have in common: the name without case, form, width, blanks and invisible marks.

    Letters of different scripts that look alike are not detected.
    """
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
    return "".join(letter for letter in folded if unicodedata.category(letter) not in _INVISIBLE)


def onboarding_candidate(
    name: str, rules: RuleSet, registered: Collection[str] = (), payload_format: str | None = None
) -> OnboardingCandidate | None:
    """Return the right by which a name becomes a game without an operator, None without one.

    `registered` are names with a schema; a format that is None is not known.
    """
    key, match = game_key(name), rules.match(name, payload_format)
    if name in registered:
        return OnboardingCandidate(key, name, "schema", rule=None if match is None else match.rule.name)
    if match is None:
        return None
    how: OnboardedBy = "name" if match.prefix is None else "prefix"
    return OnboardingCandidate(key, name, how, match.prefix, rule=match.rule.name)


class Onboarding:
    """The ingest driver's games and names without a game."""

    def __init__(self, engine: Engine, limits: settings.Onboarding) -> None:
        """Read the state in the store."""
        from pipeline.data.ingest import name_sketch

        self._engine, self._limits = engine, limits
        self._history: list[Onboarded] = []
        self._roll = OnboardingRoll()
        self._rules = read_rules(engine)
        self._known: tuple[int, Mapping[str, GameKey]] = (0, {})
        self._registration = 0  # registrations up to this id are processed
        self._warned: set[tuple[str, str]] = set()  # of names an operator registered or allowed, so it cannot grow long
        try:
            self._sketch = name_sketch.loads(store.read_sketch(engine))
        except Refused as refused:  # rows of games do not wait for a counter of names
            _log.warning("%s", refused)
            self._sketch = name_sketch.EMPTY
        self._saved, self._saved_at = self._sketch, 0.0

    @property
    def prefixes(self) -> tuple[str, ...]:
        """The prefixes of the rules, the longest first."""
        return self._rules.prefixes

    def admit(self, now: float) -> int:
        """Onboard the names that need no approval; return the number of the last game.

        These are names with a registered schema and exact names of rules, even before their first row.
        """
        self._rules = read_rules(self._engine)
        last, registered = store.registered_above(self._engine, self._registration)
        new = dict.fromkeys(name for _, name in registered)
        self._onboard(dict.fromkeys([*new, *self._rules.names]), now, new)
        self._registration = last
        return self._history[-1].number if self._history else 0

    def known(self, number: int) -> Mapping[str, GameKey]:
        """Return exact name → key of the games up to a number: the same number always gives the same games.

        Raises:
            Refused: there is no such number, because the store is older than the micro-batch that pinned it.
        """
        if self._known[0] == number:
            return self._known[1]
        if number and (not self._history or self._history[-1].number < number):
            self._read()
        if number and (not self._history or self._history[-1].number < number):
            raise Refused(
                f"A micro-batch started with games up to number {number}, but the control store has fewer: it is an "
                f"older copy. Restore the newest copy."
            )
        games = {each.candidate.game: each.candidate.game_key for each in self._history if each.number <= number}
        self._known = (number, games)
        return games

    def note(self, unknown: Mapping[str, Any] | None, now: float) -> None:
        """Process a micro-batch's report on names without a game.

        Names under a rule's prefix become games, the busiest first, within the limits; their rows are routed from the
        next micro-batch on.
        """
        if unknown is None:
            return
        from pipeline.data.ingest import name_sketch

        by_prefix: Mapping[str, Sequence[str]] = unknown["candidates"]
        self._onboard([name for prefix in by_prefix for name in by_prefix[prefix]], now)
        came = name_sketch.loads(unknown["sketch"])
        together = name_sketch.merged(self._sketch, came, self._limits.max_pending)
        self._sketch = together.without([*self._roll.games.values(), *store.refusals(self._engine)])
        if now - self._saved_at >= _SAVE_SECONDS:
            self.close()
            self._saved_at = now

    def close(self) -> None:
        """Write the sketch, if it has changed."""
        if self._sketch is not self._saved:
            store.write_sketch(self._engine, self._sketch.dumps())
            self._saved = self._sketch

    def _onboard(self, names: Iterable[str], now: float, registered: Collection[str] = ()) -> None:
        self._read()
        new = [name for name in names if self._roll.games.get(game_key(name)) != name]
        formats = store.first_formats(self._engine) if registered and self._rules.by_format else {}
        found = (onboarding_candidate(name, self._rules, registered, formats.get(name)) for name in new)
        candidates = [candidate for candidate in found if candidate is not None]
        if not candidates:
            return
        self._roll.refused = store.refusals(self._engine)
        granted = self._roll.plan(candidates, self._limits, self._rules, now)
        store.onboard(self._engine, granted, now)
        self._read()
        for candidate in candidates:
            if candidate.how != "prefix" and self._roll.games.get(candidate.game_key) != candidate.game:
                self._warn(candidate.game, self._roll.obstacle(candidate, self._limits, self._rules, now))

    def _warn(self, name: str, obstacle: str | None) -> None:
        if obstacle is not None and (name, obstacle) not in self._warned:
            self._warned.add((name, obstacle))
            _log.warning("cannot onboard %r: %s", name, obstacle)

    def _read(self) -> None:
        for each in store.onboarded(self._engine, self._history[-1].number if self._history else 0):
            self._history.append(each)
            self._roll.add(each.candidate, each.onboarded_at)
