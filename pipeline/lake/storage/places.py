"""Which storage a place is in, by its scheme."""

import os
from functools import cache
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from pipeline.base.errors import Refused
from pipeline.lake.storage.cloud import Cloud, Jars
from pipeline.lake.storage.folder import FOLDERS
from pipeline.lake.storage.location import Location

_CLOUDS: Final[dict[str, Jars]] = {"s3": "s3", "s3a": "s3", "abfss": "azure", "abfs": "azure", "gs": "gcs"}
"""The kind of object store of each scheme."""


def is_url(place: str) -> bool:
    """Return whether a text names a place by a scheme, and not a folder of this machine."""
    return "://" in place


def located(place: str | Path | Location) -> Location:
    """Return a path of this machine, or a URL, as a location; a location is one. A `file:` URL has escapes.

    Raises:
        Refused: turnout knows no storage of this scheme.
    """
    if isinstance(place, Location):
        return place
    text = str(place)
    if not is_url(text):
        return Location(FOLDERS, os.path.abspath(text))
    scheme, _, path = text.partition("://")
    if scheme == "file":
        return Location(FOLDERS, os.path.abspath(unquote(path)))
    if scheme not in _CLOUDS:
        raise Refused(
            f"turnout cannot keep tables at {text}: it knows folders, and addresses that begin with s3://, abfss:// or "
            f"gs://."
        )
    from pipeline.lake.storage.object_store import ObjectStore

    return Location(ObjectStore(_cloud(_CLOUDS[scheme])), path.rstrip("/"))


def cloud_of(place: str) -> Cloud | None:
    """Return the kind of object store in which a place is; None for a folder of this machine."""
    kind = _CLOUDS.get(place.partition("://")[0]) if is_url(place) else None
    return None if kind is None else _cloud(kind)


@cache
def _cloud(kind: Jars) -> Cloud:
    """Return a kind of object store, whose client is imported only now: folders need none."""
    if kind == "azure":
        from pipeline.lake.storage.azure import Azure

        return Azure()
    if kind == "gcs":
        from pipeline.lake.storage.gcs import Gcs

        return Gcs()
    from pipeline.lake.storage.s3 import S3

    return S3()
