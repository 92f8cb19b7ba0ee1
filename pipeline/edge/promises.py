"""The rules of output contracts by which an edge refuses events: those that quarantine, of one decoded row. Pure.

Rules that warn or stop a stream refuse nothing here: a pass lands the row, or lets it wait.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, Self

import numpy as np
import pyarrow as pa

from pipeline.base.names import GameKey
from pipeline.data.contracts.envelopes.wrapper import open_wrappers
from pipeline.data.contracts.placing import pad, placed
from pipeline.data.contracts.promised import FROM_WRAPPER, fields_of, promised
from pipeline.data.contracts.schemas import FieldPlacement, Schema, SchemaSet
from pipeline.data.output_contracts.masks import judge
from pipeline.data.output_contracts.rules import LANDS, ContractRule, OutputContract
from pipeline.data.streams.writing.columns import OWN_COLUMNS, type_schema

_MOST_NAMED: Final = 10  # rules of one event, which may break hundreds
_UNKNOWN: Final = frozenset(OWN_COLUMNS.names) - {*FROM_WRAPPER}  # an event gets these behind the edge


class BrokenPromise(NamedTuple):
    """One row that a pass would send to quarantine."""

    row: int
    detail: str  # as in quarantine
    field: str  # of the wrapper, or of the payload as `payload.price`
    rules: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class EdgeRules:
    """The rules for a game's events of one schema."""

    schema: Schema
    placement: FieldPlacement
    columns: pa.Schema  # of the event type in the game's table, without our own
    contracts: tuple[OutputContract, ...]  # their rules that refuse rows, or stop streams
    fields: Mapping[str, str]  # by rule, as producers know them
    reads_wrapper: bool

    @classmethod
    def of(cls, schemas: SchemaSet, key: GameKey, schema: Schema, placement: FieldPlacement) -> Self | None:
        """Return the rules; None where nothing is refused by any.

        Raises:
            Refused: the schema's definition has no form as columns.
        """
        own = promised(schemas.contracts.get(key, ()), schema, placement)
        rules = [rule for each in own for rule in each.rules]
        stops_unseen = any(each.action == "stop" and each.column in _UNKNOWN for each in rules)
        if stops_unseen or not any(each.action == "quarantine" and each.column not in _UNKNOWN for each in rules):
            return None
        kept = tuple(replace(each, rules=tuple(filter(_counts, each.rules))) for each in own)
        columns = pa.schema(list(type_schema(schemas, key, placement.struct))[len(OWN_COLUMNS) :])
        reads_wrapper = any(rule.column in FROM_WRAPPER for contract in kept for rule in contract.rules)
        return cls(schema, placement, columns, kept, fields_of(kept, placement), reads_wrapper)

    def broken(self, batch: pa.RecordBatch, wrappers: Sequence[bytes]) -> Iterator[BrokenPromise]:
        """Yield the rows that a pass would send to quarantine.

        Args:
            batch: decoded payloads.
            wrappers: of the same events.

        Raises:
            Refused: a column has another type in the table.
        """
        payload = pad(placed(batch, self.schema, self.placement), self.columns)
        arrays, names = list(payload.columns), payload.schema.names
        if self.reads_wrapper:
            opened = open_wrappers(pa.array(wrappers, pa.binary())).batch
            arrays += [opened.column("event_time"), opened.column("event_id")]
            names = [*names, *FROM_WRAPPER]
        verdict = judge(pa.table(arrays, names=names), self.contracts, self.placement.struct)
        stops = [verdict.broken[name] for name in verdict.stopping]
        waiting = np.logical_or.reduce(stops) if stops else None
        for row, detail in verdict.details():
            if waiting is None or not waiting[row]:
                rules = verdict.rules_of(row)
                yield BrokenPromise(row, detail, self.fields[rules[0]], tuple(rules[:_MOST_NAMED]))


def _counts(rule: ContractRule) -> bool:
    return rule.action != LANDS and rule.column not in _UNKNOWN
