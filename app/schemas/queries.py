"""Data of the Schemas page, read from the control store, cached for seconds and shared by all viewers.

Nothing here draws or writes. Definitions never change, so what is made of them is kept longer.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import streamlit as st

from app.state import services
from app.state.services import BY_STORE, Environment, engine, reading
from pipeline.base.errors import Refused, first_line
from pipeline.base.names import GameKey
from pipeline.control.registering.requests import SchemaRequest, list_requests
from pipeline.data.contracts.catalogue.condition import Catalogue, GameWriters, read_catalogue, read_writers
from pipeline.data.contracts.catalogue.definitions import read_definitions
from pipeline.data.contracts.catalogue.differences import Line, changes, summary, table_steps, text_diff
from pipeline.data.contracts.catalogue.fields import FieldLine, fields_of
from pipeline.data.contracts.catalogue.versions import GameVersions, Version
from pipeline.data.contracts.plans import Step
from pipeline.data.contracts.schemas import Schema
from pipeline.data.ingest.pending import Pending, pending
from pipeline.lake.delta.errors import DeltaError, TableNotFoundError
from pipeline.lake.delta.opening import open_table
from pipeline.lake.delta.usage import Usage, usage

UNREADABLE: Final = "cannot be read"
_MOST_STEPS: Final = 200  # an enum may have a hundred thousand values, and each is a step

_BY: Final[dict[str | type[Any], Callable[[Any], Any]]] = {
    **BY_STORE,
    Version: lambda version: (version.game_key, version.version, version.schema_id),
    GameVersions: lambda game: (game.key, len(game.versions), game.newest and game.newest.schema_id),
}
"""Versions are added, never changed: their numbers tell them apart."""


@dataclass(frozen=True, slots=True)
class Overview:
    """What the page shows of all games, read at one moment (Unix seconds)."""

    catalogue: Catalogue
    rates: Mapping[str, float | None]  # rows per second that land, by game key; None: nothing current is known
    requested: tuple[SchemaRequest, ...]  # those that wait first
    read_at: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """How two versions of a game differ."""

    changes: tuple[Step, ...]  # the first ones
    more_changes: int
    text: tuple[Line, ...]


@dataclass(frozen=True, slots=True)
class OneVersion:
    """A version's fields, and what the game's table got from it."""

    fields: tuple[FieldLine, ...]
    effect: tuple[Step, ...]  # the first ones, those that break something before the others
    more_effect: int


@st.cache_data(ttl=3, max_entries=2, show_spinner=False, hash_funcs=BY_STORE)
def overview(environment: Environment) -> Overview:
    """Read all games with their versions, registries, needs, rates and requests, at most 3 s old.

    Raises:
        Refused: the control store cannot be read.
    """
    with reading():
        seen = read_catalogue(engine(environment), environment.settings.registries)
        requested = tuple(list_requests(engine(environment)))
    rows = services.fleet(environment).rows
    rates = {row.game_key: None if row.live is None else row.live.rows_per_second for row in rows}
    return Overview(seen, rates, requested, seen.read_at)


@st.cache_data(ttl=3, max_entries=50, show_spinner=False, hash_funcs=_BY)
def writers(environment: Environment, game: GameVersions) -> GameWriters:
    """Read what registries say of a game, at most 3 s old.

    Raises:
        Refused: the control store cannot be read.
    """
    with reading():
        return read_writers(engine(environment), game)


@st.cache_resource(ttl=5, max_entries=2, show_spinner=False, hash_funcs=BY_STORE)
def nameless(environment: Environment) -> Pending:
    """Read the names without a game that ingest refuses rows of, at most 5 s old; ingest counts them each ten seconds.

    Raises:
        Refused: the control store or its count of names cannot be read.
    """
    with reading():
        return pending(engine(environment), environment.settings.onboarding)


@st.cache_data(ttl=60, max_entries=100, show_spinner=False, hash_funcs=BY_STORE)
def used(environment: Environment, key: str) -> Usage:
    """Count a game's rows by schema in its table, at most a minute old; none where it has no table yet.

    Raises:
        Refused: its table cannot be read.
    """
    folder = environment.paths.table(GameKey(key))
    try:
        return usage(open_table(folder), folder, f"The table of {key}")
    except TableNotFoundError:
        return Usage({}, 0)
    except (DeltaError, pa.ArrowException, OSError) as error:
        raise Refused(f"The table of {key} cannot be read: {first_line(error)}. Streams are not affected.") from error


@st.cache_data(ttl=600, max_entries=100, show_spinner=False, hash_funcs=_BY)
def comparison(environment: Environment, first: Version, second: Version) -> Comparison:
    """Compare two versions of a game.

    Raises:
        Refused: the control store or a definition cannot be read.
    """
    known = _definitions(environment, {first.schema_id, second.schema_id})
    before, after = known[first.schema_id], known[second.schema_id]
    steps = changes(before, after)
    return Comparison(steps[:_MOST_STEPS], max(0, len(steps) - _MOST_STEPS), text_diff(before, after))


@st.cache_data(ttl=600, max_entries=100, show_spinner=False, hash_funcs=_BY)
def one_version(environment: Environment, game: GameVersions, version: Version) -> OneVersion:
    """Read one version's fields and effect.

    Raises:
        Refused: the control store or a definition cannot be read.
    """
    used = {version.schema_id, *(each.schema_id for each in game.landing_before(version))}
    known = _definitions(environment, used)
    fields = fields_of(known[version.schema_id], version.placement)
    steps = sorted(table_steps(game, version, known), key=lambda step: not step.breaks)
    return OneVersion(fields, tuple(steps[:_MOST_STEPS]), max(0, len(steps) - _MOST_STEPS))


@st.cache_data(ttl=600, max_entries=4000, show_spinner=False, hash_funcs=_BY)
def change_text(environment: Environment, game: GameVersions) -> str:
    """Say in a few words what the newest version changed in the game's table, or why that is not known.

    Raises:
        Refused: the control store cannot be read.
    """
    newest = game.newest
    if newest is None:
        return ""
    if newest.version == 1:
        return "first version"
    used = {newest.schema_id, *(each.schema_id for each in game.landing_before(newest))}
    known = _definitions(environment, used)
    try:
        return summary(table_steps(game, newest, known))
    except Refused as refused:
        return f"{UNREADABLE}: {first_line(refused)}"


def forget() -> None:
    """Read again the next time: something was registered or decided."""
    for reader in (overview, writers):
        reader.clear()


def _definitions(environment: Environment, ids: set[int]) -> Mapping[int, Schema]:
    with reading():
        return read_definitions(engine(environment), ids)
