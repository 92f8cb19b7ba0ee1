"""A spool in which things happen by chance, beside a plain list of what it has to keep."""

import shutil
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from pipeline.edge.spooling.spool import Spool, Spooled, SpoolFull

MOST = 4_000
TORN = (b"", b"\0" * 20, b"\x05\0\0\0\x01\x02\x03\x04abc")
"""Bytes that a power cut may leave behind the last whole record."""


def left(folder: Path) -> list[bytes]:
    """Return what another process would find, were this one killed now."""
    with TemporaryDirectory() as there:
        copy = Path(there) / "copy"
        shutil.copytree(folder, copy)
        spool = Spool(copy, MOST, 0.0)
        found = [each.record for each in iter(lambda: spool.following(0.0), None)]
        spool.close()
        return found


class SpoolWorld:
    """One folder, and what was appended and not settled."""

    def __init__(self, folder: Path, draw: Random) -> None:
        self.folder, self._draw, self._number = folder, draw, 0
        self.spool = Spool(folder, MOST, draw.choice([0.0, 60.0]))
        self.kept: list[bytes] = []
        self._taken: list[Spooled] = []

    def step(self) -> None:
        """Do one thing."""
        draw = self._draw
        kind = draw.choices((self._append, self._take, self._settle, self._kill), weights=(8, 4, 2, 1))[0]
        kind()
        assert self.spool.size_bytes == sum(path.stat().st_size for path in self.folder.glob("*.events"))

    def end(self) -> None:
        """Settle all that is left."""
        while self._take():
            pass
        assert sorted(each.record for each in self._taken) == sorted(self.kept)
        while self._taken:
            self._settle()

    def _append(self) -> None:
        record = f"{self._number}:".encode() + self._draw.randbytes(self._draw.choice([1, 40, 350]))
        try:
            self.spool.append(record)
        except SpoolFull:
            assert self.spool.size_bytes + len(record) > MOST - 50
            return
        self.kept.append(record)
        self._number += 1
        assert self.spool.size_bytes <= MOST

    def _take(self) -> bool:
        spooled = self.spool.following(0.0)
        if spooled is None:
            return False
        assert spooled.record in self.kept
        self._taken.append(spooled)
        return True

    def _settle(self) -> None:
        if self._taken:
            spooled = self._taken.pop(self._draw.randrange(len(self._taken)))
            self.spool.settle(spooled)
            self.kept.remove(spooled.record)

    def _kill(self) -> None:
        """Compare with what a kill would leave; at times go on with it, behind a torn end."""
        found = left(self.folder)
        assert [each for each in found if each in self.kept] == self.kept
        if self._draw.random() < 0.5:
            self.spool.close()
            for path in sorted(self.folder.glob("*.events"))[-1:]:
                with path.open("ab") as file:
                    file.write(self._draw.choice(TORN))
            self.spool, self._taken, self.kept = Spool(self.folder, MOST, 0.0), [], found
