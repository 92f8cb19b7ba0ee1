"""Looks at this machine and tells what turnout needs: what is there, what is missing, what to do.

Called by the command `turnout doctor`. Only looks: it installs, starts and changes nothing.
"""

import dataclasses
import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from itertools import groupby
from pathlib import Path
from typing import Final, Literal

from pipeline.base.errors import Refused
from pipeline.base.terminal import say_lines
from pipeline.lake.storage.mounts import REMEDY, RUNTIME, is_databricks, refused_place
from pipeline.lake.storage.places import cloud_of
from pipeline.platforms.local.jars import STORES, jars_dir, java_executable, locked_jars, set_up_command
from pipeline.settings import tree as settings_module
from pipeline.settings.storage import read_link
from pipeline.settings.tree import Paths, Settings

ROOT: Final = Path(__file__).resolve().parents[3]

State = Literal["ok", "missing", "optional"]

_MIN_PYTHON: Final = (3, 11)
_MIN_JAVA: Final = 17
_MIN_FREE_BYTES: Final = 1 << 30  # a demo's tables, logs and checkpoints stay well below
_PATIENCE_SECONDS: Final = 20
_SHOWN: Final = 5  # defects of one topic listed one by one: more have the same reason
_SETUP: Final = "run ./turnout setup"
_SETUP_DEV: Final = "only tests need it: run ./turnout setup --dev"


@dataclass(frozen=True, slots=True)
class DoctorFinding:
    """One thing looked at; without what is `missing` turnout does not work, without what is `optional` it does."""

    topic: str
    subject: str
    state: State
    detail: str
    remedy: str = ""  # what to do, empty when nothing is to be done


def findings(settings: Settings, env_dir: Path, root: Path, storage: str = "") -> list[DoctorFinding]:
    """Look at everything.

    Args:
        settings: of the environment.
        env_dir: this machine's folder of it.
        root: the checkout, whose locks say which packages belong here.
        storage: URL of the tables, empty where they are in a folder.
    """
    collected = [_python(), _venv()]
    collected += _packages(root / "requirements.lock", "missing", _SETUP)
    collected += _packages(root / "requirements-dev.lock", "optional", _SETUP_DEV)
    collected += [_databricks()] if is_databricks() else [_java(), *_jars(storage)]
    collected += _folder(env_dir)
    collected += [
        _program(name) for name in ("chromium", "initdb", "prometheus", "prometheus-alertmanager", "promtool")
    ]
    collected += [_disk(env_dir), _port("127.0.0.1", settings.dashboard.port, "dashboard.port")]
    servers = {each.bootstrap_servers: None for each in settings.every_source.values() if each.kind == "kafka"}
    collected += [_broker(server) for each in servers for server in each.split(",")]
    return collected


def render_findings(collected: Sequence[DoctorFinding]) -> str:
    """Return the findings as lines for people: the good ones of a topic are one line, many defects are cut short."""
    lines = []
    for topic, group in groupby(collected, lambda finding: finding.topic):
        members = list(group)
        bad = [finding for finding in members if finding.state != "ok"]
        if len(members) == 1:
            lines.append(_line(members[0].state, members[0].subject, members[0].detail, members[0].remedy))
            continue
        if len(bad) < len(members):
            lines.append(_line("ok", topic, f"{len(members) - len(bad)} of {len(members)} correct", ""))
        lines += [_line(each.state, each.subject, each.detail, each.remedy) for each in bad[:_SHOWN]]
        if more := bad[_SHOWN:]:
            lines.append(_line(more[0].state, topic, f"{len(more)} more like this", more[0].remedy))
    return "\n".join(lines)


def run(
    env_dir: Path,
    as_json: bool,
    ask: Callable[[Settings, Paths], Sequence[DoctorFinding]] = lambda _settings, _paths: (),
    root: Path = ROOT,
) -> int:
    """Print what was found; return 0, or 1 when something that is needed is missing.

    Args:
        env_dir: the environment's folder.
        as_json: print JSON.
        ask: looks at services with packages that may be missing: called where none is.
        root: the checkout.
    """
    try:
        settings, paths = settings_module.load(env_dir)
        collected = [DoctorFinding("settings", "settings", "ok", f"of {env_dir} are valid")]
    except Refused as refused:
        # So that the rest can be looked at: ports and source are then the defaults'.
        settings, paths = Settings(), Paths(env_dir, read_link(env_dir))
        remedy = "correct them; defaults are assumed below"
        collected = [DoctorFinding("settings", "settings", "missing", str(refused), remedy)]
    collected += findings(settings, env_dir, root, paths.storage)
    if not any(finding.state == "missing" and finding.topic != "settings" for finding in collected):
        collected += ask(settings, paths)
    as_dicts = [dataclasses.asdict(finding) for finding in collected]
    say_lines(json.dumps(as_dicts, indent=2) if as_json else render_findings(collected))
    return 1 if any(finding.state == "missing" for finding in collected) else 0


def _line(state: State, subject: str, detail: str, remedy: str) -> str:
    mark = "OK" if state == "ok" else state
    return f"{mark:<9}{subject}: {detail}" + (f" -> {remedy}" if remedy else "")


def _python() -> DoctorFinding:
    version = ".".join(str(part) for part in sys.version_info[:3])
    if sys.version_info[:2] >= _MIN_PYTHON:
        return DoctorFinding("python", "Python", "ok", version)
    return DoctorFinding(
        "python", "Python", "missing", f"{version} is too old", "install Python 3.11 or later, " + _SETUP
    )


def _venv() -> DoctorFinding:
    if sys.prefix != sys.base_prefix:
        return DoctorFinding("environment", "environment", "ok", sys.prefix)
    detail = "this is the system's Python, not a virtual environment"
    return DoctorFinding("environment", "environment", "optional", detail, "start turnout with ./turnout")


def _packages(lock: Path, absent: State, remedy: str) -> Iterator[DoctorFinding]:
    """Compare what is installed with a lock; a package that differs has the state `absent`."""
    topic = f"packages of {lock.name}"
    if not lock.exists():
        yield DoctorFinding(
            topic, topic, "optional", "the lock file is missing, so versions cannot be compared", "use a checkout"
        )
        return
    for name, wanted in re.findall(r"^([\w.-]+)==([^\s;]+)", lock.read_text("utf-8"), re.MULTILINE):
        try:
            installed = metadata.version(name)
        except metadata.PackageNotFoundError:
            yield DoctorFinding(topic, name, absent, f"{wanted} is not installed", remedy)
            continue
        same = installed == wanted
        detail = installed if same else f"{installed} is installed, {wanted} is locked"
        yield DoctorFinding(topic, name, "ok" if same else absent, detail, "" if same else remedy)


def _java() -> DoctorFinding:
    try:
        java = java_executable()
        command = [java, "-version"]
        version_text = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE_SECONDS).stderr
    except (Refused, OSError, subprocess.TimeoutExpired) as error:
        return DoctorFinding("java", "Java", "missing", str(error), _SETUP)
    match = re.search(r' version "(\d+)', version_text)
    if match is None:
        return DoctorFinding(
            "java", "Java", "missing", f"{java} does not report its version", "install Java 17 or later"
        )
    if int(match[1]) < _MIN_JAVA:
        return DoctorFinding("java", "Java", "missing", f"{java} is version {match[1]}", "install Java 17 or later")
    return DoctorFinding("java", "Java", "ok", f"{match[1]} ({java})")


def _databricks() -> DoctorFinding:
    """Return which runtime has Java and Spark with its jars here."""
    return DoctorFinding(
        "databricks", "Databricks Runtime", "ok", f"{os.environ[RUNTIME]}: Java, Spark and jars are its own"
    )


def _jars(storage: str) -> Iterator[DoctorFinding]:
    cloud = cloud_of(storage)
    for jar in locked_jars():
        path = jars_dir() / jar.conf / jar.file
        is_needed = jar.conf not in STORES or (cloud is not None and cloud.jars == jar.conf)
        remedy = f"run {set_up_command([jar.conf])}"
        if not is_needed:
            remedy = f"only tables in {STORES[jar.conf].partition(' (')[0]} need it: {remedy}"
        absent: State = "missing" if is_needed else "optional"
        state: State = "ok" if path.exists() else absent
        detail = "present" if state == "ok" else f"{path} is missing"
        yield DoctorFinding(f"{jar.conf} jars", jar.file, state, detail, "" if state == "ok" else remedy)


def _folder(env_dir: Path) -> Iterator[DoctorFinding]:
    if (reason := refused_place(str(env_dir)) or refused_place(str(env_dir.resolve()))) is not None:
        yield DoctorFinding("folder", "environment's folder", "missing", reason, REMEDY)


def _program(name: str) -> DoctorFinding:
    places = [os.environ.get("PATH", os.defpath)]
    if name == "initdb":  # Debian keeps PostgreSQL's programs off PATH, a folder for each version
        places += sorted(str(path) for path in Path("/usr/lib/postgresql").glob("*/bin"))
    program = shutil.which(name, path=os.pathsep.join(places))
    subject = "PostgreSQL (initdb)" if name == "initdb" else name
    if program:
        return DoctorFinding(subject, subject, "ok", program)
    return DoctorFinding(subject, subject, "optional", "not installed", _SETUP_DEV)


def _disk(env_dir: Path) -> DoctorFinding:
    place = next(path for path in (env_dir.resolve(), *env_dir.resolve().parents) if path.exists())
    free = shutil.disk_usage(place).free
    detail = f"{free / (1 << 30):.1f} GiB free for {env_dir}"
    if free >= _MIN_FREE_BYTES:
        return DoctorFinding("disk", "disk", "ok", detail)
    return DoctorFinding("disk", "disk", "missing", detail, "free at least 1 GiB, or choose another folder")


def _port(host: str, port: int, setting: str) -> DoctorFinding:
    subject = f"port {port} ({setting})"
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a port just left is free for a server too
        try:
            probe.bind((host, port))
        except OSError as error:
            remedy = f"fine if turnout already runs; else stop the process that uses it, or set {setting}"
            return DoctorFinding(subject, subject, "optional", f"not free: {error.strerror}", remedy)
    return DoctorFinding(subject, subject, "ok", "free")


def _broker(server: str) -> DoctorFinding:
    subject = f"Kafka broker {server.strip()}"
    host, _, port = server.strip().rpartition(":")
    remedy = "start it, or correct source.bootstrap_servers"
    if not port.isdigit():
        return DoctorFinding("kafka", subject, "missing", "is not host:port", remedy)
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_PATIENCE_SECONDS / 10).close()
    except (OSError, OverflowError) as error:
        return DoctorFinding("kafka", subject, "missing", f"not reached: {error}", remedy)
    return DoctorFinding("kafka", subject, "ok", "answers")
