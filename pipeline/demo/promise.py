"""The output contract of a demo's game, and payloads of producers that keep or break it."""

import time
from collections.abc import Callable
from typing import Final

from sqlalchemy import Engine

from pipeline.base.names import GameKey
from pipeline.control.output_contracts import contract_file
from pipeline.data.output_contracts.rules import ContractRule, OutputContract, by_game, loads
from pipeline.demo.samples.supported import sample
from pipeline.demo.simulator import family
from pipeline.store.database.engine import reading
from pipeline.store.games import known_names
from pipeline.store.output_contracts import read_contracts

NO_TEST_PLAYERS: Final = ContractRule("no_test_players", "player_id", "quarantine", pattern="[^0].*")
"""A rule that a sixteenth of the simulated rows break: those of players whose id begins with 0."""

PLAYER: Final = ContractRule("player", "player_id", "quarantine", required=True, pattern="[0-9a-f]{16}")
"""A rule that no simulated row breaks."""

ROUND: Final = ContractRule("round", "round", type="integer", min=1)
"""Likewise."""

_CONTRACT: Final = "demo"
_TEST_PLAYER: Final = "000 test player"  # breaks both rules for players
_MICROSECONDS: Final = 1_000_000


def contract_text(game: str, rules: tuple[ContractRule, ...]) -> str:
    """Return a file with the demo's contract, for one game."""
    return contract_file.render((OutputContract(_CONTRACT, (game,), rules=rules, readers=("the gold table",)),))


@reading()
def promised(engine: Engine) -> dict[GameKey, str]:
    """Return the names of the games that have the demo's contract, by their keys.

    Raises:
        Refused: the control store cannot be read.
    """
    games = {GameKey(key): name for key, name in known_names(engine).items()}
    own = [each for each in loads(read_contracts(engine).contracts) if each.name == _CONTRACT]
    return {key: games[key] for key in by_game(own, games) if key in games}


def payloads(format_name: str, game: str, *, breaking: bool) -> Callable[[int], bytes]:
    """Return what makes payloads of a game's first version by their numbers: of a test player, or good ones."""
    made = sample(format_name, family(game), 1, 0)

    def payload(number: int) -> bytes:
        event = made.event(number, number, int(time.time() * _MICROSECONDS))
        if breaking and isinstance(event, dict):
            event["player_id"] = _TEST_PLAYER
        elif breaking:
            event.player_id = _TEST_PLAYER
        return made.encode(event)

    return payload
