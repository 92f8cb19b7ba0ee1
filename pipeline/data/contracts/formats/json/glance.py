"""Looks at the bytes of many documents together, for what a closer look then decides. Pure, vectorised."""

from collections.abc import Callable
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.data.contracts.decoded import Rows

Bytes: TypeAlias = npt.NDArray[np.uint8]
Places: TypeAlias = npt.NDArray[np.intp]

REACH: Final = 64
"""Bytes behind a place that are looked at too."""
_PIECE: Final = 512 * 1024  # bytes looked at together; more would leave the processor's caches


def rows_with(documents: pa.Array, places: Callable[[Bytes], Places], piece: int = _PIECE) -> Rows:
    """Return the rows, in order, in which a place of some bytes lies; `documents` are binary or text, without null.

    The bytes are those of many documents, one after another, cut into pieces.
    """
    _, held, data = documents.buffers()
    offsets = np.frombuffer(held, np.int32)[documents.offset : documents.offset + len(documents) + 1]
    content = np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]]
    starts = range(0, len(content), piece)
    found = [places(content[start : start + piece + REACH]) + start for start in starts]
    together = np.concatenate([*found, np.empty(0, np.intp)])
    if not len(together):
        return together.astype(np.int64)
    return np.unique(np.searchsorted(offsets, together + offsets[0], side="right") - 1).astype(np.int64)


def where(flags: npt.NDArray[np.bool_]) -> Places:
    """Return the places of what is true; quickly where nothing is."""
    return np.flatnonzero(flags) if flags.any() else np.empty(0, np.intp)
