"""One frozen tree of settings, read once from `<env-dir>/turnout.toml` and `TURNOUT_*` variables.

Everything wrong is reported in one message. Each field's docstring is its entry in docs/settings.md.
"""

import dataclasses
import os
import re
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pipeline.base.errors import Refused, StorageError
from pipeline.base.names import is_securable_part, parted_table_key
from pipeline.lake.storage.location import Location
from pipeline.lake.storage.places import is_url, located
from pipeline.settings.access import Access
from pipeline.settings.alerts import AlertSettings, alert_problems
from pipeline.settings.books import BooksSettings
from pipeline.settings.derived import Derived
from pipeline.settings.edge import EdgeSettings
from pipeline.settings.maintenance import Maintenance
from pipeline.settings.parsing import (
    Range,
    hours_of,
    may_be_secret,
    named_tables,
    number,
    overlay,
    parse_toml,
    quoted,
    ranges_of,
    shape,
    typed,
    unknown_names,
)
from pipeline.settings.registries import RegistrySettings, registry_problems
from pipeline.settings.source import Source, sources_problems
from pipeline.settings.storage import Storage, read_link, read_settings, require_place, storage_problems
from pipeline.settings.through import ThroughSettings, through_problems
from pipeline.settings.undeclared import Undeclared

_T = typing.TypeVar("_T")
_ADDRESS: typing.Final = re.compile(r"https?://[A-Za-z0-9.:\[\]-]+(/[A-Za-z0-9._~/-]*)?")
_MISREAD: typing.Final = re.compile(r"%[0-9A-Fa-f]{2}|\\")
"""Characters in a path that delta-rs misreads: escapes as in a URL, and Windows' separator."""


@dataclass(frozen=True, slots=True)
class Ingest:
    """How wrappers become bronze."""

    trigger_seconds: Annotated[float, Range(0.1, 3600)] = 2.0
    """Time between two micro-batches. Each micro-batch is one bronze commit. With rows it is one seq, or several
    above 128 MiB. For a landing table, ingest looks for the next commit ten times in it, at most each 0.1 s in a folder
    and each second in a bucket; a micro-batch begins as soon as one is there and the time is over."""

    max_rows: Annotated[int, Range(1, 10_000_000)] = 200_000
    """Most rows of one micro-batch from Kafka. One task writes it in slices of at most 128 MiB, each a seq of its
    own, and holds one slice in memory at a time."""

    max_bytes: str = "64m"
    """Soft limit of one micro-batch from the landing table, in bytes or with `k`, `m` or `g`. Ingest always reads at
    least one file, whatever its size."""

    bronze_files: Annotated[int, Range(1, 1024)] = 2
    """Most files that one micro-batch, or one slice of a large one, writes into bronze. One file holds all rows of a
    game in one seq, so this also limits the tasks of a pass per seq. See docs/decisions/0004-one-ingest-task.md."""


@dataclass(frozen=True, slots=True)
class Onboarding:
    """Limits of the names that become games.

    A person registers or approves them, or writes a rule for them: see steering.md. Ingest refuses rows of all
    other names as `unknown_game`.
    """

    max_games: Annotated[int, Range(1, 100_000)] = 2_000
    """Most games. Prefixes of rules create at most half of them, which leaves room for registered, listed and approved
    names during a flood."""

    max_pending: Annotated[int, Range(1, 10_000)] = 1_000
    """Most unknown names that `turnout games pending` lists one by one. turnout only estimates the number of the
    rest."""


@dataclass(frozen=True, slots=True)
class Demux:
    """How bronze becomes one table per game."""

    trigger_seconds: Annotated[float, Range(0.1, 3600)] = 5.0
    """Time between the beginnings of two passes of a cluster group, on average. With the reader `direct` a pass may
    begin an eighth of it earlier, until passes follow bronze's commits where those have the same rhythm."""

    reader: Literal["spark", "direct"] = "direct"
    """What chooses the rows of a pass. With `direct`, the driver looks for the next commit by name, ten times in
    `demux.trigger_seconds`, but at most each 0.1 s in a folder and each second in a bucket, and tasks read the files.
    A pass begins as soon as a commit is there and `demux.trigger_seconds` are over. With `spark`, Delta's streaming
    source plans each batch, and Spark hands its rows to Python. `direct` needs Spark 4.2 and a bronze without deletion
    vectors or mapped columns; else passes, and always `--once` and games that have a query of their own, read by
    `spark`. A group reads on after a change. See
    docs/decisions/0076-passes-read-the-end-of-the-log.md."""

    max_bytes: str = "64m"
    """Soft limit of the bronze that one pass reads, in bytes or with `k`, `m` or `g`. A pass always reads at least
    one file."""

    catchup_seqs: Annotated[int, Range(1, 100_000)] = 200
    """Most bronze commits in one chunk of catch-up. A nearly level game waits only for the running chunk: fewer
    commits shorten that wait and cost more commits per table after an outage."""

    checkpoint_interval: Annotated[int, Range(1, 1000)] = 20
    """Fewest commits between two Delta checkpoints of a game's table. A checkpoint above 32 kB also waits until the
    commits since the last one are as large. Fewer checkpoints cost readers time, more cost the writer time. A
    table that the `spark` writer creates keeps its first number."""

    writer: Literal["direct", "spark"] = "direct"
    """What commits to game tables. With `direct`, tasks write into the tables' folders and the driver commits: fast,
    and two owners never double a row. With `spark`, Spark appends from a staging folder, for tables that only Spark may
    write; each commit costs many times more, and `store.leases` must be on. A table continues under the new writer
    after a change. See docs/decisions/0008-the-spark-writer.md."""


@dataclass(frozen=True, slots=True)
class Spark:
    """The Spark session of every driver."""

    master: str = "local[2]"
    """The Spark master of every driver. On Databricks a driver takes the session of its cluster, and this setting and
    `spark.driver_memory` do nothing. Executors elsewhere must see the environment's folder under the same path, or
    reach its bucket: see docs/storage.md. With a master that is not local, put the cluster's `spark.authenticate` and
    `spark.authenticate.secret` into `spark.conf`: without them everyone who reaches a driver's ports controls it."""

    driver_memory: str = "1g"
    """Heap of each driver's Java process, in bytes or with `m` or `g`. With a local master the Python workers need
    more on top."""

    conf: Mapping[str, str] = field(default_factory=dict)
    """More Spark settings, which win over those of `pipeline/platforms/session/spark.py`. They may hold secrets:
    turnout passes them in memory, on a Mac in a file that only its owner reads. `spark.driver.extraJavaOptions` remains
    visible on the Java process's command line. On Databricks a driver sets those of SQL in the running session; the
    others belong into the cluster's `spark_conf`, and a driver logs those that it lacks."""


@dataclass(frozen=True, slots=True)
class Store:
    """The control store."""

    url: str = ""
    """SQLAlchemy URL of the control store. Empty means the SQLite file `control.db` in the environment's folder.
    PostgreSQL: `postgresql+psycopg://USER@HOST/DATABASE`, with the password in `PGPASSWORD` or a password file.
    Lakebase: `lakebase://projects/PROJECT/branches/BRANCH/endpoints/ENDPOINT/DATABASE`, or the endpoint's path alone,
    as an App's `valueFrom` gives it; the password is a token of the workspace, renewed by turnout, and `PGHOST`,
    `PGPORT`, `PGDATABASE`, `PGUSER` and `PGSSLMODE` win over what the workspace says. See docs/deploy/lakebase.md.
    Another SQLite file: `sqlite:////folder/control.db`; turnout refuses one in memory or with a URI (`file:`). The
    first process of a newer turnout migrates the store in one transaction, so its user must be allowed to create
    tables: as a member of the role `turnout_owner`, where the server has that. turnout refuses the store of a newer
    version or of a build before version 0.1. SQLite must be 3.37 or newer. The database refuses values of a wrong
    type or an unknown state; each process refuses, at its start, an SQLite file with such a value from another
    tool, and names the row."""

    leases: bool = True
    """Whether a lease keeps a second process of the same driver, and a second owner of a game, from starting. Rows
    land exactly once without leases too, except with `demux.writer = "spark"`, which requires them. `false` serves
    tests."""

    lease_seconds: Annotated[float, Range(1, 3600)] = 30.0
    """After this time without a renewal, by the control store's clock, another process may take over. A driver renews
    three times as often. turnout replaces a killed driver of the same machine at once."""


@dataclass(frozen=True, slots=True)
class PlacementSettings:
    """Which cluster group carries which game. Measured load decides how many each carries: see docs/steering.md."""

    max_games_per_group: Annotated[int, Range(1, 100_000)] = 1_000
    """Most games of one group, however little they cost. Below it the group's capacity and the games' cost decide. A
    game that fits nowhere waits for a group."""

    evacuate_after_minutes: Annotated[float, Range(0, 10_080)] = 10.0
    """After this time without a driver, despite tries to start one or where turnout starts none, the controller
    evacuates a group once: it moves the games to groups with room. 0 means never. See
    docs/steering.md#evacuation-of-a-dead-group."""

    restart_hung_after_minutes: Annotated[float, Range(0, 10_080)] = 5.0
    """After this time without a heartbeat the controller kills a driver whose process still lives, and restarts it
    where it runs the group. A start may take as long. 0 means never. See docs/steering.md."""


@dataclass(frozen=True, slots=True)
class Metrics:
    """How drivers export health."""

    bind: str = "127.0.0.1"
    """Address on which each driver serves `/metrics`. The system chooses the port; `<env-dir>/targets` names it."""

    push_gateway: str = ""
    """Address of a Pushgateway that each driver also pushes to. Empty means none. turnout refuses an address with a
    user and a password, which would appear in logs."""

    serve_port: Annotated[int, Range(1, 65_535)] = 9611
    """Port on which `turnout metrics serve` answers for all drivers."""

    otlp_endpoint: str = ""
    """Address of an OTLP endpoint without `/v1/metrics`, http or https. Each driver and `turnout metrics serve` send
    their metrics there every 15 seconds, as OTLP/HTTP in JSON. Empty means none. turnout refuses an address with a user
    and a password; secrets belong into the variable `OTEL_EXPORTER_OTLP_HEADERS`. See docs/metrics.md."""

    flush_seconds: Annotated[float, Range(0.5, 3600)] = 10.0
    """Time between two writes of the metrics tables."""

    latency_objective_seconds: Annotated[float, Range(0.1, 86_400)] = 60.0
    """Latency that each stream should keep, from the source time to the game table's commit. Status and alerts follow
    it, including those about rows that wait in the source."""

    heartbeat_seconds: Annotated[float, Range(0.5, 30)] = 5.0
    """Time between two heartbeats of a driver and between two evaluations of its streams. A driver is unknown after
    three missed heartbeats and at least 15 seconds."""


@dataclass(frozen=True, slots=True)
class Dashboard:
    """The Streamlit app."""

    port: Annotated[int, Range(1, 65_535)] = 8501
    """Port of the dashboard, on 127.0.0.1 only. A change needs a restart. A Databricks App uses the platform's port.
    See docs/dashboard.md."""

    refresh_seconds: Annotated[float, Range(1, 3600)] = 5.0
    """How often an open page reads again."""

    url: str = ""
    """Address under which browsers reach the dashboard, http or https, without user, password and query. Alerts link
    to it. Empty means `http://127.0.0.1:` and `dashboard.port`. Generate the alert rules again after a change: see
    docs/alerts.md."""

    @property
    def address(self) -> str:
        """The dashboard's address, to which a page's path is added."""
        return self.url.rstrip("/") or f"http://127.0.0.1:{self.port}"


@dataclass(frozen=True, slots=True)
class Roles:
    """Who may do what.

    Names are users of the system that run a command or the dashboard; `group:NAME` is everyone in that group of the
    catalog (`access.identities` maps users to principals). In a Databricks App names are e-mail addresses, compared
    without case. Where all lists are empty, anyone who reaches the environment may do everything; in a Databricks App
    everybody may only look. turnout checks roles at the request, and the controller again when it begins. Roles do not
    bind those who can write the control store or the settings.
    """

    operators: tuple[str, ...] = ()
    """They may pause, resume, retry, replay, dedupe, rebuild and restart, approve and reject names of games, register
    schemas and approve those of others, apply output contracts and derived streams, trust registries, switch own
    queries, accept gaps, adopt sources and revoke producers of the edge. An operation's kind also decides who may
    resume, close and cancel it."""

    movers: tuple[str, ...] = ()
    """They may do what operators may, and also move and retire games, apply onboarding rules and producers of the
    edge, and start, stop, create and change groups."""

    access_admins: tuple[str, ...] = ()
    """They may grant and revoke access to games' tables, decide about requests, and add users to the embedded catalog.
    No other role includes this one."""


@dataclass(frozen=True, slots=True)
class Schemas:
    """How people register schemas: see docs/schemas.md."""

    second_person: bool = False
    """Whether a second person must approve a registration that has a breaking change. Schemas that come from a registry
    need nobody: what would break a game's table goes to quarantine."""


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of one environment."""

    environment: str = "local"
    """The environment's name: letters, digits, `-` and `_`. Every transaction id in the tables contains it, so it must
    not change while its tables are in use. Ingest, its adoption and the drivers of groups refuse a bronze that was
    written under another name, and change nothing."""

    storage: Storage = field(default_factory=Storage)
    source: Source = field(default_factory=Source)
    ingest: Ingest = field(default_factory=Ingest)
    onboarding: Onboarding = field(default_factory=Onboarding)
    undeclared: Undeclared = field(default_factory=Undeclared)
    demux: Demux = field(default_factory=Demux)
    derived: Derived = field(default_factory=Derived)
    books: BooksSettings = field(default_factory=BooksSettings)
    spark: Spark = field(default_factory=Spark)
    store: Store = field(default_factory=Store)
    placement: PlacementSettings = field(default_factory=PlacementSettings)
    metrics: Metrics = field(default_factory=Metrics)
    dashboard: Dashboard = field(default_factory=Dashboard)
    alerts: AlertSettings = field(default_factory=AlertSettings)
    edge: EdgeSettings = field(default_factory=EdgeSettings)
    through: ThroughSettings = field(default_factory=ThroughSettings)
    maintenance: Maintenance = field(default_factory=Maintenance)
    roles: Roles = field(default_factory=Roles)
    schemas: Schemas = field(default_factory=Schemas)
    access: Access = field(default_factory=Access)
    registries: Mapping[str, RegistrySettings] = field(default_factory=dict)
    sources: Mapping[str, Source] = field(default_factory=dict)

    @property
    def every_source(self) -> Mapping[str, Source]:
        """The sources by name: those of `[sources.NAME]`, or the one of `[source]`, without a name."""
        return self.sources or {"": self.source}


@dataclass(frozen=True, slots=True)
class Paths:
    """Where one environment keeps its state."""

    root: Path
    """This machine's folder: settings, locks, logs, tokens, the SQLite store, Spark's work and what only repeats
    tables."""

    storage: str = ""
    """The URL below which the tables are; empty: `root`."""

    @property
    def data(self) -> Location:
        """Root of all that must outlive a machine: tables and ingest's checkpoints."""
        return located(self.storage or self.root)

    @property
    def settings_file(self) -> Location:
        """The optional TOML file with settings: beside the tables where `--env-dir` is a URL."""
        return located(read_link(self.root) or self.root) / "turnout.toml"

    @property
    def landing(self) -> Location:
        """The Delta landing table, the embedded source."""
        return self.data / "landing"

    @property
    def bronze(self) -> Location:
        """The bronze table."""
        return self.data / "bronze"

    @property
    def quarantine(self) -> Location:
        """The quarantine table."""
        return self.data / "quarantine"

    @property
    def through(self) -> Location:
        """The table of times up to which bronze has all of its source."""
        return self.data / "through"

    @property
    def tables(self) -> Location:
        """The folder of the game tables."""
        return self.data / "tables"

    def table(self, key: str) -> Location:
        """The table of one game."""
        return self.tables / key

    def named(self, key: str) -> Location:
        """The table of a catalog's key: one game's, or a silver or gold one."""
        parts = parted_table_key(key)
        return self.table(key) if parts is None else self.data / parts[0] / parts[1]

    @property
    def silver(self) -> Location:
        """The folder of the silver tables."""
        return self.data / "silver"

    @property
    def gold(self) -> Location:
        """The folder of the gold tables."""
        return self.data / "gold"

    @property
    def closings(self) -> Location:
        """The folder of the tables with the closing seqs of gold tables' windows."""
        return self.data / "closings"

    @property
    def books(self) -> Location:
        """The ledger of closed days."""
        return self.data / "books"

    def closed(self, key: str) -> Location:
        """The table of one game's closed days."""
        return self.closed_days / key

    @property
    def closed_days(self) -> Location:
        """The folder of the tables of closed days."""
        return self.data / "closed"

    @property
    def metrics(self) -> Location:
        """The folder of the metrics tables."""
        return self.data / "metrics"

    @property
    def ingest(self) -> Location:
        """The folder of ingest's checkpoints, by generation, without which it must be adopted."""
        return self.data / "checkpoints" / "ingest"

    @property
    def checkpoints(self) -> Path:
        """The folder of the checkpoints of drivers of groups, which they do without: the cursors are in the tables."""
        return self.root / "checkpoints"

    @property
    def logs(self) -> Path:
        """The folder of process logs."""
        return self.root / "logs"

    @property
    def targets(self) -> Path:
        """The folder of Prometheus target files, one per process."""
        return self.root / "targets"

    def target(self, kind: str, name: str) -> Path:
        """Return the Prometheus target file of one process."""
        return self.targets / f"{kind}-{name}.json"

    @property
    def catalog(self) -> Path:
        """The folder of the embedded catalog."""
        return self.root / "catalog"

    @property
    def dashboard_token(self) -> Path:
        """The file with the token of the dashboard's printed URL."""
        return self.root / "dashboard.token"

    @property
    def break_it(self) -> Path:
        """The file by which a running demo offers its faults to the user who started it."""
        return self.root / "break-it.json"

    @property
    def spark(self) -> Path:
        """The folder of the local folders of Spark sessions, one for each process."""
        return self.root / "spark"

    @property
    def control_db(self) -> Path:
        """The default SQLite control store."""
        return self.root / "control.db"


def load(env_dir: Path, environ: Mapping[str, str] | None = None) -> tuple[Settings, Paths]:
    """Read the settings of an environment.

    A variable `TURNOUT_INGEST__TRIGGER_SECONDS` overrides `trigger_seconds` in the table `[ingest]`.

    Raises:
        Refused: naming every wrong setting, each with what was expected.
    """
    problems: list[str] = []
    require_place(env_dir)
    try:
        paths = Paths(env_dir.resolve(), read_link(env_dir))
        tree = parse_toml(read_settings(paths.settings_file, env_dir), paths.settings_file)
    except StorageError as error:
        raise Refused(f"The settings cannot be read. {error}. `turnout doctor` tries the store.") from error
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise Refused(
            f"The settings of {env_dir} cannot be read: {reason}. Name another folder with --env-dir."
        ) from error
    if (sign := _MISREAD.search(str(paths.root))) is not None:
        raise Refused(
            f"{paths.root} cannot be an environment: delta-rs misreads {sign.group()} in a path. Name another folder "
            f"with --env-dir."
        )
    overlay(tree, os.environ if environ is None else environ, problems)
    settings = _build(Settings, tree, "", problems)
    if not problems:
        problems = _check(settings) + storage_problems(
            settings.storage, paths.storage, settings.demux.writer, settings.store.url
        )
    if not problems:
        paths = replace(paths, storage=settings.storage.root.rstrip("/") or paths.storage)
        problems = _own_landing(settings, paths)
    if problems:
        lines = "\n".join(f"  - {problem}" for problem in problems)
        raise Refused(
            f"{len(problems)} wrong setting(s), correct them in {paths.settings_file} or the environment:\n{lines}"
        )
    return settings, paths


def _own_landing(settings: Settings, paths: Paths) -> list[str]:
    """Return the sources that name the environment's landing table by its path: its rows would have two names."""
    landing = _resolved(paths.landing)
    return [
        f"{f'sources.{name}' if name else 'source'}.path: expected none for the landing table of the environment, got "
        f"{quoted(source.path)}"
        for name, source in settings.every_source.items()
        if source.path and _resolved(located(source.path)) == landing
    ]


def _resolved(place: Location) -> str:
    text = str(place)
    return text if is_url(text) else str(Path(text).resolve())


def _build(cls: type[_T], tree: Mapping[str, Any], prefix: str, problems: list[str]) -> _T:
    hints = typing.get_type_hints(cls)
    values: dict[str, Any] = {}
    problems += unknown_names(tree, hints, prefix)
    for name in hints.keys() & tree.keys():
        kind, raw = hints[name], tree[name]
        if dataclasses.is_dataclass(kind) and isinstance(kind, type):
            values[name] = _table(kind, raw, f"{prefix}{name}", problems)
            continue
        if (inside := named_tables(kind)) is not None:
            named = raw if isinstance(raw, Mapping) else {}
            if named is not raw:
                problems.append(f"{prefix}{name}: expected tables of settings by name, got {shape(raw)}")
            values[name] = {
                each: _table(inside, below, f"{prefix}{name}.{each}", problems) for each, below in named.items()
            }
            continue
        try:
            values[name] = typed(kind, raw)
        except ValueError as error:
            got = shape(raw) if may_be_secret(name, kind, raw) else quoted(number(raw))
            problems.append(f"{prefix}{name}: expected {error}, got {got}")
    return cls(**values)


def _table(cls: type[_T], raw: Any, place: str, problems: list[str]) -> _T:
    if isinstance(raw, Mapping):
        return _build(cls, raw, f"{place}.", problems)
    problems.append(f"{place}: expected a table of settings, got {shape(raw)}")
    return cls()


def _tables(settings: Settings) -> Iterator[tuple[str, Any]]:
    """Yield each table of settings with its name."""
    for section, kind in typing.get_type_hints(Settings).items():
        table = getattr(settings, section)
        if dataclasses.is_dataclass(kind):
            yield section, table
        elif named_tables(kind) is not None:
            yield from ((f"{section}.{name}", each) for name, each in table.items())


def _check(settings: Settings) -> list[str]:
    problems = []
    for section, table in _tables(settings):
        for leaf, limits in ranges_of(type(table)):
            value = getattr(table, leaf)
            if not limits.low <= value <= limits.high:
                problems.append(f"{section}.{leaf}: expected a value from {limits}, got {number(value)}")
    if not settings.environment.replace("-", "").replace("_", "").isalnum():
        problems.append(f"environment: expected letters, digits, '-' and '_', got {quoted(settings.environment)}")
    if settings.access.sql_grants and not settings.access.warehouse:
        problems.append("access.warehouse: expected the id of a SQL warehouse where access.sql_grants is true, got ''")
    if settings.demux.writer == "spark" and not settings.store.leases:
        problems.append("demux.writer: expected 'direct' where store.leases is false, got 'spark', which needs them")
    problems += [
        f"access.{leaf}: expected 1 to 255 letters, digits, '-' and '_', got {quoted(text)}"
        for leaf in ("catalog_name", "schema_name")
        if not is_securable_part(text := getattr(settings.access, leaf))
    ]
    if hours_of(settings.maintenance.hours) is None:
        problems.append(
            f"maintenance.hours: expected two hours such as '22-6', got {quoted(settings.maintenance.hours)}"
        )
    if "@" in settings.metrics.push_gateway:
        problems.append("metrics.push_gateway: expected an address without a user and a password (not shown)")
    endpoint = settings.metrics.otlp_endpoint
    if endpoint and not _ADDRESS.fullmatch(endpoint):
        problems.append(
            "metrics.otlp_endpoint: expected an address such as https://otlp.example.com:4318 without a user, a "
            "password and a query (not shown); secrets belong into OTEL_EXPORTER_OTLP_HEADERS"
        )
    if settings.dashboard.url and not _ADDRESS.fullmatch(settings.dashboard.url):
        problems.append("dashboard.url: expected an address such as https://turnout.example.com (not shown)")
    problems += [*alert_problems(settings.alerts), *through_problems(settings.through)]
    return problems + registry_problems(settings.registries) + sources_problems(settings.source, settings.sources)
