"""As much of Spark as the data path asks for: frames of local rows, and queries that read bronze's log by batches.

A query keeps in its checkpoint what Spark keeps there, in Spark's form, so that the real code judges it.
"""

import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.data import query_log
from pipeline.data.log_tail import offset
from pipeline.data.streams.writing.job import READ
from pipeline.lake.delta import log as delta_log
from pipeline.lake.storage.places import located
from tests.model.schedule_store import Disk
from tests.model.schedule_tasks import Scheduler, Task


class Column:
    """A condition on a column, or an aggregate of one."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.value: Any = None

    def __eq__(self, value: object) -> "Column":  # type: ignore[override]
        made = Column(self.name)
        made.value = value
        return made

    __hash__ = object.__hash__


class Functions:
    """The module `pyspark.sql.functions`."""

    col = Column
    max = Column


class Frame:
    """Rows of some files of bronze, each file a task's."""

    def __init__(self, disk: Disk, files: Sequence[str], key: str | None = None) -> None:
        self._disk, self._files, self._key = disk, files, key

    def where(self, condition: Column) -> "Frame":
        return Frame(self._disk, self._files, condition.value)

    @property
    def columns(self) -> Sequence[str]:
        return READ

    def select(self, *columns: str) -> "Frame":
        assert columns == READ
        return self

    def coalesce(self, _tasks: int) -> "Frame":
        return self

    def mapInArrow(self, body: Callable[..., Any], _schema: str) -> "Mapped":  # noqa: N802
        return Mapped(self._disk.scheduler, [self._batches(file) for file in self._files], body)

    def agg(self, aggregate: Column) -> "Frame":
        assert aggregate.name == "seq"
        return self

    def collect(self) -> list[list[int | None]]:
        self._disk.scheduler.point("spark_job")
        return [[max((pc.max(self._rows(file).column("seq")).as_py() for file in self._files), default=None)]]

    def _rows(self, file: str) -> pa.Table:
        rows = self._disk.read(file)
        return rows if self._key is None else rows.filter(pc.equal(rows.column("game_key"), self._key))

    def _batches(self, file: str) -> Callable[[], list[pa.RecordBatch]]:
        return lambda: self._rows(file).select(READ).to_batches()


class Mapped:
    """The results of a function over each task's batches."""

    def __init__(
        self, scheduler: Scheduler, tasks: Sequence[Callable[[], list[pa.RecordBatch]]], body: Callable[..., Any]
    ) -> None:
        self._scheduler, self._tasks, self._body = scheduler, tasks, body

    def collect(self) -> list[Any]:
        rows: list[Any] = []
        self._scheduler.point("spark_job")
        for task in self._tasks:
            for batch in self._body(iter(task())):
                rows += [SimpleNamespace(**row) for row in batch.to_pylist()]
        self._scheduler.point("spark_done")
        return rows


class Numbers:
    """As `spark.range`: one task for each number."""

    def __init__(self, scheduler: Scheduler, count: int) -> None:
        self._scheduler, self._count = scheduler, count

    def mapInArrow(self, body: Callable[..., Any], _schema: str) -> Mapped:  # noqa: N802
        batches = [[pa.RecordBatch.from_pydict({"id": [number]})] for number in range(self._count)]
        return Mapped(self._scheduler, [lambda each=each: each for each in batches], body)  # type: ignore[misc]


class Spark:
    """A session."""

    def __init__(self, disk: Disk, seed: int) -> None:
        self._disk, self._seed = disk, seed
        self.sparkContext = self.dataSource = self  # properties are the thread's own and steer nothing here
        self.defaultParallelism = 2

    @property
    def readStream(self) -> "Reader":  # noqa: N802
        return Reader(self._disk, self._seed)

    def range(self, _first: int, last: int, _step: int, _tasks: int) -> Numbers:
        return Numbers(self._disk.scheduler, last)

    def register(self, _source: type) -> None:
        """Sources of ours give no rows here, as their frames are not executed."""

    def setLocalProperty(self, _name: str, _value: str) -> None:  # noqa: N802
        pass

    def getLocalProperty(self, _name: str) -> str:  # noqa: N802
        return "run"


class Reader:
    """As `readStream` and `writeStream`, one after the other."""

    def __init__(self, disk: Disk, seed: int) -> None:
        self._disk, self._seed = disk, seed
        self._options: dict[str, Any] = {}
        self._key: str | None = None

    def format(self, _name: str) -> "Reader":
        return self

    def option(self, name: str, value: object) -> "Reader":
        self._options[name] = value
        return self

    def options(self, **options: str) -> "Reader":
        self._options |= options
        return self

    def load(self, path: str | None = None) -> "Reader":
        self._options["path"] = self._options["bronze"] if path is None else path
        return self

    def where(self, condition: Column) -> "Reader":
        self._key = condition.value
        return self

    @property
    def writeStream(self) -> "Reader":  # noqa: N802
        return self

    def queryName(self, name: str) -> "Reader":  # noqa: N802
        self._options["name"] = name
        return self

    def foreachBatch(self, body: Callable[[Any, int], None]) -> "Reader":  # noqa: N802
        self._body = body
        return self

    def trigger(self, **_: Any) -> "Reader":
        return self

    def start(self) -> "Query":
        query = Query(self._disk, self._seed, self._options, self._key, self._body)
        query.begin()
        return query


class Query:
    """A streaming query: plans a batch, keeps the plan, runs it, keeps that it ran; after a crash it repeats one."""

    def __init__(
        self,
        disk: Disk,
        seed: int,
        options: dict[str, Any],
        key: str | None,
        body: Callable[[Any, int], None],
    ) -> None:
        self._disk, self._scheduler, self._key, self._body = disk, disk.scheduler, key, body
        self._bronze = Path(options["path"])
        self._first = int(options["version"] if "version" in options else options["startingVersion"])
        self._checkpoint = Path(options["checkpointLocation"].removeprefix("file:"))
        self._name = str(options["name"]).replace("turnout", "")
        self._seed = seed
        self._stopped = False
        self._error: Exception | None = None
        self._task: Task | None = None

    def begin(self) -> None:
        process = self._scheduler.current.process if self._scheduler.current else None
        assert process is not None
        self._task = self._scheduler.spawn(f"{process.name}.{self._name.split('/')[-1]}", self._live)

    @property
    def isActive(self) -> bool:  # noqa: N802
        return self._task is not None and not self._task.ended

    def exception(self) -> Exception | None:
        return self._error

    def stop(self) -> None:
        self._stopped = True
        task = self._task
        assert task is not None
        self._scheduler.wait(lambda: task.ended, name="stop")

    def _live(self) -> None:
        try:
            self._run()
        except Exception as error:  # noqa: BLE001 - as Spark ends a query
            self._error = error

    def _run(self) -> None:
        for folder in ("offsets", "commits"):
            (self._checkpoint / folder).mkdir(parents=True, exist_ok=True)
        if not query_log.has_id(located(self._checkpoint / "metadata")):
            (self._checkpoint / "metadata").write_text(json.dumps({"id": str(self._disk.names.uuid4())}))
        planned = query_log.batches(located(self._checkpoint / "offsets"))
        batch = planned[-1] if planned else -1
        if planned and batch not in query_log.batches(located(self._checkpoint / "commits")):
            self._repeat(batch)
        while not self._stopped:
            begin = self._end_of(batch) if batch >= 0 else (self._first, 0)
            end = self._plan(begin, batch + 1)
            if end is None:
                self._wait_for_more(begin)
                continue
            batch += 1
            self._write("offsets", batch, json.dumps(self._offset(end)))
            self._run_batch(batch, begin, end)

    def _wait_for_more(self, begin: tuple[int, int]) -> None:
        looked_at, more = -1, False

        def there_is() -> bool:
            nonlocal looked_at, more
            if looked_at != self._scheduler.published:
                looked_at, more = self._scheduler.published, self._there_is_more(begin)
            return self._stopped or more

        self._scheduler.wait(there_is, name="trigger")

    def _repeat(self, batch: int) -> None:
        begin = self._end_of(batch - 1) if batch > 0 else (self._first, 0)
        self._run_batch(batch, begin, self._end_of(batch))

    def _run_batch(self, batch: int, begin: tuple[int, int], end: tuple[int, int]) -> None:
        assert self._scheduler.current is not None
        self._scheduler.current.batch = ((self._checkpoint / "metadata").read_text(), batch)
        self._body(Frame(self._disk, self._files(begin, end), self._key), batch)
        self._write("commits", batch, json.dumps({"nextBatchWatermarkMs": 0}))

    def _write(self, log: str, batch: int, text: str) -> None:
        """Write one of the two logs; another driver on the same checkpoint may have been first.

        Raises:
            RuntimeError: it was.
        """
        self._scheduler.point(f"before_{log}")
        file = self._checkpoint / log / str(batch)
        head = "v1\n{}\n" if log == "offsets" else "v1\n"
        try:
            with file.open("x", encoding="utf-8") as handle:
                handle.write(head + text)
        except FileExistsError as error:
            if log == "offsets":
                raise ConcurrentQuery(f"another query planned batch {batch}") from error
        except FileNotFoundError as error:  # another driver dropped the checkpoint
            raise ConcurrentQuery("the checkpoint is gone") from error
        self._scheduler.point(f"after_{log}")

    def _offset(self, end: tuple[int, int]) -> dict[str, Any]:
        first = delta_log.read_commit(located(self._bronze), 0) or []
        table_id = next(action["metaData"]["id"] for action in first if "metaData" in action)
        return offset(table_id, end[0], end[1] - 1)

    def _end_of(self, batch: int) -> tuple[int, int]:
        end = query_log.offset(located(self._checkpoint / "offsets" / str(batch)))
        if end is None:
            raise ConcurrentQuery(f"offsets of batch {batch} are gone")
        return int(end["reservoirVersion"]), int(end["index"]) + 1

    def _there_is_more(self, begin: tuple[int, int]) -> bool:
        return self._added(begin[0]) is not None

    def _plan(self, begin: tuple[int, int], batch: int) -> tuple[int, int] | None:
        """Return where the next batch ends: after a bounded number of files, perhaps amid those of one commit."""
        draw = random.Random(f"{self._seed} {batch} {self._name}")
        limit = draw.choice((1, 1, 2, 3, 4, 8))
        version, index = begin
        if not self._there_is_more(begin):
            return None
        while limit > 0 and (added := self._added(version)) is not None:
            taken = min(limit, len(added) - index)
            limit -= taken
            index += taken
            if index < len(added):
                return version, index
            version, index = version + 1, 0
        return version, index

    def _files(self, begin: tuple[int, int], end: tuple[int, int]) -> list[str]:
        found: list[str] = []
        for version in range(begin[0], end[0] + 1):
            added = self._added(version) or []
            first = begin[1] if version == begin[0] else 0
            last = end[1] if version == end[0] else len(added)
            found += added[first:last]
        return found

    def _added(self, version: int) -> list[str] | None:
        actions = delta_log.read_commit(located(self._bronze), version)
        if actions is None:
            return None
        adds = [action["add"] for action in actions if "add" in action]
        return [str(self._bronze / add["path"]) for add in adds if add["dataChange"]]


class ConcurrentQuery(RuntimeError):
    """Two queries work on one checkpoint: Spark ends one of them."""
