"""A group driver that notes what it does until it is level; `bench.start` runs it, with the code of any checkout."""

import functools
import importlib
import json
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

_STEPS: Final = (
    ("pipeline.wiring", "driver_session"),
    ("pipeline.wiring", "_run_group"),
    ("pipeline.wiring", "Telemetry"),
    ("pipeline.wiring", "attach"),
    ("pipeline.wiring", "Group"),
    ("pipeline.data.streams.group", "bronze_to_game"),
    ("pipeline.data.streams.roster", "Roster._held"),
    ("pipeline.data.streams.roster", "decided"),
    ("pipeline.data.streams.roster", "Roster._opened"),
    ("pipeline.data.streams.roster", "Roster._adopt"),
    ("pipeline.data.streams.group", "Group._passes"),
    ("pipeline.wiring", "DerivedStreams"),
    ("pipeline.wiring", "BookKeeper"),
    ("pipeline.wiring", "Watchdog"),
    ("pipeline.wiring", "_waits"),
    ("pipeline.data.streams.group", "Group._stop_games_ahead"),
    ("pipeline.data.streams.group", "Group.start"),
    ("pipeline.data.streams.demux", "can_resume"),
    ("pipeline.data.streams.demux", "Demux.start"),
    ("pipeline.data.streams.demux", "Demux._batch"),
    ("pipeline.data.streams.outage", "CachedRegistry.latest"),
    ("pipeline.data.streams.outage", "CachedRegistry.snapshot"),
    ("pipeline.data.streams.roster", "Roster.sync"),
    ("pipeline.data.streams.catchup", "CatchUp._step"),
    ("pipeline.data.streams.passes", "Passes._ahead_of_source"),
    ("pipeline.data.streams.passes", "Passes._split"),
    ("pipeline.data.streams.passes", "Passes._commits"),
    ("pipeline.data.streams.passes", "Passes._commit"),
    ("pipeline.data.streams.passes", "Passes._apply"),
)  # fmt: skip
"""What is noted, by module and name; a checkout that lacks one is measured without it."""

_noted: list[tuple[str, str, float, float, float, int]] = []


def main() -> None:
    """Run the group's driver of an environment until SIGTERM; keep what it did in a file."""
    environment, group, out = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
    begun = time.time()
    for module, name in _STEPS:
        _note(module, name)
    wiring, tree = importlib.import_module("pipeline.wiring"), importlib.import_module("pipeline.settings.tree")
    settings, paths = tree.load(environment, {})
    code = 1
    try:
        code = wiring.run_group(settings, paths, group, once=False)
    finally:
        out.write_text(json.dumps({"begun": begun, "steps": _noted}), "utf-8")
    sys.exit(code)


def _note(module: str, name: str) -> None:
    """Note when each call of a function, method or class begins and ends, and the CPU time of its own thread."""
    owner: Any = importlib.import_module(module)
    *outer, last = name.split(".")
    for each in outer:
        owner = getattr(owner, each)
    call: Callable[..., Any] | None = getattr(owner, last, None)
    if call is None:
        return

    @functools.wraps(call, updated=())
    def noted(*arguments: Any, **named: Any) -> Any:
        began, used = time.time(), time.thread_time()
        try:
            result = call(*arguments, **named)
        finally:
            thread = threading.current_thread().name
            _noted.append((name, thread, began, time.time(), time.thread_time() - used, _size(arguments)))
        return result

    setattr(owner, last, noted)


def _size(arguments: tuple[Any, ...]) -> int:
    """Return how many streams a call is given, 0 where that is not its matter."""
    return next((len(each) for each in arguments if isinstance(each, dict)), 0)


if __name__ == "__main__":
    main()
