"""Reports of quarantine and repairs, as text and as JSON. Names and details are hostile: all output is escaped."""

import base64
import json
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from pipeline.base.names import plain
from pipeline.data.repair.gap import Accepted
from pipeline.data.repair.quarantined import SCHEMA_IDS_SHOWN, Count, RefusedRow
from pipeline.data.repair.rebuild import Rebuilt
from pipeline.data.repair.replay import GameReplay

_WIDEST = 60


def render_counts(counts: Sequence[Count], rows: int, lines: int) -> str:
    """Return the counts as a table, with the number of omitted lines."""
    head = ("game", "reason", "rows", "first seen", "last seen", "schema ids")
    body = [
        (_cut(_named(each)), each.reason, f"{each.rows:,}", _at(each.first_seen), _at(each.last_seen), _ids(each))
        for each in counts
    ]
    more = [f"… and {lines - len(counts):,} more lines; --limit shows more"] if lines > len(counts) else []
    return "\n".join([*_table(head, body), *more, f"{rows:,} row(s) in quarantine"])


def counts_as_json(counts: Sequence[Count], rows: int) -> str:
    """Return the counts as one JSON document."""
    return json.dumps({"rows": rows, "counts": [_values(asdict(each)) for each in counts]})


def render_rows(rows: Sequence[RefusedRow], total: int) -> str:
    """Return the rows as text, a few lines each."""
    lines = [line for row in rows for line in _lines(row)]
    return "\n".join([*lines, f"{len(rows):,} of {total:,} row(s) in quarantine"])


def rows_as_json(rows: Sequence[RefusedRow], total: int) -> str:
    """Return the rows as one JSON document, the bytes in base64."""
    return json.dumps({"rows": total, "shown": [_values(asdict(row)) for row in rows]})


def render_replays(done: Sequence[GameReplay], *, dry_run: bool) -> str:
    """Return the outcomes of a replay as a table, also of a dry run."""
    head = ("game", "would land" if dry_run else "landed", "present", "refused", "waiting", "not in bronze", "removed")
    body = []
    for each in done:
        it = each.done
        refused = ", ".join(f"{reason} {count:,}" for reason, count in sorted(it.refused.items())) or "0"
        numbers = (f"{it.landed:,}", f"{it.present:,}", refused, f"{it.waiting:,}", f"{it.not_in_bronze:,}")
        body.append((_cut(plain(each.game)), *numbers, f"{it.removed:,}"))
    errors = [f"{plain(each.game)}: {plain(each.error)}" for each in done if each.error]
    total = sum(each.done.landed for each in done)
    last = f"{total:,} row(s) {'would land' if dry_run else 'landed'}"
    return "\n".join([*(_table(head, body) if body else []), *errors, last])


def replays_as_json(done: Sequence[GameReplay]) -> str:
    """Return the outcomes of a replay as one JSON document."""
    return json.dumps({"games": [asdict(each) for each in done]})


def render_rebuilt(done: Rebuilt) -> str:
    """Return one sentence about a rebuild."""
    gaps = f"; {done.gaps:,} accepted gap(s) in bronze left out" if done.gaps else ""
    return (
        f"{done.game_key}: generation {done.generation}, {done.rows:,} row(s) in {done.files:,} file(s) up to seq "
        f"{done.cursor}, {done.refused:,} refused, {done.removed:,} removed from quarantine{gaps}, "
        f"in {done.seconds:.1f} s"
    )


def render_accepted(done: Accepted) -> str:
    """Return one sentence about an accepted gap."""
    return (
        f"{done.game_key}: accepted the gap between seq {done.above} and seq {done.through + 1}; the stream continues "
        f"from seq {done.through}"
    )


def _lines(row: RefusedRow) -> list[str]:
    where = "/".join(str(part) for part in (plain(row.topic), row.partition, row.offset) if part is not None)
    hidden = row.size - len(row.raw)
    return [
        f"{plain(row.game)} [{plain(row.game_key)}]  seq {row.seq}  pos {row.pos}  schema {row.schema_id}",
        f"  {row.reason}: {plain(row.detail)}",
        f"  first seen {_at(row.first_seen)}, source {where} at {_at(row.source_time)}",
        f"  {row.size} bytes: {row.raw.hex(' ')}{f' … {hidden} more' if hidden else ''}",
    ]


def _table(head: Sequence[str], body: Sequence[Sequence[str]]) -> list[str]:
    rows = [head, *body]
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _named(count: Count) -> str:
    return plain(count.game) if count.game is not None else plain(count.game_key)


def _ids(count: Count) -> str:
    ids = ", ".join(str(each) for each in count.schema_ids if each is not None)
    more = count.schemas - SCHEMA_IDS_SHOWN
    return f"{ids}, {more} more" if more > 0 else ids or "-"


def _cut(text: str) -> str:
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 1]}…"


def _at(moment: datetime | None) -> str:
    return "unknown" if moment is None else f"{moment:%Y-%m-%d %H:%M:%S}Z"


def _values(fields: dict[str, Any]) -> dict[str, Any]:
    """Convert values for JSON."""
    return {name: _value(value) for name, value in fields.items()}


def _value(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value
