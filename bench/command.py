"""What every measurement does around its run: a folder for it, its report, and its result kept as JSON."""

import argparse
import json
import signal
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any


def carry_out(
    options: argparse.Namespace, run: Callable[[Path], dict[str, Any]], report: Callable[[dict[str, Any]], str]
) -> Mapping[str, Any]:
    """Run in a folder below `options.work` that is deleted at the end, print, keep the result in `options.out`."""
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))  # so that every process is ended
    with tempfile.TemporaryDirectory(prefix="turnout-bench-", dir=options.work) as folder:
        result = run(Path(folder))
    print(report(result))
    keep(result, options.out)
    return result


def keep(result: Mapping[str, Any], out: Path | None) -> None:
    """Write a result as JSON if a file is given."""
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(result, indent=1) + "\n", "utf-8")
