"""A task of a job in these tests: prints what it was given, waits while a file exists, ends with a code.

The stand-in runs it as the wheel `tests.workspace.task`: `python -m tests.workspace.task [CODE] [WAIT] [WORD...]`.
"""

import os
import signal
import sys
import time
from pathlib import Path


def main() -> int:
    """Say everything; a signal would be said, too."""
    code, wait, *words = [*sys.argv[1:], *("0", "-")[len(sys.argv) - 1 :]]
    signal.signal(signal.SIGTERM, lambda *_: print("SIGTERM arrived", flush=True))  # noqa: T201 - its log is read
    shown = {name: value for name, value in os.environ.items() if name.startswith(("DATABRICKS_", "TURNOUT_"))}
    print(words, shown, os.getpid(), flush=True)  # noqa: T201 - its log is read
    while wait != "-" and Path(wait).exists():
        time.sleep(0.01)
    return int(code)


if __name__ == "__main__":
    sys.exit(main())
