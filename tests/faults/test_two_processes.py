"""Two processes that write one table at the same moment, as two drivers do that both believe it is theirs."""

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.schema import Schema

from pipeline.lake.delta.table import CursorTable
from pipeline.lake.storage.places import located

APP = "turnout/test/game/1"
COMMITS = 25
COLUMNS = pa.schema([("_seq", pa.int64()), ("writer", pa.int64())])

_WRITER = """
import sys
import pyarrow as pa
from pipeline.lake.storage.places import located
from pipeline.lake.delta.data_files import write_file
from pipeline.lake.delta.table import TableConflict, CursorTable

path, writer, commits = located(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
table = CursorTable.open(path, "turnout/test/game/1", checkpoint_interval=7)
print("ready", flush=True)
sys.stdin.readline()
done = 0
while done < commits:
    before = table.cursor
    seq = (before or 0) + 1
    file = write_file(pa.table({"_seq": [seq], "writer": [writer]}), path)
    try:
        table.commit([file], before, seq)
        done += 1
    except TableConflict:
        pass
"""


@pytest.mark.parametrize("plain", [True, False])
@pytest.mark.proves("A27")
def test_a27_two_processes_on_one_local_table_give_no_seq_twice(tmp_path: Path, plain: bool) -> None:
    """A27, law L4: each commit of either is in the table once, also over checkpoints and by delta-rs's own way."""
    path = tmp_path / "t"
    if not plain:
        DeltaTable.create(path, Schema.from_arrow(COLUMNS), configuration={"delta.enableChangeDataFeed": "true"})
    CursorTable.create(located(path), COLUMNS, APP)
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", _WRITER, str(path), str(number), str(COMMITS)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(2)
    ]
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:
        writer.communicate("go\n", timeout=60)
    assert [writer.returncode for writer in writers] == [0, 0]
    rows = DeltaTable(path).to_pyarrow_table()
    assert sorted(rows["_seq"].to_pylist()) == list(range(1, 2 * COMMITS + 1))
    assert sorted(rows["writer"].to_pylist()) == [0] * COMMITS + [1] * COMMITS
