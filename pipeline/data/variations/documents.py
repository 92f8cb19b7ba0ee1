"""The documents of a game's event types in bronze, opened as tasks open them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.base.names import GameKey
from pipeline.data.contracts.declared_types import type_named
from pipeline.data.contracts.envelopes.opening import payloads_of
from pipeline.data.contracts.origins import Place
from pipeline.data.contracts.profile import SourceProfile
from pipeline.data.contracts.schemas import SchemaSet
from pipeline.data.variations.bronze_view import DOCUMENTS, PLACES, BronzeView
from pipeline.lake.delta.bronze import whole
from pipeline.store.games import Game

_NO_TYPE: Final = -1
_OPENED_ROWS: Final = 4096  # that are opened at once: as Python's objects they take several times their bytes


class Document(NamedTuple):
    """One row of bronze, as a registration reads it."""

    type: str
    place: Place
    payload: bytes
    landed_at: float  # Unix seconds
    producer: str | None


@dataclass(slots=True)
class FirstRows:
    """What is known of an event type's first rows."""

    through: int  # the last seq that was looked at
    first: Place | None = None  # None: there was none
    landed_at: float = 0.0  # of the first one, Unix seconds
    count: int = 0


@dataclass(frozen=True, slots=True)
class Span:
    """The rows of one event type to read: from a place, through a seq or a place there."""

    first: Place
    through: Place

    def holds(self, seqs: npt.NDArray[np.int64], places: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Return which places are within."""
        after = (seqs > self.first[0]) | ((seqs == self.first[0]) & (places >= self.first[1]))
        held: npt.NDArray[np.bool_] = after & (
            (seqs < self.through[0]) | ((seqs == self.through[0]) & (places <= self.through[1]))
        )
        return held


class Documents:
    """One game's documents that nobody declared."""

    def __init__(self, view: BronzeView, game: Game, schemas: SchemaSet) -> None:
        """Read by the profiles and the event types of a schema set."""
        self._view, self._game = view, game
        self._profiles = {number: each for number, each in schemas.profiles.items() if _registers(each)}
        self._placed = schemas.placed(GameKey(game.key))

    def count(self, found: Mapping[str, FirstRows], most: int) -> None:
        """Look at the rows of event types behind those that were looked at, until each has `most`."""
        head = self._view.head
        for start in {each.through for each in found.values() if each.through < head and each.count < most}:
            wanted = {name: each for name, each in found.items() if each.through == start}
            for rows in self._view.rows(self._game, start, head, PLACES):
                names, codes = self._types(rows)
                for code, name in enumerate(names):
                    if name in wanted and len(mine := np.flatnonzero(codes == code)):
                        _count(wanted[name], rows.slice(int(mine[0]), 1), len(mine))
                if all(each.count >= most for each in wanted.values()):
                    break
            for each in wanted.values():
                each.through = head

    def read(self, spans: Mapping[str, Span]) -> Iterator[Document]:
        """Yield the documents of event types in the order of their places."""
        low = min(each.first[0] for each in spans.values()) - 1
        high = max(each.through[0] for each in spans.values())
        for rows in self._view.rows(self._game, low, high, DOCUMENTS):
            names, codes = self._types(rows)
            seqs, places = rows["seq"].to_numpy(), rows["pos"].to_numpy().astype(np.int64)
            chosen = np.zeros(len(codes), np.bool_)
            for code, name in enumerate(names):
                if name in spans:
                    chosen |= (codes == code) & spans[name].holds(seqs, places)
            for first in range(0, rows.num_rows, _OPENED_ROWS):
                mine = chosen[first : first + _OPENED_ROWS]
                if mine.any():
                    types = [names[each] for each in codes[first : first + _OPENED_ROWS][mine].tolist()]
                    yield from self._opened(rows.slice(first, _OPENED_ROWS).filter(pa.array(mine)), types)

    def _opened(self, rows: pa.Table, types: list[str]) -> Iterator[Document]:
        payloads: list[bytes | None] = [None] * rows.num_rows
        numbers = rows["profile"].to_numpy()
        for number in np.unique(numbers).tolist():
            mine = np.flatnonzero(numbers == number)
            raw = whole(rows["raw"].take(pa.array(mine)))
            opened = payloads_of(raw, self._profiles[number]).payload
            for row, payload in zip(mine.tolist(), opened, strict=True):
                payloads[row] = payload.as_py()
        places = zip(rows["seq"].to_pylist(), rows["pos"].to_pylist(), strict=True)
        landed, producers = _landed(rows), rows["producer_id"].to_pylist()
        for name, place, payload, at, producer in zip(types, places, payloads, landed, producers, strict=True):
            yield Document(name, place, payload or b"", at, producer)

    def _types(self, rows: pa.Table) -> tuple[list[str], npt.NDArray[np.int64]]:
        """Return names of event types, and the place of each row's among them, or -1."""
        profiles = pc.fill_null(rows["profile"], _NO_TYPE).to_numpy()
        writers = whole(pc.fill_null(rows["writer"], b"")).dictionary_encode()
        named = [type_named(self._placed, each.decode("utf-8", "replace")) for each in writers.dictionary.to_pylist()]
        names = sorted(set(named))
        place_of = {name: place for place, name in enumerate(names)}
        code_of = np.array([place_of[each] for each in named] or [0], np.int64)
        codes = code_of[writers.indices.to_numpy()] if rows.num_rows else np.empty(0, np.int64)
        by_type = np.isin(profiles, list(self._profiles)) & rows["writer"].is_valid().to_numpy()
        return names, np.where(by_type, codes, _NO_TYPE)


def _registers(profile: SourceProfile) -> bool:
    return profile.framing == "type" and profile.undeclared == "register"


def _count(known: FirstRows, first: pa.Table, rows: int) -> None:
    if known.first is None:
        known.first, known.landed_at = (first["seq"][0].as_py(), first["pos"][0].as_py()), _landed(first)[0]
    known.count += rows


def _landed(rows: pa.Table) -> list[float]:
    micros = pc.fill_null(rows["ingest_time"].cast(pa.int64()), 0).to_pylist()
    return [each / 1_000_000 for each in micros]
