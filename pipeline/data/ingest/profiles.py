"""The profile of the source and its number. The control store numbers profiles; bronze's table properties repeat them.

So bronze means the same without the store, and a store that was restored from an older copy, which would give a number
away again, is noticed before a row is written.
"""

from dataclasses import replace
from typing import Final

from sqlalchemy import Engine

from pipeline.base.errors import Refused
from pipeline.data.contracts.envelopes.declared import profile_of, registry_key
from pipeline.data.contracts.profile import SourceProfile, dumps, loads
from pipeline.lake.delta.bronze import PROFILE, profile_texts
from pipeline.lake.delta.metadata import set_properties
from pipeline.lake.delta.opening import open_table
from pipeline.lake.delta.table import CursorTable
from pipeline.settings.source import Source
from pipeline.settings.tree import Settings
from pipeline.store.writers import number_of_definition

DEFAULT: Final = 0
"""Stands for turnout's own wrapper with turnout's own ids, whose rows have no profile number."""


def configured(settings: Settings, source: Source | None = None) -> SourceProfile | None:
    """Return the profile that a source's settings declare, with its registry's key of answers; None for the default.

    Without a source, of `[source]`.

    Raises:
        Refused: the settings lack the registry, or the envelope's definition cannot be used.
    """
    source = source or settings.source
    profile = profile_of(source)
    if profile is None or profile.registry is None:
        return profile
    if (key := registry_key(source, settings.registries)) is None:
        raise Refused(
            f"source.registry is {profile.registry!r}, but there is no such registry. "
            f"Add [registries.{profile.registry}] (docs/registries.md)."
        )
    return replace(profile, registry=key)


class Profiles:
    """The profiles of bronze's rows, and the configured ones, which the next new batch gets."""

    def __init__(self, engine: Engine, bronze: CursorTable, *configured: SourceProfile | None) -> None:
        """Number the configured profiles, None for the default one, and record them in bronze.

        Raises:
            Refused: bronze has rows of another profile with this number.
        """
        self._known: dict[int, SourceProfile] = {}
        self._texts = profile_texts(bronze.path)
        self.numbers = tuple(self._number(engine, bronze, each) for each in configured)

    @property
    def are_used(self) -> bool:
        """Whether bronze has, or gets, rows of a profile with a number."""
        return bool(self._texts)

    def at(self, number: int) -> SourceProfile | None:
        """Return the profile of a number, None for the default one.

        Raises:
            Refused: bronze's table properties lack it, or it cannot be read.
        """
        if number == DEFAULT:
            return None
        if number not in self._known:
            if number not in self._texts:
                raise Refused(f"Bronze's table property {PROFILE}{number} is gone: restore it, then start ingest.")
            self._known[number] = loads(self._texts[number])
        return self._known[number]

    def _number(self, engine: Engine, bronze: CursorTable, profile: SourceProfile | None) -> int:
        if profile is None:
            return DEFAULT
        text = dumps(profile)
        number = number_of_definition(engine, text, above=max(self._texts, default=DEFAULT))
        self._record(bronze, number, text)
        return number

    def _record(self, bronze: CursorTable, number: int, text: str) -> None:
        there = self._texts.setdefault(number, text)
        if there != text:
            raise Refused(
                f"Bronze has rows of another profile with the number {number}, so the control store is an older "
                f"copy. Restore its newest copy."
            )
        name = f"{PROFILE}{number}"
        if name not in open_table(bronze.path).metadata().configuration:
            set_properties(bronze.path, {name: text}, "profile kept")
            bronze.refresh()
