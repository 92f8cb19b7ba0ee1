"""What a driver does while the control store does not answer: its passes go on with what it last heard.

Nothing in the store is needed for rows to land exactly once (law L4); it says who should run, and what was decided.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import InterfaceError, OperationalError

from pipeline.contracts.registry import LocalRegistry
from pipeline.contracts.schemas import SchemaSet
from pipeline.errors import Refused, first_line

_log = logging.getLogger("turnout")


@contextmanager
def tolerate_store_outage(meanwhile: str) -> Iterator[None]:
    """Go on behind the block where the control store does not answer in it; `meanwhile` tells with what."""
    try:
        yield
    except (OperationalError, InterfaceError) as error:
        _log.warning("the control store does not answer (%s): %s", first_line(error), meanwhile)


class CachedRegistry:
    """The registry as this driver last heard of it.

    While the store is away, rows of schemas that were registered before land; a row of any other goes to quarantine as
    `unknown_schema`, from where a replay brings it.
    """

    def __init__(self, registry: LocalRegistry) -> None:
        """Hear of schemas from this registry."""
        self._registry = registry
        self._newest: SchemaSet | None = None

    def latest_version(self) -> int:
        """Return the version of the newest schema set this driver knows.

        Raises:
            OperationalError: the store does not answer, and this driver has not heard of any set yet.
        """
        known = self._newest
        if known is None:
            known = self._newest = self._registry.snapshot()
            return known.version
        with tolerate_store_outage(f"schema set {known.version} stays in use"):
            known = self._newest = self._registry.snapshot()
        return known.version

    def snapshot(self, version: int) -> SchemaSet:
        """Return the schema set of a version; the newest where the store, put back from an older copy, lacks it."""
        known = self._newest
        if known is not None and known.version == version:
            return known
        try:
            return self._registry.snapshot(version)
        except Refused as error:
            # At worst a row is classified again and leaves a stale twin; what cannot be repeated stops all games.
            _log.warning("rows that were begun with schema set %s are split with the newest: %s", version, error)
            return self._registry.snapshot()
