"""Which storage a place is in, by its scheme."""

import os
from pathlib import Path
from urllib.parse import unquote

from pipeline.errors import Refused
from pipeline.storage.folder import FOLDERS
from pipeline.storage.location import Location


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
    if scheme not in {"s3", "s3a"}:
        raise Refused(f"turnout cannot keep tables at {text}: it knows folders and s3:// addresses.")
    from pipeline.storage.object_store import BUCKETS

    return Location(BUCKETS, path.rstrip("/"))
