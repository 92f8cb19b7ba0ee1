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
        for each in simulator.batches(batch):
            part = each[:left]
            yield part
            log.note(part)  # runs when the writer asks for the next batch: this one is in the table
            left -= len(part)
            if left <= 0:
                return

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
    bronze = _rows(env / "bronze", "game_key, game, seq, pos, raw, event_id, refused")
    crcs = {(seq, pos): zlib.crc32(raw) for _, _, seq, pos, raw, _, _ in bronze}
    wanted, arrived = Counter(crc for *_, crc in sent), Counter(crcs.values())
    lost = sum((wanted - arrived).values())
    surplus = arrived - wanted
    duplicated = sum(count for crc, count in surplus.items() if crc in wanted)
    corrupted = sum(count for crc, count in surplus.items() if crc not in wanted)
    quarantined = {(key, seq, pos) for key, seq, pos in _rows(env / "quarantine", "game_key, seq, pos")}
    landed: Counter[tuple[str, int, int]] = Counter()
    expected = {f"{game}|{sequence}" for game, sequence, kind, _ in sent if kind == GOOD}
    found: Counter[str] = Counter()
    names = {key: game for key, game, *_ in bronze}
    for table in sorted((env / "tables").glob("*/_delta_log")):
        key = table.parent.name
        for seq, pos, event_id, number in _rows(table.parent, "_seq, _pos, _event_id, round"):
            landed[key, seq, pos] += 1
            found[f"{names.get(key)}|{number}"] += 1
            corrupted += int(event_id.rsplit("-", 1)[1]) != number
    for key, _, seq, pos, _, _, _ in bronze:
        here = landed.pop((key, seq, pos), 0)
        if here == 0 and (key, seq, pos) not in quarantined:
            lost += 1
        duplicated += max(here - 1, 0)
    misrouted = sum(landed.values())
    duplicated += sum(count - 1 for count in found.values() if count > 1)
    misrouted += len(found.keys() - expected)
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
