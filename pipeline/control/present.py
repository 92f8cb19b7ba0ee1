"""Which processes of an environment run on this machine, for commands that name or stop them; never stops one itself.

Ingest, groups, maintenance and the controller are found by their leases and runs. What has no lease, such as the demo
and the dashboard, notes itself in a file of the environment's folder, and so does each of them without `store.leases`.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from sqlalchemy import Engine

from listeners.process_kinds import ONLY, described
from pipeline.base import private_files
from pipeline.control.backends.local import process_of, reference_of
from pipeline.control.kinds import registered
from pipeline.settings.tree import Paths, Store
from pipeline.store.backends import backend_kind
from pipeline.store.processes.leases import Process
from pipeline.store.processes.runs import active_drivers, open_runs

DEMO: Final = "demo"
STOP: Final = "stop"  # a command that stops others, and holds the controller's lease meanwhile


@dataclass(frozen=True, slots=True)
class Present:
    """A process that runs, on this machine or, by its lease, on another one."""

    kind: str
    """Kind of its lease; of a process without one, such as `demo`, the command's name."""

    name: str
    process: Process
    run_id: int | None = None  # its open run of the control store
    about: str = ""  # where people find it, such as a URL without its token

    @property
    def reference(self) -> str:
        """How the `local` backend finds it."""
        return reference_of(self.process)

    def __str__(self) -> str:
        about = f" at {self.about}" if self.about else ""
        return f"{described(self.kind, self.name)}{about} (process {self.process.pid})"


def folder(paths: Paths) -> Path:
    """Return the folder of the notes, on this machine."""
    return paths.root / "running"


def note(paths: Paths, kind: str, about: str = "", name: str = ONLY) -> Path:
    """Note this process, which has no lease, in the environment's folder; return the file.

    It counts while the process lives, whether the file is removed or not.
    """
    for file, each in _notes(paths):
        if each is None or each.process.is_dead():
            file.unlink(missing_ok=True)
    this = Process.this()
    file = folder(paths) / f"{kind}-{this.pid}.json"
    text = {"kind": kind, "name": name, "about": about, "process": asdict(this)}
    private_files.make_folder(folder(paths))
    private_files.write_file(file, json.dumps(text))
    return file


@contextmanager
def noted(paths: Paths, kind: str, about: str = "", name: str = ONLY) -> Iterator[None]:
    """Note this process while the block runs."""
    file = note(paths, kind, about, name)
    try:
        yield
    finally:
        file.unlink(missing_ok=True)


@contextmanager
def noted_without_leases(wanted: Store, paths: Paths, kind: str, name: str = ONLY) -> Iterator[None]:
    """Note this process while the block runs, where the settings turn leases off."""
    with nullcontext() if wanted.leases else noted(paths, kind, name=name):
        yield


def without_lease(paths: Paths) -> list[Present]:
    """Return the processes of this machine that noted themselves and live."""
    found = [each for _, each in _notes(paths) if each is not None]
    return [each for each in found if each.process.is_here() and not each.process.is_dead()]


def with_lease(engine: Engine, *kinds: str) -> list[Present]:
    """Return who holds a lease and may live, here or elsewhere, and local runs that have not taken theirs yet.

    Without `kinds` the processes of every kind.
    """
    found = []
    for kind in kinds or [each.kind.name for each in registered()]:
        runs = open_runs(engine, kind)
        for name, driver in active_drivers(engine, kind).items():
            run = runs.get(name)
            run_id = runs.pop(name).run_id if run is not None and run.run_id == driver.run_id else None
            if not driver.process.is_dead():
                found.append(Present(kind, name, driver.process, run_id))
        for name, run in runs.items():
            process = process_of(run.reference or "") if backend_kind(run.backend).is_here else None
            if process is not None and process.is_here() and not process.is_dead():
                found.append(Present(kind, name, process, run.run_id))
    return found


def present(engine: Engine, paths: Paths) -> list[Present]:
    """Return each process once: those with a lease or a local run, then those of this machine that noted themselves.

    A command that stops others is none of them, whatever lease it holds.
    """
    others = without_lease(paths)
    stops = {each.process for each in others if each.kind == STOP}
    leased = [each for each in with_lease(engine) if each.process not in stops]
    known = stops | {each.process for each in leased}
    return [*leased, *(each for each in others if each.process not in known)]


def other_stop(paths: Paths) -> Present | None:
    """Return another command of this machine that stops processes of the environment; None where none runs."""
    this = Process.this()
    return next((each for each in without_lease(paths) if each.kind == STOP and each.process != this), None)


def goes_on(engine: Engine, paths: Paths) -> str | None:
    """Return which processes go on when this one ends, and what stops them, in two sentences; None where none does.

    Nothing is said where a demo runs: it stops what it has started.
    """
    this = Process.this()
    left = [each for each in present(engine, paths) if each.process != this]
    if not left or any(each.kind == DEMO for each in left):
        return None
    here = [each for each in left if each.process.is_here()]
    hint = f" `turnout stop --env-dir {paths.root}` stops all of them." if here else ""
    return f"Still running: {', '.join(map(str, left))}.{hint}"


def _notes(paths: Paths) -> Iterator[tuple[Path, Present | None]]:
    """Yield each note and its process; None where the file is none."""
    for file in sorted(folder(paths).glob("*.json")) if folder(paths).is_dir() else ():
        try:
            text = json.loads(file.read_text("utf-8"))
            kind, name, about = str(text["kind"]), str(text.get("name", "main")), str(text["about"])
            process = process_of(json.dumps(text["process"]))
            known = None if process is None else Present(kind, name, process, about=about)
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            known = None
        yield file, known
