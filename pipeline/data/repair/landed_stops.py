"""Looks for a landed row that breaks a rule by which its stream stops: a rebuild of its game would be refused.

Called before an operation registers what only a rebuild makes true. A contract may be younger than the rows.
"""

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.base.errors import Refused
from pipeline.data.contracts.further_types import game_types
from pipeline.data.contracts.schemas import SchemaSet
from pipeline.data.output_contracts.masks import judge
from pipeline.data.output_contracts.rules import OutputContract, stopping
from pipeline.data.streams.stops import Stop
from pipeline.lake.delta import parquet
from pipeline.lake.delta.files import files_with
from pipeline.lake.delta.log import exists
from pipeline.lake.delta.opening import open_table
from pipeline.lake.storage.location import Location
from pipeline.store.games import Game


def require_no_stop(folder: Location, schemas: SchemaSet, game: Game) -> None:
    """Check that no row of a game's table breaks a rule that stops its stream.

    Raises:
        Refused: one does.
    """
    contracts = schemas.contracts.get(game.key, ())
    if not stopping(contracts) or not exists(folder):
        return
    table = open_table(folder)
    held, files = pa.schema(table.schema().to_arrow()), files_with(table, folder, "_seq", range(2**62))
    if not files:
        return
    structs = {name: each.struct for each in game_types(schemas, game.key) for name in each.names}
    batches = parquet.dataset(files, held).to_batches(columns=_columns(held, contracts, structs))
    tables = (pa.Table.from_batches([each]) for each in batches)
    if found := [stop for rows in tables for stop in _stops(rows, contracts, structs)]:
        raise refusal(min(found), game)


def refusal(stop: Stop, game: Game) -> Refused:
    """Return the refusal of a rebuild that would meet a stop."""
    return Refused(
        f"{stop.sentence(game.name)}, which stops the stream there, and a rebuild too. Change the contract, then "
        f"rebuild; the table is unchanged."
    )


def _columns(held: pa.Schema, contracts: Sequence[OutputContract], structs: Mapping[str, str | None]) -> list[str]:
    """Return the columns of a table that its rules need."""
    named = {rule.column.split(".")[0].rstrip("[]") for each in contracts for rule in each.rules}
    return [each for each in held.names if each in {"_seq", "_pos", "_type"} | named | {*structs.values()}]


def _stops(rows: pa.Table, contracts: Sequence[OutputContract], structs: Mapping[str, str | None]) -> Iterator[Stop]:
    """Yield the first row of each event type and rule that breaks the rule."""
    for name in pc.unique(rows.column("_type")).to_pylist():
        own = rows.filter(pc.equal(rows.column("_type"), name))
        verdict = judge(own, [each for each in contracts if each.covers(name)], structs.get(name))
        for rule, column in verdict.stopping.items():
            places = own.select(["_seq", "_pos"]).filter(pa.array(verdict.broken[rule])).to_pylist()
            yield min(Stop(each["_seq"], each["_pos"], rule, column) for each in places)
