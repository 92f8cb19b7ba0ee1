"""Asks for schemas of refused rows once more: a registry may have them by now.

Drivers ask registries; a repair writes down what it needs, and waits a while for their answers.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import Engine

from pipeline.data.contracts.schemas import SchemaSet
from pipeline.data.streams.writing.opening import open_rows
from pipeline.store.games import Game
from pipeline.store.processes.leases import store_time
from pipeline.store.schema_needs import OpenNeed, read_needs, write_needs

Ask: TypeAlias = Callable[[Sequence[OpenNeed]], None]
"""Asks for writers, and returns when they are answered or the time is over."""

WAIT_SECONDS: Final = 60.0
"""How long a repair waits: drivers look for what others need each half minute."""

_LOOK_SECONDS: Final = 0.5


def lacking(rows: Iterable[pa.Table], game: Game, schemas: SchemaSet) -> Iterator[OpenNeed]:
    """Yield the writers of a game's rows, chunks of `BronzeRows`, whose schema is refused or that the game lacks."""
    usable = {each: writer for each, writer in schemas.writers.items() if writer.refused is None}
    asking, now = replace(schemas, writers=usable).only([game.key]), time.time()
    for chunk in rows:
        routed = chunk.filter(pc.is_null(chunk.column("refused")))
        if routed.column("writer").null_count == routed.num_rows:
            continue
        for batch in routed.combine_chunks().to_batches():
            for opened in open_rows(pa.Table.from_batches([batch]), asking):
                for need in opened.needs.get(game.key, ()):
                    if need.registry is not None:
                        place = need.seq, need.pos
                        yield OpenNeed(need.registry, need.writer, game.key, game.name, now, *place, again=True)


def ask_drivers(engine: Engine, needs: Sequence[OpenNeed], seconds: float = WAIT_SECONDS) -> None:
    """Let the drivers' threads ask for these writers; return once each is answered, or after the time."""
    wanted = {(each.registry, each.writer, each.game_key) for each in needs}
    if not wanted:
        return
    now = store_time(engine)  # that of the drivers' needs
    write_needs(engine, [replace(each, wanted_at=now) for each in needs])
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        with engine.connect() as connection:
            if not wanted & {(each.registry, each.writer, each.game_key) for each in read_needs(connection)}:
                return
        time.sleep(_LOOK_SECONDS)
