"""The edge of a demo: a bounded run sends through it, and waits until its producer has heard of each event."""

import threading
import time
from typing import Final

import pyarrow.compute as pc

from pipeline.base.errors import Refused
from pipeline.base.terminal import say_lines
from pipeline.demo.dashboard import HOST
from pipeline.demo.heard import Heard, Hearing
from pipeline.demo.server_process import free_ports
from pipeline.lake.delta.opening import rows_of
from pipeline.platforms.local.child_processes import Children, turnout
from pipeline.settings.tree import Paths

_PORT: Final = 8470
_END_SECONDS: Final = 20.0
_HEAR_SECONDS: Final = 30.0  # for the last outcomes, once all events are in tables or in quarantine
_LOOK_SECONDS: Final = 0.2


def start(children: Children, paths: Paths) -> str:
    """Start an edge on the port of the documentation, or on a free one; return its address."""
    try:
        (port,) = free_ports(_PORT)
    except Refused:
        (port,) = free_ports(None)
    address = f"{HOST}:{port}"
    run = turnout("edge", "run", "--env-dir", str(paths.root), "--listen-token", address, "--name", "demo")
    children.start("edge", run)
    return address


def send(children: Children, stop: threading.Event, paths: Paths, simulate: list[str]) -> bool:
    """Start a simulator, and wait until it has sent its events and only follows them; return whether it has."""
    hearing = Hearing(paths.root)
    children.start("simulate", simulate)
    while not stop.wait(_LOOK_SECONDS):
        ended = children.dead()
        if hearing.heard.is_sent:
            return True
        if ended:
            say_lines(f"{ended[0].name} has ended:\n{children.tail(ended[0].name)}", err=True)
            return False
    say_lines("stopped", err=True)
    return False


def hear(children: Children, stop: threading.Event, paths: Paths) -> Heard:
    """Wait until the simulator has heard of each of its events, and end it and its edge."""
    until = time.monotonic() + _HEAR_SECONDS
    while not Heard.read(paths.root).is_whole and time.monotonic() < until and not stop.wait(_LOOK_SECONDS):
        pass
    for name in ("simulate", "edge"):
        children.end(name, _END_SECONDS)
    return Heard.read(paths.root)


def result(heard: Heard, paths: Paths) -> dict[str, float | None]:
    """Return what a bounded run prints: counts, and the seconds from the last row in quarantine to the last refusal."""
    seconds = None
    if heard.refused_at is not None:
        last = pc.max(rows_of(paths.quarantine).to_table(columns=["quarantined_at"]).column(0)).as_py()
        seconds = round(max(0.0, heard.refused_at - last.timestamp()), 1)
    return {
        "edge_landed_seen": heard.landed,
        "edge_refused_seen": heard.refusals,
        "edge_refused_seconds": seconds,
        "edge_without_outcome": heard.waiting + heard.untracked + heard.unknown,
    }
