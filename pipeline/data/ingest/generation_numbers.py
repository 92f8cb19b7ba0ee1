"""The numbers of ingest's generations, taken in `registrations`, the folder beside bronze, with what each reads.

A generation's number names its checkpoint and its batches in bronze. An older copy of the control store would give it
to another source, which would go on in the wrong checkpoint. Called at each start of ingest, and by an adoption.
"""

from typing import Final

from sqlalchemy import Engine
from sqlalchemy.exc import IntegrityError

from pipeline.base.errors import Transient
from pipeline.base.failpoints import effect
from pipeline.lake.storage.location import Location
from pipeline.settings.tree import Paths
from pipeline.store import sources

_FOLDER: Final = "registrations"
_PREFIX: Final = "ingest-"
_ATTEMPTS: Final = 20


def open_generation(paths: Paths, engine: Engine, source: str) -> int:
    """Return the number of the generation that reads this source; at its first start it takes one.

    A source whose generation the store has lost gets that one again: its checkpoint says how far it was read.

    Raises:
        OSError: the place where numbers are taken cannot be used.
        Transient: other processes took the next number each time.
    """
    _take_stored(paths, engine)
    for _ in range(_ATTEMPTS):
        number = sources.generation(engine, source)
        if number is not None:
            return number
        stored = {each for each, _, _ in sources.generations(engine)}
        lost = [each for each, text in _taken(paths).items() if text == source and each not in stored]
        try:
            return sources.open_generation(engine, source, max(lost) if lost else take(paths, engine, source))
        except IntegrityError:  # another process has just opened one
            continue
    raise Transient(f"other processes began to read sources during all {_ATTEMPTS} attempts")


def take(paths: Paths, engine: Engine, source: str) -> int:
    """Take the next number, above those of the store and of the folder.

    Raises:
        OSError: the place where numbers are taken cannot be used.
        Transient: other processes took the next number each time.
    """
    for _ in range(_ATTEMPTS):
        number = max([0, *_taken(paths), *(each for each, _, _ in sources.generations(engine))]) + 1
        if _put(paths, number, source):
            return number
    raise Transient(f"other processes began to read sources during all {_ATTEMPTS} attempts")


def _take_stored(paths: Paths, engine: Engine) -> None:
    """Take the numbers of the store that nobody took: an earlier turnout gave them."""
    stored = {number: text for number, text, _ in sources.generations(engine)}
    for number in sorted(stored.keys() - _taken(paths).keys()):
        _put(paths, number, sources.source_of(stored[number]))


def _taken(paths: Paths) -> dict[int, str]:
    folder = _folder(paths)
    names = [each.name for each in folder.files() if each.name.startswith(_PREFIX)]
    return {
        int(name[len(_PREFIX) :]): (folder / name).read_text() for name in names if name[len(_PREFIX) :].isdecimal()
    }


def _put(paths: Paths, number: int, source: str) -> bool:
    folder = _folder(paths)
    with effect("make_folder"):
        folder.make()
    return (folder / f"{_PREFIX}{number}").put_if_absent(source.encode(), drafted="draft_id", published="publish_id")


def _folder(paths: Paths) -> Location:
    return paths.bronze.parent / _FOLDER
