"""Places the games that wait for a group, within the transaction that assigns them."""

from sqlalchemy import Connection

from pipeline.health.facts.loads import loads_in
from pipeline.health.verdicts.placement.capacity import MAX_GAMES, choose, placed_sooner
from pipeline.settings.tree import Metrics, Settings
from pipeline.store.games import Place, Take
from pipeline.store.onboarding_rules import rules_of_games


def placing_by(settings: Settings) -> Place:
    """Return what places games that wait, by an environment's settings."""
    return placing(settings.placement.max_games_per_group, settings.metrics)


def placing(max_games: int = MAX_GAMES, metrics: Metrics = Metrics()) -> Place:
    """Return what gives each game that waits the group that `capacity.choose` names, high priority first.

    A game goes to the group of its onboarding rule while that group takes games and its driver is not dead.
    `max_games` is the setting placement.max_games_per_group; by the settings `metrics` a group lives.
    """

    def place(connection: Connection, take: Take) -> None:
        loads = loads_in(connection, None, max_games, metrics)
        rooms = dict(loads.groups)
        waiting = sorted((each for each in loads.games if each.group is None), key=placed_sooner)
        rules = rules_of_games(connection, [each.game_key for each in waiting])
        for game in waiting:
            ruled = rules[game.game_key].group if game.game_key in rules else None
            first = [each for each in rooms.values() if each.name == ruled and each.alive is not False]
            target = choose(game.cores, game.load.priority, first, max_games) or choose(
                game.cores, game.load.priority, rooms.values(), max_games
            )
            if target is not None and take(game.game_key, target.name):
                rooms[target.name] = target.plus(game.cores)

    return place
