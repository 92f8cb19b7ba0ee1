"""A producer for a soak, in a process of its own: few busy games, many quiet ones, a log of what was acknowledged.

`python -m tests.soak.producing ENV_DIR LOG GAMES BUSY RATE SEED [NUMBER]`; SIGTERM ends it between two batches.
Producers of several numbers send different events of the same games. They use a schema that is registered while they
send from the next batch on: see `Newer`.
"""

import json
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from pipeline.demo.producer import write_landing
from pipeline.demo.simulate import register_samples
from pipeline.demo.simulator import Event, SimulationPlan, Simulator, game_names
from pipeline.settings.tree import load
from pipeline.store.database.engine import open_store
from tests.faults.oracle import ProducerLog

_BATCHES_PER_SECOND = 2
_APART = 100_000_000  # sequence numbers between two producers
_FASTEST, _SLOWEST = 1.0, 1 / 300  # events per second of the quiet games: from one per second to one in five minutes


def weights(games: int, busy: int, rate: float) -> tuple[float, ...]:
    """Return the events per second of each game: busy ones first, which share what the quiet ones leave.

    The rates of the quiet games are spread evenly on a logarithmic scale.
    """
    quiet = games - busy
    slowing = _SLOWEST / _FASTEST
    quiet_rates = [_FASTEST * slowing ** (number / max(1, quiet - 1)) for number in range(quiet)]
    ranks = [1 / (number + 1) for number in range(busy)]
    left = max(0.0, rate - sum(quiet_rates))
    return (*(left * rank / sum(ranks) for rank in ranks), *quiet_rates)


class Newer:
    """Schemas that were registered later than the samples: lines of JSON, one each, in a file that only grows."""

    def __init__(self, env: Path) -> None:
        self._file, self._read = env / "newer_schemas.jsonl", 0

    def note(self, game: str, version: int, schema_id: int) -> None:
        """Let producers send this version of a game as this schema."""
        with self._file.open("a", encoding="utf-8") as file:
            file.write(json.dumps([game, version, schema_id]) + "\n")

    def take(self, schema_ids: dict[tuple[str, int], int]) -> None:
        """Put what was noted since the last time into the ids of a simulator."""
        if self._file.exists():
            lines = self._file.read_text("utf-8").split("\n")[:-1]
            for line in lines[self._read :]:
                game, version, schema_id = json.loads(line)
                schema_ids[game, version] = schema_id
            self._read = len(lines)


def main(env: str, log: str, games: str, busy: str, rate: str, seed: str, number: str = "0") -> None:
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    settings, paths = load(Path(env), {})
    plan = SimulationPlan(
        games=int(games),
        versions=3,
        seed=int(seed),
        bad_share=0.005,
        hostile=True,
        weights=weights(int(games), int(busy), float(rate)),
        step_seconds=1 / float(rate),
        start_sequence=dict.fromkeys(game_names(int(games), int(seed), hostile=True), int(number) * _APART + 1),
    )
    schema_ids = register_samples(open_store(settings, paths), plan)
    newer = Newer(Path(env))
    simulator = Simulator(plan, schema_ids)
    acknowledged = ProducerLog(Path(log))
    sent: list[Sequence[Event]] = []

    def batches() -> Iterator[Sequence[Event]]:
        for batch in simulator.batches(max(1, round(float(rate) / _BATCHES_PER_SECOND))):
            note()
            sent.append(batch)
            yield batch
            newer.take(schema_ids)

    def note() -> None:
        while sent:
            acknowledged.note(sent.pop())

    write_landing(paths.landing, batches(), rate_per_second=float(rate), stop=stop)
    note()  # the last batch was written, and no other one was asked for


if __name__ == "__main__":
    main(*sys.argv[1:])
