"""Everything the pages read, wired once: the environment, the control store, the metrics history.

Readers are cached for a few seconds and shared by all viewers. Nothing here draws, writes or holds a viewer's state;
what the steering pages read is in `app/state/control_queries.py`, what people ask for in `app/state/previews.py`.
"""

import importlib
import logging
import os
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import streamlit as st
from deltalake.exceptions import DeltaError
from sqlalchemy import Engine, event
from sqlalchemy.exc import SQLAlchemyError

from app.gate import Person
from app.state import identity
from app.state.trends import Trend, trend
from grants.catalog import Catalog, CatalogUnavailable
from listeners import history
from listeners.metrics_schema import STATUS_EVENT, STREAM_BATCH, MetricsTable
from pipeline import settings as settings_of
from pipeline.control.gate import role_of
from pipeline.control.roles import current, may, require, roles_of
from pipeline.errors import Refused
from pipeline.settings import Paths, Roles, Settings
from pipeline.store.engine import open_store, require_store
from pipeline.store.fleet import Fleet, SchemaVersion, read_fleet, read_schemas

_log = logging.getLogger("turnout")
_MOST_TRANSITIONS = 5_000  # of the whole fleet; beyond it the oldest are left out
_PATIENCE_MS: Final = 3_000  # a page waits so long for a lock in the control store
_HOW_TO_START: Final = {"embedded": " Start it with `turnout catalog serve`."}


@dataclass(frozen=True, slots=True)
class Environment:
    """The environment on screen, and which incarnation of its control store: a new file is another store."""

    settings: Settings
    paths: Paths
    store: str


def actor() -> str:
    """Return who acts: on a laptop the user who started the dashboard, in a workspace the person who is signed in."""
    return identity.person().name


def roles(environment: Environment) -> Roles:
    """Return the roles, groups replaced by who is in them; nobody is, while the control store cannot be read."""
    try:
        return current(environment.settings, engine(environment))
    except (SQLAlchemyError, Refused):
        return environment.settings.roles


def missing_role(environment: Environment, kind: str | None) -> str | None:
    """Return which role who acts would need for a kind of operation or another act; None where they may.

    With None for the kind it is about an act that needs no role, such as a request.
    """
    known, who_acts = roles(environment), identity.person()
    if _only_look(known, who_acts):
        return _NO_ROLES
    if kind is None or may(known, who_acts.name, role := role_of(kind)):
        return None
    return f"It needs the role {role}, which you do not have: the setting roles.{role}s names who has it."


def permitted(environment: Environment, kind: str | None) -> str:
    """Return who acts, where they have the role for a kind of operation or another act at this moment.

    With None for the kind it is about an act that needs no role. Settings and roles are read again: the page may have
    been drawn long ago.

    Raises:
        Refused: they have not, the settings are wrong, or they name another control store than the page shows.
    """
    now = renewed(environment)
    if now.store != environment.store:
        raise Refused("The control store was replaced after this page was drawn. Reload the page.")
    known, who_acts = roles(now), identity.person()
    if _only_look(known, who_acts):
        raise Refused(_NO_ROLES)
    if kind is not None:
        require(known, who_acts.name, role_of(kind), kind)
    return who_acts.name


def who(environment: Environment) -> str:
    """Return who acts, with their roles where the environment has any."""
    known, who_acts = roles(environment), identity.person()
    if _only_look(known, who_acts):
        return f"{who_acts.name} (no roles are set: you may only look)"
    had = roles_of(known, who_acts.name)
    if had is None:
        return who_acts.name
    return f"{who_acts.name} ({' and '.join(had) or 'no role: you may only look'})"


def _only_look(known: Roles, who_acts: Person) -> bool:
    """Tell whether nothing may be done because no roles are set: in a workspace that does not mean everybody."""
    return who_acts.by_platform and roles_of(known, who_acts.name) is None


_NO_ROLES: Final = (
    "No roles are set, so this dashboard only shows. "
    "Name people or groups in the settings roles.operators, roles.movers and roles.access_admins."
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
    if settings.store.url:
        return Environment(settings, paths, settings.store.url)
    require_store(settings, paths)
    return Environment(settings, paths, f"{paths.control_db}#{paths.control_db.stat().st_ino}")


def fleet(environment: Environment) -> Fleet:
    """Read all games and drivers, at most 2 s old.

    Raises:
        Refused: the control store cannot be read.
    """
    return _fleet(environment.store, environment)


def schemas(environment: Environment, game_key: str) -> tuple[SchemaVersion, ...]:
    """Read the schemas registered for a game, at most 10 s old.

    Raises:
        Refused: the control store cannot be read.
    """
    return _schemas(environment.store, game_key, environment)


def game_trend(environment: Environment, game_key: str, seconds: float) -> Trend:
    """Read what the passes of the last `seconds` did for a game, at most 5 s old.

    Raises:
        Refused: there is no history to read.
    """
    return _trend(str(environment.paths.metrics), game_key, seconds)


def game_transitions(environment: Environment, game_key: str, seconds: float) -> pa.Table:
    """Read a game's changes of status in the last `seconds`, newest first, at most 5 s old.

    Raises:
        Refused: there is no history to read.
    """
    table = _transitions(str(environment.paths.metrics), seconds)
    return table.filter(pc.equal(table["game_key"], game_key))


def engine(environment: Environment) -> Engine:
    """Return the control store's engine, which waits at most 3 s for a lock: a page must not hang.

    Raises:
        Refused: the control store cannot be opened.
    """
    return _engine(environment.store, environment)


def catalog(environment: Environment) -> Catalog:
    """Return the client of the catalog, which is kept for a minute: its address and token may change.

    Raises:
        Refused: the environment does not say where it is, or the embedded one was never started.
    """
    with catalog_answers(environment):
        return _catalog(environment.store, environment)


@contextmanager
def catalog_answers(environment: Environment) -> Iterator[None]:
    """Turn a catalog that is away into a reason for people; what is asked of it next is asked by a new client."""
    try:
        yield
    except CatalogUnavailable as away:
        _catalog.clear()
        start = _HOW_TO_START.get(environment.settings.access.catalog, "")
        raise Refused(
            f"The catalog does not answer: {away}{start} Nothing was submitted. "
            "Streams and other pages are not affected."
        ) from away


def warm_up() -> None:
    """Load what speaks with a catalog, which takes seconds, before anyone waits for it; once per process."""
    _warm_up()


@contextmanager
def reading() -> Iterator[None]:
    """Turn a control store that cannot be read into a reason for people."""
    try:
        yield
    except SQLAlchemyError as error:
        reason = str(getattr(error, "orig", None) or error).splitlines()[0]
        raise Refused(
            f"The control store cannot be read: {reason}. Check the setting store.url and that the store is up."
        ) from error
    except (ValueError, TypeError, AttributeError) as error:  # a column that is no JSON, or of a wrong type
        _log.warning("the control store contains an invalid row", exc_info=error)
        raise Refused(
            f"The control store contains an invalid row: {error}. Look with `turnout audit verify`."
        ) from error


def impatient(store: Engine) -> None:
    """Let every new connection wait at most 3 s for a lock that another one holds."""

    @event.listens_for(store, "connect")
    def hurry(connection: Any, _record: Any) -> None:
        cursor = connection.cursor()
        sqlite = store.dialect.name == "sqlite"
        cursor.execute(f"PRAGMA busy_timeout={_PATIENCE_MS}" if sqlite else f"SET lock_timeout = {_PATIENCE_MS}")
        cursor.close()
        connection.commit()

    store.dispose()  # those that are open already


def _option(arguments: Sequence[str], name: str) -> str | None:
    for position, argument in enumerate(arguments):
        if argument == name and position + 1 < len(arguments):
            return arguments[position + 1]
        if argument.startswith(f"{name}="):
            return argument.removeprefix(f"{name}=")
    return None


@st.cache_resource(max_entries=2, show_spinner=False)
def _engine(store: str, _environment: Environment) -> Engine:  # noqa: ARG001 - the store is the cache's key
    require_store(_environment.settings, _environment.paths)  # pages begin no environment
    store_engine = open_store(_environment.settings, _environment.paths)
    impatient(store_engine)
    return store_engine


@st.cache_resource(ttl=60, max_entries=2, show_spinner=False)
def _catalog(store: str, _environment: Environment) -> Catalog:  # noqa: ARG001 - the store is the cache's key
    from grants.catalogs.opening import open_catalog  # loads databricks-sdk

    return open_catalog(_environment.settings.access, _environment.paths, os.environ)


@st.cache_resource(show_spinner=False)
def _warm_up() -> threading.Thread:
    thread = threading.Thread(
        target=importlib.import_module, args=("grants.catalogs.opening",), name="warm up", daemon=True
    )
    thread.start()
    return thread


@st.cache_data(ttl=2, max_entries=2, show_spinner=False)
def _fleet(store: str, _environment: Environment) -> Fleet:
    every_seconds = _environment.settings.metrics.heartbeat_seconds
    with reading():
        wanted = _environment.settings.maintenance
        return read_fleet(_engine(store, _environment), heartbeat_seconds=every_seconds, maintenance=wanted)


@st.cache_data(ttl=10, max_entries=200, show_spinner=False)
def _schemas(store: str, game_key: str, _environment: Environment) -> tuple[SchemaVersion, ...]:
    return read_schemas(_engine(store, _environment), game_key)


@st.cache_data(ttl=5, max_entries=100, show_spinner=False)
def _trend(folder: str, game_key: str, seconds: float) -> Trend:
    now = time.time()
    with _reading(Path(folder), STREAM_BATCH):
        return trend(history.passes(Path(folder), game_key, now - seconds), now - seconds, now)


@st.cache_data(ttl=5, max_entries=4, show_spinner=False)
def _transitions(folder: str, seconds: float) -> pa.Table:
    with _reading(Path(folder), STATUS_EVENT):
        return history.transitions(Path(folder), time.time() - seconds, _MOST_TRANSITIONS)


@contextmanager
def _reading(folder: Path, table: MetricsTable) -> Iterator[None]:
    """Turn a history that is not there or cannot be read into a reason for people."""
    if not (folder / table.name / "_delta_log").is_dir():
        raise Refused("No history yet. It appears a few seconds after a cluster group's driver has started.")
    try:
        yield
    except (DeltaError, pa.ArrowException, duckdb.Error, OSError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise Refused(f"The history cannot be read: {reason}. Streams are not touched; check {folder}.") from error
