"""Kills hung processes that no controller started: ingest, maintenance, and drivers of groups without a backend.

What started such a process starts it again when it has ended, and cannot know that it hangs: a service manager and
`turnout demo` look at the process alone. Where the controller is to run maintenance it starts its own then. Only
processes of this machine are ended; law L4 makes a late one harmless.
"""

import logging

from sqlalchemy import Engine

from listeners.process_kinds import described
from pipeline.control import kinds
from pipeline.control.backends.backend import Backend
from pipeline.health.verdicts.liveness import DriverFacts
from pipeline.store.processes.drivers import record_hung
from pipeline.store.processes.leases import held_by
from pipeline.store.rows import Driver

_log = logging.getLogger("turnout")


def find(facts: DriverFacts, watched_since: float, max_silent: float) -> list[Driver]:
    """Return drivers that may hang: not ending in order, and silent for `max_silent` seconds while we watched."""
    return [
        driver
        for driver in facts.drivers.values()
        if kinds.find(driver.kind).ends_hung
        and driver.state != "stopped"
        and facts.now - max(driver.heartbeat_at, watched_since) > max_silent
    ]


def end(engine: Engine, backend: Backend, driver: Driver, now: float) -> None:
    """Kill a process that hangs, where it is one of this machine that surely is the one that beat.

    Raises:
        Refused: it belongs to another user.
    """
    process = held_by(engine, driver.kind, driver.name)
    reference = None if process is None else backend.find(process)
    if process is None or reference is None or process.address != driver.process:
        return  # without a lease nobody knows whether the process with its id is still the same
    if not backend.observe([reference])[reference].is_alive:
        return
    silent_seconds = driver.heartbeat_age(now)
    why = f"killed, as it hung: it was silent for {silent_seconds:.0f} s. What started it has to start it again"
    backend.kill(reference)
    record_hung(engine, driver, why)
    _log.warning("%s: %s", described(driver.kind, driver.name), why)
