"""The kinds of sources: a further kind is one module beside these, and its line here."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from pipeline.data.ingest.sources.kind import SourceKind
from pipeline.data.ingest.sources.landing import Landing
from pipeline.data.ingest.sources.topic import Topic
from pipeline.data.ingest.sources.topics import Topics
from pipeline.data.ingest.sources.union import Union
from pipeline.lake.storage.location import Location
from pipeline.settings.source import Source, reads_several
from pipeline.settings.tree import Paths, Settings


def _kafka(source: Source, landing: Location) -> SourceKind:
    """Return a topic, or several of one cluster; one topic is the same source, however it is named."""
    if reads_several(source):
        return Topics(source, landing)
    return Topic(replace(source, topic=next(iter(source.topics), source.topic), topics=()), landing)


SOURCES: Final[Mapping[str, Callable[[Source, Location], SourceKind]]] = {"delta": Landing, "kafka": _kafka}
"""`source.kind` → what makes its kind from the settings and the folder of the landing table."""


def configured_source(settings: Settings, paths: Paths) -> SourceKind:
    """Return what the settings let ingest read: the one source, or the union of several; opens no connection."""
    opened = {name: open_source(each, paths.landing) for name, each in settings.every_source.items()}
    return next(iter(opened.values())) if len(opened) == 1 else Union(opened)


def open_source(source: Source, landing: Location) -> SourceKind:
    """Return the configured source; opens no connection."""
    return SOURCES[source.kind](source, landing)
