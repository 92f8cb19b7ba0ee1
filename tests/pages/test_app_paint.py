"""Guards what a page with 1,000 games costs: CPU time of its script, and what it sends to the browser."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from streamlit.elements import vega_charts
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from streamlit.runtime.scriptrunner_utils.script_run_context import ScriptRunContext

from app.state import judged
from pipeline.api import series as series_queries
from pipeline.base.names import game_key
from tests.browser.seed import Seeded, seed
from tests.checkout import ROOT
from tests.unit.app.app_world import Opening, forget_readings, pages_of
from tests.unit.app.fleet_world import incident, series

GROUPS = [f"g{number}" for number in range(10)]
NAMES = [f"Game number {number:04}" for number in range(1_000)]
GAME = str(game_key(NAMES[7]))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an environment of 1,000 games in 10 groups, a few of them in trouble."""
    made = tmp_path_factory.mktemp("large")
    trouble = {5: {"status": "FAILED", "last_error": "no space left"}, 80: {"status": "LAGGING"}}
    games = [Seeded(name, GROUPS[at % len(GROUPS)], trouble.get(at, {})) for at, name in enumerate(NAMES)]
    seed(made, games, now=time.time(), heartbeat_ages=dict.fromkeys(["ingest", *GROUPS], 1.0), history=False)
    return made


@pytest.fixture
def opening(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Opening]:
    """Open a page of it; the minutes are those of an hour, and an incident has some games."""
    keys = sorted(map(game_key, NAMES))
    hour = series(keys, groups=[GROUPS[at % len(GROUPS)] for at in range(len(keys))])
    object.__setattr__(hour, "since", time.time() // 60 * 60 - hour.slots * hour.slot_seconds)
    monkeypatch.setattr(series_queries, "read", lambda *_: hour)
    monkeypatch.setattr(judged, "incidents", lambda _: (incident(keys[:3]),))
    with pages_of(folder, monkeypatch) as opened:
        yield opened


@pytest.mark.parametrize(("page", "most_bytes"), [("fleet", 300_000), ("groups", 300_000), ("game", 150_000)])
def test_the_first_paint_of_a_thousand_games_costs_little(
    page: str, most_bytes: int, opening: Opening, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page that nobody looked at for a while is drawn within its share of the second that a person waits."""
    sent: list[int] = []
    enqueue = ScriptRunContext.enqueue

    def count(context: ScriptRunContext, message: ForwardMsg) -> None:
        sent.append(message.ByteSize())
        enqueue(context, message)

    monkeypatch.setattr(ScriptRunContext, "enqueue", count)
    warned: list[object] = []
    monkeypatch.setattr(vega_charts._LOGGER, "warning", lambda *said, **_: warned.append(said))
    query = {"game": GAME} if page == "game" else {}
    opening(page, **query)  # which imports what it needs
    took = []
    for _ in range(2):
        forget_readings()
        sent.clear()
        begun = time.process_time()
        opening(page, **query)
        took.append(time.process_time() - begun)
    sys.stdout.write(f"{page}: CPU {min(took):.2f} s, {sum(sent) / 1000:.0f} kB\n")
    assert min(took) <= 0.5  # a third of it where nothing else runs
    assert sum(sent) <= most_bytes
    assert warned == [], "a log of some MB an hour"


def test_the_dashboard_lets_arrow_use_the_allocator_of_the_process() -> None:
    """Arrow's own allocator keeps what ended threads had, and each refresh has a thread: memory grew by the minute."""
    code = (
        "import sys; from app import server; assert 'pyarrow' not in sys.modules; server.keep_memory_flat(); "
        "import pyarrow; print(pyarrow.default_memory_pool().backend_name)"
    )
    bare = {name: value for name, value in os.environ.items() if name != "ARROW_DEFAULT_MEMORY_POOL"}
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True, cwd=ROOT, env=bare
    )
    assert ran.stdout == "system\n"
