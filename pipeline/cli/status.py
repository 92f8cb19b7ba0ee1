"""The command `turnout status`."""

import sys
from collections import Counter
from pathlib import Path

import click

from pipeline.api.incidents import IncidentsReport
from pipeline.api.status import DriverReport, NamedSourceReport, StatusReport, read
from pipeline.base.terminal import say, say_json
from pipeline.base.texts import age, moment
from pipeline.cli import incidents
from pipeline.cli.context import CommandContext
from pipeline.health.kinds.registry import find


@click.command("status")
@click.option("--all", "show_all", is_flag=True, help="Print every game.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, with every game.")
def status(env_dir: Path, show_all: bool, as_json: bool) -> None:
    """Print the condition in one line, then drivers, games in trouble and operations that need a person.

    Exit code 0: healthy; 1: a person should look, also if something is unknown; 2: no such environment, or its control
    store is not readable. The Fleet page and the alert TurnoutFleetUnhealthy show the same judgement: see
    docs/commands.md#what-is-a-problem. JSON: `healthy`; `headline`; `problems` without those of single games; `drivers`
    with `kind`, `name`, `state` (`not_started`, `starting`, `running`, `stopped`, `failed`, `dead` or `unknown`) and
    `reason`; `games`, every one with `game_key`, `status`, `cause`, `lag_seconds`, `latency_seconds` (`p50`, `p95` and
    `p99` of the last five minutes, `p99_last_minute`), `segments_seconds` (`upstream`, `queue`, `process`,
    `commit`) and `through_time` (docs/through.md); and `source` with `condition` (`level`, `behind`, `late` or
    `unknown`), `text`, `backlog_seconds`, `backlog_rows`, `through_time` of bronze, and `sources` with `name`, `reason`
    and backlog of each of several; `incidents` and `causes_judged` as by `turnout incidents`. Unknown values are null.
    """
    found = read(CommandContext(env_dir).environment)
    if as_json:
        say_json(found)
    else:
        for line in lines(found, show_all=show_all):
            say(line)
    sys.exit(0 if found.healthy else 1)


def lines(found: StatusReport, *, show_all: bool) -> list[str]:
    """Return the status for people; where `show_all`, with a line for every game."""
    made = [found.headline]
    made += [line for each in found.problems if each.kind == "store" for line in each.text.split("\n")]
    problems: dict[tuple[str, str], str] = {(each.kind, each.name): each.text for each in found.problems}
    for each in found.drivers:
        made += _driver_lines(each, problems.get((each.kind, each.name)))
    if found.source.text not in problems.values():
        made.append(found.source.text)
    made += map(_source_line, found.source.sources)
    made.append(_through_line(found))
    counts = Counter(each.status for each in found.games)
    made.append(f"{len(found.games)} games: " + (", ".join(f"{counts[name]} {name}" for name in counts) or "none"))
    made += [f"  left out: {each.text}" for each in found.problems if each.kind == "stream"]
    made += [
        f"  {each.status:<12} {each.game_key:<54} in group {each.group}: {each.cause or 'none reported'}"
        for each in found.games
        if show_all or each.is_own_trouble
    ]
    made += incidents.lines(IncidentsReport(found.causes_judged, found.incidents), brief=True)
    made.append(f"latency is measured from {found.latency_measured_from}")
    made.append(f"{found.open_operations} open operations, {len(found.needs_human)} need a person")
    made += [f"  {each.operation_id[:8]} {each.kind}: {each.outcome}" for each in found.needs_human]
    return made


def _driver_lines(driver: DriverReport, problem: str | None) -> list[str]:
    """Return a driver's state and reason on one line, with details below.

    A kind of process with alarms, such as the controller, has a line of each; an error of several lines is one error.
    """
    reason = driver.reason or ""
    state = f"{driver.kind} {driver.name}: {driver.state.replace('_', ' ')}"
    is_long = "\n" in reason
    if find(driver.kind).has_alarms:
        alarms = f"{reason.count(chr(10)) + 1} alarms" if is_long else reason
        return [f"{state} ({alarms})" if alarms else state, *_indented(problem)]
    if is_long:
        return [state, *_indented(problem or reason)]
    is_said = problem is None or problem.endswith(reason or driver.state)
    return [f"{state} ({reason})" if reason else state, *_indented(None if is_said else problem)]


def _source_line(source: NamedSourceReport) -> str:
    rows = "an unknown number of" if source.backlog_rows is None else f"{source.backlog_rows:,}"
    age = "unknown" if source.backlog_seconds is None else f"{source.backlog_seconds:.0f} s"
    why = f" ({source.reason})" if source.reason else ""
    return f"  source {source.name}: {rows} rows wait, age of the oldest {age}{why}"


def _through_line(found: StatusReport) -> str:
    """Say how far the games are complete: the least complete one, and how many are unknown."""
    known = {each.game_key: each.through_time for each in found.games if each.through_time is not None}
    if not known:
        return "no game is known to be complete through any time"
    key = min(known, key=lambda each: (known[each], each))
    unknown = len(found.games) - len(known)
    others = f"; of {unknown} no time is known" if unknown else ""
    behind = max(0.0, found.at - known[key])
    return f"the least complete game is {key}: through {moment(known[key])}, {age(behind)} behind{others}"


def _indented(text: str | None) -> list[str]:
    return [f"  {line}" for line in (text or "").split("\n") if line]
