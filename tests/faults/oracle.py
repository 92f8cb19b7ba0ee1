"""The oracle: what the producer was told had arrived, against what is in the tables.

Shares no code with the product's way from bronze to the tables. It knows the producer's own log (sequence number,
CRC, event id of every message the source acknowledged), reads tables with DuckDB, and asks `turnout verify` as well.
"""

import json
import subprocess
import sys
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb
from deltalake import DeltaTable

from pipeline.ingest.producer import write_landing
from pipeline.ingest.simulator import GOOD, Event, Simulator


class ProducerLog:
    """What the producer knows of each acknowledged message; a file, so that it outlives every process."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def note(self, events: Iterable[Event]) -> None:
        with self.file.open("a", encoding="utf-8") as handle:
            for event in events:
                line = [event.game, event.sequence, event.kind, zlib.crc32(event.value)]
                handle.write(json.dumps(line) + "\n")

    def read(self) -> list[tuple[str, int, str, int]]:
        return [tuple(json.loads(line)) for line in self.file.read_text("utf-8").splitlines()]


def produce(simulator: Simulator, landing: Path, log: ProducerLog, events: int, batch: int = 500) -> None:
    """Send the simulator's next events, and note each batch when the landing table has it."""

    def acknowledged() -> Iterator[Sequence[Event]]:
        left = events
        while left and (part := next(simulator.batches(min(batch, left)), None)):
            yield part
            log.note(part)  # runs when the writer asks for the next batch: this one is in the table
            left -= len(part)

    write_landing(landing, acknowledged())


@dataclass(frozen=True)
class Verdict:
    """Rows by what is wrong with them; all zero is what is promised."""

    events: int
    lost: int
    duplicated: int
    misrouted: int
    corrupted: int
    unexplained: int  # what `turnout verify` finds beyond these, and rows still waiting

    @property
    def clean(self) -> bool:
        return not (self.lost or self.duplicated or self.misrouted or self.corrupted or self.unexplained)


def judge(env: Path, log: ProducerLog) -> Verdict:
    """Compare an environment that has come to rest with the producer's log."""
    sent = log.read()
    bronze = {
        (seq, pos): (game, zlib.crc32(raw)) for seq, pos, game, raw in _rows(env / "bronze", "seq, pos, game, raw")
    }
    wanted, arrived = Counter(crc for *_, crc in sent), Counter(crc for _, crc in bronze.values())
    surplus = arrived - wanted
    lost = sum((wanted - arrived).values())
    duplicated = sum(count for crc, count in surplus.items() if crc in wanted)
    corrupted = sum(count for crc, count in surplus.items() if crc not in wanted)
    landed: Counter[tuple[int, int]] = Counter()
    found: Counter[tuple[str, int]] = Counter()
    homes: dict[str, str] = {}  # game → its table
    misrouted = 0
    for table in sorted((env / "tables").glob("*/_delta_log")):
        name = table.parent.name
        for seq, pos, event_id, number in _rows(table.parent, "_seq, _pos, _event_id, round"):
            game, _ = bronze.get((seq, pos), (None, 0))
            misrouted += game is None or homes.setdefault(game, name) != name
            landed[seq, pos] += 1
            found[str(game), number] += 1
            corrupted += int(event_id.rsplit("-", 1)[1]) != number
    misrouted += len(homes) - len(set(homes.values()))
    misrouted += len(found.keys() - {(game, sequence) for game, sequence, kind, _ in sent if kind == GOOD})
    quarantined = set(_rows(env / "quarantine", "seq, pos"))
    lost += len(bronze.keys() - landed.keys() - quarantined)
    duplicated += sum((landed - Counter(set(landed))).values()) + sum((found - Counter(set(found))).values())
    return Verdict(len(sent), lost, duplicated, misrouted, corrupted, _verify(env))


def tell(verdict: Verdict, fired: Counter[str]) -> None:
    """Print the result with its bound: no failure in n trials says, at 95 %, that fewer than 3/n would fail."""
    faults = sum(fired.values())
    lines = (
        f"{faults} faults went off: {dict(fired)}",
        verdict,
        f"95 % bound on the share that does harm: {3 / faults:.3f}",
    )
    sys.stdout.write("\n" + "\n".join(str(line) for line in lines) + "\n")


def _rows(path: Path, columns: str) -> list[tuple]:  # type: ignore[type-arg]
    if not (path / "_delta_log").exists():
        return []
    files = DeltaTable(path).file_uris()
    if not files:
        return []
    return duckdb.execute(f"SELECT {columns} FROM read_parquet(?, union_by_name=true)", [files]).fetchall()


def _verify(env: Path) -> int:
    """Return how many rows `turnout verify` finds at fault or still waiting."""
    command = [sys.executable, "-m", "pipeline", "verify", "--json", "--complete", "--env-dir", str(env)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    assert done.returncode in {0, 1}, done.stderr
    books = json.loads(done.stdout.splitlines()[-1])
    kinds = ("lost", "duplicated", "misrouted", "phantom", "early", "broken_chain", "bronze_duplicates", "pending")
    return sum(books[kind] for kind in kinds) or int(done.returncode)
