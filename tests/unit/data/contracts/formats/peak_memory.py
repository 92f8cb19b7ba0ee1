"""How much memory a block of a test takes at its peak; Linux can forget an earlier one."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa


@contextmanager
def at_most(mib: int) -> Iterator[None]:
    """Demand that this process's memory never grows by more than that inside."""
    pa.default_memory_pool().release_unused()
    Path("/proc/self/clear_refs").write_text("5")
    before = _peak_mib()
    yield
    assert _peak_mib() - before <= mib


def _peak_mib() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) // 1024 for line in lines if line.startswith("VmHWM"))
