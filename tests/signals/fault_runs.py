"""Faults in a real demo, in a random order: after how many seconds is the status right, and is the cause?

`python -m tests.signals.fault_runs --seed 1` starts `turnout demo` in a folder of its own, breaks and mends it by
`turnout demo break`, and looks as people do: `turnout status --json`, `/metrics` of each process, the Fleet page's
readers and headline, and `turnout incidents --json`. A look every second; seconds count from when the demo says that
the fault is done to the end of the look.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any, Final

from click.testing import CliRunner
from prometheus_client.parser import text_string_to_metric_families
from streamlit.logger import set_log_level

from app.fleet import headline, incidents
from app.fleet.signals import Signals
from app.state import judged, services
from app.state.services import Environment
from bench import machine
from bench.text import table
from pipeline.base.errors import Refused
from pipeline.base.failpoints import ENVIRON, HANG_SECONDS
from pipeline.base.names import game_key
from pipeline.base.private_files import write_file
from pipeline.cli.main import cli
from pipeline.demo.breaking import channel
from pipeline.demo.server_process import free_ports
from pipeline.settings.tree import Paths
from tests.signals.fault_signs import SLOW_SINK, Metrics, Opened, Sample, Signs, View, is_about, signs_of

GROUPS: Final = ("a", "b")
PROMISED: Final = game_key("Night Drift")
"""The game with the demo's output contract."""

CALM_SECONDS: Final = 150.0
"""The judgement of causes learns the usual rates within two calm minutes."""

_SLOW_POINTS: Final = ("mid_data_files", "between_table_commits")
_SLOWED: Final = 500  # commits, at most
_LOOK_SECONDS: Final = 1.0
_SCRAPE_SECONDS: Final = 1.5
_READY_SECONDS: Final = 600.0
_WELL_SECONDS: Final = 600.0
_STAYS_SECONDS: Final = 12.0  # two looks at causes: what was found must last
_SURFACES: Final = ("command", "metrics", "page")


@dataclass(frozen=True, slots=True)
class Seen:
    """One look at everything."""

    at: float
    views: Mapping[str, View]  # command, page
    metrics: Metrics


@dataclass(slots=True)
class Run:
    """One fault, and what was seen of it; seconds are None where it was not seen in time."""

    fault: str
    target: str
    limit_seconds: float
    expected: str
    seconds: dict[str, float | None] = field(default_factory=lambda: dict.fromkeys(_SURFACES))
    first_cause: str | None = None
    cause: str | None = None  # in the end
    cause_seconds: float | None = None  # of the expected one
    title: str | None = None
    others: list[str] = field(default_factory=list)  # incidents about anything else, and other causes on the way
    well_again_seconds: float | None = None
    coped: bool = False  # nothing was late

    @property
    def in_time(self) -> bool:
        """Whether each surface had the right status within its limit."""
        return self.coped or all(each is not None and each <= self.limit_seconds for each in self.seconds.values())

    @property
    def is_right(self) -> bool:
        """Whether the cause is the right one in the end; a fault that did no harm has none."""
        return self.cause is None if self.coped else self.cause == self.expected


class Demo:
    """A running demo, as people see it."""

    def __init__(self, env: Path) -> None:
        """Look at an environment."""
        self.env, self.paths = env, Paths(env)
        self.failpoints = env.parent / "failpoints"
        self._pool = ThreadPoolExecutor(4)
        self._page: Environment | None = None

    def run(self, *words: str) -> str:
        """Run a command of turnout and return what it printed.

        Raises:
            AssertionError: its exit code says more than that a person should look.
        """
        done = CliRunner().invoke(cli, [*words, "--env-dir", str(self.env)])
        assert done.exit_code in {0, 1}, done.output
        return done.output

    def begin(self, fault: str, target: str) -> str:
        """Do a fault, and return what was done."""
        if fault == SLOW_SINK:
            armed = [line for point in _SLOW_POINTS for line in self._hangs(point)]
            write_file(self.failpoints / "armed", "\n".join(armed))
            return f"Each write of a file and each commit of a game's table takes {HANG_SECONDS:g} s more."
        return self.run("demo", "break", fault, target).splitlines()[0]

    def _hangs(self, point: str) -> list[str]:
        """Return the faults that let each next hit of a fail-point hang."""
        hits = self.failpoints / f"{point}.hits"
        number = len(hits.read_text("utf-8").splitlines()) if hits.exists() else 0
        return [f"{point} hang {each}" for each in range(number, number + _SLOWED)]

    def end(self, fault: str, target: str) -> None:
        """End a fault, if it lasts."""
        if fault == SLOW_SINK:
            write_file(self.failpoints / "armed", "")
        elif any((each.fault, each.target) == (fault, target) for each in channel.look(self.paths).active):
            _say(self.run("demo", "mend", fault, target).strip())

    def look(self) -> Seen:
        """Read everything once."""
        metrics = self._pool.submit(self.metrics)
        views = {"command": self.command(), "page": self.page()}
        return Seen(time.time(), views, metrics.result())

    def command(self) -> View:
        """Return what `turnout status --json` and `turnout incidents --json` say."""
        said = json.loads(self.run("status", "--json").splitlines()[-1])
        found = json.loads(self.run("incidents", "--json").splitlines()[-1])
        return View(
            {(each["kind"], each["name"]): each["state"] for each in said["drivers"]},
            {each["game_key"]: (each["group"], each["status"]) for each in said["games"]},
            said["healthy"],
            " | ".join([said["headline"], *(each["text"] for each in said["problems"])]),
            tuple(
                Opened(
                    each["incident_id"], each["cause"], each["title"], each["group"], tuple(each["games"]), each["tone"]
                )
                for each in found["incidents"]
                if each["ended_at"] is None
            ),
        )

    def page(self) -> View:
        """Return what the Fleet page reads, and how its sentence and rows put it."""
        if self._page is None:
            self._page = services.open_environment(["--env-dir", str(self.env)], {})
        fleet = services.fleet(self._page)
        try:
            found, why = judged.incidents(self._page), {}
        except Refused as refused:
            found, why = None, {"incidents": str(refused)}
        seconds = self._page.settings.metrics.latency_objective_seconds
        signals = Signals(fleet, seconds, incidents=found, whys=why)
        said, rows = headline.headline(signals), incidents.rows(signals)
        shown = {row.row_id for row in rows}
        return View(
            {(each.kind, each.name): each.liveness.state for each in fleet.judgement.drivers},
            {row.game_key: (row.group, row.verdict.status) for row in fleet.rows},
            said.tone == "well",
            " | ".join([said.text, said.meta, *(f"{row.title} {row.about}" for row in rows)]),
            tuple(
                Opened(each.incident_id, str(each.finding.cause), each.finding.title, each.group, each.games, each.tone)
                for each in found or ()
                if each.ended_at is None and any(each.incident_id in row_id for row_id in shown)
            ),
        )

    def metrics(self) -> Metrics:
        """Scrape every process that Prometheus would."""
        files = sorted(self.paths.targets.glob("*.json"))
        return dict(zip([each.stem for each in files], self._pool.map(_scrape, files), strict=True))

    def with_games(self, target: str) -> str:
        """Return a group, or another one where a crash loop has had its games isolated."""
        carrying = sorted({group for group, _ in self.command().games.values() if group is not None})
        return target if target not in GROUPS or target in carrying else carrying[0]

    def well(self) -> str | None:
        """Return why the demo is not well; None: every stream runs, and no incident but of refused rows is open."""
        view = self.command()
        states = {f"{kind} {name} {state}" for (kind, name), state in view.drivers.items() if state != "running"}
        bad = sorted(f"{key} {status}" for key, (_, status) in view.games.items() if status != "RUNNING")
        opened = [each.title for each in view.incidents if each.cause not in {"poison data", "schema"}]
        left = [*sorted(each for each in states if not each.startswith("maintenance")), *bad, *opened]
        return None if view.games and not left else "; ".join(left[:4]) or "no game"


def _scrape(file: Path) -> list[Sample] | None:
    try:
        (group,) = json.loads(file.read_text("utf-8"))
        with urllib.request.urlopen(f"http://{group['targets'][0]}/metrics", timeout=_SCRAPE_SECONDS) as answer:
            text = answer.read().decode()
    except (OSError, urllib.error.URLError, ValueError):
        return None
    families = text_string_to_metric_families(text)
    return [Sample(each.name, each.labels, each.value) for family in families for each in family.samples]


@contextmanager
def running(folder: Path, games: int, rate: float, seed: int) -> Iterator[Demo]:
    """Start a demo with temporary files in `folder`, too; yield it once it is well, and end it by Ctrl-C."""
    env, temporary = folder / "env", folder / "tmp"
    env.mkdir(parents=True)
    temporary.mkdir()
    (folder / "failpoints").mkdir()
    dashboard, catalog = free_ports(None, 1)
    (env / "turnout.toml").write_text(f"[dashboard]\nport = {dashboard}\n[access]\nport = {catalog}\n")
    options = ("--games", str(games), "--versions", "3", "--rate", str(rate), "--seed", str(seed))
    command = [sys.executable, "-m", "pipeline", "demo", *options, "--env-dir", str(env)]
    environ = {**os.environ, "TMPDIR": str(temporary), ENVIRON: str(folder / "failpoints")}
    with (folder / "demo.log").open("wb") as log:
        process = subprocess.Popen(command, stderr=log, env=environ)
        try:
            demo = Demo(env)
            wait(lambda: None if channel.is_offered(demo.paths) else "no demo", _READY_SECONDS)
            wait(lambda: _count(demo, games), _READY_SECONDS)
            wait(demo.well, _READY_SECONDS)
            yield demo
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(180)


def _count(demo: Demo, games: int) -> str | None:
    found = len(demo.command().games)
    return None if found == games else f"{found} of {games} games"


def wait(why_not: Callable[[], str | None], seconds: float) -> float:
    """Look until nothing is missing; return how many seconds that took.

    Raises:
        AssertionError: it takes too long.
    """
    began = time.monotonic()
    while (why := why_not()) is not None:
        assert time.monotonic() - began < seconds, f"not within {seconds:g} s: {why}"
        time.sleep(_LOOK_SECONDS)
    return time.monotonic() - began


def plan(seed: int, games: Sequence[str], only: Sequence[str] = ()) -> list[tuple[str, str]]:
    """Return faults with targets in a random order; no game is broken twice, as refused rows count for minutes.

    Late rows are left out, as they break nothing.
    """
    random = Random(seed)
    own = random.sample(sorted({*games} - {PROMISED}), 3)
    faults = [(name, random.choice(GROUPS)) for name in ("kill", "freeze", "crash", "starve", "disk")]
    faults += [("freeze", "ingest"), ("lock", ""), ("silence", ""), (SLOW_SINK, "")]
    faults += [*zip(("poison", "quarantine", "schema"), own, strict=True), ("contract", PROMISED)]
    random.shuffle(faults)
    return [each for each in faults if not only or each[0] in only]


def calm(demo: Demo, seconds: float) -> list[str]:
    """Look on for a while, and return what was raised meanwhile."""
    raised, until = set[str](), time.monotonic() + seconds
    while time.monotonic() < until:
        view = demo.command()
        raised |= {f"{each.cause}: {each.title}" for each in view.incidents}
        raised |= set() if view.is_well else {view.text}
        time.sleep(5.0)
    return sorted(raised)


def break_it(demo: Demo, fault: str, target: str) -> Run:
    """Do a fault, look until all is seen and has lasted, or its time is over, end it, and wait until all is well."""
    signs = signs_of(fault, target)
    run = Run(fault, target, signs.limit_seconds, str(signs.cause))
    before = demo.look()
    groups = {key: group for key, (group, _) in before.views["command"].games.items()}
    known = before.views["command"].incidents
    _say(f"{fault} {target}: {demo.begin(fault, target)}")
    began = time.time()
    complete_at, harmed = None, False
    while True:
        seen = demo.look()
        passed = seen.at - began
        _note(run, signs, before, seen, passed)
        opened = newly_open(known, seen.views["command"].incidents)
        about = [each for each in opened if is_about(each, signs, target, groups)]
        harmed = harmed or bool(opened) or not seen.views["command"].is_well
        _note_causes(run, opened, about, passed)
        is_complete = run.cause == run.expected and None not in run.seconds.values()
        complete_at = (complete_at or passed) if is_complete else None
        if complete_at is not None and passed - complete_at > _STAYS_SECONDS:
            break
        if passed > max(signs.limit_seconds, signs.cause_seconds) + _STAYS_SECONDS:
            break
        time.sleep(_LOOK_SECONDS)
    run.coped = signs.may_cope and not harmed
    demo.end(fault, target)
    run.well_again_seconds = round(wait(demo.well, _WELL_SECONDS), 1)
    return run


def newly_open(known: Sequence[Opened], now: Sequence[Opened]) -> list[Opened]:
    """Return the incidents that were not open before, and those that a game has joined."""
    games = {each.incident_id: {*each.games} for each in known}
    return [each for each in now if each.incident_id not in games or {*each.games} - games[each.incident_id]]


def _note(run: Run, signs: Signs, before: Seen, seen: Seen, passed: float) -> None:
    """Note the surfaces on which the status is right now for the first time, or is not right any more."""
    right = {name: signs.view(view, run.target) for name, view in seen.views.items()}
    right["metrics"] = signs.metrics(before.metrics, seen.metrics, run.target, seen.at)
    for name, is_right in right.items():
        if is_right and run.seconds[name] is None:
            run.seconds[name] = round(passed, 1)
            _say(f"  {passed:5.1f} s  {name}: {seen.views[name].text[:140] if name in seen.views else 'seen'}")


def _note_causes(run: Run, opened: Sequence[Opened], about: Sequence[Opened], passed: float) -> None:
    active = [each for each in about if each.tone != "recovering"]
    said = {each.cause: each.title for each in active}
    if run.first_cause is None and said:
        run.first_cause = next(iter(said))
    if run.expected in said:
        if run.cause_seconds is None:
            run.cause_seconds = round(passed, 1)
            _say(f"  {passed:5.1f} s  cause: {said[run.expected][:140]}")
        run.cause, run.title = run.expected, said[run.expected]
    elif said:
        run.cause, run.title = next(iter(said.items()))
    for each in opened:
        note = f"{each.cause}: {each.title}"
        is_other = each.cause != run.expected or each not in about
        if is_other and each.tone != "recovering" and note not in run.others:
            run.others.append(note)
            _say(f"  {passed:5.1f} s  other: {note}")


def report(runs: Sequence[Run]) -> str:
    """Return the table of runs, and how many were right."""
    rows = [
        (
            f"{run.fault} {run.target[:20]}".strip(),
            *(_seconds(run.seconds[name]) for name in _SURFACES),
            f"{run.limit_seconds:.0f}",
            "yes" if run.in_time else "NO",
            run.cause or ("none, it copes" if run.coped else "none"),
            _seconds(run.cause_seconds),
            "yes" if run.is_right else "NO",
            _seconds(run.well_again_seconds),
        )
        for run in runs
    ]
    header = ("fault", *(f"{name} s" for name in _SURFACES), "limit", "in time", "cause", "s", "right", "well again s")
    in_time, right = sum(run.in_time for run in runs), sum(run.is_right for run in runs)
    others = [f"{run.fault} {run.target}: also {other}" for run in runs for other in run.others]
    return "\n".join([
        table(header, rows), f"status in time: {in_time} of {len(runs)}; right cause: {right} of {len(runs)}", *others,
    ])  # fmt: skip


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}"


def _say(text: str) -> None:
    sys.stderr.write(f"{datetime.now(UTC):%H:%M:%S} {text}\n")
    sys.stderr.flush()


def carry_out(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Run all faults of a seed in a new demo, and return what was seen."""
    set_log_level("ERROR")  # its caches say that no page runs
    runs: list[Run] = []
    began, load = datetime.now(UTC), machine.load_average()
    with running(folder, options.games, options.rate, options.seed) as demo:
        _say("all is well; looking on")
        raised = calm(demo, options.calm)
        games = [key for key, _ in demo.command().games.items()]
        for fault, target in plan(options.seed, games, options.only):
            wait(demo.well, _WELL_SECONDS)
            runs.append(break_it(demo, fault, demo.with_games(target)))
            sys.stderr.write(report(runs) + "\n")
    return {
        "seed": options.seed, "games": options.games, "rate": options.rate, "began": began.isoformat(),
        "load_before": load, "load_after": machine.load_average(), "machine": machine.describe(),
        "raised_while_calm": raised,
        "runs": [{**asdict(run), "in_time": run.in_time, "is_right": run.is_right} for run in runs],
    }  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print the table, keep it; return 0 where nine of ten causes are right and every status was in time."""
    parser = argparse.ArgumentParser(prog="python -m tests.signals.fault_runs", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--games", type=int, default=8)
    parser.add_argument("--rate", type=float, default=200.0)
    parser.add_argument("--calm", type=float, default=CALM_SECONDS, help="seconds to look on before the first fault")
    parser.add_argument("--only", nargs="*", default=(), help="faults; without it all")
    parser.add_argument("--work", type=Path, help="where the demo's folder is made")
    parser.add_argument("--out", type=Path, help="a file for the result as JSON")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="faults-", dir=options.work) as folder:
        result = carry_out(Path(folder), options)
    if options.out is not None:
        options.out.write_text(json.dumps(result, indent=1) + "\n", "utf-8")
    runs = result["runs"]
    sys.stdout.write(f"raised while calm: {result['raised_while_calm'] or 'nothing'}\n")
    return int(10 * sum(run["is_right"] for run in runs) < 9 * len(runs) or not all(run["in_time"] for run in runs))


if __name__ == "__main__":
    sys.exit(main())
