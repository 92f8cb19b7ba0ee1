"""Records on disk until they are settled: append-only files, each record with its length and CRC-32.

A record is with the operating system when `append` returns, so a killed process loses none; it is on disk within
`sync_seconds`. One process uses a folder. A file is deleted once all of its records are settled, so after a kill some
settled records may come again.
"""

import errno
import fcntl
import logging
import os
import struct
import threading
import zlib
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

FILE_BYTES: Final = 1024 * 1024
"""A file ends behind the record with which it reaches this size."""

_MAGIC: Final = b"turnout\x01"
_HEAD: Final = struct.Struct("<II")  # length and CRC-32 of a record
_FULL: Final = (errno.ENOSPC, errno.EDQUOT)
_MODE: Final = 0o600  # records are events of people
_log: Final = logging.getLogger("turnout")


class SpoolFull(Exception):
    """The spool has as many bytes as it may, or its disk is full: the record was not taken."""


class Spooled(NamedTuple):
    """A record that is not settled."""

    file: int  # its file's number
    record: bytes


@dataclass(slots=True)
class _File:
    path: Path
    size: int
    read: int = 0  # bytes that were read
    open: int = 0  # records that were read and are not settled
    is_damaged: bool = False


class Spool:
    """A folder of records, in order. `following` is for one thread, the rest for any."""

    def __init__(self, folder: Path, most_bytes: int, sync_seconds: float = 1.0) -> None:
        """Open a folder, which is made where there is none, behind what another process has left in it.

        Args:
            folder: for this spool alone.
            most_bytes: of all its files.
            sync_seconds: how long a record may be missing after a power cut; 0: `append` puts each on disk.

        Raises:
            OSError: the folder cannot be used, or another process uses it (BlockingIOError).
        """
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._most, self._sync_seconds = folder, most_bytes, sync_seconds
        self._process = os.getpid()
        self._lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, _MODE)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            raise
        self._files = {number: _File(path, path.stat().st_size) for number, path in _files(folder)}
        self._bytes = sum(each.size for each in self._files.values())
        self._number = max(self._files, default=0)  # of the newest file
        self._writing: int | None = None  # the open file of that number
        self._unread = deque(self._files)
        self._ahead: deque[Spooled] = deque()
        self._is_dirty, self._ends = False, threading.Event()
        self._changed = threading.Condition()
        self._syncing = threading.Thread(target=self._sync_on, name="edge spool on disk", daemon=True)
        if sync_seconds > 0:
            self._syncing.start()

    @property
    def size_bytes(self) -> int:
        """Size of all files."""
        return self._bytes

    def append(self, record: bytes) -> None:
        """Add a record behind all others.

        Raises:
            SpoolFull: there is no room for it.
            OSError: the disk fails.
            ValueError: the spool is closed, or the record is empty.
            RuntimeError: the process is a fork of the one that opened it, which deletes files without asking.
        """
        if os.getpid() != self._process:  # before the lock, which a fork may have left taken
            raise RuntimeError(
                f"process {self._process} opened the spool {self._folder}, and this is a fork of it: open another "
                f"client here, with a folder of its own"
            )
        if not record or self._ends.is_set():
            raise ValueError("the record is empty" if not record else "the spool is closed")
        framed = _HEAD.pack(len(record), zlib.crc32(record)) + record
        with self._changed:
            if self._bytes + len(framed) + len(_MAGIC) > self._most:
                raise SpoolFull(f"the spool {self._folder} has no room for the event in its {self._most:,} bytes")
            try:
                handle, file = self._file_for_more()
                self._write(handle, file, framed if file.size else _MAGIC + framed)
            except OSError as error:
                if error.errno in _FULL:
                    raise SpoolFull(f"the disk of the spool {self._folder} is full") from error
                raise
            if file.size >= FILE_BYTES:
                self._end_file()
            self._changed.notify_all()

    def following(self, timeout: float) -> Spooled | None:
        """Return the next record that was not read by this process, None where none came in time."""
        if not self._ahead:
            with self._changed:
                self._changed.wait_for(self._has_unread, timeout)
                if not self._has_unread():
                    return None
                self._read_ahead()
        return self._ahead.popleft() if self._ahead else None

    def settle(self, spooled: Spooled) -> None:
        """Forget a record that `following` gave: it needs no other try."""
        with self._changed:
            self._files[spooled.file].open -= 1
            self._forget(spooled.file)

    def wait_settled(self, timeout: float | None) -> bool:
        """Wait until each record is settled; return whether all are."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._files, timeout)

    def sync(self) -> None:
        """Put everything on disk."""
        with self._changed:
            self._sync()

    def close(self) -> None:
        """Put everything on disk, and let another process use the folder."""
        self._ends.set()
        if self._syncing.is_alive():
            self._syncing.join()
        with self._changed:
            if self._writing is not None:
                self._end_file()
            os.close(self._lock)

    # ----------------------------------------------------------------------------------------------------- writing

    def _file_for_more(self) -> tuple[int, _File]:
        if self._writing is None:
            self._number += 1
            path = self._folder / f"{self._number:012}.events"
            self._writing = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, _MODE)
            self._files[self._number] = _File(path, 0)
            self._unread.append(self._number)
            _sync_folder(self._folder)
        return self._writing, self._files[self._number]

    def _write(self, handle: int, file: _File, content: bytes) -> None:
        try:
            written = os.write(handle, content)
            if written == len(content) and self._sync_seconds == 0:
                os.fsync(handle)
        except OSError:
            os.ftruncate(handle, file.size)
            raise
        if written < len(content):
            os.ftruncate(handle, file.size)
            raise SpoolFull(f"the disk of the spool {self._folder} is full")
        file.size += written
        self._bytes += written
        self._is_dirty = True

    def _end_file(self) -> None:
        self._sync()
        if self._writing is not None:
            os.close(self._writing)
        self._writing = None

    def _sync(self) -> None:
        if self._is_dirty and self._writing is not None:
            os.fsync(self._writing)
        self._is_dirty = False

    def _sync_on(self) -> None:
        while not self._ends.wait(self._sync_seconds):
            try:
                self.sync()
            except OSError as error:
                _log.error("the spool %s is not on disk: %s", self._folder, error)

    # ----------------------------------------------------------------------------------------------------- reading

    def _has_unread(self) -> bool:
        while self._unread:
            number = self._unread[0]
            file = self._files[number]
            if file.read < file.size:
                return True
            if self._is_written(number):
                return False
            self._unread.popleft()
            self._forget(number)
        return False

    def _read_ahead(self) -> None:
        """Read the rest of the first unread file."""
        number = self._unread[0]
        file = self._files[number]
        with file.path.open("rb") as content:
            content.seek(file.read)
            raw = content.read(file.size - file.read)
        records = [*_records(raw, 0 if file.read else len(_MAGIC))] if file.read or raw.startswith(_MAGIC) else []
        left = len(raw) - sum(_HEAD.size + len(each) for each in records) - (0 if file.read else len(_MAGIC))
        if left:
            file.is_damaged = True
            _log.error("%s: %d bytes at its end are no whole event; the file is kept", file.path, left)
        file.read = file.size
        file.open += len(records)
        self._ahead.extend(Spooled(number, each) for each in records)
        self._forget(number)

    def _is_written(self, number: int) -> bool:
        return number == self._number and self._writing is not None

    def _forget(self, number: int) -> None:
        """Delete a file of which all was read and settled, also the newest: nothing comes again after a kill."""
        file = self._files[number]
        if file.open or file.read < file.size:
            return
        if self._is_written(number):
            self._end_file()
        if file.is_damaged:
            file.path.rename(file.path.with_suffix(".damaged"))
        else:
            file.path.unlink(missing_ok=True)
        del self._files[number]
        self._bytes -= file.size
        if self._unread and self._unread[0] == number:
            self._unread.popleft()
        self._changed.notify_all()


def _files(folder: Path) -> list[tuple[int, Path]]:
    return sorted((int(path.stem), path) for path in folder.glob("*.events") if path.stem.isdecimal())


def _records(raw: bytes, at: int) -> Iterator[bytes]:
    """Yield records from a place on, up to the first that is not whole: a power cut may leave the last ones so."""
    while at + _HEAD.size <= len(raw):
        length, crc = _HEAD.unpack_from(raw, at)
        record = raw[at + _HEAD.size : at + _HEAD.size + length]
        if not length or len(record) < length or zlib.crc32(record) != crc:  # zeros are a file that grew and no more
            return
        yield record
        at += _HEAD.size + length


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
