"""What a measurement ran on: hardware, versions, and who else was busy."""

import os
import platform
import subprocess
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from bench import cpu
from pipeline.platforms.local.jars import java_executable, spark_jars

_PACKAGES = ("pyspark", "delta-spark", "deltalake", "pyarrow", "ptars")
_BUSY_CORES = 0.05


def describe() -> dict[str, str]:
    """Return the machine and the versions as short texts."""
    java = subprocess.run([java_executable(), "-version"], capture_output=True, text=True, check=True)
    jar = next((path.stem for path in spark_jars() if path.name.startswith("delta-spark")), "unknown")
    memory_kib = int(_line("/proc/meminfo", "MemTotal").split()[0])
    return {
        "cpu": _line("/proc/cpuinfo", "model name"),
        "cores": str(os.cpu_count()),
        "memory": f"{memory_kib / 2**20:.1f} GiB",
        "kernel": platform.release(),
        "python": platform.python_version(),
        "java": java.stderr.splitlines()[0],
        "delta": jar,
        **{name: version(name) for name in _PACKAGES if name != "delta-spark"},
    }


def load_average() -> float:
    """Return the machine's load of the last minute."""
    return os.getloadavg()[0]


def others(
    before: Sequence[cpu.ProcessStat], after: Sequence[cpu.ProcessStat], seconds: float, ours: int
) -> dict[str, float]:
    """Return the cores that processes outside the tree of `ours` used between two looks, by command.

    What used less than a twentieth of a core is left out.
    """
    mine = {stat.pid for stat in cpu.tree(after, ours)}
    until_then = {stat.pid: cpu.total([stat]).cpu_seconds for stat in before}
    used: dict[str, float] = {}
    for stat in after:
        if stat.pid not in mine:
            spent = cpu.total([stat]).cpu_seconds - until_then.get(stat.pid, 0.0)
            used[stat.command] = used.get(stat.command, 0.0) + spent / seconds
    return {command: round(cores, 2) for command, cores in used.items() if cores >= _BUSY_CORES}


def _line(file: str, key: str) -> str:
    for line in Path(file).read_text("utf-8").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == key:
            return value.strip()
    return "unknown"
