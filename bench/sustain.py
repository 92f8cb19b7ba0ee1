"""`python -m bench.sustain`: does one machine keep up with a rate, and for how long is everything behind?

Simulator, ingest driver and one group driver run as they do in production. While they run only CPU times are read;
everything else is worked out afterwards from the tables' logs. See docs/performance.md.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from deltalake import DeltaTable

from bench import cpu, machine
from bench.command import carry_out
from bench.delay import Delay, delayed
from bench.load import (
    GROUP,
    Load,
    Wanted,
    arrivals,
    done_at,
    landed,
    prepared,
    prove,
    undeclared_sources,
    write_settings,
)
from bench.log import follow
from bench.numbers import backlog_age, block_means, held, quantile, theil_sen
from bench.text import number, table
from listeners.quantile import quantile as bucket_quantile
from pipeline.demo.object_server import ObjectServer
from pipeline.demo.producer import write_landing
from pipeline.lake.storage.places import located
from pipeline.settings.tree import Paths

_DRAIN_SECONDS = 180.0
_BLOCKS = 3  # of a window, at least: with fewer there is no slope


@dataclass(frozen=True, slots=True)
class Look:
    """One look at all processes: CPU seconds by process and role, resident memory by process."""

    at: float
    cpu_seconds: Mapping[str, Mapping[str, float]]
    rss_bytes: Mapping[str, int]
    shared_out_bytes: Mapping[str, int]  # a page of several processes divided among them


def main() -> None:
    """Run, print and keep the result; the exit code says whether the rate was held and completeness was proven."""
    options = _options()
    result = carry_out(options, lambda folder: _run(options, folder / "env"), _report)
    sys.exit(0 if result["held"] and result["completeness"]["complete"] else 1)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.sustain", description=__doc__.splitlines()[0])
    parser.add_argument("--games", type=int, default=300)
    parser.add_argument("--rate", type=float, default=8000.0, help="events per second")
    parser.add_argument(
        "--formats",
        default="protobuf",
        help="dealt to the games in turn, with commas; of protobuf,avro,json a third of the games has JSON",
    )
    parser.add_argument(
        "--undeclared",
        action="store_true",
        help="let a third of the games send JSON that nobody declared, into a second landing table",
    )
    parser.add_argument("--minutes", type=float, default=5.0, help="length of the measured window")
    parser.add_argument("--warm", type=float, default=120.0, help="seconds between the first event and the window")
    parser.add_argument("--ingest-trigger", type=float, default=2.0, help="seconds")
    parser.add_argument("--trigger", type=float, default=5.0, help="seconds between two passes")
    parser.add_argument("--reader", choices=["spark", "direct"], help="what chooses the rows of a pass")
    parser.add_argument("--driver-memory", default="1g", help="heap of each driver")
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--storage", choices=["folder", "s3"], default="folder", help="s3 needs versitygw on PATH")
    parser.add_argument("--latency-ms", type=float, default=30.0, help="added to each request to S3")
    parser.add_argument("--work", type=Path, help="folder for the run's tables, deleted at the end")
    parser.add_argument("--out", type=Path, help="JSON file for the result")
    options = parser.parse_args()
    if options.minutes * 60 < _BLOCKS * _block(options.trigger):
        parser.error(f"--minutes: a slope needs {_BLOCKS} blocks of {_block(options.trigger)} s at this trigger")
    return options


def _block(trigger: float) -> int:
    """Return the seconds of a block: whole triggers, so that the saw tooth cancels out."""
    return max(1, round(4 * trigger))


def _run(options: argparse.Namespace, root: Path) -> dict[str, Any]:
    with _stored(options, root.parent) as (storage, proxy):
        return _measure(options, root, storage, proxy)


@contextmanager
def _stored(options: argparse.Namespace, work: Path) -> Iterator[tuple[Path | None, Delay | None]]:
    """Run an S3 server whose bucket is a folder, and yield that folder: what was written is read there afterwards."""
    if options.storage == "folder":
        yield None, None
        return
    if not ObjectServer.is_kept():
        raise SystemExit("bench.sustain reads a bucket as a folder: put versitygw on PATH.")
    with ObjectServer.start(work / "objects", "bench-key", "bench-secret") as server:
        server.make_bucket("bench")
        with delayed(server.address, options.latency_ms) as proxy:
            os.environ |= {"AWS_ACCESS_KEY_ID": "bench-key", "AWS_SECRET_ACCESS_KEY": "bench-secret"}
            os.environ["AWS_ENDPOINT_URL"] = proxy.address
            yield work / "objects" / "buckets" / "bench", proxy


def _measure(options: argparse.Namespace, root: Path, storage: Path | None, proxy: Delay | None) -> dict[str, Any]:
    wanted = Wanted(
        options.games,
        options.rate,
        formats=options.formats,
        undeclared=max(1, options.games // 3) if options.undeclared else 0,
    )
    documents = str(root.with_name("documents")) if storage is None else "s3://bench/documents"
    settings, there = write_settings(
        root,
        {
            **(undeclared_sources(documents) if options.undeclared else {}),
            **({} if storage is None else {"storage": {"root": "s3://bench/env"}}),
            "ingest": {"trigger_seconds": options.ingest_trigger},
            "demux": {"trigger_seconds": options.trigger}
            | ({} if options.reader is None else {"reader": options.reader}),
            "spark": {"driver_memory": options.driver_memory, "master": options.master},
        },
    )
    paths = there if storage is None else Paths(root, str(storage / "env"))
    with prepared(settings, paths) as load:
        if options.undeclared:
            write_landing(located(documents), iter(()), bar=False)  # ingest wants the table
            load.landings.append(str((root.parent if storage is None else storage) / "documents"))
        load.start_ingest()
        load.start("group", "groups", "run", GROUP)
        load.await_query(paths.checkpoints / "demux" / GROUP)
        keys = load.send(wanted)
        _say(f"{len(keys)} games are known; warming for {options.warm:g} s")
        _watch(load, options.warm)
        _say("measuring")
        asked = {} if proxy is None else proxy.requests()
        before, first = cpu.read_all(), _look(load)
        _watch(load, options.minutes * 60)
        requests = {} if proxy is None else {kind: count - asked[kind] for kind, count in proxy.requests().items()}
        after, last = cpu.read_all(), _look(load)
        others = machine.others(before, after, last.at - first.at, os.getpid())
        for name in wanted.simulators():
            load.stop(name)
        _say("draining")
        drained_in = _drain(load)
        load.stop("group")
        load.stop("ingest")
    _say("verifying")
    if proxy is not None:
        os.environ["AWS_ENDPOINT_URL"] = proxy.upstream  # what follows is not measured
    result = _analyse(options, paths, keys, first, last)
    proof = prove(paths, "--complete")
    return {
        "machine": machine.describe(),
        "options": {name: str(value) for name, value in vars(options).items() if name not in {"work", "out"}},
        "other_cores": others,
        "drained_in_seconds": drained_in,
        "requests": requests,
        **result,
        "completeness": json.loads(proof.stdout.splitlines()[-1])
        if proof.stdout
        else {"complete": False, "said": proof.stderr},
    }


def _watch(load: Load, seconds: float) -> None:
    """Let time pass, unless a process ends."""
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        load.look()
        time.sleep(min(1.0, left))


def _look(load: Load) -> Look:
    stats = cpu.read_all()
    trees = {name: (pid, cpu.tree(stats, pid)) for name, pid in load.pids().items()}
    return Look(
        at=time.time(),
        cpu_seconds={name: cpu.by_role(members, pid) for name, (pid, members) in trees.items()},
        rss_bytes={name: cpu.total(members).rss_bytes for name, (_, members) in trees.items()},
        shared_out_bytes={name: cpu.shared_out(members) for name, (_, members) in trees.items()},
    )


def _drain(load: Load) -> float:
    """Wait until ingest finds nothing more and every table has what bronze has; return how long it took."""
    began = time.monotonic()
    load.until(lambda: not load.landing_behind() and not load.games_behind(), "end of the backlog", _DRAIN_SECONDS)
    return round(time.monotonic() - began, 1)


def _analyse(options: argparse.Namespace, paths: Paths, keys: Sequence[str], first: Look, last: Look) -> dict[str, Any]:
    work = arrivals(Path(paths.bronze))
    logs = follow(Path(paths.table(key)) for key in keys)
    for log in logs.values():
        log.read()
    commits = {key: log.commits for key, log in logs.items()}
    done = done_at(work, commits)
    at_landing, at_bronze = landed(paths)
    seconds = last.at - first.at
    moments = np.arange(first.at, last.at, 1.0).tolist()
    ages = {
        "landing to bronze": backlog_age(moments, at_landing.tolist(), at_bronze.tolist()),
        "bronze to tables": backlog_age(moments, work.bronze_at.tolist(), done.tolist()),
        "source to tables": backlog_age(moments, work.source_at.tolist(), done.tolist()),
    }
    backlog = {name: _judge(values, _block(options.trigger), seconds, options.trigger) for name, values in ages.items()}
    inside = [each for log in commits.values() for each in log if first.at <= each.at < last.at and each.rows]
    bronze = follow([Path(paths.bronze)])["bronze"]
    bronze_commits = [each for each in bronze.read() if first.at <= each.at < last.at and each.rows]
    exact = (done - work.source_at)[(done >= first.at) & (done < last.at)]
    reported = _reported(paths, first.at, last.at)
    cores = {
        name: {role: (used - first.cpu_seconds[name][role]) / seconds for role, used in roles.items()}
        for name, roles in last.cpu_seconds.items()
    }
    group, ingest = sum(cores["group"].values()), sum(cores["ingest"].values())
    return {
        "held": all(each["held"] for each in backlog.values()),
        "seconds": seconds,
        "backlog_age_seconds": backlog,
        "cores": cores,
        "rss_mib": {name: size / 2**20 for name, size in last.rss_bytes.items()},
        "pss_mib": {name: size / 2**20 for name, size in last.shared_out_bytes.items()},
        "events_per_second_into_bronze": sum(each.rows for each in bronze_commits) / seconds,
        "events_per_second_into_tables": sum(each.rows for each in inside) / seconds,
        "bronze_commits": len(bronze_commits),
        "table_commits": len(inside),
        "passes": reported["passes"],
        "pass_seconds_p50": reported["pass_p50"],
        "pass_seconds_max": reported["pass_max"],
        "each_pass": reported["each"],
        "group_cpu_ms_per_table_commit": group * seconds * 1000 / len(inside) if inside else None,
        "ingest_cpu_ms_per_1000_events": ingest * seconds * 1e6 / sum(each.rows for each in bronze_commits),
        "source_to_table_seconds": {
            "metrics table p50": reported["p50"],
            "metrics table p99": reported["p99"],
            "logs p50 (oldest row of a game in a bronze commit)": quantile(exact, 0.5),
            "logs p99": quantile(exact, 0.99),
        },
    }


def _judge(ages: Sequence[float], block: int, seconds: float, trigger: float) -> dict[str, Any]:
    """Judge one backlog by the slope of its age over blocks of seconds."""
    means = block_means(ages, block)
    slope = theil_sen([block * at for at in range(len(means))], means)
    return {
        "held": held(slope, seconds, trigger),
        "slope_seconds_per_minute": slope.per_second * 60,
        "slope_low": slope.low * 60,
        "slope_high": slope.high * 60,
        "first_block": means[0],
        "last_block": means[-1],
        "median": quantile(ages, 0.5),
        "largest": max(ages),
        "blocks": [round(mean, 2) for mean in means],
    }


def _reported(paths: Paths, begin: float, end: float) -> dict[str, Any]:
    """Return latency (from histograms) and pass lengths of the window, from the metrics table."""
    rows = DeltaTable(paths.metrics / "stream_batch").to_pandas(
        columns=["run_id", "batch_id", "finished_at", "latency_counts", "pass_seconds", "input_rows", "durations"]
    )
    moments = [datetime.fromtimestamp(each, UTC) for each in (begin, end)]
    rows = rows[(rows["finished_at"] >= moments[0]) & (rows["finished_at"] < moments[1])]
    counts = np.sum([list(each) for each in rows["latency_counts"]], axis=0).tolist()
    ordered = rows.drop_duplicates(["run_id", "batch_id", "finished_at"]).sort_values("finished_at")
    passes = ordered["pass_seconds"].tolist()
    return {
        "p50": bucket_quantile(counts, 0.5),
        "p99": bucket_quantile(counts, 0.99),
        "passes": len(passes),
        "pass_p50": quantile(passes, 0.5),
        "pass_max": max(passes),
        "each": [_pass(row, begin) for row in ordered.to_dict("records")],
    }


def _pass(row: Mapping[Any, Any], begin: float) -> dict[str, Any]:
    """Return one pass as plain values; what Spark did not tell is None."""
    rows, durations = row["input_rows"], row["durations"]
    return {
        "at": round(row["finished_at"].timestamp() - begin, 1),
        "seconds": round(row["pass_seconds"], 2),
        "rows": int(rows) if rows is not None and rows >= 0 else None,  # pandas makes the unknown NaN
        "durations_ms": None if durations is None else dict(durations),
    }


def _report(result: Mapping[str, Any]) -> str:
    lines = [f"{name}: {value}" for part in ("machine", "options") for name, value in result[part].items()]
    lines.append(f"others on the machine, cores: {result['other_cores'] or 'nobody'}\n")
    rows = [
        [name, "yes" if each["held"] else "NO", *(number(each[key]) for key in _BACKLOG)]
        for name, each in result["backlog_age_seconds"].items()
    ]
    lines.append(table(["age of the backlog, seconds", "held", *(name.replace("_", " ") for name in _BACKLOG)], rows))
    roles = ("driver", "jvm", "workers")
    rows = [
        [
            name,
            *(number(each[role]) for role in roles),
            number(sum(each.values())),
            *(number(result[kind][name]) for kind in ("rss_mib", "pss_mib")),
        ]
        for name, each in result["cores"].items()
    ]
    lines += ["", table(["cores", "python driver", "JVM", "python workers", "sum", "RSS MiB", "PSS MiB"], rows), ""]
    plain = {name: value for name, value in result.items() if isinstance(value, int | float)}
    plain |= result["source_to_table_seconds"]
    lines += [
        f"{name.replace('_', ' ')}: {value if isinstance(value, bool) else number(value)}"
        for name, value in plain.items()
    ]
    for kind, count in result["requests"].items():
        lines.append(f"requests of {kind}: {count}, {count / result['seconds']:.1f} per second")
    lines.append(f"completeness: {'complete' if result['completeness'].get('complete') else result['completeness']}")
    lines.append("HELD" if result["held"] else "NOT held")
    return "\n".join(lines)


_BACKLOG = ("slope_seconds_per_minute", "slope_low", "slope_high", "first_block", "last_block", "median", "largest")


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
