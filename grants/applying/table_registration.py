"""Makes the tables of games known to the catalog, silver and gold ones too: new ones are registered, others stay."""

import logging
from typing import Any, Final

from grants.applying import own_tables
from grants.catalog import Catalog, CatalogUnavailable, NotFound
from grants.model import Securable
from grants.observing.external import judged
from grants.observing.left_places import beside
from pipeline.base.errors import Refused
from pipeline.control.operations.definition import ControlContext
from pipeline.lake.delta.columns import ArrayType, MapType, StructType
from pipeline.lake.delta.errors import DeltaError
from pipeline.lake.delta.log import exists
from pipeline.lake.delta.opening import open_table
from pipeline.platforms.databricks.deploy.kinds.kind import mark

_log: Final = logging.getLogger("turnout")


def register_missing(context: ControlContext, catalog: Catalog, schema: Securable) -> list[str]:
    """Register the tables that turnout has and the catalog does not know; return why some could not be.

    A name that the catalog gives to a managed table, or to one that is not known to lie there, is such a reason.

    Raises:
        CatalogUnavailable: the catalog cannot be reached.
    """
    try:
        registered = catalog.tables(schema)
    except NotFound:
        registered = {}
    problems = []
    for key in sorted(own_tables.places(context.engine, context.paths)):
        if key in registered:
            own = context.paths.named(key).uri
            found = judged(beside(registered[key], own, catalog.is_local), own, context.settings.demux.writer)
            problems += [] if found is None or found.outcome == "untried" else [str(found)]
            continue
        place = context.paths.named(key)
        if not exists(place):
            continue  # nothing has come of it yet
        try:
            columns = [(each.name, _type(each.type)) for each in open_table(place).schema().fields]
            comment = mark(context.settings.environment)
            if catalog.register(Securable((*schema.path, key)), place.uri, columns, comment):
                _log.info("access: registered the table of %s", key)
        except CatalogUnavailable:
            raise
        except (Refused, DeltaError) as problem:
            problems.append(f"The table of {key} could not be registered: {problem}")
    return problems


def _type(of: Any) -> str:
    """Return a type as Delta's SQL writes it."""
    if isinstance(of, ArrayType):
        return f"array<{_type(of.element_type)}>"
    if isinstance(of, MapType):
        return f"map<{_type(of.key_type)},{_type(of.value_type)}>"
    if isinstance(of, StructType):
        return f"struct<{','.join(f'{each.name}:{_type(each.type)}' for each in of.fields)}>"
    return str(getattr(of, "type", of))
