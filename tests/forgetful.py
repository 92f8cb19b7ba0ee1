"""Lets a server of tests, in a process of its own, wait for no disk: no test cuts the power.

For the process of the tests themselves `tests/conftest.py` does so.
"""

import os
import sqlite3
from functools import partial
from typing import Any


class _Forgetful(sqlite3.Connection):
    """A connection that does not hear that it should wait."""

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        return super().execute(sql.replace("synchronous=FULL", "synchronous=OFF"), parameters)


def wait_for_no_disk() -> None:
    """Let this process wait for no disk from now on."""
    for module, name, instead in (
        (os, "fsync", lambda _file: None),
        (sqlite3, "connect", partial(sqlite3.connect, factory=_Forgetful)),
    ):
        setattr(module, name, instead)
