"""Whether ingest knows a game by now: a micro-batch that began before a name became a game still refuses its rows."""

from sqlalchemy import Engine

from pipeline.base.names import bronze_app_id, ingest_app_id
from pipeline.data import query_log
from pipeline.lake.delta.table import CursorTable
from pipeline.lake.storage.location import Location
from pipeline.settings.tree import Paths
from pipeline.store.sources import generations


def begun_without(paths: Paths, environment: str, engine: Engine, number: int) -> str | None:
    """Return the micro-batch that ingest has begun without the game of this number and not ended; None: there is none.

    Batches follow each other, and each pins the games that it knows after Spark has planned it. So where the last
    planned batch has landed, or has pinned this game, no later one refuses its rows.
    """
    known = [generation for generation, *_ in generations(engine)]
    if not known:
        return None
    generation = max(known)  # an older one reads no more, but where a person goes back to its source
    query = paths.ingest / str(generation) / "query"
    planned = query_log.batches(query / "offsets")
    if not planned or planned[-1] in query_log.batches(query / "commits"):
        return None
    bronze = CursorTable.open(paths.bronze, bronze_app_id(environment))
    landed = None if bronze is None else bronze.transaction_version(ingest_app_id(environment, generation))
    if landed is not None and landed >= planned[-1]:
        return None
    pinned = _pinned(paths.ingest / str(generation) / "games" / str(planned[-1]))
    return None if pinned is not None and pinned >= number else f"{generation}/{planned[-1]}"


def _pinned(pin: Location) -> int | None:
    try:
        return int(pin.read_text())
    except (FileNotFoundError, ValueError):
        return None
