"""The environment on screen, the acting person, and `cached`, by which all viewers share what the apis read.

Nothing here draws, writes or holds a viewer's state. What pages read is in `app/state/control_queries.py` and in the
`queries.py` of their rooms, what people ask for in `app/state/previews.py`.
"""

import functools
import importlib
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Concatenate, Final, ParamSpec, TypeAlias, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import streamlit as st
from streamlit.runtime.caching.cache_utils import CachedFunc

from app.gate import Person
from app.person import act_as, identity
from grants.catalog import Catalog, CatalogUnavailable
from pipeline.api import environment as environments
from pipeline.api import fleet as fleet_queries
from pipeline.api import trends
from pipeline.api.environment import Engine, OpenEnvironment
from pipeline.api.trends import Trend
from pipeline.base.errors import Refused
from pipeline.control.gate import role_of
from pipeline.control.roles import may, require, roles_of
from pipeline.settings import tree as settings_of
from pipeline.settings.tree import Paths, Roles, Settings

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
_BY_STORE: Final[dict[str | type[Any], Callable[[Any], Any]]] = {
    Environment: lambda environment: (str(environment.paths.root), environment.store)
}


def kept(
    *, seconds: float | None = None, most: int = 2, by: Hashes | None = None, by_acts: bool = False
) -> Callable[[Callable[_P, _T]], CachedFunc[_P, _T]]:
    """Keep what a function returns for some seconds (None: for good), for all viewers of one environment.

    They share the value itself, so nobody may change it. Of the newest, as many as `most` are kept. With `by_acts`
    acts change it, so `forget` drops it.
    """
    keep = st.cache_resource(ttl=seconds, max_entries=most, show_spinner=False, hash_funcs={**_BY_STORE, **(by or {})})

    def keeping(read: Callable[_P, _T]) -> CachedFunc[_P, _T]:
        reader: CachedFunc[_P, _T] = keep(read)
        if by_acts:
            _BY_ACTS.append(reader)
        return reader

    return keeping


_BY_ACTS: Final[list[CachedFunc[..., Any]]] = []


def forget() -> None:
    """Read again what acts change: one was submitted."""
    for reader in _BY_ACTS:
        reader.clear()


def cached(
    query: Callable[Concatenate[OpenEnvironment, _P], _T],
    *,
    seconds: float | None = None,
    most: int = 2,
    by: Hashes | None = None,
    by_acts: bool = False,
) -> CachedFunc[Concatenate[Environment, _P], _T]:
    """Return an api's query for the environment on screen, its answers kept as by `kept`."""

    @functools.wraps(query)  # its module and name distinguish the cache
    def read(environment: Environment, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        return query(opened(environment), *args, **kwargs)

    return kept(seconds=seconds, most=most, by=by, by_acts=by_acts)(read)


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


fleet = cached(fleet_queries.read, seconds=2, by_acts=True)
"""All games and drivers with their judgement."""


@kept(seconds=5, most=100)
def game_trend(environment: Environment, game_key: str, seconds: float) -> Trend:
    """Read what the passes of the last `seconds` did for a game.

    Raises:
        Refused: there is no history to read.
    """
    return trends.game_trend(environment.paths, game_key, seconds)


def game_transitions(environment: Environment, game_key: str, seconds: float) -> pa.Table:
    """Read a game's changes of status in the last `seconds`, newest first, at most 5 s old.

    Raises:
        Refused: there is no history to read.
    """
    table = _transitions(environment, seconds)
    return table.filter(pc.equal(table["game_key"], game_key))


@kept(seconds=5, most=4)
def _transitions(environment: Environment, seconds: float) -> pa.Table:
    return trends.transitions(environment.paths, seconds)


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
