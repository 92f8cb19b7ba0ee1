"""The environment on screen, the acting person, and `cached`, by which all viewers share what the apis read.

Nothing here draws, writes or holds a viewer's state. What pages read is in `app/state/control_queries.py` and in the
`queries.py` of their rooms, what people ask for in `app/state/previews.py`.
"""

import functools
import importlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Concatenate, Final, ParamSpec, TypeAlias, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import streamlit as st
from sqlalchemy import Engine
from streamlit.runtime.caching.cache_utils import CachedFunc

from app.gate import Person
from app.state import act_as, identity
from app.state.trends import Trend, trend
from grants.catalog import Catalog, CatalogUnavailable
from listeners import history
from listeners.metrics_schema import STATUS_EVENT, STREAM_BATCH, MetricsTable
from pipeline.api import environment as environments
from pipeline.api import fleet as fleet_queries
from pipeline.api.environment import OpenEnvironment
from pipeline.base.errors import Refused, first_line
from pipeline.control.gate import role_of
from pipeline.control.roles import may, require, roles_of
from pipeline.lake.delta.errors import DeltaError
from pipeline.lake.delta.log import exists
from pipeline.lake.delta.scratch import DatabaseError
from pipeline.lake.storage.location import Location
from pipeline.settings import tree as settings_of
from pipeline.settings.tree import Paths, Roles, Settings
from pipeline.store.database import engine as store_engine
from pipeline.store.schema_versions import SchemaVersion, read_schemas

reading = store_engine.reading
_MAX_TRANSITIONS = 5_000  # of the whole fleet; beyond it the oldest are left out

_P = ParamSpec("_P")
_T = TypeVar("_T")
Hashes: TypeAlias = Mapping[str | type[Any], Callable[[Any], Any]]
"""The part of a value, by its type, that distinguishes it in the key of a cache."""

_HOW_TO_START: Final = {"embedded": " Start it with `turnout catalog serve`."}


@dataclass(frozen=True, slots=True)
class Environment:
    """The environment on screen, and which incarnation of its control store: a new file is another store."""

    settings: Settings
    paths: Paths
    store: str


# The cached readers tell environments apart by folder and store: settings that changed need no new reading.
BY_STORE: Final[dict[str | type[Any], Callable[[Any], Any]]] = {
    Environment: lambda environment: (str(environment.paths.root), environment.store)
}


def kept(
    *, seconds: float | None = None, most: int = 2, by: Hashes | None = None
) -> Callable[[Callable[_P, _T]], CachedFunc[_P, _T]]:
    """Keep what a function returns for some seconds (None: for good), for all viewers of one environment.

    They share the value itself, so nobody may change it. Of the newest, as many as `most` are kept.
    """
    return st.cache_resource(ttl=seconds, max_entries=most, show_spinner=False, hash_funcs={**BY_STORE, **(by or {})})


def cached(
    query: Callable[Concatenate[OpenEnvironment, _P], _T],
    *,
    seconds: float | None = None,
    most: int = 2,
    by: Hashes | None = None,
) -> CachedFunc[Concatenate[Environment, _P], _T]:
    """Return an api's query for the environment on screen, its answers kept as by `kept`."""

    @functools.wraps(query)  # by its module and name the cache is told from others
    def read(environment: Environment, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        return query(opened(environment), *args, **kwargs)

    return kept(seconds=seconds, most=most, by=by)(read)


def opened(environment: Environment) -> OpenEnvironment:
    """Return the environment for the apis.

    Raises:
        Refused: its control store cannot be opened.
    """
    return OpenEnvironment(environment.settings, environment.paths, engine(environment))


def actor() -> str:
    """Return the acting person: on a laptop the user who started the dashboard, in a workspace the signed-in person.

    In a demo it may be one of the people whom the demo offers.

    Raises:
        Refused: it does not offer them any more.
    """
    return identity.person().name if act_as.chosen() is None else _shown_person(open_environment()).name


def offered_people(environment: Environment) -> tuple[str, ...]:
    """Return as whom else the user of a running demo may act; nobody in any other environment."""
    return act_as.offered(identity.person(), environment.settings, environment.paths, roles(environment))


def _shown_person(environment: Environment) -> Person:
    """Return the acting person, as a page shows them.

    Raises:
        Refused: a demo does not offer them any more.
    """
    return act_as.shown_person(identity.person(), environment.settings, environment.paths, roles(environment))


def roles(environment: Environment) -> Roles:
    """Return the roles, groups replaced by their members; by nobody without a readable control store."""
    try:
        return environments.read_roles(opened(environment))
    except Refused:
        return environment.settings.roles


def missing_role(environment: Environment, kind: str | None) -> str | None:
    """Return the role that the acting person lacks for a kind of operation or another act; None where they may.

    With None for the kind it is about an act that needs no role, such as a request.
    """
    try:
        known, who_acts = roles(environment), _shown_person(environment)
    except Refused as refused:
        return str(refused)
    if only_look(known, who_acts):
        return _NO_ROLES
    if kind is None or may(known, who_acts.name, role := role_of(kind)):
        return None
    return f"Needs the role {role}, granted by the setting roles.{role}s."


def permitted(environment: Environment, kind: str | None) -> str:
    """Return the acting person, if they have the role for a kind of operation or another act at this moment.

    With None for the kind it is about an act that needs no role. Settings and roles are read again: the page may have
    been drawn long ago.

    Raises:
        Refused: they have not, the settings are wrong or name another control store than the page shows, or a demo
            does not offer them any more.
    """
    now = renewed(environment)
    if now.store != environment.store:
        raise Refused("The control store was replaced after the page loaded. Reload the page.")
    known = roles(now)
    who_acts = act_as.acting_person(identity.person(), now.settings, now.paths, known)
    if only_look(known, who_acts):
        raise Refused(_NO_ROLES)
    if kind is not None:
        require(known, who_acts.name, role_of(kind), kind)
    return who_acts.name


def who(environment: Environment) -> str:
    """Return who is signed in, with their roles where the environment has any."""
    known, who_acts = roles(environment), identity.person()
    if only_look(known, who_acts):
        return f"{who_acts.name} (no roles are set: you may only look)"
    had = roles_of(known, who_acts.name)
    if had is None:
        return who_acts.name
    return f"{who_acts.name} ({' and '.join(had) or 'no role: you may only look'})"


def only_look(known: Roles, who_acts: Person) -> bool:
    """Return whether nothing may be done because no roles are set: in a workspace that does not mean everybody."""
    return who_acts.by_platform and roles_of(known, who_acts.name) is None


_NO_ROLES: Final = (
    "No roles are set, so this dashboard is read-only. "
    "Add people or groups to the settings roles.operators, roles.movers and roles.access_admins."
)


def open_environment(argv: Sequence[str] | None = None, environ: Mapping[str, str] | None = None) -> Environment:
    """Find the environment from `--env-dir DIR` or TURNOUT_ENV_DIR.

    Raises:
        Refused: no environment is named, its settings are wrong, or its control store does not exist.
    """
    arguments = sys.argv if argv is None else argv
    variables = os.environ if environ is None else environ
    folder = _option(arguments, "--env-dir") or variables.get("TURNOUT_ENV_DIR")
    if not folder:
        raise Refused("No environment is named. Start the dashboard with `-- --env-dir DIR` or set TURNOUT_ENV_DIR.")
    return _open(Path(folder), variables)


def renewed(environment: Environment) -> Environment:
    """Return the same environment with its settings as they are now.

    Raises:
        Refused: they are wrong now, or its control store is gone.
    """
    return _open(environment.paths.root, os.environ)


def _open(folder: Path, variables: Mapping[str, str]) -> Environment:
    settings, paths = settings_of.load(folder, variables)
    return Environment(settings, paths, environments.which_store(settings, paths))


fleet = cached(fleet_queries.read, seconds=2)
"""All games and drivers with their judgement."""


@st.cache_data(ttl=10, max_entries=200, show_spinner=False, hash_funcs=BY_STORE)
def schemas(environment: Environment, game_key: str) -> tuple[SchemaVersion, ...]:
    """Read the schemas registered for a game, at most 10 s old.

    Raises:
        Refused: the control store cannot be read.
    """
    return read_schemas(engine(environment), game_key)


@st.cache_data(ttl=5, max_entries=100, show_spinner=False, hash_funcs=BY_STORE)
def game_trend(environment: Environment, game_key: str, seconds: float) -> Trend:
    """Read what the passes of the last `seconds` did for a game, at most 5 s old.

    Raises:
        Refused: there is no history to read.
    """
    now = time.time()
    with _reading(environment.paths.metrics, STREAM_BATCH):
        return trend(history.passes(environment.paths.metrics, game_key, now - seconds), now - seconds, now)


def game_transitions(environment: Environment, game_key: str, seconds: float) -> pa.Table:
    """Read a game's changes of status in the last `seconds`, newest first, at most 5 s old.

    Raises:
        Refused: there is no history to read.
    """
    table = _transitions(environment, seconds)
    return table.filter(pc.equal(table["game_key"], game_key))


@kept()
def engine(environment: Environment) -> Engine:
    """Return the control store's engine, which waits at most 3 s for a lock: a page must not hang.

    Raises:
        Refused: the control store cannot be opened.
    """
    return environments.open_impatient(environment.settings, environment.paths)


@kept(seconds=60)
def catalog(environment: Environment) -> Catalog:
    """Return the client of the catalog, which is kept for a minute: its address and token may change.

    Raises:
        Refused: the environment does not say where it is, or the embedded one was never started.
    """
    from grants.catalogs.opening import open_catalog  # loads databricks-sdk

    with catalog_answers(environment):
        return open_catalog(environment.settings.access, environment.paths, os.environ)


@contextmanager
def catalog_answers(environment: Environment) -> Iterator[None]:
    """Turn a catalog that is away into a reason for people; the next request takes a new client."""
    try:
        yield
    except CatalogUnavailable as away:
        catalog.clear()
        start = _HOW_TO_START.get(environment.settings.access.catalog, "")
        raise Refused(
            f"The catalog does not answer: {away}{start} Nothing was submitted. "
            "Streams and other pages are not affected."
        ) from away


@st.cache_resource(show_spinner=False)
def warm_up() -> threading.Thread:
    """Load what speaks with a catalog, which takes seconds, before anyone waits for it; once per process."""
    thread = threading.Thread(
        target=importlib.import_module, args=("grants.catalogs.opening",), name="warm up", daemon=True
    )
    thread.start()
    return thread


def _option(arguments: Sequence[str], name: str) -> str | None:
    for position, argument in enumerate(arguments):
        if argument == name and position + 1 < len(arguments):
            return arguments[position + 1]
        if argument.startswith(f"{name}="):
            return argument.removeprefix(f"{name}=")
    return None


@st.cache_data(ttl=5, max_entries=4, show_spinner=False, hash_funcs=BY_STORE)
def _transitions(environment: Environment, seconds: float) -> pa.Table:
    with _reading(environment.paths.metrics, STATUS_EVENT):
        return history.transitions(environment.paths.metrics, time.time() - seconds, _MAX_TRANSITIONS)


@contextmanager
def _reading(folder: Location, table: MetricsTable) -> Iterator[None]:
    """Turn a missing or unreadable history into a reason for people."""
    if not exists(folder / table.name):
        raise Refused("No history yet. It appears a few seconds after a cluster group's driver has started.")
    try:
        yield
    except (DeltaError, pa.ArrowException, DatabaseError, OSError) as error:
        raise Refused(
            f"The history cannot be read: {first_line(error)}. Streams are not affected. Check {folder}."
        ) from error
