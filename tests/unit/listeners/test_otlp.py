"""OTLP has the series of a scrape, in the shape of the official definitions; its secrets stay where they are."""

import http.server
import json
import logging
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from google.protobuf import json_format
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import AGGREGATION_TEMPORALITY_CUMULATIVE, Metric
from prometheus_client import CollectorRegistry, Gauge, generate_latest

from listeners.otlp.encoding import requests_of
from listeners.otlp.sender import HEADERS_VARIABLE, read_headers, send
from listeners.process_kinds import labels_of
from listeners.prometheus import Exposition
from pipeline.base.errors import Refused
from pipeline.settings.tree import Metrics, Paths, load
from pipeline.telemetry.driver import Telemetry
from tests.unit.telemetry.bridge_world import GROUP, HOSTILE, BridgeWorld, Scrape, parsed, until

SECRET = "Bearer s3cr3t"
SECONDS = 1_700_000_000.25


class Receiver:
    """A collector that reads what it gets by the official definitions."""

    def __init__(self) -> None:
        self.requests: list[ExportMetricsServiceRequest] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.status, self.answer = 200, b"{}"
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.paths.append(self.path)
                receiver.headers.append(dict(self.headers))
                receiver.requests.append(read(body))
                self.send_response(receiver.status)
                self.send_header("Location", "/elsewhere")
                self.end_headers()
                self.wfile.write(receiver.answer)

            def do_GET(self) -> None:  # as urllib follows a redirect, with all headers
                receiver.paths.append(self.path)
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server.server_port}/otlp"
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.server.shutdown()
    made.server.server_close()


def read(body: bytes) -> ExportMetricsServiceRequest:
    """Return a request; an unknown field or a wrong type fails."""
    return json_format.Parse(body, ExportMetricsServiceRequest(), ignore_unknown_fields=False)


def text_of(found: list[KeyValue]) -> frozenset[tuple[str, str]]:
    return frozenset((each.key, each.value.string_value) for each in found)


def samples(request: ExportMetricsServiceRequest) -> Scrape:
    """Return what a scrape would have shown."""
    found: Scrape = {}
    for metric in (each for one in request.resource_metrics for two in one.scope_metrics for each in two.metrics):
        for labels, name, value in _points(metric):
            assert (name, labels) not in found
            found[name, labels] = value
    return found


def _points(metric: Metric) -> Iterator[tuple[frozenset[tuple[str, str]], str, float]]:
    for point in [*metric.gauge.data_points, *metric.sum.data_points]:
        yield text_of(list(point.attributes)), metric.name, point.as_double
    assert not metric.HasField("sum") or metric.sum.is_monotonic
    for each in metric.histogram.data_points:
        assert metric.histogram.aggregation_temporality == AGGREGATION_TEMPORALITY_CUMULATIVE
        assert len(each.bucket_counts) == len(each.explicit_bounds) + 1
        labels, total = text_of(list(each.attributes)), 0
        for edge, count in zip([*map(str, each.explicit_bounds), "+Inf"], each.bucket_counts, strict=True):
            total += count
            yield labels | {("le", edge)}, f"{metric.name}_bucket", total
        assert each.count == total
        yield labels, f"{metric.name}_count", each.count
        yield labels, f"{metric.name}_sum", each.sum


def with_target(scrape: Scrape, labels: dict[str, str]) -> Scrape:
    """Return a scrape with the labels of its target, where a series has none of that name."""
    return {(name, frozenset({**labels, **dict(own)}.items())): value for (name, own), value in scrape.items()}


@pytest.fixture(scope="module")
def exposition(tmp_path_factory: pytest.TempPathFactory) -> Exposition:
    """The series of a driver at work."""
    world = BridgeWorld(tmp_path_factory.mktemp("env"))
    world.work()
    world.beat()
    world.close()  # what waits is published
    return world.group.exposition


@pytest.mark.parametrize("points", [1, 7, 5_000])
def test_a_request_has_the_series_of_a_scrape(exposition: Exposition, points: int) -> None:
    """Each series of a scrape, with the labels of its target, is one data point of one request, hostile names too."""
    labels = labels_of("group", GROUP)
    bodies = list(requests_of(exposition.collect(), {"service.name": "turnout"}, labels, SECONDS - 60, SECONDS, points))
    registry = CollectorRegistry()
    registry.register(exposition)
    scraped = with_target(parsed(generate_latest(registry).decode()), labels)
    merged: Scrape = {}
    for body in bodies:
        part = samples(read(body))
        assert not part.keys() & merged.keys()
        merged |= part
    assert merged == scraped
    assert any(HOSTILE in dict(each).values() for _, each in merged)


def test_times_say_since_when_counters_count(exposition: Exposition) -> None:
    """Data points have the time of the sending; counters of one process have its beginning, and gauges none."""
    (body,) = requests_of(exposition.collect(), {}, {}, SECONDS - 60, SECONDS)
    points = [
        (metric.HasField("gauge"), point.start_time_unix_nano, point.time_unix_nano)
        for metric in read(body).resource_metrics[0].scope_metrics[0].metrics
        for point in [*metric.gauge.data_points, *metric.sum.data_points]
    ]
    at = int(SECONDS * 1e9)
    assert set(points) == {(True, 0, at), (False, at - 60_000_000_000, at)}


def test_a_driver_sends_where_the_setting_says(
    tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver with an endpoint sends its series there with the headers of the standard variable, and at its end."""
    monkeypatch.setenv(HEADERS_VARIABLE, "authorization=Bearer%20s3cr3t, x-tenant = a")
    telemetry = Telemetry(Metrics(otlp_endpoint=receiver.address), Paths(tmp_path), "ingest", "main")
    telemetry.tick(0)
    telemetry.close()
    assert set(receiver.paths) == {"/otlp/v1/metrics"}
    assert receiver.headers[0]["Authorization"] == SECRET
    assert receiver.headers[0]["X-Tenant"] == "a"
    (attributes,) = (text_of(list(each.resource.attributes)) for each in receiver.requests[-1].resource_metrics)
    assert attributes == {("service.name", "turnout"), ("service.instance.id", "ingest-main")}
    assert samples(receiver.requests[-1])["turnout_outbox_items", frozenset({("kind", "ingest")})] >= 0


@pytest.mark.parametrize(
    ("status", "answer"),
    [(307, b""), (302, b""), (401, SECRET.encode()), (200, b'{"partialSuccess":{"rejectedDataPoints":"3"}}')],
)
def test_a_refusal_is_counted_and_shows_no_secret(
    receiver: Receiver, caplog: pytest.LogCaptureFixture, status: int, answer: bytes
) -> None:
    """A redirect is not followed, a partial refusal is one, and neither headers nor answers reach the log."""
    receiver.status, receiver.answer = status, answer
    registry = CollectorRegistry()
    Gauge("turnout_x", "x", registry=registry).set(1)
    with caplog.at_level(logging.DEBUG):
        sender = send(registry.collect, receiver.address, {"Authorization": SECRET}, "i", {}, counts_since=None)
        until(lambda: sender.failures == 1, "the refusal is not counted")
        sender.stop()
    assert set(receiver.paths) == {"/otlp/v1/metrics"}
    assert "sending metrics to http://127.0.0.1" in caplog.text
    assert "s3cr3t" not in caplog.text


def test_an_address_that_cannot_be_read_is_a_failure_of_each_sending(caplog: pytest.LogCaptureFixture) -> None:
    """The thread does not end by an address: each sending counts as failed, the last one too."""
    registry = CollectorRegistry()
    Gauge("turnout_x", "x", registry=registry).set(1)
    sender = send(registry.collect, "http://h:port", {}, "i", {}, counts_since=None)
    sender.stop()
    assert sender.failures == 2
    assert "sending metrics to an address (not shown) failed" in caplog.text


@pytest.mark.parametrize("text", ["s3cr3t", "a b=s3cr3t", "x=s3cr3t%0d%0aevil: 1", "=s3cr3t"])
def test_headers_that_cannot_be_read_are_not_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """A wrong variable is refused with a sentence, without its content; nothing is sent with half of it."""
    with pytest.raises(ValueError, match="not shown") as refusal:
        read_headers({HEADERS_VARIABLE: f"ok=1,{text}"})
    assert "s3cr3t" not in str(refusal.value)
    monkeypatch.setenv(HEADERS_VARIABLE, text)
    with pytest.raises(Refused, match=HEADERS_VARIABLE):
        Telemetry(Metrics(otlp_endpoint="http://127.0.0.1:1"), Paths(tmp_path), "ingest", "main")


@pytest.mark.parametrize("address", ["http://ann:s3cr3t@host", "ftp://host", "host:4318", "http://host?token=s3cr3t"])
def test_an_endpoint_with_a_secret_is_refused(tmp_path: Path, address: str) -> None:
    """An endpoint is an address alone: a password in it would appear in logs, and the refusal does not show it."""
    with pytest.raises(Refused, match=r"metrics\.otlp_endpoint") as refusal:
        load(tmp_path, {"TURNOUT_METRICS__OTLP_ENDPOINT": address})
    assert "s3cr3t" not in str(refusal.value)
    settings, _ = load(tmp_path, {"TURNOUT_METRICS__OTLP_ENDPOINT": "https://otlp.example.com:4318/base"})
    assert json.dumps(settings.metrics.otlp_endpoint)
