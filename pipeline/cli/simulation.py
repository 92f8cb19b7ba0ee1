"""The commands of a try-out on one machine: `turnout simulate`, `demo` and `dashboard`."""

import sys
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import Final

import click

from pipeline.base.errors import Refused
from pipeline.base.terminal import say, say_json
from pipeline.base.texts import in_utc
from pipeline.cli.context import CommandContext, load_with_source
from pipeline.cli.options import Finite, Words, combine_options, source_option
from pipeline.settings.tree import load

_VERSION_SECONDS: Final = 60.0  # between versions of a live demo with other formats or framings
_FARTHEST: Final = 9e12  # Unix seconds whose microseconds are a number of 64 bits

_simulation = combine_options(
    click.option("--games", type=click.IntRange(1, 2000), default=40, show_default=True, help="Number of games."),
    click.option(
        "--versions",
        type=click.IntRange(1, 6),
        default=5,
        show_default=True,
        help="Schema versions per game; each game sends all of them, mixed.",
    ),
    click.option("--bad-share", type=Finite(0, 1), default=0.01, show_default=True, help="Share of bad records."),
    click.option(
        "--skew",
        type=Finite(0, 5),
        default=1.1,
        show_default=True,
        help="Zipf exponent over games; 0 is an even share.",
    ),
    click.option(
        "--seed",
        type=int,
        default=1,
        show_default=True,
        help="Same seed, same bytes. A later run continues the sequence numbers.",
    ),
    click.option("--hostile", is_flag=True, help="Names that break paths, SQL and labels."),
    click.option(
        "--formats",
        type=Words("protobuf", "avro", "json"),
        default="protobuf",
        show_default=True,
        help="Formats of payloads, dealt to the games in turn: protobuf, avro, json, with commas.",
    ),
    click.option(
        "--framing",
        "framings",
        type=Words("wrapper", "confluent", "glue", "type"),
        default="wrapper",
        show_default=True,
        help="Where payloads name their schema, dealt to the games in turn: wrapper, confluent, glue, with commas. "
        "Or type alone, with --formats json: plain JSON documents that name their event type and no schema.",
    ),
    click.option(
        "--event-types",
        type=click.IntRange(1, 300),
        default=1,
        show_default=True,
        help="Event types that each game sends. A rule accepts those that a registry names.",
    ),
    click.option(
        "--version-every",
        type=click.IntRange(1),
        help="Events from one version's first to the next one's; without, games send all versions from the start.",
    ),
    click.option(
        "--appear-after",
        type=click.IntRange(1),
        help="Events before the first one of the last game, which no schema and no rule of an exact name knows; needs "
        "another --framing than wrapper. In a live demo an onboarding rule makes it a game of group b with readers.",
    ),
    click.option("--registry-url", help="Address of a Confluent-like registry, which --framing confluent fills."),
    click.option("--glue-endpoint", help="Address of AWS Glue or a stand-in, which --framing glue fills."),
    source_option(),
)
"""Says what to simulate."""

_via = click.option(
    "--via",
    type=click.Choice(["edge"]),
    help="Send events through the gRPC edge, into what --source says; of a demo by default a topic: see docs/edge.md.",
)


@click.command("simulate")
@_simulation
@click.option("--events", type=click.IntRange(1), help="Stop after this number of events; without it, never.")
@click.option("--rate", type=Finite(0.1, 10_000_000), help="Events per second; without it, as fast as possible.")
@click.option("--into", default="", metavar="NAME", help="One of the sources of `[sources.NAME]`.")
@_via
@click.option(
    "--edge",
    metavar="HOST:PORT",
    default="127.0.0.1:8470",
    show_default=True,
    help="Address of the edge, for --via.",
)
@click.option(
    "--edge-ca",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Certificates that the edge's leads to, for an edge with TLS.",
)
@click.option(
    "--follow",
    is_flag=True,
    help="With --via: go on until each acknowledged event has an outcome behind the edge, kept in followed.json.",
)
@click.option(
    "--skip-games",
    type=click.IntRange(0, 2000),
    default=0,
    show_default=True,
    help="Names of games to leave out: those of a simulator that writes into another source.",
)
@click.option(
    "--start-time",
    type=Finite(-_FARTHEST, _FARTHEST),
    help="Event time of the first event in Unix seconds; without it, a fixed day. With --rate, event times go on at "
    "that rate.",
)
def simulate(
    env_dir: Path, games: int, versions: int, bad_share: float, skew: float, seed: int, hostile: bool,
    formats: tuple[str, ...], framings: tuple[str, ...], event_types: int, version_every: int | None,
    appear_after: int | None, registry_url: str | None, glue_endpoint: str | None, source: str | None,
    events: int | None, rate: float | None, into: str, via: str | None, edge: str,
    edge_ca: Path | None, follow: bool, skip_games: int, start_time: float | None,
) -> None:  # fmt: skip
    """Write simulated events to the landing table or the Kafka topic, or send them to an edge.

    Registers the sample schemas first, or lets the serializers register them in a registry, with an onboarding rule
    for their games. May run beside ingest.
    """
    from pipeline.control.present import noted
    from pipeline.demo.framings.supported import RegistryAddress
    from pipeline.demo.simulate import Carried
    from pipeline.demo.simulate import simulate as run
    from pipeline.demo.simulator import SimulationPlan
    from pipeline.platforms.local.signals import stop_on_signals

    if follow and not via:
        raise Refused("Only events that go through an edge can be followed. Add --via edge.")
    context = CommandContext(env_dir, source)
    plan = SimulationPlan(
        games, versions, events, seed, bad_share,
        skipped=skip_games, hostile=hostile, skew=skew, formats=formats, framings=framings, event_types=event_types,
        version_every=version_every, appear_after=appear_after,
    )  # fmt: skip
    if start_time is not None:
        plan = replace(plan, start_time=start_time, step_seconds=plan.step_seconds if rate is None else 1 / rate)
    registry = RegistryAddress(registry_url, glue_endpoint)
    with noted(context.paths, "simulate"):
        where = context.settings, context.paths, context.engine
        carried = Carried(into, edge if via else None, edge_ca, follow)
        sent = run(*where, plan, rate, stop_on_signals(), registry, carried)
    behind = {} if sent.heard is None else {"followed": asdict(sent.heard)}
    at_edge = {"refused_by_edge": dict(sent.refused)} if via else {}
    say_json({"events": sent.events, **sent.by_kind, **at_edge, **behind})


@click.command("dashboard")
@click.option("--port", type=click.IntRange(1, 65_535), help="Overrides the setting dashboard.port.")
def dashboard(env_dir: Path, port: int | None) -> None:
    """Run the dashboard on 127.0.0.1 for yourself alone: only the printed URL opens it.

    Runs until Ctrl-C or SIGTERM. See docs/dashboard.md.
    """
    from pipeline.demo.dashboard import serve

    settings, paths = load(env_dir)
    serve(paths, port or settings.dashboard.port)


@click.command("demo")
@_simulation
@click.option("--events", type=click.IntRange(1), help="Events of a run with --once  [default: 50000]")
@click.option(
    "--rate", type=Finite(0.1, 10_000_000), default=1000.0, show_default=True, help="Events per second of a live run."
)
@click.option(
    "--once",
    is_flag=True,
    help="One bounded run: simulate, ingest, split, verify, stop. Exit code 0 if every event is in exactly one place.",
)
@click.option(
    "--books",
    is_flag=True,
    help="With --once: also give a game a contract, silver, gold and closed days, and print their numbers.",
)
@click.option(
    "--storage",
    type=click.Choice(["folder", "s3"]),
    default="folder",
    show_default=True,
    help="Where the tables are: in the environment's folder, or in a bucket of an S3 server that the demo starts.",
)
@_via
@click.option("--cluster", is_flag=True, help="Run drivers on a Spark master and two workers; needs --storage s3.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on the last line.")
def demo(
    env_dir: Path, games: int, versions: int, bad_share: float, skew: float, seed: int, hostile: bool,
    formats: tuple[str, ...], framings: tuple[str, ...], event_types: int, version_every: int | None,
    appear_after: int | None, registry_url: str | None, glue_endpoint: str | None, source: str | None,
    events: int | None, rate: float, once: bool, books: bool, storage: str, via: str | None, cluster: bool,
    as_json: bool,
) -> None:  # fmt: skip
    """Run everything on this machine: simulator, ingest, two groups, dashboard, and Prometheus if it is installed.

    Runs until Ctrl-C, with the controller and the groups `a` and `b`. Prometheus, Alertmanager and the receiver of its
    alerts use the ports 9090, 9093 and 9095. A part whose port is in use takes another one, and the demo prints it. It
    refuses a folder that another demo, controller or ingest uses. It restarts a driver that dies. With Kafka as the
    source and no broker in the settings it starts a broker, with --via edge also an edge before the source; for
    Confluent's frames without --registry-url a schema registry. With --formats or --framing, --once also compares every
    value, and a live run brings a new version of each game every minute.
    """
    from pipeline.demo import claim
    from pipeline.demo import demo as runs
    from pipeline.demo.object_storage import clustered, served
    from pipeline.platforms.local.fetch import set_up
    from pipeline.platforms.local.shared import checkout

    plan = runs.DemoOptions(
        games,
        versions,
        bad_share,
        skew,
        seed,
        hostile,
        formats,
        framings,
        version_every,
        registry_url,
        glue_endpoint,
        event_types,
        appear_after,
        books=books,
        via_edge=via is not None,
    )
    if via:
        source = source or "kafka"
    if books and not once:
        raise Refused("--books is for a bounded run. Add --once.")
    if cluster and storage != "s3":
        raise Refused("A cluster's executors see no folder of this machine. Add --storage s3.")
    if checkout() is None:  # in a checkout the launcher has done it
        set_up(["s3"] if storage == "s3" else [])
    with ExitStack() as servers:
        servers.enter_context(
            claim.own_folder(*load_with_source(env_dir, source), claim.BOUNDED if once else claim.LIVE)
        )
        if storage == "s3":
            reached = servers.enter_context(served(env_dir))
            if cluster:
                servers.enter_context(clustered(env_dir, reached))
        settings, known = load_with_source(env_dir, source)
        if once:
            sys.exit(runs.once(settings, known, plan, events or 50_000, as_json=as_json))
        if version_every is None and plan.is_mixed:
            plan = replace(plan, version_every=max(1, round(rate * _VERSION_SECONDS)))
        sys.exit(runs.live(settings, known, plan, rate))


@click.command("faults")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def demo_faults(env_dir: Path, as_json: bool) -> None:
    """List the faults of the running demo, and those that have not ended."""
    from pipeline.demo.breaking import channel
    from pipeline.demo.breaking.faults import FAULTS

    _, paths = load(env_dir)
    active = channel.look(paths).active
    if as_json:
        say_json({"faults": [asdict(each) for each in FAULTS.values()], "active": [asdict(each) for each in active]})
        return
    for fault in FAULTS.values():
        say(f"{fault.name:<11} {fault.target:<7} {fault.does}")
    for each in active:
        say(f"lasts: {each.fault} {each.target} since {in_utc(each.since)}, until {in_utc(each.until)} at most")


@click.command("break")
@click.argument("fault")
@click.argument("target", default="")
def demo_break(env_dir: Path, fault: str, target: str) -> None:
    """Break the running demo: do FAULT to TARGET, a game (name or key), a group or `ingest`; the source needs none.

    Prints what was done, what you should see where, and how it is mended. Faults that last end after 15 minutes, and
    all end with the demo. The audit log has each. Only the user who started the demo may do this.
    """
    from pipeline.demo.breaking import channel
    from pipeline.demo.breaking.faults import FAULTS

    _, paths = load(env_dir)
    say(channel.begin(paths, fault, target).said)
    for sign in FAULTS[fault].signs:
        say(f"  within {sign.seconds:>3} s  {sign.where:<8} {sign.what}")
    say(f"  mend it       {FAULTS[fault].mend}")


@click.command("mend")
@click.argument("fault")
@click.argument("target", default="")
def demo_mend(env_dir: Path, fault: str, target: str) -> None:
    """End a fault of the running demo that lasts: FAULT and TARGET as for `turnout demo break`."""
    from pipeline.demo.breaking import channel

    _, paths = load(env_dir)
    say(channel.undo(paths, fault, target).said)
