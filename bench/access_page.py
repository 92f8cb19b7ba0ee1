"""`python -m bench.access_page`: how long the Access page's script takes over a snapshot of 500 games × 60 principals.

Each run is a process of its own: the page opened first of all, with nothing imported and nothing cached, and then
clicks on it. The script alone is measured, by Streamlit's AppTest: no browser draws. See docs/performance.md.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from sqlalchemy import insert

from bench import machine
from bench.access import observed
from bench.command import keep
from bench.text import milliseconds
from grants.observing import snapshot
from pipeline.health.facts.placing import placing
from pipeline.settings.tree import Paths, Settings
from pipeline.store.database.engine import open_store
from pipeline.store.database.tables import entitlements, managed_grants
from pipeline.store.games import record_seen

_ROOT: Final = Path(__file__).parents[1]
_FILLED: Final = 0.2  # of the cells, each given by turnout
_ROWS: Final = 5_000  # of one insert
_WARM_UP: Final = "warm up"  # the thread's name
_CLICKS: Final = {"a click that changes nothing of the matrix": ("access_view", "ending"),
                  "a click that filters the matrix": ("access_kind", "group"),
                  "a click that shows drift": ("access_view", "drift"),
                  "back to why": ("access_view", "why")}  # fmt: skip


def fill(folder: Path, games: int, principals: int) -> None:
    """Make an environment whose store has games, a snapshot, and the entitlements of the snapshot's grants."""
    engine = open_store(Settings(), Paths(folder))
    seen, _ = observed(games, principals, _FILLED)
    now = time.time()
    record_seen(engine, {key: f"Game {key[-4:]}" for key in seen.tables}, 1, placing())
    snapshot.keep(engine, replace(seen, read_at=now))
    held = [(each, who) for each in seen.tables.values() for who in seen.direct[each.securable]]
    by = {"operation_id": "bench"}
    rows = [
        {"principal": who, "game_key": each.key, "reason": "bench", "ticket": "", "table_id": each.table_id,
         "given_at": now, **by} for each, who in held
    ]  # fmt: skip
    given = [
        {"securable": each.securable.full_name, "principal": who.casefold(), "privilege": "SELECT", **by}
        for each, who in held
    ]
    with engine.begin() as connection:
        for start in range(0, len(held), _ROWS):
            connection.execute(insert(entitlements), rows[start : start + _ROWS])
            connection.execute(insert(managed_grants), given[start : start + _ROWS])
    engine.dispose()


def view(folder: Path) -> dict[str, float]:
    """Open the page in this process and click on it; return the seconds of each script run.

    Raises:
        AssertionError: the page failed, or drew no matrix.
    """
    os.environ["TURNOUT_ENV_DIR"] = str(folder)
    begun = time.perf_counter()
    import streamlit as st
    from streamlit.testing.v1 import AppTest

    took = {"Streamlit's own import": time.perf_counter() - begun}
    from app.gate import Person
    from app.person import identity

    identity.person = lambda: Person("bench", by_platform=False)  # no server, so nobody is signed in

    def timed(what: str, app: AppTest) -> None:
        begun = time.perf_counter()
        app.run()
        took[what] = time.perf_counter() - begun
        if app.exception:
            raise AssertionError(f"{what}: {app.exception}")

    def opened() -> AppTest:
        return AppTest.from_file(_ROOT / "app" / "main.py", default_timeout=60).switch_page("views/access.py")

    app = opened()
    timed("first view in a new process, imports and all", app)
    if not any(str(each.key) == "access_table" for each in app.dataframe):
        raise AssertionError("the page drew no matrix")
    timed("next view, nothing clicked", app)
    for what, (key, value) in _CLICKS.items():
        app.segmented_control(key=key).set_value(value)
        timed(what, app)
    while any(each.name == _WARM_UP for each in threading.enumerate()):
        time.sleep(0.1)  # what the page loads beside itself, once in a process
    st.cache_data.clear()
    st.cache_resource.clear()
    app = opened()
    timed("first view in a process that has shown other pages, nothing cached", app)
    timed("next view after that", app)
    return took


def main() -> None:
    """Measure, print a table, and with `--out` write it as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m bench.access_page")
    parser.add_argument("--games", type=int, default=500)
    parser.add_argument("--principals", type=int, default=60)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--view", type=Path, help=argparse.SUPPRESS)  # one run, over an environment there is
    options = parser.parse_args()
    if options.view is not None:
        print(json.dumps(view(options.view)))
        return
    found: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        fill(Path(folder), options.games, options.principals)
        command = [sys.executable, "-m", "bench.access_page", "--view", folder]
        for _ in range(options.runs):
            answer = subprocess.run(command, cwd=_ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
            one: dict[str, Any] = json.loads(answer.splitlines()[-1])
            for what, seconds in one.items():
                found.setdefault(what, []).append(seconds)
    print(milliseconds("script run", found))
    result = {"machine": machine.describe(), "load": machine.load_average(), "runs": options.runs, "seconds": found}
    keep(result, options.out)


if __name__ == "__main__":
    main()
