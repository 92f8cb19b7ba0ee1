"""`turnout demo`: everything on one machine, live until Ctrl-C, or one bounded run that ends with the proof."""

import itertools
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pipeline.base.actor import current_user
from pipeline.base.names import shown
from pipeline.base.terminal import say_json, say_lines
from pipeline.control.present import DEMO, note
from pipeline.data.contracts.registry import LocalRegistry
from pipeline.data.output_contracts.rules import REASON
from pipeline.data.verify.balance import Balance
from pipeline.data.verify.balance import verify as prove
from pipeline.data.verify.report import as_dict
from pipeline.data.verify.values import Wanted as Values
from pipeline.demo import behind_edge, books, claim, dashboard, monitoring, newcomer
from pipeline.demo.broker import Broker
from pipeline.demo.framings import by_type
from pipeline.demo.framings.supported import FOREIGN, WRAPPER, RegistryAddress, check_framings
from pipeline.demo.heard import Hearing
from pipeline.demo.object_storage import VARIABLES, export
from pipeline.demo.registry import Registry
from pipeline.demo.simulate import PARTITIONS, send
from pipeline.demo.simulator import Event, game_names
from pipeline.health.facts.placing import placing_by
from pipeline.lake.kafka.producer import ensure_topic
from pipeline.platforms.local.child_processes import Children, turnout
from pipeline.platforms.local.signals import STOP_SECONDS, stop_on_signals
from pipeline.settings.tree import Paths, Settings, load
from pipeline.store.backends import backend_kind
from pipeline.store.database.engine import open_store
from pipeline.store.games import generations, register_group, retired_games
from pipeline.store.groups import change, read_groups

GROUPS = ("a", "b")
SOURCE_VARIABLES = "source.env"
"""The file of variables for other terminals, in the environment's folder, of what the settings do not have."""
ADMINS = ("ada@demo", "ben@demo")
"""People as whom the demo's user may act, as nobody approves their own request. No account has such a name."""

_REGISTRY = "demo"
_PORT = "port"
_SERVERS = "TURNOUT_SOURCE__BOOTSTRAP_SERVERS"
_PEOPLE = {"analysts": ("ann@example.com", "bob@example.com"), "guests": ("eve@example.com",)}
_RESTART_SECONDS = 5.0
_SIMULATOR_SECONDS = 20.0
_GROUPS_STOP_SECONDS = STOP_SECONDS + 10.0


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """What to simulate."""

    games: int
    versions: int
    bad_share: float
    skew: float
    seed: int
    hostile: bool
    formats: tuple[str, ...] = ("protobuf",)
    framings: tuple[str, ...] = (WRAPPER,)
    version_every: int | None = None
    registry_url: str | None = None
    glue_endpoint: str | None = None
    event_types: int = 1
    appear_after: int | None = None
    via_edge: bool = False  # events go through a gRPC edge of the demo's own
    books: bool = False  # give the first game of a bounded run a contract, silver, gold and closed days, too

    @property
    def is_mixed(self) -> bool:
        """Whether there is anything but one event type a game in protobuf under turnout's own ids."""
        return (self.formats, self.framings, self.event_types) != (("protobuf",), (WRAPPER,), 1)

    def arguments(self) -> list[str]:
        """Return the options of `turnout simulate`."""
        return [
            *("--games", str(self.games), "--versions", str(self.versions), "--seed", str(self.seed)),
            *("--bad-share", str(self.bad_share), "--skew", str(self.skew), "--event-types", str(self.event_types)),
            *(["--hostile"] if self.hostile else []),
            *("--formats", ",".join(self.formats), "--framing", ",".join(self.framings)),
            *([] if self.version_every is None else ["--version-every", str(self.version_every)]),
            *([] if self.appear_after is None else ["--appear-after", str(self.appear_after)]),
            *([] if self.registry_url is None else ["--registry-url", self.registry_url]),
            *([] if self.glue_endpoint is None else ["--glue-endpoint", self.glue_endpoint]),
        ]


def once(settings: Settings, paths: Paths, wanted: DemoOptions, events: int, *, as_json: bool) -> int:
    """Simulate, ingest, split in two groups, verify; print the result; return 0 if every event is in exactly one place.

    Raises:
        Refused: a setting cannot be used, or a broker cannot be started.
    """
    started = time.monotonic()
    stop = stop_on_signals()
    with (
        _broker(settings, paths) as environ,
        _registry(paths, wanted) as (addressed, more),
        Children(paths.logs, environ | more) as children,
    ):
        _export(paths, more)
        env = ("--env-dir", str(paths.root))
        say(f"simulating {events} events of {wanted.games} games")
        begin = ("--start-time", str(books.start_time())) if wanted.books else ()
        simulate = turnout("simulate", *env, *addressed.arguments(), "--events", str(events), *begin)
        simulate += _start_edge(children, settings, paths, environ, wanted)
        if wanted.via_edge:
            is_sent = behind_edge.send(children, stop, paths, simulate)
        else:
            is_sent = _run(children, stop, {"simulate": simulate})
        if not is_sent:
            return 1
        say("landing them in bronze")
        if not _run(children, stop, {"ingest": turnout("ingest", "run", *env, "--once")}):
            return 1
        say(f"splitting them in groups {' and '.join(GROUPS)}")
        for name in GROUPS:  # both must be known before either starts, so that the games are shared out
            _know_group(settings, paths, name)
        game = game_names(wanted.games, wanted.seed, hostile=wanted.hostile)[0]
        if wanted.books:
            books.declare(settings, paths, open_store(settings, paths), game, books.ONCE)
        if not _run(
            children, stop, {f"group-{name}": turnout("groups", "run", name, *env, "--once") for name in GROUPS}
        ):
            return 1
        heard = behind_edge.hear(children, stop, paths) if wanted.via_edge else None
    say("verifying")
    engine = open_store(settings, paths)
    values = Values(LocalRegistry(engine, paths.bronze).snapshot) if wanted.is_mixed else None
    balance = prove(paths, settings.environment, generations(engine), retired_games(engine), values)
    made: dict[str, float | None] = {} if heard is None else behind_edge.result(heard, paths)
    if wanted.books:
        say("closing days")
        closed = books.days_closed(settings, paths, engine, game)
        refused = balance.by_reason.get(REASON, 0)
        made |= {"contract_refused": refused, **books.rows(paths), "days_closed": closed}
    code = _print(balance, made, paths, events, wanted, time.monotonic() - started, as_json=as_json)
    return code if heard is None or heard.is_whole else 1


def live(settings: Settings, paths: Paths, wanted: DemoOptions, rate: float) -> int:
    """Run until Ctrl-C; a driver that dies is started again.

    Raises:
        Refused: a setting cannot be used, or a broker cannot be started.
    """
    ports = claim.free(settings)
    settings = ports.settings
    for line in ports.lines:
        say(line)
    note(paths, DEMO, f"http://{dashboard.HOST}:{settings.dashboard.port}")
    stop = stop_on_signals()
    env = ("--env-dir", str(paths.root))
    _prepare(settings, paths, wanted)
    game = books.live_game(_known_names(wanted))
    booked = books.variables(settings, game)
    watching = monitoring.plan(settings, paths)
    with (
        _broker(settings, paths) as environ,
        _registry(paths, wanted) as (addressed, more),
        Children(paths.logs, environ | more | booked | ports.environ | watching.environ) as children,
    ):
        _export(paths, more | booked)
        if settings.source.kind == "kafka":
            ensure_topic(_servers(settings, environ), settings.source.topic, PARTITIONS)
        through = _start_edge(children, settings, paths, environ, wanted)
        simulator = _Simulator(children, [*env, *addressed.arguments(), *through, "--rate", str(rate)], stop)
        simulator.start()
        children.start("ingest", turnout("ingest", "run", *env))
        children.start("controller", turnout("controller", "run", "--stop-groups", *env))
        url = dashboard.new_url(paths, settings.dashboard.port)
        children.start("dashboard", dashboard.command(paths, settings.dashboard.port))
        watching.start(children, paths)
        if settings.access.catalog == "embedded":
            children.start("catalog", turnout("catalog", "serve", *env))
            if not _add_people(children, stop, env):
                return 1
        why_whole = not_own(settings, environ)
        _tell_addresses(paths, url, watching, addressed.registry_url)
        _tell_uses(paths, game, why_whole)
        with nullcontext() if why_whole else _faults(paths, environ | more, simulator, wanted.versions):
            looks = [books.Declaring(settings, paths, open_store(settings, paths), game).look]
            looks += [Hearing(paths.root).look] if wanted.via_edge else []
            _watch(children, stop, looks)
            say("stopping")
        children.end("controller", _GROUPS_STOP_SECONDS)
    return 0


def _servers(settings: Settings, environ: Mapping[str, str]) -> str:
    return environ.get(_SERVERS, settings.source.bootstrap_servers)


def _start_edge(
    children: Children, settings: Settings, paths: Paths, environ: Mapping[str, str], wanted: DemoOptions
) -> list[str]:
    """Start the edge of a demo via one; return the options by which a simulator sends through it."""
    if not wanted.via_edge:
        return []
    if settings.source.kind == "kafka":
        ensure_topic(_servers(settings, environ), settings.source.topic, PARTITIONS)
    address = behind_edge.start(children, paths)
    say(f"  edge        {address}: see docs/edge.md")
    return ["--via", "edge", "--edge", address, "--follow"]


@dataclass(frozen=True, slots=True)
class _Simulator:
    """The demo's producers, which a fault may end and start again."""

    children: Children
    options: Sequence[str]
    ending: threading.Event

    def start(self) -> None:
        """Send events whose times begin now, unless the demo ends."""
        if not self.ending.is_set():
            self.children.start("simulate", turnout("simulate", *self.options, "--start-time", str(time.time())))

    def stop(self) -> None:
        """End it until `start`: nothing starts it again."""
        self.children.hold("simulate", _SIMULATOR_SECONDS)


def not_own(settings: Settings, environ: Mapping[str, str]) -> str | None:
    """Return why a demo must not be broken: something of it may be used by others; None where all is its own.

    `environ` has what the demo started: the variables of its children.
    """
    if sys.platform != "linux":
        return "not offered: it needs Linux"
    if settings.store.url:
        return "not offered: the control store is not the demo's own (store.url)"
    if settings.access.catalog != "embedded":
        return "not offered: the catalog is not the demo's own (access.catalog)"
    if settings.sources or settings.source.path:
        return "not offered: the source is not the demo's own"
    if settings.source.kind == "kafka" and _SERVERS not in environ:
        return "not offered: the broker is not the demo's own (source.bootstrap_servers)"
    return None


@contextmanager
def _faults(paths: Paths, environ: Mapping[str, str], simulator: _Simulator, versions: int) -> Iterator[None]:
    """Offer faults to this user while the block runs."""
    from pipeline.demo.breaking.breaker import Breaker, World
    from pipeline.demo.breaking.channel import offered

    source = load(paths.root, {**os.environ, **environ})[0].source

    def sending(batches: Iterator[Sequence[Event]], rate: float | None, total: int | None, end: threading.Event) -> int:
        return send(source, paths, batches, rate, total, end, bar=False)

    with offered(paths, Breaker(World(paths, simulator, sending, versions)), ADMINS):
        yield


def say(text: str) -> None:
    """Print for the person at the terminal; standard output is kept for the result."""
    say_lines(text, err=True)


@contextmanager
def _broker(settings: Settings, paths: Paths) -> Iterator[dict[str, str]]:
    """Start a broker of our own when Kafka is the source and none is configured; yield the children's variables."""
    environ: dict[str, str] = {"TURNOUT_SOURCE__KIND": settings.source.kind}
    if settings.source.kind != "kafka" or _says_broker(paths):
        yield environ
        return
    say("starting a Kafka broker")
    folder = paths.root / "kafka"
    with Broker.start(folder, _kept_port(folder)) as broker:
        (folder / _PORT).write_text(str(broker.port))
        yield {**environ, _SERVERS: broker.address}


def _says_broker(paths: Paths) -> bool:
    in_file = paths.settings_file.exists() and "bootstrap_servers" in paths.settings_file.read_text()
    return in_file or _SERVERS in os.environ


@contextmanager
def _registry(paths: Paths, wanted: DemoOptions) -> Iterator[tuple[DemoOptions, dict[str, str]]]:
    """Start a registry of our own where frames need one and none is named; yield the variables of the source, too."""
    check_framings(wanted.framings)
    name = next((each for each in wanted.framings if each in FOREIGN), None)
    if name is None:
        yield wanted, by_type.settings() if by_type.BY_TYPE in wanted.framings else {}
    elif FOREIGN[name].is_startable and wanted.registry_url is None:
        say("starting a schema registry")
        folder = paths.root / "registry"
        with Registry.start(folder, _kept_port(folder)) as registry:
            (folder / _PORT).write_text(str(registry.port))
            addressed = replace(wanted, registry_url=registry.url)
            yield addressed, _source_settings(name, addressed)
    else:
        yield wanted, _source_settings(name, wanted)


def _export(paths: Paths, given: Mapping[str, str]) -> None:
    """Keep variables for other terminals, such as for `games pending` or `books show`; the settings file lacks them."""
    file = paths.root / SOURCE_VARIABLES
    if given:
        paths.root.mkdir(parents=True, exist_ok=True)
        export(file, given)
        say(f"commands in other terminals know the demo's source and days after `. {file}`")
    else:
        file.unlink(missing_ok=True)


def _source_settings(framing: str, wanted: DemoOptions) -> dict[str, str]:
    """Return the variables of the source's profile and of the table `[registries.demo]`."""
    table = FOREIGN[framing].settings(RegistryAddress(wanted.registry_url, wanted.glue_endpoint))
    return {
        # Names that are not games send turnout's ids, so each row says which it has.
        "TURNOUT_SOURCE__FRAMING": f"{WRAPPER}-or-{framing}",
        "TURNOUT_SOURCE__REGISTRY": _REGISTRY,
        **{f"TURNOUT_REGISTRIES__{_REGISTRY}__{name}".upper(): value for name, value in table.items()},
    }


def _kept_port(folder: Path) -> int | None:
    """Return the port of the last run: the broker's address is part of the ingested source's name."""
    kept = folder / _PORT
    return int(kept.read_text()) if kept.exists() else None


def _known_names(wanted: DemoOptions) -> list[str]:
    """Return the names of the games that send from the start."""
    return game_names(wanted.games - (wanted.appear_after is not None), wanted.seed, hostile=wanted.hostile)


def _tell_addresses(paths: Paths, url: str, watching: monitoring.Monitoring, registry_url: str | None) -> None:
    say(f"\n  dashboard   {url}")
    for name, line in watching.lines.items():
        say(f"  {name:<12}{line}")
    if registry_url is not None:
        say(f"  registry    {registry_url}")
    if paths.storage:
        say(f"  tables      {paths.storage}: in another terminal first `. {paths.root / VARIABLES}`")


def _tell_uses(paths: Paths, game: str, why_whole: str | None) -> None:
    """Say what can be done with the demo; `why_whole` is why it must not be broken."""
    say(f"  people      {', '.join(itertools.chain(*_PEOPLE.values()))}: see `./turnout grants --help`")
    if why_whole is None:
        say(f"  act as      {' or '.join(ADMINS)}: see the name at the top right of the dashboard")
    say(f"  books       {shown(game)}: an output contract, silver, gold, and days of five minutes")
    say(f"  break it    {why_whole or 'the page Break it of the dashboard, or `./turnout demo faults`'}")
    say(f"  logs        {paths.logs}\n\nThe first games appear after about a minute. Ctrl-C stops everything.")


def _know_group(settings: Settings, paths: Paths, name: str) -> None:
    register_group(open_store(settings, paths), name, placing_by(settings))


def _prepare(settings: Settings, paths: Paths, wanted: DemoOptions) -> None:
    for name in GROUPS:
        _let_controller_run(settings, paths, name)
    if wanted.appear_after is not None:
        say(newcomer.expect(settings, open_store(settings, paths), wanted.games, wanted.seed, hostile=wanted.hostile))


def _let_controller_run(settings: Settings, paths: Paths, name: str) -> None:
    engine = open_store(settings, paths)
    _know_group(settings, paths, name)
    group = read_groups(engine)[name]
    if not backend_kind(group.backend).is_here or group.desired != "running":
        change(engine, group, replace(group, backend="local", desired="running"), current_user(), "turnout demo")


def _run(children: Children, stop: threading.Event, commands: dict[str, list[str]]) -> bool:
    """Run commands side by side; return whether all succeeded, and show the logs of failed ones."""
    for name, command in commands.items():
        children.start(name, command)
    codes = children.wait(list(commands), stop)
    for name in commands:
        code = codes.get(name)
        if code != 0:
            say("stopped" if code is None else f"{name} failed with exit code {code}:\n{children.tail(name)}")
            return False
        children.forget(name)
    return True


def _watch(children: Children, stop: threading.Event, looks: Sequence[Callable[[], str | None]]) -> None:
    """Start again what dies, until a signal to stop; `looks` do what is due, and return what to say of it."""
    while not stop.wait(1.0):
        for said in filter(None, [look() for look in looks]):
            say(said)
        for child in children.dead():
            say(f"{child.name} ended; starting it again in {_RESTART_SECONDS:g} s. Its log: {child.log}")
            if stop.wait(_RESTART_SECONDS):
                return
            if not child.held:
                children.start(child.name, child.command)


def _add_people(children: Children, stop: threading.Event, env: Sequence[str]) -> bool:
    """Bring people into the embedded catalog, to whom access can be given; return whether it could be done."""
    for group, people in _PEOPLE.items():
        add = turnout("catalog", "add-user", *people, "--group", group, "--wait", "30", *env)
        if not _run(children, stop, {f"people-{group}": add}):
            return False
    return True


def _print(
    balance: Balance, made: Mapping[str, float | None], paths: Paths, events: int, wanted: DemoOptions,
    seconds: float, *, as_json: bool,
) -> int:  # fmt: skip
    result: dict[str, Any] = {"events": events, "versions": wanted.versions}
    result |= {"formats": list(wanted.formats), "framings": list(wanted.framings), **as_dict(balance)}
    result |= {**made, "seconds": round(seconds, 1)}
    for name, value in result.items():
        if not isinstance(value, (list, dict)):
            say(f"  {name:<20} {value}")
    proven = "Every event is" if balance.complete else "NOT every event is"
    say(f"\n{proven} in exactly one place. Tables: {paths.tables}")
    if as_json:
        say_json(result)
    return 0 if balance.complete else 1
