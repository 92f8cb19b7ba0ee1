"""Records of topics that have no wrapper, as ingest lands them."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.base.names import MALFORMED, game_key
from pipeline.data.ingest.bronze_writer import IngestJob, SourceJob, land
from pipeline.data.ingest.profiled import NumberedProfile
from pipeline.lake.delta.bronze import BRONZE
from pipeline.lake.storage.places import located
from pipeline.settings.tree import Onboarding

CHESS, GO = game_key("Chess"), game_key("go")
Record = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]


def batch_of(records: Sequence[Record], first: int = 0) -> pa.RecordBatch:
    """Return records (value, key, headers) as a topic gives them."""
    count = len(records)
    headers = [[{"key": name, "value": value} for name, value in each] for _, _, each in records]
    columns = {
        "key": pa.array([key for _, key, _ in records], pa.binary()),
        "value": pa.array([value for value, _, _ in records], pa.binary()),
        "topic": pa.array(["laps"] * count, pa.string()),
        "partition": pa.array([0] * count, pa.int32()),
        "offset": pa.array(range(first, first + count), pa.int64()),
        "source_time": pa.nulls(count, pa.timestamp("us", "UTC")),
        "headers": pa.array(headers, BRONZE.field("headers").type),
        "source_clock": pa.repeat("broker", count),
    }
    return pa.RecordBatch.from_pydict(columns)


def landed(
    folder: Path, records: Sequence[Record], profile: NumberedProfile | None
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the task's report, and bronze's rows in the order of the records."""
    job = IngestJob(
        seq=7, last_seqs={CHESS: 3, MALFORMED: 6}, known={"Chess": CHESS, "go": GO}, onboarding=Onboarding(),
        bronze=located(folder / "bronze"), quarantine=located(folder / "quarantine"),
        bronze_files=1, sources=(SourceJob(profile),),
    )  # fmt: skip
    (report,) = [json.loads(row["report"][0].as_py()) for row in land(iter([batch_of(records)]), job)]
    (file,) = report["files"]
    rows = pq.read_table(folder / "bronze" / file["path"]).to_pylist()
    return report, sorted(rows, key=lambda row: int(row["offset"]))


PROFILE = 4
