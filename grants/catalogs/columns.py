"""A game table's columns as a catalog's REST API wants them described."""

import json
import re
from collections.abc import Sequence
from typing import Any, Final

from grants.catalog import CatalogUnavailable
from grants.model import GameTable, Securable
from pipeline.base.errors import Refused

_SQL_NAMES: Final = {"long": "bigint", "integer": "int", "short": "smallint", "byte": "tinyint"}
_API_NAMES: Final = {"bigint": "LONG", "smallint": "SHORT", "tinyint": "BYTE"}


def described(columns: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
    """Return columns, given as names and Delta types, as the API describes them.

    Raises:
        Refused: something is no type.
    """
    described_columns = []
    for position, (name, delta_type) in enumerate(columns):
        head = re.match(r"[a-z_]+", delta_type)
        if head is None:
            raise Refused(f"{delta_type!r} of column {name!r} is not a Delta type.")
        text = re.sub(r"\b(long|integer|short|byte)\b(?!:)", lambda match: _SQL_NAMES[match[0]], delta_type)
        base = _SQL_NAMES.get(head[0], head[0])
        described_columns.append(
            {
                "name": name,
                "type_text": text,
                "type_name": _API_NAMES.get(base, base.upper()),
                "type_json": json.dumps({"name": name, "type": delta_type, "nullable": True, "metadata": {}}),
                "position": position,
                "nullable": True,
            }
        )
    return described_columns


def table_of(schema: Securable, answer: dict[str, Any]) -> GameTable | None:
    """Return a table of a catalog's list; None of one whose name no game's table can have."""
    name, table_id, owner = answer.get("name"), answer.get("table_id"), answer.get("owner")
    if not isinstance(name, str) or not isinstance(table_id, str):
        raise CatalogUnavailable(f"The catalog lists a table of {schema.full_name} without name or id.")
    try:
        securable = Securable((*schema.path, name))
    except Refused:
        return None
    columns = answer.get("columns") or []
    masked = tuple(str(column.get("name")) for column in columns if isinstance(column, dict) and column.get("mask"))
    return GameTable(
        key=name,
        securable=securable,
        table_id=table_id,
        owner=owner if isinstance(owner, str) and owner else None,
        has_row_filter=bool(answer.get("row_filter")),
        masked_columns=masked,
        is_managed=answer.get("table_type") == "MANAGED",
        location=str(answer.get("storage_location") or ""),
    )
