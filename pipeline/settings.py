"""One frozen tree of settings, read once from `<env-dir>/turnout.toml` and `TURNOUT_*` variables.

Everything wrong is reported in one message. Each field's comment is its entry in docs/settings.md.
"""

import dataclasses
import os
import re
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pipeline.errors import Refused
from pipeline.names import MAX_NAME_BYTES, is_game_name, is_securable_part
from pipeline.setting_values import (
    ISOLATION_LEVELS,
    hours_of,
    kafka_problems,
    may_be_secret,
    number,
    overlay,
    read_toml,
    shape,
    typed,
)

_T = typing.TypeVar("_T")
_ADDRESS: typing.Final = re.compile(r"https?://[A-Za-z0-9.:\[\]-]+(/[A-Za-z0-9._~/-]*)?")
_MISREAD: typing.Final = re.compile(r"%[0-9A-Fa-f]{2}|\\")
"""What delta-rs takes in a path for something else: escapes as in a URL, and Windows' separator."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where wrappers come from."""

    kind: Literal["delta", "kafka"] = "delta"  # `delta` reads the landing table, `kafka` a topic
    bootstrap_servers: str = "127.0.0.1:9092"  # Kafka brokers, comma separated
    topic: str = "turnout-events"  # the Kafka topic that carries the wrappers
    starting_offsets: str = "earliest"  # where a first start begins: earliest, latest or Spark's JSON
    kafka_options: Mapping[str, str] = field(default_factory=dict)  # more consumer options, JVM names

    @property
    def isolation_level(self) -> str:
        """What is read of transactions: what was committed, unless `kafka_options` ask for `read_uncommitted`."""
        given = {name.removeprefix("kafka."): value for name, value in self.kafka_options.items()}
        return given.get("isolation.level", ISOLATION_LEVELS[0])


@dataclass(frozen=True, slots=True)
class Ingest:
    """How wrappers become bronze."""

    trigger_seconds: float = 2.0  # time between two micro-batches
    max_rows: int = 200_000  # most rows of one micro-batch from Kafka
    max_bytes: str = "64m"  # soft limit of one micro-batch from the landing table
    bronze_files: int = 2  # files one micro-batch writes; a game's rows always share one


@dataclass(frozen=True, slots=True)
class Onboarding:
    """Which names become games without a registered schema and without a person, and how many."""

    names: tuple[str, ...] = ()  # exact names that are games
    prefixes: tuple[str, ...] = ()  # names that begin so become games when they come
    max_games: int = 2_000  # most games
    max_pending: int = 1_000  # most names that wait and are listed one by one
    max_new_per_prefix_per_hour: int = 10  # most games of each prefix within an hour


@dataclass(frozen=True, slots=True)
class Demux:
    """How bronze becomes one table per game."""

    trigger_seconds: float = 5.0  # time between two passes of a cluster group
    max_bytes: str = "64m"  # soft limit of bronze read by one pass
    catchup_seqs: int = 200  # most bronze commits one catch-up chunk reads
    checkpoint_interval: int = 20  # commits between two Delta checkpoints of a game table
    writer: Literal["direct", "spark"] = "direct"  # who commits to game tables: the driver itself, or Spark


@dataclass(frozen=True, slots=True)
class Spark:
    """The Spark session of every driver."""

    master: str = "local[2]"  # any Spark master
    driver_memory: str = "1g"  # heap of a driver
    conf: Mapping[str, str] = field(default_factory=dict)  # more Spark settings, applied last


@dataclass(frozen=True, slots=True)
class Store:
    """The control store."""

    url: str = ""  # SQLAlchemy URL; empty means `control.db` in the environment's folder
    leases: bool = True  # whether a driver runs only while no other process is the same driver
    lease_seconds: float = 30.0  # after so long without a renewal another process may take over what a driver does


@dataclass(frozen=True, slots=True)
class Placement:
    """Which cluster group carries which game; how many each carries follows from their load."""

    max_games_per_group: int = 1_000  # no group is given more, however little they cost
    evacuate_after_minutes: float = 10.0  # a group that has been dead so long is relieved of its games; 0 is never
    restart_hung_after_minutes: float = 5.0  # a driver whose process lives and is silent so long is killed; 0 is never


@dataclass(frozen=True, slots=True)
class Metrics:
    """How health is exported."""

    bind: str = "127.0.0.1"  # address the /metrics servers listen on
    push_gateway: str = ""  # address of a Pushgateway to push to as well; empty means none
    flush_seconds: float = 10.0  # time between two writes of the metrics tables
    latency_objective_seconds: float = 60.0  # source time to table commit, per stream
    heartbeat_seconds: float = 5.0  # time between two heartbeats of a driver


@dataclass(frozen=True, slots=True)
class Dashboard:
    """The Streamlit app."""

    port: int = 8501  # where the dashboard listens
    refresh_seconds: float = 5.0  # how often a page reads again
    url: str = ""  # address that people's browsers open, for links in alerts; empty means this machine's

    @property
    def address(self) -> str:
        """The dashboard's address, to which a page's path is added."""
        return self.url.rstrip("/") or f"http://127.0.0.1:{self.port}"


@dataclass(frozen=True, slots=True)
class Maintenance:
    """How tables are kept small and quick to read."""

    backend: Literal["none", "local"] = "local"  # who runs it: the controller, as a process beside it, or not turnout
    interval_minutes: float = 15.0  # time between two rounds
    hours: str = ""  # the hours of the day, in UTC, in which tables are worked on, such as `22-6`; empty is all
    small_files: int = 10  # fewest small files of a table that are merged
    bronze_commits: int = 1_000  # fewest bronze commits that are sorted into one run
    bronze_age_minutes: float = 60.0  # younger bronze files are left alone
    run_megabytes: int = 512  # most bytes of one run of bronze or quarantine
    file_megabytes: int = 32  # about how large merged files become
    file_retention_hours: float = 168.0  # files that are in no table are kept so long
    log_retention_hours: float = 720.0  # Delta versions are kept so long at most
    log_megabytes: int = (
        40  # a table's log on disk; its oldest versions go before it is larger, but none of the last hour
    )


@dataclass(frozen=True, slots=True)
class Roles:
    """Who may steer; where both are empty, all who reach the environment."""

    operators: tuple[str, ...] = ()  # may pause, resume, retry, replay, rebuild and restart
    movers: tuple[str, ...] = ()  # may do that, and change who carries what
    access_admins: tuple[str, ...] = ()  # may give and take access to games' tables, and decide about requests


@dataclass(frozen=True, slots=True)
class Access:
    """Who may read the tables of games, and which catalog keeps it."""

    catalog: Literal["embedded", "unity", "databricks"] = "embedded"  # `embedded` is a server of turnout's own
    catalog_name: str = "turnout"  # the catalog the tables of games lie in
    schema_name: str = "games"  # its schema; turnout never touches another one
    port: int = 8810  # where the embedded catalog listens, on loopback
    refresh_seconds: float = 30.0  # time between two looks of the controller at the whole catalog
    reads_per_second: float = 10.0  # most reads from a catalog that is not the embedded one
    max_grant_days: float = 180.0  # longest time for which access can be given that ends by itself
    allow_everyone: bool = False  # whether `account users`, that is everybody, may be given access
    identities: Mapping[str, str] = field(default_factory=dict)  # actor → principal, where the two differ
    members_file: str = ""  # unity: YAML file with who is in which group, since such a server knows none
    warehouse: str = ""  # databricks: id of a SQL warehouse, for grants by SQL and for trying to read
    sql_grants: bool = False  # databricks: whether grants are SQL on the warehouse instead of REST
    probe_principal: str = ""  # databricks: whose token DATABRICKS_PROBE_TOKEN is


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of one environment."""

    environment: str = "local"  # name of the environment; part of every transaction id
    source: Source = field(default_factory=Source)
    ingest: Ingest = field(default_factory=Ingest)
    onboarding: Onboarding = field(default_factory=Onboarding)
    demux: Demux = field(default_factory=Demux)
    spark: Spark = field(default_factory=Spark)
    store: Store = field(default_factory=Store)
    placement: Placement = field(default_factory=Placement)
    metrics: Metrics = field(default_factory=Metrics)
    dashboard: Dashboard = field(default_factory=Dashboard)
    maintenance: Maintenance = field(default_factory=Maintenance)
    roles: Roles = field(default_factory=Roles)
    access: Access = field(default_factory=Access)


@dataclass(frozen=True, slots=True)
class Paths:
    """Where one environment keeps its state; everything lies below `root`."""

    root: Path

    @property
    def settings_file(self) -> Path:
        """The optional TOML file with settings."""
        return self.root / "turnout.toml"

    @property
    def landing(self) -> Path:
        """The Delta landing table, the embedded source."""
        return self.root / "landing"

    @property
    def bronze(self) -> Path:
        """The bronze table."""
        return self.root / "bronze"

    @property
    def quarantine(self) -> Path:
        """The quarantine table."""
        return self.root / "quarantine"

    @property
    def tables(self) -> Path:
        """The folder of the game tables."""
        return self.root / "tables"

    def table(self, key: str) -> Path:
        """The table of one game."""
        return self.tables / key

    @property
    def metrics(self) -> Path:
        """The folder of the metrics tables."""
        return self.root / "metrics"

    @property
    def checkpoints(self) -> Path:
        """The folder of Spark checkpoints and schema-set pins."""
        return self.root / "checkpoints"

    @property
    def logs(self) -> Path:
        """The folder of process logs."""
        return self.root / "logs"

    @property
    def targets(self) -> Path:
        """The folder of Prometheus target files, one per process."""
        return self.root / "targets"

    @property
    def catalog(self) -> Path:
        """The folder of the embedded catalog."""
        return self.root / "catalog"

    @property
    def dashboard_token(self) -> Path:
        """The file with the token of the URL that was printed for the dashboard."""
        return self.root / "dashboard.token"

    @property
    def control_db(self) -> Path:
        """The SQLite control store used when no URL is set."""
        return self.root / "control.db"


def load(env_dir: Path, environ: Mapping[str, str] | None = None) -> tuple[Settings, Paths]:
    """Read the settings of an environment.

    A variable `TURNOUT_INGEST__TRIGGER_SECONDS` overrides `trigger_seconds` in the table `[ingest]`.

    Raises:
        Refused: naming every wrong setting, each with what was expected.
    """
    problems: list[str] = []
    try:
        paths = Paths(env_dir.resolve())
        tree = read_toml(paths.settings_file)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise Refused(
            f"The settings of {env_dir} cannot be read: {reason}. Name another folder with --env-dir."
        ) from error
    if (sign := _MISREAD.search(str(paths.root))) is not None:
        raise Refused(
            f"{paths.root} cannot be an environment: what reads tables takes {sign.group()} in a path for another "
            "sign. Name another folder with --env-dir."
        )
    overlay(tree, os.environ if environ is None else environ, problems)
    settings = _build(Settings, tree, "", problems)
    if not problems:
        problems = _check(settings)
    if problems:
        lines = "\n".join(f"  - {problem}" for problem in problems)
        raise Refused(
            f"{len(problems)} wrong setting(s), correct them in {paths.settings_file} or the environment:\n{lines}"
        )
    return settings, paths


def _build(cls: type[_T], tree: Mapping[str, Any], prefix: str, problems: list[str]) -> _T:
    hints = typing.get_type_hints(cls)
    values: dict[str, Any] = {}
    known = ", ".join(sorted(hints))
    problems += [
        f"{prefix}{name}: no such setting; known here are {known}" for name in sorted(tree.keys() - hints.keys())
    ]
    for name in hints.keys() & tree.keys():
        kind, raw = hints[name], tree[name]
        if dataclasses.is_dataclass(kind) and isinstance(kind, type):
            if isinstance(raw, Mapping):
                values[name] = _build(kind, raw, f"{prefix}{name}.", problems)
            else:
                problems.append(f"{prefix}{name}: expected a table of settings, got {shape(raw)}")
            continue
        try:
            values[name] = typed(kind, raw)
        except ValueError as error:
            got = shape(raw) if may_be_secret(name, kind, raw) else repr(number(raw))
            problems.append(f"{prefix}{name}: expected {error}, got {got}")
    return cls(**values)


def _check(settings: Settings) -> list[str]:
    problems = []
    for name, low, high in _RANGES:
        section, _, leaf = name.partition(".")
        value = getattr(getattr(settings, section), leaf)
        if not low <= value <= high:
            problems.append(f"{name}: expected a value from {low:g} to {high:g}, got {number(value)}")
    if not settings.environment.replace("-", "").replace("_", "").isalnum():
        problems.append(f"environment: expected letters, digits, '-' and '_', got {settings.environment!r}")
    problems += [
        f"onboarding.{leaf}: expected 1 to {MAX_NAME_BYTES} bytes without NUL, got {text!r}"
        for leaf in ("names", "prefixes")
        for text in getattr(settings.onboarding, leaf)
        if not is_game_name(text)
    ]
    if settings.access.sql_grants and not settings.access.warehouse:
        problems.append("access.warehouse: expected the id of a SQL warehouse where access.sql_grants is true, got ''")
    if settings.demux.writer == "spark" and not settings.store.leases:
        problems.append("demux.writer: expected 'direct' where store.leases is false, got 'spark', which needs them")
    problems += [
        f"access.{leaf}: expected 1 to 255 letters, digits, '-' and '_', got {text!r}"
        for leaf in ("catalog_name", "schema_name")
        if not is_securable_part(text := getattr(settings.access, leaf))
    ]
    if hours_of(settings.maintenance.hours) is None:
        problems.append(f"maintenance.hours: expected two hours such as '22-6', got {settings.maintenance.hours!r}")
    if "@" in settings.metrics.push_gateway:
        problems.append("metrics.push_gateway: expected an address without a user and a password (not shown)")
    if settings.dashboard.url and not _ADDRESS.fullmatch(settings.dashboard.url):
        problems.append("dashboard.url: expected an address such as https://turnout.example.com (not shown)")
    if settings.source.kind == "kafka":
        problems += kafka_problems(settings.source.topic, settings.source.isolation_level)
    return problems


_RANGES: tuple[tuple[str, float, float], ...] = (
    ("ingest.trigger_seconds", 0.1, 3600),
    ("ingest.max_rows", 1, 10_000_000),
    ("ingest.bronze_files", 1, 1024),
    ("onboarding.max_games", 1, 100_000),
    ("onboarding.max_pending", 1, 10_000),
    ("onboarding.max_new_per_prefix_per_hour", 0, 10_000),
    ("demux.trigger_seconds", 0.1, 3600),
    ("demux.catchup_seqs", 1, 100_000),
    ("demux.checkpoint_interval", 1, 1000),
    ("store.lease_seconds", 1, 3600),
    ("placement.max_games_per_group", 1, 100_000),
    ("placement.evacuate_after_minutes", 0, 10_080),
    ("placement.restart_hung_after_minutes", 0, 10_080),
    ("metrics.flush_seconds", 0.5, 3600),
    ("metrics.latency_objective_seconds", 0.1, 86_400),
    ("metrics.heartbeat_seconds", 0.5, 30),
    ("dashboard.port", 1, 65_535),
    ("dashboard.refresh_seconds", 1, 3600),
    ("access.port", 1, 65_535),
    ("access.refresh_seconds", 1, 3600),
    ("access.reads_per_second", 0.1, 1000),
    ("access.max_grant_days", 0.01, 3650),
    ("maintenance.interval_minutes", 1, 1440),
    ("maintenance.small_files", 2, 10_000),
    ("maintenance.bronze_commits", 2, 100_000),
    ("maintenance.bronze_age_minutes", 1, 100_000),
    ("maintenance.run_megabytes", 1, 100_000),
    ("maintenance.file_megabytes", 1, 1024),
    ("maintenance.file_retention_hours", 24, 168),
    ("maintenance.log_retention_hours", 24, 87_600),
    ("maintenance.log_megabytes", 1, 100_000),
)
