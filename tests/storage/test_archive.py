"""The Python that executors on other machines get."""

import subprocess
import sys
import tarfile
from importlib.util import find_spec
from pathlib import Path

import pytest

from pipeline.platforms.local.archive import archives

_TASKS = (
    "pipeline.data.streams.writing.rows, pipeline.data.ingest.bronze_writer, pipeline.data.ingest.sources.landing_files"
)
_MORE = "pipeline.data.ingest.profiled, pipeline.data.contracts.registry, pipeline.data.ingest.sources.landing_source"


@pytest.mark.long
def test_the_archives_have_all_that_tasks_import(tmp_path: Path) -> None:
    """Law: an executor imports every module of tasks from the archives and Spark's own Python alone."""
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    libraries = sorted(map(str, (Path(spec.origin).parent / "python" / "lib").glob("*.zip")))
    folders = []
    for number, archive in enumerate(archives()):
        folder = tmp_path / str(number)
        with tarfile.open(archive) as packed:
            packed.extractall(folder, filter="tar")
        folders.append(str(folder))
    script = f"import sys; sys.path += {[*folders, *libraries]!r}; import {_TASKS}, {_MORE}; print(pipeline.__file__)"
    python = getattr(sys, "_base_executable", sys.executable)
    done = subprocess.run([python, "-I", "-S", "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(tmp_path))
