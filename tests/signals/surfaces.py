"""Reads each surface by its own code at one moment, and compares: page, command, /metrics."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from app import formatting
from app.fleet import blocks, choice, figures, headline, incidents, strip, table
from app.fleet.signals import Signals
from app.game import figures as game_figures
from app.game.signals import GameSignals
from app.look.parts import Figure
from listeners.quantile import quantile
from listeners.sample import LATENCY_EDGES_SECONDS
from listeners.status import Status
from pipeline.api.environment import OpenEnvironment
from pipeline.api.incidents import read_current
from pipeline.api.status import StatusReport, read
from pipeline.base.errors import Refused
from pipeline.base.terminal import rendered
from pipeline.cli import status
from pipeline.health.facts.fleet import Fleet, GameRow, read_fleet
from pipeline.health.facts.incidents import read_incidents
from pipeline.health.headlines.pages import of_fleet
from pipeline.health.incidents.incidents import Incident
from pipeline.health.verdicts.liveness import HEARTBEAT_SECONDS, heartbeat_limit
from pipeline.store.rows import CLOCK_BOUND_SECONDS
from tests.signals.histories import OBJECTIVE, History, Running
from tests.unit.health.headlines.headline_world import check as check_headlines

SHARES: Final = (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))
_EDGES: Final = (*(str(each) for each in LATENCY_EDGES_SECONDS), "+Inf")

Samples = Mapping[tuple[str, frozenset[tuple[str, str]]], float]


def read_page(history: History) -> Fleet:
    """Read the fleet as `app.state.services.fleet` does for all viewers."""
    return read_fleet(history.engine, settings=history.world.settings)


def read_command(history: History) -> StatusReport:
    """Read what `turnout status` prints."""
    return read(OpenEnvironment(history.world.settings, history.world.paths, history.engine))


def as_json(command: StatusReport) -> dict[str, Any]:
    """Return what `turnout status --json` prints."""
    found: dict[str, Any] = json.loads(json.dumps(rendered(command)))
    return found


def scrape(process: Running | None) -> Samples | None:
    """Return what Prometheus reads of a process; None where it does not answer."""
    if process is None or process.is_killed:
        return None
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in process.telemetry.registry.collect()
        for sample in family.samples
    }


def by_label(samples: Samples, name: str, label: str) -> dict[str, float]:
    """Return the values of a metric by one of its labels."""
    return {dict(labels)[label]: value for (each, labels), value in samples.items() if each == name}


def only(samples: Samples, name: str) -> float | None:
    """Return the value of a metric without labels; None where it is absent, which says unknown."""
    return samples.get((name, frozenset()))


@dataclass(frozen=True)
class Word:
    """A stream's own status and numbers in /metrics, as far as they count."""

    status: str
    backlog: float | None
    counts: tuple[int, ...]
    group: str


def words(scraped: Samples | None, group: str, now: float) -> dict[str, Word]:
    """Return what a group's driver exports of its streams; nothing where nobody can rely on it.

    As docs/metrics.md has it: a stream's series count while their driver's heartbeat is young.
    """
    beat = beat_of(scraped, group)
    if scraped is None or beat is None or not _is_young(now - beat):
        return {}
    found = {}
    ages = by_label(scraped, "turnout_stream_backlog_age_seconds", "game")
    buckets: dict[str, dict[str, float]] = {}
    for (name, labels), value in scraped.items():
        if name == "turnout_stream_latency_seconds_bucket":
            of = dict(labels)
            buckets.setdefault(of["game"], {})[of["le"]] = value
    for (name, labels), value in scraped.items():
        of = dict(labels)
        if name == "turnout_stream_status" and value == 1:
            upto = [int(buckets[of["game"]][edge]) for edge in _EDGES] if of["game"] in buckets else [0] * len(_EDGES)
            counts = tuple(later - earlier for earlier, later in zip([0, *upto], upto, strict=False))
            found[of["game"]] = Word(of["status"], ages.get(of["game"]), counts, of["cluster_group"])
    return found


def beat_of(scraped: Samples | None, group: str) -> float | None:
    """Return the last heartbeat of a group's driver in /metrics (Unix seconds by its clock)."""
    heard = "turnout_group_heartbeat_timestamp_seconds"
    return None if scraped is None else by_label(scraped, heard, "cluster_group").get(group)


def _is_young(age: float) -> bool:
    return -CLOCK_BOUND_SECONDS <= age <= heartbeat_limit(HEARTBEAT_SECONDS)


def figure(items: Sequence[Figure], label: str) -> Figure:
    return next(each for each in items if each.label == label)


def judged(history: History, page: Fleet) -> tuple[Incident, ...] | None:
    """Return the incidents that are known now; None where nobody has judged them lately."""
    environment = OpenEnvironment(history.world.settings, history.world.paths, history.engine)
    try:
        return read_current(environment, page)
    except Refused:
        return None


def compare(history: History) -> Fleet:
    """Let ingest judge, read all surfaces at that moment, and fail where two differ."""
    history.judge()
    page, command = read_page(history), read_command(history)
    _compare_page_and_command(history, page, command)
    _compare_metrics(history, page)
    return page


def _compare_page_and_command(history: History, page: Fleet, report: StatusReport) -> None:
    judgement, command = page.judgement, as_json(report)
    assert command["healthy"] == judgement.healthy
    reported = {each["game_key"]: each for each in command["games"]}
    assert reported.keys() == {row.game_key for row in page.rows}
    assert {key: each["status"] for key, each in reported.items()} == {r.game_key: r.verdict.status for r in page.rows}
    counts = Counter(each["status"] for each in command["games"])
    assert choice.counts(page.rows) == counts, "the filters count what the command lists"
    found = judged(history, page)
    signals = Signals(page, OBJECTIVE, None, None, found)
    _compare_head(signals, command, status.lines(report, show_all=False))
    check_headlines(signals.situation, (), report.open_operations, len(report.needs_human))
    _compare_lists(page, reported, signals)
    for row in page.rows:
        _compare_game(page, row, reported[row.game_key])


def _compare_head(signals: Signals, command: Mapping[str, Any], lines: Sequence[str]) -> None:
    """The sentence is green only where the command says healthy, and each trouble has a row."""
    said, rows = headline.headline(signals), incidents.rows(signals)
    is_open = any(each["ended_at"] is None for each in command["incidents"])
    assert command["headline"] == of_fleet(signals.situation).line == lines[0]
    assert command["headline"].startswith(said.text)
    if not command["healthy"]:
        assert said.tone not in {"well", "busy", "plain"}, said
        assert rows, "no trouble is left out"
    elif not is_open and signals.fleet.judgement.quiet_since is None:
        assert said.tone in {"well", "busy", "plain"}, said
        assert rows == []
    for each in command["problems"]:
        if each["kind"] != "operation":
            first = each["text"].split("\n")[0]
            assert any(each["name"] in line or first in line for line in lines), f"{each} is not printed"


def _compare_lists(page: Fleet, reported: Mapping[str, Mapping[str, Any]], signals: Signals) -> None:
    listed = table.table(page, page.rows, choice.labels(page.rows), None, signals.incidents)
    words_of = [formatting.status_text(reported[row.game_key]["status"]) for row in page.rows]
    assert [each[0] for each in listed["status"].to_pylist()] == words_of
    p99 = [reported[row.game_key]["latency_seconds"]["p99"] for row in page.rows]
    assert listed["p99"].to_pylist() == [None if each is None else formatting.duration(each) for each in p99]
    lag = [reported[row.game_key]["lag_seconds"] for row in page.rows]
    assert listed["backlog"].to_pylist() == [None if each is None else formatting.duration(each) for each in lag]
    cells = {each.key: each for block in blocks.blocks(page, page.rows, {}, (), stale=False) for each in block.cells}
    assert {key: cell.status for key, cell in cells.items()} == {key: each["status"] for key, each in reported.items()}
    now = strip._now(signals.situation, page.read_at, known=True)
    if page.rows:
        ill = sum(signals.situation.severity_of(row) in {"bad", "late"} for row in page.rows)
        assert ill >= sum(Status(each["status"]).is_trouble for each in reported.values())
        is_ill = any(each.is_trouble for each in signals.situation.standings)
        assert round((now.bad + now.late) * len(page.rows)) == (ill or int(is_ill))
    running = [each for each in reported.values() if each["status"] != "PAUSED"]
    known = [each["lag_seconds"] for each in running if each["lag_seconds"] is not None]
    shown = figure(figures.figures(signals), "Oldest backlog")
    assert shown.value == (formatting.duration(max(known)) if known else formatting.UNKNOWN_VALUE)


def _compare_game(page: Fleet, row: GameRow, reported: Mapping[str, Any]) -> None:
    latency, live = reported["latency_seconds"], row.live
    for name in ("p50", "p95", "p99"):
        assert latency[name] == (None if live is None else getattr(live, f"latency_{name}_seconds"))
    shown = game_figures.figures(GameSignals(page, row, OBJECTIVE))
    for label, value in (("Oldest backlog", reported["lag_seconds"]), ("Latency p99", latency["p99_last_minute"])):
        one = figure(shown, label)
        text = f"{one.value} {one.unit}".strip()
        assert text == (formatting.duration(value) if value is not None else formatting.UNKNOWN_VALUE), label
    assert game_figures.slots(GameSignals(page, row, OBJECTIVE))[-1].title.endswith(
        formatting.STATUS_STYLES[reported["status"]].word
    )


def _compare_metrics(history: History, page: Fleet) -> None:
    """The words that drivers export are those that count, and what ingest exports is the judgement of its beat."""
    running = {name: history.processes.get(("group", name)) for name in history.groups}
    exported = {name: words(scrape(process), name, page.read_at) for name, process in running.items()}
    for row in page.rows:
        process = running.get(row.group or "")
        if row.group is not None and (process is None or _is_before_start(row, process, history)):
            continue  # a moment ago it was killed, or the clock was set back: surfaces learn that at their own pace
        if process is not None and process.is_failing and abs(process.skew) > CLOCK_BOUND_SECONDS:
            continue  # the judgement knows the failure, Prometheus sees a heartbeat with a wrong clock
        if process is not None and _is_dated_across_the_limit(process, page.read_at):
            continue  # its clock is wrong by seconds: Prometheus calls it silent as many seconds earlier or later
        _compare_word(row, exported.get(row.group or "", {}).get(row.game_key), page)
    ingest = history.processes.get(("ingest", "main"))
    if ingest is None or ingest.is_hung or history.clock.is_store_away:
        return
    seen = scrape(ingest)
    assert seen is not None
    assert by_label(seen, "turnout_fleet_problems", "problem") == page.judgement.count_problems()
    assert set(by_label(seen, "turnout_fleet_group_stopped", "cluster_group")) == set(page.judgement.stopped_groups)
    assert by_label(seen, "turnout_fleet_group_down", "cluster_group") == page.judgement.wanted_groups
    assert by_label(seen, "turnout_fleet_game_stranded", "game").keys() == dict(page.stranded_games).keys()
    source = page.judgement.source
    assert only(seen, "turnout_source_backlog_seconds") == source.age_seconds
    assert only(seen, "turnout_source_backlog_rows") == source.rows
    assert only(seen, "turnout_source_silent_after_seconds") == source.silent_after
    assert only(seen, "turnout_controller_running") == float(page.judgement.controller_runs)
    assert only(seen, "turnout_maintenance_overdue_seconds") == page.upkeep.overdue_seconds(page.read_at)
    kept = by_label(seen, "turnout_incident_games", "cause")
    if kept:
        opened = [each for each in read_incidents(history.engine) if each.ended_at is None]
        games = Counter({str(each.finding.cause): 0 for each in opened})
        for each in opened:
            games[str(each.finding.cause)] += len(each.games)
        if page.judgement.controller_runs:  # else ingest keeps them itself, after it has exported
            assert {cause: amount for cause, amount in kept.items() if amount} == +games


def _is_dated_across_the_limit(process: Running, now: float) -> bool:
    """Return whether a heartbeat is young by the clock of its driver and not by ours, or the other way round."""
    beat, error = beat_of(scrape(process), process.name), process.skew
    if beat is None:
        return False
    is_young, is_truly_young = _is_young(now - beat), _is_young(now - beat + error)
    return is_young != is_truly_young and (is_young or abs(error) <= CLOCK_BOUND_SECONDS)


def _is_before_start(row: GameRow, process: Running, history: History) -> bool:
    """Return whether a set-back clock dates a report of this process before its start, or that before an earlier one's.

    The judgement waits then.
    """
    if any(
        (each.name, each.kind) == (process.name, "group") and each.started_at > process.started_at
        for each in history.ended
    ):
        return True
    reported = row.reported
    return bool(process.published) and reported is not None and reported.updated_at < process.started_at + 0.01


def _compare_word(row: GameRow, word: Word | None, page: Fleet) -> None:
    verdict, reported = row.verdict, row.live
    if row.group is None:
        assert word is None
        return
    if verdict.reason is not None and not verdict.waits_for_ingest:
        assert word is None, f"/metrics says {word}, and the judgement does not count it: {verdict}"
        return
    assert word is not None, f"/metrics has no word of {row.game_key}, and the judgement counts one: {verdict}"
    assert reported is not None
    assert word.group == row.group
    assert word.status == reported.status
    if verdict.waits_for_ingest:
        assert Status(word.status).is_level
        assert not page.judgement.source.may_be_level
    else:
        assert verdict.status == word.status
    assert word.backlog == reported.backlog_age_seconds


def check_window(history: History, process: Running, now: float) -> None:
    """Compare latencies of streams that began within the window with all that their driver counts in /metrics."""
    if process.watchdog is None or process.watchdog._results:
        return  # as in an outage of the store, in which it lands rows and is not evaluated
    samples = scrape(process)
    exported = {} if samples is None else words(samples, process.name, now)
    for key, state in process.published.items():
        assert process.group is not None
        stream = process.group.streams.get(key)
        is_whole = stream is not None and now - min(stream.taken_at, process.started_at) < 290
        if key not in exported or not is_whole or stream is None or stream.taken_at > process.started_at + 20:
            continue
        for name, share in SHARES:
            assert quantile(exported[key].counts, share) == getattr(state, f"latency_{name}_seconds"), (key, name)
