"""Commands of turnout as processes."""

import json
import subprocess
import sys
from typing import Any


def turnout(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command line as a user does, in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "pipeline", *arguments], check=False, capture_output=True, text=True, timeout=400
    )


def last_line(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result
