"""Does one repair in a process of its own, so that tests can kill it: `repairing.py ENV_DIR replay|rebuild [KEY]`."""

import sys
from pathlib import Path

from pipeline.data.contracts.registry import LocalRegistry
from pipeline.data.repair.quarantined import Selection
from pipeline.data.repair.rebuild import rebuild
from pipeline.data.repair.replay import replay_all
from pipeline.data.repair.report import render_rebuilt, render_replays
from pipeline.settings.tree import load
from pipeline.store.database.engine import open_store
from pipeline.store.games import find, known_names


def command(env: Path, kind: str, *key: str) -> list[str]:
    """Return the command line that does it."""
    return [sys.executable, __file__, str(env), kind, *key]


def main(env: str, kind: str, *key: str) -> int:
    settings, paths = load(Path(env))
    engine = open_store(settings, paths)
    schemas, known = LocalRegistry(engine).snapshot, known_names(engine)
    if kind == "rebuild":
        done = rebuild(paths, settings.environment, engine, schemas, find(key[0], known))
        sys.stdout.write(f"{render_rebuilt(done)}\n")
        return 0
    replayed = replay_all(paths, settings.environment, schemas, known, Selection(), dry_run=False)
    sys.stdout.write(f"{render_replays(replayed, dry_run=False)}\n")
    return 1 if any(each.error for each in replayed) else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
