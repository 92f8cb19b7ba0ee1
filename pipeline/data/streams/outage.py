"""A driver without its control store: its passes go on with the values last read.

Rows land exactly once without the store (law L4); it only holds who should run, and decisions.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from pipeline.base.errors import Refused, first_line
from pipeline.data.contracts.registry import LocalRegistry
from pipeline.data.contracts.schemas import SchemaSet
from pipeline.data.pins import SetPin
from pipeline.store.database.engine import STORE_AWAY

_log = logging.getLogger("turnout")


@contextmanager
def tolerate_store_outage(meanwhile: str) -> Iterator[None]:
    """Continue after the block if the control store does not answer in it; `meanwhile` says what then holds."""
    try:
        yield
    except STORE_AWAY as error:
        _log.warning("the control store does not answer (%s): %s", first_line(error), meanwhile)


class CachedRegistry:
    """The registry as this driver last read it.

    While the store is away, rows of schemas that were registered before land. Rows with another of turnout's own ids go
    to quarantine as `unknown_schema`, from where a replay lands them; rows of other registries' unknown writers wait
    (law L14).
    """

    def __init__(self, registry: LocalRegistry) -> None:
        """Read schemas from this registry."""
        self._registry = registry
        self._newest: SchemaSet | None = None

    def latest_version(self) -> int:
        """Return the version of the newest schema set this driver knows; raises as `latest` does."""
        return self.latest().version

    def latest(self) -> SetPin:
        """Return the newest schema set this driver knows, as a batch pins it.

        Raises:
            STORE_AWAY: the store does not answer, and this driver has not heard of any set yet.
        """
        if self._newest is None:
            self._newest = self._registry.snapshot()
        else:
            with tolerate_store_outage(f"schema set {self._newest.version} stays in use"):
                self._newest = self._registry.snapshot()
        return _pin_of(self._newest)

    def look_in_bronze(self) -> None:
        """Read the profiles of bronze's rows, for rows whose profile the store lacks; see `LocalRegistry`."""
        self._registry.look_in_bronze()

    def snapshot(self, pinned: SetPin) -> SchemaSet:
        """Return a pinned schema set.

        The newest where a restored older copy of the store lacks it, or has given its number to another one.
        """
        known = self._newest
        if known is not None and _pin_of(known) == pinned:
            return known
        problem = "an older copy of the control store was restored, and has another set of this number"
        try:
            found = self._registry.snapshot(pinned.version)
            if _pin_of(found) == pinned:
                return found
        except Refused as error:
            problem = str(error)
        # At worst a row leaves a stale twin; a batch that cannot be repeated stops all games.
        _log.warning("the schema set %s is missing; its rows are split with the newest: %s", pinned.version, problem)
        return self._registry.snapshot()


def _pin_of(schemas: SchemaSet) -> SetPin:
    return SetPin(schemas.version, schemas.mark)
