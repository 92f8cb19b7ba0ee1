"""The last lines of a driver's log in the environment's folder: few, without secrets, for operators only.

A driver that another tool or machine started writes its log there: `read` reports it, and shows nothing in its place.
"""

import re
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Final

from pipeline.base.errors import Refused
from pipeline.base.names import is_group_name
from pipeline.base.texts import visible
from pipeline.control.backends.duties import log_name
from pipeline.settings.tree import Paths, Settings
from pipeline.store.rows import Driver

TAIL_BYTES: Final = 65_536
"""Bytes that a page reads from the end of a log of any size."""

MOST_LINES: Final = 200
_LONGEST_LINE: Final = 400  # characters
_HIDDEN: Final = "(hidden)"
_LEAST_SECRET: Final = 4  # characters: a shorter value would hide half of the log
_MOST_MASKED: Final = 4_000  # characters of a line that are searched; what follows is not shown
# All repetitions are bounded: a line may hold anything.
_TELLING: Final = r"pass(?:word|wd|phrase)|secret|token|credential|api[-_.]?key|access[-_.]?key|signature"
_NAMED: Final = re.compile(
    rf"(?i)((?:{_TELLING})[\w.-]{{0,40}}[\"']?\s{{0,4}}(?:=>|[=:])\s{{0,4}})"
    r"(\"[^\"]*\"?|'[^']*'?|[^\s,;&})\]]+)"
)
_OPTION: Final = re.compile(rf"(?i)(--[\w-]{{0,40}}(?:{_TELLING})[\w-]{{0,40}}\s{{1,4}})\S+")
_JAAS: Final = re.compile(r"(?i)(jaas[\w.]{0,40}[\"']?\s{0,4}[=:]).*")
_SCHEME: Final = re.compile(r"(?i)\b(bearer|basic|digest)\s+[\w.~+/=-]{6,}")
_IN_ADDRESS: Final = re.compile(r"(://)[^/\s@]+@")
_BARE: Final = re.compile(r"\b(?:eyJ[\w-]{8,2000}\.[\w-]+(?:\.[\w-]*)?|A[KS]IA[0-9A-Z]{16}|dapi[0-9a-f]{32})\b")
_KEY_BEGINS: Final = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----")
_KEY_ENDS: Final = re.compile(r"-----END [A-Z ]*PRIVATE KEY-----")
_SETTING: Final = re.compile(r"(?i)password|secret|token|credential|jaas|webhook")
_ESCAPE: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")  # colours of a terminal


@dataclass(frozen=True, slots=True)
class LogTail:
    """The end of a log, as it may be shown."""

    file: str  # its name in the environment's folder of logs
    lines: tuple[str, ...]
    is_whole: bool  # False: there is more before these lines
    written_at: float  # Unix seconds by this machine's clock


def doubt(found: LogTail, driver: Driver | None, heartbeat_seconds: float) -> str | None:
    """Return why a log may not be of the driver that runs now; None where it is, as far as anybody can tell."""
    if driver is None:
        return "no driver of this name ever reported"
    if driver.host != socket.gethostname():
        return f"the driver runs on {visible(driver.host, 60)}, where its log is; this file is of this machine"
    if found.written_at < driver.started_at - heartbeat_seconds:
        return "the driver that runs now was started later, and writes to where it was started"
    return None


def masked(lines: Sequence[str], secrets: Sequence[str] = ()) -> Iterator[str]:
    """Return lines without the given secrets, and without what looks like one."""
    ends = next((place for place, line in enumerate(lines) if _KEY_ENDS.search(line)), None)
    begins = next((place for place, line in enumerate(lines) if _KEY_BEGINS.search(line)), None)
    in_key = ends is not None and (begins is None or begins > ends)  # a key began before these lines
    for line in lines:
        if in_key or _KEY_BEGINS.search(line):
            in_key = _KEY_ENDS.search(line) is None
            yield _HIDDEN
            continue
        yield _without(line, secrets)


def _without(line: str, secrets: Sequence[str]) -> str:
    kept = line[:_MOST_MASKED]
    for secret in secrets:
        kept = kept.replace(secret, _HIDDEN)
    for pattern, instead in (
        (_JAAS, rf"\1{_HIDDEN}"),
        (_SCHEME, rf"\1 {_HIDDEN}"),
        (_NAMED, rf"\1{_HIDDEN}"),
        (_OPTION, rf"\1{_HIDDEN}"),
        (_IN_ADDRESS, rf"\1{_HIDDEN}@"),
        (_BARE, _HIDDEN),
    ):
        kept = pattern.sub(instead, kept)
    # Where a line was cut its end may be the beginning of a secret.
    return kept if len(line) <= _MOST_MASKED else kept[: max(0, len(kept) - max(map(len, secrets), default=0) - 100)]


def secrets_of(settings: Settings) -> list[str]:
    """Return the secrets that the settings hold, the longest first."""
    found = {text for text in _values(settings, hidden=False) if len(text) >= _LEAST_SECRET}
    return sorted(found, key=len, reverse=True)


def read(settings: Settings, paths: Paths, kind: str, name: str) -> LogTail:
    """Read the end of a driver's log, without secrets.

    Raises:
        Refused: there is no such log on this machine.
    """
    if not is_group_name(name):
        raise Refused("No cluster group has this name.")
    file = log_name(kind, name)
    path = paths.logs / file
    try:
        with path.open("rb") as log:
            size = log.seek(0, 2)
            log.seek(max(0, size - TAIL_BYTES))
            raw = log.read(TAIL_BYTES)
        written_at = path.stat().st_mtime
    except FileNotFoundError as error:
        raise Refused(
            f"No log on this machine: {file} is not in the environment's folder logs. A driver that another tool, "
            "machine or terminal started writes there."
        ) from error
    except OSError as error:
        raise Refused(f"The log {file} cannot be read: {error.strerror}.") from error
    lines = raw.decode("utf-8", "replace").splitlines()
    is_cut = size > TAIL_BYTES
    whole = lines[1:] if is_cut else lines  # the first one began before what was read, and may be half a secret
    kept = [*masked(whole, secrets_of(settings))][-MOST_LINES:]
    return LogTail(file, tuple(map(_shown, kept)), not is_cut and len(kept) == len(lines), written_at)


def _shown(line: str) -> str:
    plain = _ESCAPE.sub("", line).replace("\t", "    ").rstrip()
    if not plain:
        return ""
    indent = len(plain) - len(plain.lstrip(" "))
    return " " * min(indent, 40) + visible(plain, _LONGEST_LINE)


def _values(settings: Any, *, hidden: bool) -> Iterator[str]:
    """Yield the texts in settings whose names say that they are secret; in a table of values the items have names."""
    if is_dataclass(settings):
        named = [(each.name, getattr(settings, each.name)) for each in fields(settings)]
    elif isinstance(settings, Mapping):
        named = list(settings.items())
    else:
        named = []
    for name, value in named:
        secret = hidden or _SETTING.search(str(name)) is not None
        if isinstance(value, str):
            if secret and not str(name).endswith("_file"):
                yield value
        else:
            yield from _values(value, hidden=secret)
