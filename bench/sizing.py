"""Sizes of a fleet by arithmetic: from measured numbers and the user's prices to cores, requests and money.

`python -m bench.sizing` prints the table of docs/deploy/sizing.md; `--games N --rate R --dbu-price P …` another one.
It measures nothing. The measured constants stand in docs/performance.md, Lakebase's limits in docs/deploy/lakebase.md.
"""

import argparse
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Final

HOURS_A_MONTH: Final = 730.0

# Measured here, on two cores of an Intel Xeon or AMD EPYC, with open-source Spark 4.2. Lines through the runs of 300
# games with 1,000 and 8,000 events/s and of 1,000 games with 20,000 events/s, none of which lies above them.
GROUP_MS_PER_COMMIT: Final = 3.0
GROUP_MS_PER_EVENT: Final = 0.024
IDLE_MS_PER_GAME: Final = 0.046  # CPU time per second
INGEST_CORES: Final = 0.12
INGEST_MS_PER_EVENT: Final = 0.0067
BUCKET_FACTOR: Final = 1.39  # CPU of a group's driver with tables in a bucket, relative to a folder
BUCKET_COMMITS_PER_SECOND: Final = 79.0  # of one driver: 300 tables in a pass of 3.8 s, 30 ms per request
REQUESTS_PER_COMMIT: Final = 4.0  # of turnout, those of its metrics tables included
WRITES: Final = 0.5  # of these requests
SPARK_REQUESTS_PER_DRIVER: Final = 9.0  # per second; 18 for ingest and one group
SPARK_LISTS_PER_DRIVER: Final = 2.0  # of them
DRIVER_MIB: Final = 1_863  # largest memory of a driver's processes: 1,000 games, 20,000 events/s, 1 GiB of heap
MEASURED_EVENTS: Final = 20_000  # per second, the highest rate that was held
MEASURED_GAMES: Final = 1_000  # of one group

# From a run of another kind, so an estimate: Spark reads 645,000 payloads per CPU second from memory, undecoded.
SKIPPED_MS_PER_EVENT: Final = 0.00155

# The share of the time between two passes that a group's passes may take; the rest is for catching up.
PASS_SHARE: Final = 0.8
SAMPLE_REQUESTS: Final = 3.0  # of a commit to the table process_sample, computed
FLUSH_SECONDS: Final = 10.0
HEARTBEAT_SECONDS: Final = 5.0

LAKEBASE: Final = ((0.5, 104), (1.0, 209), (4.0, 839), (8.0, 1_678), (32.0, 4_000))
"""Capacity units and the connections that an endpoint takes with them."""
DRIVER_CONNECTIONS: Final = 4  # at most; two are kept
OTHER_CONNECTIONS: Final = 20  # controller and app, at most


@dataclass(frozen=True, slots=True)
class Inputs:
    """What the user knows; prices are in any currency, and 0 leaves a cost out."""

    games: int = 1_000
    rate: float = 1_000.0  # events per second, all games together
    active: float = 1.0  # share of games with rows in each pass
    trigger: float = 10.0  # seconds between two passes: demux.trigger_seconds
    nodes: float = 2.0  # of a driver's cluster: resources/jobs.yml has a driver node and a worker
    node_dbu: float = 1.0  # DBU per hour of a node, by the vendor's list for its type
    node_price: float = 0.0  # of the cloud's machine, per hour
    dbu_price: float = 0.0  # of one DBU of a jobs cluster
    app_dbu: float = 0.5  # DBU per hour of an App of size MEDIUM
    app_dbu_price: float = 0.0  # of one DBU of Apps
    lakebase_dbu: float = 1.0  # DBU per hour of a capacity unit, by the vendor's list
    lakebase_dbu_price: float = 0.0
    maintenance: float = 0.5  # share of the hour that the maintenance job's cluster is up
    warehouse_dbu: float = 0.0  # DBU per hour of a SQL warehouse that evaluates alerts; 0: Prometheus does
    warehouse: float = 1.0  # share of the hour that it is awake
    warehouse_dbu_price: float = 0.0
    write_price: float = 0.0  # of 1,000 requests that write or list
    read_price: float = 0.0  # of 1,000 requests that read


@dataclass(frozen=True, slots=True)
class Sizes:
    """What follows from them."""

    inputs: Inputs
    games_per_driver: int
    drivers: int  # of groups
    commits: float  # to game tables, per second
    group_cores: float  # of all groups' drivers, with tables in a bucket
    skipping_cores: float  # of them, for rows of other groups' games
    ingest_cores: float
    memory_gib: float
    writes: float  # requests per second, lists included
    reads: float
    connections: int
    lakebase_units: float | None  # None: no endpoint takes as many connections
    node_hours: float  # per hour
    state_rows: float  # rows per second that drivers replace in the control store

    @property
    def jobs_dbu(self) -> float:
        """DBU per hour of all job clusters."""
        return self.node_hours * self.inputs.node_dbu

    @property
    def lakebase_dbu(self) -> float | None:
        """DBU per hour of the control store; None where no endpoint is large enough."""
        return None if self.lakebase_units is None else self.lakebase_units * self.inputs.lakebase_dbu

    @property
    def money(self) -> float | None:
        """Money per month; None where a part is not known."""
        given, lakebase = self.inputs, self.lakebase_dbu
        if lakebase is None:
            return None
        hourly = (
            self.jobs_dbu * given.dbu_price
            + self.node_hours * given.node_price
            + given.app_dbu * given.app_dbu_price
            + lakebase * given.lakebase_dbu_price
            + given.warehouse_dbu * given.warehouse * given.warehouse_dbu_price
            + 3.6 * (self.writes * given.write_price + self.reads * given.read_price)
        )
        return hourly * HOURS_A_MONTH


def size(given: Inputs) -> Sizes:
    """Return the sizes of a fleet with tables in a bucket."""
    active = given.games * given.active
    in_a_pass = PASS_SHARE * given.trigger * BUCKET_COMMITS_PER_SECOND
    games_per_driver = max(1, min(MEASURED_GAMES, math.floor(in_a_pass / max(given.active, 1e-9))))
    drivers = math.ceil(given.games / games_per_driver)
    # A game without an event in a pass has no commit there.
    commits = min(active / given.trigger, given.rate)
    skipping = given.rate * (drivers - 1) * SKIPPED_MS_PER_EVENT / 1000
    idle = (given.games - active) * IDLE_MS_PER_GAME / 1000
    working = (commits * GROUP_MS_PER_COMMIT + given.rate * GROUP_MS_PER_EVENT) / 1000
    processes = drivers + 1  # and ingest
    requests = commits * REQUESTS_PER_COMMIT + processes * SAMPLE_REQUESTS / FLUSH_SECONDS
    writes = requests * WRITES + processes * SPARK_LISTS_PER_DRIVER
    connections = processes * DRIVER_CONNECTIONS + OTHER_CONNECTIONS
    return Sizes(
        given,
        games_per_driver,
        drivers,
        commits,
        working * BUCKET_FACTOR + idle + skipping,
        skipping,
        INGEST_CORES + given.rate * INGEST_MS_PER_EVENT / 1000,
        processes * DRIVER_MIB / 1024,
        writes,
        requests + processes * SPARK_REQUESTS_PER_DRIVER - writes,
        connections,
        next((units for units, most in LAKEBASE if connections <= most), None),
        processes * given.nodes + 1 + given.maintenance,
        given.games / HEARTBEAT_SECONDS,
    )


_Row = tuple[str, str, Callable[[Sizes], str]]
_ROWS: Final[tuple[_Row, ...]] = (
    ("events per second", "input", lambda made: _number(made.inputs.rate)),
    ("games per driver", "computed", lambda made: _number(made.games_per_driver)),
    ("drivers of groups", "computed", lambda made: _number(made.drivers)),
    ("commits to game tables per second", "computed", lambda made: _number(made.commits)),
    ("cores: all groups", "computed from measured", lambda made: _number(made.group_cores)),
    ("of them for other groups' rows", "estimated", lambda made: _number(made.skipping_cores)),
    ("cores: ingest", "computed from measured", lambda made: _number(made.ingest_cores) + _beyond(made)),
    ("memory of all drivers, GiB", "computed from measured", lambda made: _number(made.memory_gib)),
    ("object store: writes and lists per second", "computed from measured", lambda made: _number(made.writes)),
    ("object store: reads per second", "computed from measured", lambda made: _number(made.reads)),
    ("object store: million requests per day", "computed", lambda made: _number((made.writes + made.reads) * 0.0864)),
    ("connections to the control store, most", "computed", lambda made: _number(made.connections)),
    ("Lakebase, CU", "computed", lambda made: _number(made.lakebase_units)),
    ("rows per second that drivers replace there", "computed", lambda made: _number(made.state_rows)),
    ("nodes, on average", "computed", lambda made: _number(made.node_hours)),
    ("DBU per hour: job clusters", "computed", lambda made: _number(made.jobs_dbu)),
    ("DBU per hour: App", "input", lambda made: _number(made.inputs.app_dbu)),
    ("DBU per hour: Lakebase", "computed", lambda made: _number(made.lakebase_dbu)),
    ("DBU per hour: SQL warehouse", "input", lambda made: _number(made.inputs.warehouse_dbu * made.inputs.warehouse)),
)
_MONEY: Final[_Row] = ("money per month", "computed", lambda made: _number(made.money))


def table(made: Sequence[Sizes]) -> str:
    """Return a table in Markdown: a column for each fleet, and where each number comes from."""
    is_priced = any(each.money for each in made)
    heads = [f"{each.inputs.games:,} games" for each in made]
    lines = ["| | " + " | ".join(heads) + " | |", "|---|" + "---:|" * len(made) + "---|"]
    for name, origin, shown in (*_ROWS, *([_MONEY] if is_priced else [])):
        lines.append(f"| {name} | " + " | ".join(shown(each) for each in made) + f" | {origin} |")
    return "\n".join(lines)


def _beyond(made: Sizes) -> str:
    return " (not tried)" if made.inputs.rate > MEASURED_EVENTS else ""


def _number(value: float | None) -> str:
    if value is None:
        return "none is large enough"
    return (
        f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:,.1f}" if value >= 10 else f"{value:.2f}"
    )


def parsed(arguments: Sequence[str] | None) -> list[Inputs]:
    """Return the fleets of a command line: the document's four where it names no number of games."""
    parser = argparse.ArgumentParser(prog="python -m bench.sizing", description=(__doc__ or "").partition("\n")[0])
    for each in fields(Inputs):
        kind = int if each.name == "games" else float
        parser.add_argument(f"--{each.name.replace('_', '-')}", type=kind, help=f"default {each.default}")
    named = {name: value for name, value in vars(parser.parse_args(arguments)).items() if value is not None}
    if any(value < 0 for value in named.values()) or named.get("games") == 0 or named.get("trigger") == 0:
        parser.error("expected numbers above 0, or 0 for what costs nothing")
    given = replace(Inputs(), **named)
    if "games" in named:
        return [given if "rate" in named else replace(given, rate=float(given.games))]
    return [
        replace(given, games=games, rate=named.get("rate", float(games))) for games in (100, 1_000, 10_000, 100_000)
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    print(table([size(each) for each in parsed(arguments)]))


if __name__ == "__main__":
    main()
