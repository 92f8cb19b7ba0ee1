"""Submits an operation for each game that a rule has onboarded, so that its first rows land and its readers get access.

The controller looks once a second. The operation's key names the onboarding, so of two controllers, or of two lives of
one, the second submits nothing.
"""

from typing import Final

from sqlalchemy import Engine

from pipeline.control.operations.onboarding import by_rule
from pipeline.store.games import known_groups
from pipeline.store.onboarding import Onboarded, onboarded
from pipeline.store.operations import TargetsBusy, submit, submitted_under

_LOOKED_UP: Final = 500  # keys in one statement
_MOST: Final = 20  # at one look, which the controller's loop waits for


class OnboardingKeeper:
    """The games with a rule whose operation is not submitted yet, as far as this process knows."""

    def __init__(self, engine: Engine) -> None:
        """Begin with all games, at the first look."""
        self._engine = engine
        self._last = 0
        self._open: dict[str, Onboarded] = {}  # by the key of its operation

    def look(self) -> None:
        """Submit the operations of games that have arrived; those that exact names made may never send anything."""
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
