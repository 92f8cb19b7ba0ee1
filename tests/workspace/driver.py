"""A driver that holds its lease and beats, as the real one does, and carries nothing: for the contract of backends.

`python -m tests.workspace.driver NAME ENV --run-id N`. The file ENV/mode makes it `stubborn`: it hears nothing; or it
`dies` at once; or a `killer`, which kills it whenever it is in hand.
"""

import argparse
import os
import signal
import threading
from pathlib import Path

from pipeline.data.streams.active_games import ActiveGames, stored_games
from pipeline.settings.tree import load
from pipeline.store.database.engine import open_store
from pipeline.store.processes.drivers import heartbeat, start_driver
from pipeline.store.processes.leases import leased
from pipeline.store.processes.runs import is_wanted

_BEAT_SECONDS = 0.05


def main() -> int:
    """Beat until asked to end, by a signal or by the store; return the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("env", type=Path)
    parser.add_argument("--run-id", type=int)
    given = parser.parse_args()
    mode = (given.env / "mode").read_text("utf-8") if (given.env / "mode").exists() else ""
    if mode == "dies":
        return 3
    stop = threading.Event()
    signal.signal(signal.SIGTERM, signal.SIG_IGN if mode == "stubborn" else lambda *_: stop.set())
    settings, paths = load(given.env, {})
    engine = open_store(settings, paths)
    with leased(engine, settings.store, "group", given.name, given.run_id):
        start_driver(engine, "group", given.name, None, given.run_id)
        active = ActiveGames(paths.checkpoints / "demux" / given.name, "shared", stored_games(engine, given.run_id))
        while not stop.wait(_BEAT_SECONDS):
            if mode == "killer":
                with active.track(["a_killer", "calm"]):
                    os.kill(os.getpid(), signal.SIGKILL)
            heartbeat(engine, "group", given.name, "running", None)
            if (
                mode != "stubborn"
                and given.run_id is not None
                and not is_wanted(engine, "group", given.name, given.run_id)
            ):
                stop.set()
        heartbeat(engine, "group", given.name, "stopped", None)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
