"""Guards what Prometheus is told: right sums, unknown is absent, promtool is content, one address only."""

import http.server
import math
import shutil
import socket
import subprocess
import threading
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from listeners.join import Pass
from listeners.prometheus import Exposition, push, serve
from listeners.sample import CHUNK, LATENCY_EDGES_SECONDS, GameResult, Lane, PassResult, Progress, StreamState, TypeRows
from listeners.status import STATUSES
from listeners.totals import MAX_QUERIES, MAX_REASONS

COUNTS = (1, 2, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 4)
HOSTILE = 'a"b\\c\nd{}=,\u202e'


def game(key: str = "chess_a", **changes: object) -> GameResult:
    values: dict[str, object] = {
        "lane": Lane.RUN,
        "seq_from": 3,
        "seq_to": 4,
        "rows": 10,
        "rejects": {"malformed_payload": 2},
        "files": 1,
        "bytes": 100,
        "committed_at": 1_000.0,
        "commit_seconds": 0.1,
        "latency_counts": COUNTS,
    }
    return GameResult(key, **{**values, **changes})  # type: ignore[arg-type]  # a table of changes


def reported(*games: GameResult, group: str = "eu-1") -> Pass:
    return Pass(PassResult(group, "run", 1, 100.0, 102.5, 4, games, {"decode": 1.5, "commit": 0.5}), None)


def state(
    key: str = "chess_a", status: str = "RUNNING", lane: Lane = Lane.RUN, age: float | None = None
) -> StreamState:
    return StreamState(key, "eu-1", lane, status, 1.0, 4, None, age, None, None, 10, 2, None, 2.0)


class Metrics:
    """An exposition, and its scrape as a mapping."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.exposition = Exposition(self.registry)

    def scrape(self) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
        families = text_string_to_metric_families(generate_latest(self.registry).decode())
        return {(s.name, frozenset(s.labels.items())): s.value for family in families for s in family.samples}

    def value(self, name: str, **labels: str) -> float | None:
        return self.scrape().get((f"turnout_{name}", frozenset(labels.items())))


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


def fill(metrics: Metrics) -> None:
    """Tell something of every kind, with hostile texts wherever a text can be a label."""
    exposition = metrics.exposition
    exposition.add_pass(reported(game(), game("go_b", committed_at=None, rows=0, rejects={}, error="store down")))
    exposition.add_pass(reported(game(HOSTILE, rejects={HOSTILE: 1})))
    exposition.set_states([state(age=3.0), state("go_b", "STALLED", Lane.CATCHUP), state(HOSTILE)])
    exposition.set_heartbeat("eu-1", 1_002.0)
    exposition.add_progress(Progress(HOSTILE, "id", "run", 1, "", 5, {"addBatch": 300}))
    exposition.add_progress(Progress(None, "id", "run", 1, "", None, {}))
    exposition.add_ingest(seq=4, accepted=20, refused=1, committed_at=999.0, clocks={"broker": 21})
    exposition.set_self(events_dropped=1, listener_errors=2, outbox_items=3, flush_failures=4, push_failures=5)


def test_passes_add_up(metrics: Metrics) -> None:
    """Counters are sums over the passes of this process, and gauges tell the last one."""
    for _ in range(3):
        metrics.exposition.add_pass(reported(game()))
    labels = {"game": "chess_a", "cluster_group": "eu-1"}
    assert metrics.value("stream_rows_total", result="ok", **labels) == 30
    assert metrics.value("stream_rows_total", result="rejected", **labels) == 6
    assert metrics.value("stream_rejects_total", reason="malformed_payload", **labels) == 6
    assert metrics.value("stream_commits_total", **labels) == 3
    assert metrics.value("stream_cursor_seq", **labels) == 4
    assert metrics.value("stream_last_commit_timestamp_seconds", **labels) == 1_000
    assert metrics.value("group_passes_total", cluster_group="eu-1") == 3
    assert metrics.value("group_pass_duration_seconds", cluster_group="eu-1") == 2.5
    assert metrics.value("group_pass_phase_seconds_total", cluster_group="eu-1", phase="decode") == 4.5
    assert metrics.value("group_frontier_seq", cluster_group="eu-1") == 4


def test_rows_that_were_caught_up_are_counted_beside_the_latencies(metrics: Metrics) -> None:
    """Landed rows are those with a latency and those caught up; the counter is there from the first zero on."""
    labels = {"game": "chess_a", "cluster_group": "eu-1"}
    metrics.exposition.add_pass(reported(game()))
    assert metrics.value("stream_caught_up_rows_total", **labels) == 0
    caught_up = game(rows=90, caught_up_rows=90, latency_counts=(0,) * len(COUNTS))
    metrics.exposition.add_pass(reported(caught_up))
    assert metrics.value("stream_caught_up_rows_total", **labels) == 90
    assert metrics.value("stream_latency_seconds_count", **labels) == sum(COUNTS)


def test_event_types_beyond_the_bound_are_one_label_and_counters_never_fall(metrics: Metrics) -> None:
    """A game has at most 20 labelled types; each keeps its label, and no row of the others is lost."""
    labels = {"game": "chess_a", "cluster_group": "eu-1"}
    metrics.exposition.add_pass(reported(game(types={f"t.T{each:02}": TypeRows(each, 1) for each in range(30)})))
    metrics.exposition.add_pass(reported(game(types={"t.T00": TypeRows(1_000, 0), "t.T29": TypeRows(1, 2)})))
    named = {
        labels["event_type"]: amount for (name, labels), amount in
        (((name, dict(pairs)), amount) for (name, pairs), amount in metrics.scrape().items())
        if name == "turnout_stream_type_rows_total" and labels["result"] == "ok"
    }  # fmt: skip
    assert set(named) == {*(f"t.T{each}" for each in range(10, 30)), "other"}
    assert (named["t.T29"], named["other"]) == (30, sum(range(10)) + 1_000)
    assert metrics.value("stream_type_rows_total", event_type="t.T29", result="rejected", **labels) == 3


def test_a_catch_up_chunk_is_no_pass(metrics: Metrics) -> None:
    """Catching up counts the game's rows, but a chunk is not the group's last pass, least of all one without rows."""
    for chunk in (reported(game(lane=Lane.CATCHUP)), reported()):
        metrics.exposition.add_pass(Pass(replace(chunk.result, batch_id=CHUNK), None))
    assert metrics.value("stream_commits_total", game="chess_a", cluster_group="eu-1") == 1
    assert metrics.value("group_passes_total", cluster_group="eu-1") == 0
    assert metrics.value("group_pass_duration_seconds", cluster_group="eu-1") is None


def test_a_failed_result_counts_as_an_error_only(metrics: Metrics) -> None:
    """Rows of a result that was not committed come again and must not be counted twice."""
    metrics.exposition.add_pass(reported(game(committed_at=None, error="store down")))
    labels = {"game": "chess_a", "cluster_group": "eu-1"}
    assert metrics.value("stream_errors_total", **labels) == 1
    assert metrics.value("stream_rows_total", result="ok", **labels) == 0
    assert metrics.value("stream_rows_total", result="rejected", **labels) == 0
    assert metrics.value("stream_latency_seconds_count", **labels) == 0
    assert metrics.value("stream_commits_total", **labels) == 0
    assert metrics.value("stream_cursor_seq", **labels) is None


def test_the_histogram_is_cumulative_and_complete(metrics: Metrics) -> None:
    """Each bucket holds the rows up to its edge, +Inf all of them, over all passes."""
    metrics.exposition.add_pass(reported(game()))
    metrics.exposition.add_pass(reported(game()))
    running = 0
    for edge, count in zip((*LATENCY_EDGES_SECONDS, math.inf), COUNTS, strict=True):
        running += 2 * count
        le = "+Inf" if math.isinf(edge) else str(edge)
        assert metrics.value("stream_latency_seconds_bucket", game="chess_a", cluster_group="eu-1", le=le) == running
    assert metrics.value("stream_latency_seconds_count", game="chess_a", cluster_group="eu-1") == running == 20
    assert metrics.value("stream_latency_seconds_sum", game="chess_a", cluster_group="eu-1") == 2 * (
        1 * 0.25 + 2 * 0.75 + 3 * 7.5 + 4 * 3600
    )


def test_a_histogram_of_another_shape_is_refused_whole(metrics: Metrics) -> None:
    """Counts for other buckets would be told as a wrong latency; nothing of that pass is counted."""
    with pytest.raises(ValueError, match="latency counts"):
        metrics.exposition.add_pass(reported(game(), game("go_b", latency_counts=(1, 2))))
    assert metrics.scrape() == {}


def test_exactly_one_status_is_1(metrics: Metrics) -> None:
    """Every status has a series, and only the present one is 1."""
    metrics.exposition.set_states([state(status="STALLED")])
    listed_statuses = {
        status: metrics.value("stream_status", game="chess_a", cluster_group="eu-1", status=status)
        for status in STATUSES
    }
    assert {status: float(status == "STALLED") for status in STATUSES} == listed_statuses


def test_a_status_that_does_not_exist_is_refused(metrics: Metrics) -> None:
    """A misspelt status would show a stream with no status at all."""
    with pytest.raises(ValueError, match="no such status"):
        metrics.exposition.set_states([state(status="FINE")])


def test_unknown_is_absent(metrics: Metrics) -> None:
    """An unknown value has no sample: neither 0 nor NaN."""
    metrics.exposition.set_states([state(age=None)])
    metrics.exposition.add_progress(Progress("q", "id", "run", 1, "", None, {}))
    metrics.exposition.set_self(events_dropped=None, listener_errors=0, outbox_items=None, flush_failures=None)
    labels = {"game": "chess_a", "cluster_group": "eu-1"}
    assert metrics.value("stream_backlog_age_seconds", **labels) is None
    assert metrics.value("stream_last_commit_timestamp_seconds", **labels) is None
    assert metrics.value("query_input_rows_total", query="q") is None
    assert metrics.value("group_heartbeat_timestamp_seconds", cluster_group="eu-1") is None
    assert metrics.value("ingest_rows_total", result="ok") is None
    assert metrics.value("listener_events_dropped_total") is None
    assert metrics.value("listener_errors_total") == 0


def test_nan_is_never_told(metrics: Metrics) -> None:
    """One NaN would poison every sum over the games."""
    metrics.exposition.set_states([state(age=math.nan), state("go_b", age=2.0)])
    assert not any(math.isnan(value) for value in metrics.scrape().values())
    assert metrics.value("stream_backlog_age_seconds", game="go_b", cluster_group="eu-1") == 2


def test_a_stream_that_moved_away_is_shown_no_more(metrics: Metrics) -> None:
    """After a move only the new owner tells of the stream; on its return its counters go on where they were."""
    metrics.exposition.add_pass(reported(game()))
    metrics.exposition.set_states([state("go_b")])
    assert not any(("game", "chess_a") in labels for _, labels in metrics.scrape())
    metrics.exposition.set_states([state()])
    assert metrics.value("stream_commits_total", game="chess_a", cluster_group="eu-1") == 1


def test_lanes_are_counted_with_zeros(metrics: Metrics) -> None:
    """A lane without streams is a known 0."""
    metrics.exposition.set_states([state(), state("go_b", lane=Lane.CATCHUP), state("ludo_c")])
    lanes = {
        lane: metrics.value("group_streams", cluster_group="eu-1", lane=lane) for lane in ("RUN", "CATCHUP", "PAUSED")
    }
    assert lanes == {"RUN": 2, "CATCHUP": 1, "PAUSED": 0}
    assert metrics.value("stream_info", game="go_b", cluster_group="eu-1", lane=Lane.CATCHUP) == 1


def test_progress_and_ingest_are_told(metrics: Metrics) -> None:
    """Durations become seconds, rows add up, and ingest tells its newest commit."""
    for rows in (5, None, 6):
        metrics.exposition.add_progress(Progress("q", "id", "run", 1, "", rows, {"addBatch": 250}))
    first, then = {"broker": 20, "unknown": 1}, {"broker": 2, "producer": 8}
    metrics.exposition.add_ingest(seq=4, accepted=20, refused=1, committed_at=999.0, clocks=first)
    metrics.exposition.add_ingest(seq=5, accepted=10, refused=0, committed_at=1_000.5, clocks=then)
    assert metrics.value("query_batch_duration_seconds", query="q", phase="addBatch") == 0.25
    assert metrics.value("query_input_rows_total", query="q") == 11
    assert metrics.value("ingest_rows_total", result="ok") == 30
    assert metrics.value("ingest_rows_total", result="rejected") == 1
    clocks = {clock: metrics.value("ingest_clock_rows_total", clock=clock) for clock in {**first, **then}}
    assert clocks == {"broker": 22, "unknown": 1, "producer": 8}
    assert metrics.value("ingest_seq") == 5
    assert metrics.value("ingest_last_commit_timestamp_seconds") == 1_000.5


def test_rows_that_a_pass_counted_are_its_querys(metrics: Metrics) -> None:
    """Where Spark does not see the rows of a query, its passes say how many they read."""
    progress = Progress("q", "id", "run", 1, "", None, {"addBatch": 250})
    for rows in (5, 6):
        metrics.exposition.add_progress(progress)
        metrics.exposition.add_pass(Pass(replace(reported(game()).result, input_rows=rows), progress))
    assert metrics.value("query_input_rows_total", query="q") == 11
    assert metrics.value("query_batch_duration_seconds", query="q", phase="addBatch") == 0.25


def test_labels_are_bounded(metrics: Metrics) -> None:
    """However many reasons and queries appear, the number of series is bounded and no count is lost."""
    rejects = {f"reason-{number}": 1 for number in range(10 * MAX_REASONS)}
    metrics.exposition.add_pass(reported(game(rejects=rejects)))
    for number in range(MAX_QUERIES + 50):
        metrics.exposition.add_progress(Progress(f"q{number}", "id", "run", 1, "", 1, {}))
    scrape = metrics.scrape()
    reasons = [value for (name, _), value in scrape.items() if name == "turnout_stream_rejects_total"]
    queries = [value for (name, _), value in scrape.items() if name == "turnout_query_input_rows_total"]
    assert (len(reasons), sum(reasons)) == (MAX_REASONS + 1, 10 * MAX_REASONS)
    assert (len(queries), sum(queries)) == (MAX_QUERIES + 1, MAX_QUERIES + 50)


def test_hostile_label_values_stay_values(metrics: Metrics) -> None:
    """A name with quotes and line ends is one label value, not a second line."""
    fill(metrics)
    assert metrics.value("stream_commits_total", game=HOSTILE, cluster_group="eu-1") == 1


def test_promtool_accepts_the_exposition(metrics: Metrics) -> None:
    """Prometheus's own linter finds no fault in names, units, types and help texts."""
    promtool = shutil.which("promtool")
    assert promtool is not None, "promtool is not installed: install Debian's package prometheus"
    fill(metrics)
    text = generate_latest(metrics.registry)
    check = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, timeout=30, check=False)
    assert (check.returncode, check.stdout, check.stderr) == (0, b"", b"")


@pytest.fixture
def server(metrics: Metrics) -> Iterator[int]:
    port, stop = serve(metrics.registry)
    yield port
    stop()


def test_only_the_given_address_is_served(metrics: Metrics, server: int) -> None:
    """The scrape answers on the address that was given and on no other."""
    fill(metrics)
    with urllib.request.urlopen(f"http://127.0.0.1:{server}/metrics", timeout=5) as answer:
        assert b"turnout_ingest_seq 4.0" in answer.read()
    with socket.socket() as other, pytest.raises(ConnectionRefusedError):
        other.connect(("127.0.0.2", server))


def test_a_taken_port_is_told_clearly(metrics: Metrics, server: int) -> None:
    """A port that is taken is an OSError that names it and says what to do."""
    with pytest.raises(OSError, match=rf"127\.0\.0\.1 port {server} .*choose another"):
        serve(metrics.registry, "127.0.0.1", server)


def test_no_address_is_refused(metrics: Metrics) -> None:
    """An empty address would mean every address of the machine."""
    with pytest.raises(ValueError, match="empty"):
        serve(metrics.registry, "")


def test_a_stopped_server_frees_its_port(metrics: Metrics) -> None:
    """The next driver can take the port at once."""
    port, stop = serve(metrics.registry)
    stop()
    again, stop = serve(metrics.registry, port=port)
    stop()
    assert port == again


class Gateway(http.server.ThreadingHTTPServer):
    """A Pushgateway that only accepts pushes: records the requests, and answers as configured."""

    def __init__(self, status: int) -> None:
        self.status = status
        self.requests: list[tuple[str, str]] = []
        self.pushed = threading.Semaphore(0)
        super().__init__(("127.0.0.1", 0), _Handler)


class _Handler(http.server.BaseHTTPRequestHandler):
    def _answer(self) -> None:
        assert isinstance(self.server, Gateway)
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.requests.append((self.command, self.path))
        self.send_response(self.server.status)
        self.end_headers()
        self.server.pushed.release()

    do_PUT = do_DELETE = _answer  # noqa: N815 - the base class's names

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Stay quiet."""


@pytest.fixture
def gateway() -> Iterator[Callable[[int], Gateway]]:
    started: list[tuple[Gateway, threading.Thread]] = []

    def start(status: int) -> Gateway:
        server = Gateway(status)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        started.append((server, thread))
        return server

    yield start
    for server, thread in started:
        server.shutdown()
        server.server_close()
        thread.join()


def test_stopping_a_push_deletes_its_group(metrics: Metrics, gateway: Callable[[int], Gateway]) -> None:
    """A Pushgateway never forgets by itself, so a stopped process deletes what it pushed."""
    server = gateway(200)
    pusher = push(metrics.registry, f"127.0.0.1:{server.server_port}", "turnout", {"group": "eu-1"}, every_seconds=60)
    assert server.pushed.acquire(timeout=10)
    pusher.stop()
    path = "/metrics/job/turnout/group/eu-1"
    assert [("PUT", path), ("DELETE", path)] == server.requests
    assert pusher.failures == 0


@pytest.mark.parametrize("address", ["http://u:canary@127.0.0.1:1/x", "http://u:canary@h:port", "http://[::1]:canary",
    "u:canary@127.0.0.1:1", "http://127.0.0.1:1/canary?canary"])  # fmt: skip
def test_no_password_of_a_push_gateway_is_in_the_log(
    address: str, metrics: Metrics, caplog: pytest.LogCaptureFixture
) -> None:
    """A failed push names scheme, host and port; the rest of the address may be a secret."""
    pusher = push(metrics.registry, address, "turnout", {}, every_seconds=60, timeout_seconds=1)
    pusher.stop()
    assert pusher.failures == 2
    assert "pushing metrics to" in caplog.text
    assert ("http://127.0.0.1:1 failed" in caplog.text) is ("@" not in address and "[" not in address)
    assert "canary" not in caplog.text


def test_failed_pushes_are_counted_and_tried_again(
    metrics: Metrics, gateway: Callable[[int], Gateway], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gateway that refuses costs a count for each try, and neither the process nor a socket."""
    connect, used = socket.create_connection, list[socket.socket]()

    def connected(*arguments: Any, **options: Any) -> socket.socket:
        used.append(connect(*arguments, **options))
        return used[-1]

    monkeypatch.setattr(socket, "create_connection", connected)
    server = gateway(500)
    pusher = push(metrics.registry, f"127.0.0.1:{server.server_port}", "turnout", {}, every_seconds=0.01)
    for _ in range(3):
        assert server.pushed.acquire(timeout=10)
    pusher.stop()
    assert len(server.requests) == pusher.failures >= 4
    assert [each.fileno() for each in used] == [-1] * len(server.requests)
