"""Submits an operation for each game that a rule has onboarded, so that its first rows land and its readers get access.

The controller looks once a second. The operation's key names the onboarding, so of two controllers, or of two lives of
one, the second submits nothing. Names that a rule for formats covers become games here, as ingest knows no format.
Where an onboarding ended before the game had a schema, the keeper submits the replay of its first rows once it has one.
"""

import time
from typing import Final

from sqlalchemy import Engine

from pipeline.control.operations.onboarding import LEFT_WAITING, by_rule, landing_later
from pipeline.data.ingest.formats_before import read_formats
from pipeline.data.ingest.onboarding import OnboardingRoll, onboarding_candidate
from pipeline.data.ingest.pending import pending
from pipeline.settings.tree import Settings
from pipeline.store.database.states import OperationKind
from pipeline.store.games import known_groups, registered_keys, retired_games
from pipeline.store.onboarding import Onboarded, onboard, onboarded, refusals
from pipeline.store.onboarding_rules import read_rules
from pipeline.store.operations import TargetsBusy, submit, submitted_under, succeeded_with

_LOOKED_UP: Final = 500  # keys in one statement
_MOST: Final = 20  # at one look, which the controller's loop waits for
_LATE_SECONDS: Final = 5.0  # between two looks for games whose first schema came later


class OnboardingKeeper:
    """The games with a rule whose operation is not submitted yet, as far as this process knows."""

    def __init__(self, engine: Engine, settings: Settings) -> None:
        """Begin with all games, at the first look."""
        self._engine, self._settings = engine, settings
        self._last = 0
        self._late_due_at = 0.0
        self._landed: set[str] = set()  # onboardings whose late rows have their replay
        self._open: dict[str, Onboarded] = {}  # by the key of its operation

    def look(self) -> None:
        """Submit the operations of games that have arrived; those that exact names made may never send anything."""
        if time.monotonic() >= self._late_due_at:
            self._late_due_at = time.monotonic() + _LATE_SECONDS
            self._land_late()
            self._onboard_by_format()
        for game in onboarded(self._engine, self._last):
            self._last = game.number
            if game.candidate.rule is not None and game.candidate.how != "approval":  # whose operation has begun
                self._open[by_rule(game).idempotency_key] = game
        if not self._open:
            return
        there = known_groups(self._engine)
        due = [
            key
            for key, game in self._open.items()
            if game.candidate.how == "prefix" or game.candidate.game_key in there
        ]
        for key in submitted_under(self._engine, due[:_LOOKED_UP]):
            del self._open[key]
        for key in [key for key in due[:_LOOKED_UP] if key in self._open][:_MOST]:
            try:
                submit(self._engine, by_rule(self._open[key]))
            except TargetsBusy:  # of a person, or of another controller
                continue
            del self._open[key]

    def _onboard_by_format(self) -> None:
        """Make games of names that wait and that a rule for their format is for; ingest knows names alone."""
        rules, limits = read_rules(self._engine), self._settings.onboarding
        if not rules.by_format:
            return
        seen = pending(self._engine, limits, rules=rules, formats=read_formats(self._settings, self._engine))
        of_format = [each for each in seen.names if each.comes and rules.by_name[each.rule or ""].formats]
        found = [onboarding_candidate(each.game, rules, payload_format=each.format) for each in of_format]
        roll, now = OnboardingRoll(onboarded(self._engine), refusals(self._engine)), time.time()
        onboard(self._engine, roll.plan([each for each in found if each is not None], limits, rules, now), now)

    def _land_late(self) -> None:
        """Submit the replay of each game whose onboarding ended without a schema, and that has one by now."""
        left = succeeded_with(self._engine, OperationKind.ONBOARD, "land", LEFT_WAITING)
        left = [each for each in left if each.operation_id not in self._landed]
        if not left:
            return
        schemas, retired = registered_keys(self._engine), retired_games(self._engine)
        keys = {each.operation_id: str(each.parameters["games"][0]) for each in left}
        due = [each for each in left if schemas.get(keys[each.operation_id])]
        for each in [one for one in due if keys[one.operation_id] not in retired][:_MOST]:
            intent = landing_later(each, schemas[keys[each.operation_id]])
            if not submitted_under(self._engine, [intent.idempotency_key]):
                try:
                    submit(self._engine, intent)
                except TargetsBusy:
                    continue
            self._landed.add(each.operation_id)
