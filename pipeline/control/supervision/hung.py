"""Ends what hangs though no controller has started it: ingest, maintenance, and drivers of groups without a backend.

What started such a process starts it again when it has ended, and cannot know that it hangs: a service manager and
`turnout demo` look at the process alone. Where the controller is to run maintenance it starts its own then. Only
processes of this machine are ended; law L4 makes a late one harmless.
"""

import logging
import os

from sqlalchemy import Engine

from pipeline.control.processes.backends import Backend, reference_of
from pipeline.control.processes.duties import described
from pipeline.store.drivers import LastBeat, last_beats, record_hung
from pipeline.store.leases import held_by

_log = logging.getLogger("turnout")
_Key = tuple[str, str]  # kind and name
_KINDS = frozenset({"ingest", "group", "maintenance"})


def find(engine: Engine, now: float, watched_since: float, most_silent: float) -> list[tuple[_Key, LastBeat]]:
    """Return those that may hang: they have not said that they end, and are silent for so long while we watched."""
    return [
        (key, beat)
        for key, beat in last_beats(engine).items()
        if key[0] in _KINDS
        and beat.state != "stopped"
        and beat.pid != os.getpid()
        and now - max(beat.at, watched_since) > most_silent
    ]


def end(engine: Engine, backend: Backend, key: _Key, beat: LastBeat, now: float) -> None:
    """Kill a process that hangs, where it is one of this machine that surely is the one that beat.

    Raises:
        Refused: it belongs to another user.
    """
    process = held_by(engine, *key)
    if process is None or (process.host, process.pid) != (beat.host, beat.pid):
        return  # without a lease nobody knows whether the process with its id is still the same
    if not process.makes_sense or not process.is_here() or process.is_dead():
        return
    why = f"killed, as it hung: it was silent for {now - beat.at:.0f} s. What started it has to start it again"
    backend.kill(reference_of(process))
    record_hung(engine, *key, beat, why)
    _log.warning("%s: %s", described(*key), why)
