"""Posts that a game is complete through an interval: at least once each, with a version that has it."""

import http.server
import json
import logging
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest
from deltalake import DeltaTable

from listeners.sample import StreamState
from pipeline.base.errors import Refused, Transient
from pipeline.data.ingest.through import posts as posting_module
from pipeline.data.ingest.through.posts import ThroughPosts, ends_due, posting
from pipeline.settings.through import ThroughSettings
from pipeline.settings.tree import load
from pipeline.store.games import Game
from tests.tables.repair_world import CHESS, GO
from tests.tables.through_world import GAMES, ThroughWorld, through_world
from tests.unit.store.reports_world import write_streams

SECRET = "hook-s3cr3t"
MINUTE = 60.0


class JobReceiver(http.server.ThreadingHTTPServer):
    """A job's endpoint, which answers with a status and keeps what it took."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _JobHandler)
        self.status, self.seen, self.location = 204, list[dict[str, Any]](), ""
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/{SECRET}"


class _JobHandler(http.server.BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert isinstance(self.server, JobReceiver)
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.server.status < 300:
            self.server.seen.append(body)
        self.send_response(self.server.status)
        if self.server.location:
            self.send_header("Location", self.server.location)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the library
        """Log nothing."""


@pytest.fixture
def receiver() -> Iterator[JobReceiver]:
    made = JobReceiver()
    yield made
    made.shutdown()
    made.server_close()


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ThroughWorld]:
    with through_world(tmp_path) as made:
        monkeypatch.setattr(posting_module, "store_time", lambda _engine: made.clock.wall)
        yield made


def posts_of(run: ThroughWorld, url: str, **settings: Any) -> ThroughPosts:
    """Return the posts of a new process, each minute."""
    through = ThroughSettings(webhook=url, webhook_minutes=1)
    return ThroughPosts(replace(run.world.settings, through=through), run.world.paths, run.world.engine, **settings)


def reported(game: Game, cursor: int) -> StreamState:
    """Return the report of a game's driver."""
    return StreamState(
        game.key, "a", "RUN", "RUNNING", 0.0, cursor, None, None, None, None, rows_total=0, rejects_total=0,
        last_error=None, updated_at=0.0,
    )  # fmt: skip


def advance(run: ThroughWorld, seconds: float) -> None:
    """Let time pass with heartbeats; drivers land and report all."""
    run.land(9)
    for game in GAMES:
        run.split(game)
    states = [reported(game, run.cursor(game)) for game in GAMES]
    write_streams(run.world.engine, states)
    for _ in range(3):
        run.clock.tick(seconds / 3)
        run.beat()


def advance_source(run: ThroughWorld) -> None:
    """Let minutes pass in which the source is idle, which completes each game further."""
    for _ in range(4):
        run.clock.tick(MINUTE)
        run.beat()


def test_each_interval_of_each_game_is_posted_with_a_version_that_has_it(
    run: ThroughWorld, receiver: JobReceiver
) -> None:
    """L8: a post says what `wait` says, and its version of the table has every record of the time."""
    taken: list[tuple[int, int]] = []
    posts = posts_of(run, receiver.url, count=lambda sent, failed: taken.append((sent, failed)))
    posts.round()
    assert receiver.seen == [], "no time is known yet"
    advance(run, 3 * MINUTE)
    run.produce(CHESS)
    posts.round()
    assert {each["game"] for each in receiver.seen} == {CHESS.name, GO.name}, "of what was never posted the newest end"
    assert len(receiver.seen) == 2
    for each in receiver.seen:
        assert each["through_time"] % MINUTE == 0
        game = CHESS if each["game"] == CHESS.name else GO
        assert run.waits(game, each["through_time"])
        assert each["game_key"] == game.key
        assert DeltaTable(each["table"]).version() == each["version"]
    posts.round()
    assert len(receiver.seen) == 2, "each once"
    advance(run, 2 * MINUTE)
    posts_of(run, receiver.url).round()
    ends = sorted(each["through_time"] for each in receiver.seen if each["game"] == GO.name)
    assert [end - ends[0] for end in ends] == [MINUTE * number for number in range(len(ends))], "none is left out"
    assert len(ends) > 2
    assert taken[-1] == (2, 0)


def test_a_post_that_failed_is_repeated_and_counted(
    run: ThroughWorld, receiver: JobReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """L8: a receiver that refuses, or a kill before the note, costs a repetition and never a post."""
    taken: list[tuple[int, int]] = []
    posts = posts_of(run, receiver.url, count=lambda sent, failed: taken.append((sent, failed)))
    advance(run, 3 * MINUTE)
    receiver.status = 503
    for _ in range(2):
        with pytest.raises(HTTPError) as error:
            posts.round()
        error.value.close()
    assert taken[-1] == (0, 2)
    receiver.status = 204
    with monkeypatch.context() as patch:
        patch.setattr(posting_module, "note_posted", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            posts.round()
    posts_of(run, receiver.url).round()
    assert len(receiver.seen) == 3, "the one that was not noted came twice"
    assert len({each["game"] for each in receiver.seen}) == 2


def test_a_game_that_is_behind_posts_nothing_that_it_lacks(run: ThroughWorld, receiver: JobReceiver) -> None:
    """L8: the logs decide, also where the control store says more."""
    advance(run, 3 * MINUTE)
    posts_of(run, receiver.url).round()
    before = len(receiver.seen)
    run.produce(CHESS)
    run.land(9)
    write_streams(run.world.engine, [reported(CHESS, 9_999)])
    advance_source(run)
    posts_of(run, receiver.url).round()
    new = receiver.seen[before:]
    assert new
    assert {each["game"] for each in new} <= {CHESS.name, GO.name}
    assert all(run.waits(CHESS, each["through_time"]) for each in new if each["game"] == CHESS.name)


@pytest.mark.parametrize("damage", ["not a folder", "lost commit"])
def test_a_table_that_cannot_be_read_stops_no_other_games_posts(
    run: ThroughWorld, receiver: JobReceiver, damage: str
) -> None:
    """L6: the games after an unreadable table have their posts, and the round fails once, with the game's key."""
    taken: list[tuple[int, int]] = []
    posts = posts_of(run, receiver.url, count=lambda sent, failed: taken.append((sent, failed)))
    advance(run, 3 * MINUTE)
    posts.round()
    before = len(receiver.seen)
    bad, good = sorted(GAMES, key=lambda game: game.key)
    log = Path(str(run.world.paths.table(bad.key)), "_delta_log")
    aside = log.with_name("aside")
    if damage == "not a folder":
        log.rename(aside)
        log.write_text("")
    else:
        first = min(log.glob("*.json"))
        aside = first.rename(log.with_name("aside"))
        log = first
    advance_source(run)
    with pytest.raises(Transient, match=bad.key):
        posts.round()
    new = receiver.seen[before:]
    assert len(new) > 1
    assert {each["game"] for each in new} == {good.name}
    assert taken[-1] == (before + len(new), 1)
    log.unlink(missing_ok=True)
    aside.rename(log)
    posts.round()
    healed = receiver.seen[before + len(new) :]
    assert [each["through_time"] for each in healed if each["game"] == bad.name] == [
        each["through_time"] for each in new
    ], "none is left out"


def test_no_log_has_the_address_and_no_redirect_is_followed(
    run: ThroughWorld, receiver: JobReceiver, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """L9: a path may be a secret, and a redirect would carry it elsewhere."""
    advance(run, 3 * MINUTE)
    receiver.status, receiver.location = 307, f"{receiver.url}/elsewhere"
    failed = threading.Event()
    through = ThroughSettings(webhook=receiver.url, webhook_minutes=1)
    settings = replace(run.world.settings, through=through)
    with (
        caplog.at_level(logging.WARNING),
        posting(settings, run.world.paths, run.world.engine, lambda _sent, count: failed.set() if count else None),
    ):
        assert failed.wait(20)
    assert receiver.seen == []
    assert "posting complete times to http://127.0.0.1" in caplog.text
    assert "failed: status 307" in caplog.text
    assert SECRET not in caplog.text + repr(settings)


@pytest.mark.parametrize(
    "address", ["http://jobs.example.com/x", "https://a:b@jobs.example.com", "ftp://127.0.0.1/x", "jobs.example.com"]
)
def test_an_unsafe_address_is_refused(tmp_path: Path, address: str) -> None:
    """L9: posts leave the machine over https alone, and a refusal does not show the address."""
    with pytest.raises(Refused, match=r"through\.webhook") as refused:
        load(tmp_path, {"TURNOUT_THROUGH__WEBHOOK": address})
    assert address not in str(refused.value)
    for good in ("https://jobs.example.com/x?key=1", "http://127.0.0.1:80/x", "http://localhost/x", "http://[::1]:9/x"):
        load(tmp_path, {"TURNOUT_THROUGH__WEBHOOK": good})


def test_ends_of_intervals_are_each_once() -> None:
    """L8: intervals count from midnight UTC; after an outage each one is posted, of a new game the newest."""
    assert list(ends_due(7_300.0, None, 3600.0)) == [7_200.0]
    assert list(ends_due(7_300.0, 7_200.0, 3600.0)) == []
    assert list(ends_due(14_400.0, 3_600.0, 3600.0)) == [7_200.0, 10_800.0, 14_400.0]
