"""The format of a name's payloads before it is a game: from the proposal of the name, else from the sources' settings.

Called by what lists names that wait, and by the controller, which makes games of them by rules for formats. Quarantine
is not read: a schema that a registry gave its id is fetched for games only.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Engine

from pipeline.settings.tree import Settings
from pipeline.store.game_proposals import open_proposals

_OF_FRAMING: Final = {"type": "json"}  # the other framings carry any format


@dataclass(frozen=True, slots=True)
class FormatsBefore:
    """What is known of formats."""

    proposed: Mapping[str, str]  # by exact name
    by_topic: Mapping[str, str | None]
    of_all: str | None  # that every source has; None: they differ, or carry any

    def of(self, name: str, sources: Sequence[str]) -> str | None:
        """Return the format of a name that came from these topics or tables; None where it is not known."""
        if (said := self.proposed.get(name)) is not None:
            return said
        found = {self.by_topic.get(each, self.of_all) for each in sources} or {self.of_all}
        return found.pop() if len(found) == 1 else None


def read_formats(settings: Settings, engine: Engine) -> FormatsBefore:
    """Return what the settings and the proposals say of formats."""
    proposed = {each.game: each.format for each in open_proposals(engine).values() if each.format is not None}
    sources = settings.every_source.values()
    by_topic = {
        topic: _OF_FRAMING.get(each.framing)
        for each in sources
        if each.kind == "kafka"
        for topic in (each.topics or (each.topic,))
    }
    every = {_OF_FRAMING.get(each.framing) for each in sources}
    return FormatsBefore(proposed, by_topic, every.pop() if len(every) == 1 else None)
