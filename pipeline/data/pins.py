"""The schema set of a pass or chunk, pinned durably before its first write: a replay classifies alike (law L5)."""

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from pipeline.base import durable_file
from pipeline.base.failpoints import effect
from pipeline.lake.storage.location import Location

_T = TypeVar("_T")
_log = logging.getLogger("turnout")
_KEPT: Final = 100  # Spark replays at most the last batch; the others are kept for inspection


class SetPin(NamedTuple):
    """A pinned schema set."""

    version: int
    mark: str = ""  # of `SchemaSet`; empty: the empty set


def pin(folder: Location, batch_id: int, propose: Callable[[], int]) -> int:
    """Return the number pinned for a batch; pin the proposed one when the batch is new."""
    return _pinned(folder, batch_id, lambda: str(propose()), int)


def pin_set(folder: Location, batch_id: int, propose: Callable[[], SetPin]) -> SetPin:
    """Return the schema set pinned for a batch; pin the proposed one when the batch is new."""
    return _pinned(folder, batch_id, lambda: " ".join(map(str, propose())), _as_set)


def _as_set(text: str) -> SetPin:
    version, _, mark = text.strip().partition(" ")
    return SetPin(int(version), mark)


def _pinned(folder: Location, batch_id: int, propose: Callable[[], str], parse: Callable[[str], _T]) -> _T:
    file = folder / f"{batch_id}"
    try:
        return parse(file.read_text())
    except FileNotFoundError:
        pass
    except ValueError as error:
        # At worst a row is classified again and leaves a stale twin; a batch that cannot be repeated stops all games.
        _log.warning("rewriting the damaged %s: %s", file, error)
        with effect("delete_pin"):
            file.delete()
    with effect("make_folder"):
        folder.make()
    # If another attempt pinned first, its pin counts.
    file.put_if_absent(propose().encode(), drafted="draft_pin", published="publish_pin")
    with effect("delete_pin"):
        (folder / f"{batch_id - _KEPT}").delete()
    return parse(file.read_text())


class SetInUse:
    """The number of the schema set by which one reader of bronze writes now; several threads may ask."""

    def __init__(self) -> None:
        """Begin with none."""
        self._is_reading = False
        self._version: int | None = None

    def choosing(self) -> None:
        """Record that rows are about to be read, by a set that is not chosen yet."""
        self._version, self._is_reading = None, True

    def chosen(self, version: int) -> None:
        """Record the set that was chosen for these rows."""
        self._version = version

    def end(self) -> None:
        """Record that no row is read by this set any more."""
        self._is_reading = False

    def oldest(self, latest: int) -> int | None:
        """Return the oldest set by which it writes now or next; None: not known yet.

        `latest` is the newest set that the driver knew before this call: what begins later chooses no older one.
        """
        return self._version if self._is_reading else latest


class Pinned(NamedTuple):
    """The pin with which to repeat an interrupted catch-up chunk, for one of its games."""

    version: int  # of the schema set
    high: int  # the chunk's last seq
    mark: str  # of the schema set, as in `SetPin`

    @property
    def set(self) -> SetPin:
        """The schema set."""
        return SetPin(self.version, self.mark)


class ChunkPin:
    """The schema set of each game's catch-up chunk, until the game is complete up to the chunk's end.

    By game, as an interrupted chunk may be repeated in several: others of its games may be in a pass, or further.
    """

    def __init__(self, file: Path) -> None:
        """Read the pins of an earlier process."""
        self._file = file
        self._games: dict[str, Pinned] = {}
        try:
            games = json.loads(file.read_text("utf-8"))["games"]
            self._games = {
                key: Pinned(int(version), int(high), str(mark)) for key, (version, high, mark) in games.items()
            }
        except FileNotFoundError:
            return
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            _log.warning("%s is damaged; its chunk is planned again: %s", file, error)

    def find(self, game_key: str, complete_through: int) -> Pinned | None:
        """Return the pin of a game's interrupted chunk, None without one."""
        pinned = self._games.get(game_key)
        return None if pinned is None or complete_through >= pinned.high else pinned

    def write(self, schemas: SetPin, high: int, games: Iterable[str]) -> None:
        """Pin a chunk durably, before its first write."""
        for key in games:
            earlier = self._games.get(key)
            reached = earlier.high if earlier is not None and earlier.set == schemas else 0
            through = max(high, reached)  # a repetition may cover fewer seqs
            self._games[key] = Pinned(schemas.version, through, schemas.mark)
        durable_file.write_text(self._file, json.dumps({"games": self._games}))

    def clear(self, complete: Mapping[str, int], high: int) -> None:
        """Remove the pins of a chunk that ended at `high`, for games that are complete up to these seqs.

        Pins beyond `high` stay for a game that came so far. A failed game may take a newer set.
        """
        for key, through in complete.items():
            if through < high or self.find(key, through) is None:
                self._games.pop(key, None)
        if not self._games:
            with effect("delete_pin"):
                self._file.unlink(missing_ok=True)
