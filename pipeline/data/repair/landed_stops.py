"""Looks for a landed row that breaks a rule by which its stream stops: a rebuild of its game would be refused.

Called before an operation registers what only a rebuild makes true. A contract may be younger than the rows.
"""

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from pipeline.base.errors import Refused
from pipeline.base.names import GameKey
from pipeline.data.contracts.further_types import game_types
from pipeline.data.contracts.promised import of_landed, promised
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
    batches = parquet.dataset(files, held).to_batches(
        columns=_columns(held, [*_every(schemas, game.key, contracts)], structs)
    )
    tables = (pa.Table.from_batches([each]) for each in batches)
    parts = (part for rows in tables for part in of_landed(rows, schemas, game.key, contracts))
    if found := [stop for name, rows, own in parts for stop in _stops(rows, own, structs.get(name))]:
        raise refusal(min(found), game)


def refusal(stop: Stop, game: Game) -> Refused:
    """Return the refusal of a rebuild that would meet a stop."""
    return Refused(
        f"{stop.sentence(game.name)}, which stops the stream there, and a rebuild too. Change the contract, then "
        f"rebuild; the table is unchanged."
    )


def _every(schemas: SchemaSet, key: GameKey, contracts: Sequence[OutputContract]) -> Iterator[OutputContract]:
    """Yield contracts as they are, and with the rules of each schema's definition."""
    yield from contracts
    for placed in schemas.placed(key):
        yield from promised(contracts, *placed)


def _columns(held: pa.Schema, contracts: Sequence[OutputContract], structs: Mapping[str, str | None]) -> list[str]:
    """Return the columns of a table that its rules need."""
    named = {rule.column.split(".")[0].rstrip("[]") for each in contracts for rule in each.rules}
    own = {"_seq", "_pos", "_type", "_schema_id"}
    return [each for each in held.names if each in own | named | {*structs.values()}]


def _stops(rows: pa.Table, contracts: Sequence[OutputContract], struct: str | None) -> Iterator[Stop]:
    """Yield the first of some rows that breaks each rule."""
    verdict = judge(rows, contracts, struct)
    for rule, column in verdict.stopping.items():
        places = rows.select(["_seq", "_pos"]).filter(pa.array(verdict.broken[rule])).to_pylist()
        yield min(Stop(each["_seq"], each["_pos"], rule, column) for each in places)
