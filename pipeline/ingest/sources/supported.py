"""The kinds of sources: a further kind is one module beside these, and its line here."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from pipeline.ingest.sources.kind import SourceKind
from pipeline.ingest.sources.landing import Landing
from pipeline.ingest.sources.topic import Topic
from pipeline.source_settings import Source

SOURCES: Final[Mapping[str, Callable[[Source, Path], SourceKind]]] = {"delta": Landing, "kafka": Topic}
"""`source.kind` → its kind, from the settings and the folder of the environment's landing table."""


def open_source(source: Source, landing: Path) -> SourceKind:
    """Return the configured source; opens no connection."""
    return SOURCES[source.kind](source, landing)
