"""Tokens for the control store: one request serves all connections, renewed in time, and no text shows one."""

import logging
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import pytest
from databricks.sdk.errors import platform

from pipeline.base.errors import Refused, Transient
from pipeline.platforms.databricks.workspace.client import Workspace
from pipeline.platforms.databricks.workspace.credentials import DatabaseCredentials

HOUR = 3600.0
ENDPOINT = "projects/p/branches/b/endpoints/e"


class Calls:
    """The SDK's client, with the clocks of this machine and of the workspace."""

    def __init__(self, life_seconds: float = HOUR) -> None:
        self.life_seconds, self.count = life_seconds, 0
        self.forward, self.wall, self.workspace_ahead = 1_000.0, 1_800_000_000.0, 0.0
        self.fault: Exception | None = None
        self.answer: dict[str, Any] | None = None
        self.meanwhile: Callable[[], object] = lambda: None
        self.credentials = DatabaseCredentials(
            Workspace(self, "https://w"), ENDPOINT, clock=lambda: self.forward, wall=lambda: self.wall
        )

    def do(self, method: str, path: str, **request: Any) -> dict[str, Any]:
        assert (method, path, request["body"]) == ("POST", "/api/2.0/postgres/credentials", {"endpoint": ENDPOINT})
        self.count += 1
        self.meanwhile()
        if self.fault is not None:
            raise self.fault
        ends = datetime.fromtimestamp(self.wall + self.workspace_ahead + self.life_seconds, UTC)
        made = {
            "token": f"canary-{self.count}",
            "expire_time": f"{ends:%Y-%m-%dT%H:%M:%S.%f}999Z",
        }
        return made if self.answer is None else self.answer

    def wait(self, seconds: float) -> None:
        self.forward, self.wall = self.forward + seconds, self.wall + seconds

    def password(self) -> str:
        return self.credentials.password()


@pytest.mark.parametrize(("life", "margin"), [(HOUR, 300.0), (1200.0, 300.0), (300.0, 75.0), (2.0, 0.5)])
def test_one_token_serves_until_shortly_before_its_end(life: float, margin: float) -> None:
    """One request serves all connections; it is repeated 5 min before the end of a token, or a quarter of its life."""
    calls = Calls(life)
    assert [calls.password() for _ in range(3)] == ["canary-1"] * 3
    calls.wait(life - margin - 0.01)
    assert calls.password() == "canary-1"
    calls.wait(0.02)
    assert [calls.password() for _ in range(3)] == ["canary-2"] * 3


def test_an_old_token_serves_while_the_workspace_is_away(caplog: pytest.LogCaptureFixture) -> None:
    """A workspace that is away for minutes costs no login; it gets few requests, and after the end a clear error."""
    calls = Calls()
    calls.password()
    calls.wait(HOUR - 299)
    calls.fault = ConnectionError("reset by peer")
    for _ in range(29):
        assert calls.password() == "canary-1"
        calls.wait(10)
    assert 5 <= calls.count - 1 <= 9
    assert "the old one serves until its end" in caplog.text
    calls.wait(10)
    with pytest.raises(Transient, match="the workspace at https://w does not answer: reset by peer"):
        calls.password()
    calls.fault = None
    assert calls.password() == f"canary-{calls.count}"
    assert "canary" not in caplog.text


def test_threads_that_start_together_make_one_request() -> None:
    """Twenty connections of one process that open at once cost the workspace one token."""
    calls, together = Calls(), threading.Barrier(20)

    def open_one(_number: int) -> str:
        together.wait()
        return calls.password()

    with ThreadPoolExecutor(20) as pool:
        assert set(pool.map(open_one, range(20))) == {"canary-1"}
    assert calls.count == 1


def test_nobody_waits_for_a_renewal_while_the_old_token_lives() -> None:
    """A slow workspace does not delay logins: one thread waits for it, the others take the token that lives."""
    calls, asked, go_on = Calls(), threading.Event(), threading.Event()
    calls.password()
    calls.wait(HOUR - 200)

    def slowly() -> None:
        asked.set()
        assert go_on.wait(10)

    calls.meanwhile = slowly
    with ThreadPoolExecutor(1) as pool:
        renewing = pool.submit(calls.password)
        assert asked.wait(10)
        assert calls.password() == "canary-1"
        go_on.set()
        assert renewing.result() == "canary-2"


def test_those_that_waited_for_a_failing_request_fail_with_it() -> None:
    """Ten threads before a dead workspace wait for one request, not for ten one after another."""
    calls = Calls()
    calls.fault = TimeoutError("timed out")
    door = calls.credentials._renewing = Door()  # type: ignore[assignment]

    def when_all_wait() -> None:
        assert door.full.wait(10)

    def open_one(_number: int) -> str:
        try:
            return calls.password()
        except Transient as error:
            return str(error)

    calls.meanwhile = when_all_wait
    with ThreadPoolExecutor(10) as pool:
        assert set(pool.map(open_one, range(10))) == {"the workspace at https://w does not answer: timed out"}
    assert calls.count == 1
    with pytest.raises(Transient):
        calls.password()
    assert calls.count == 2, "a later call tries again"


class Door:
    """A lock that says when ten threads have come to it."""

    def __init__(self) -> None:
        self._lock, self._counting, self._count, self.full = threading.Lock(), threading.Lock(), 0, threading.Event()

    def acquire(self, *, blocking: bool) -> bool:
        with self._counting:
            self._count += 1
            if self._count == 10:
                self.full.set()
        return self._lock.acquire(blocking=blocking)

    def release(self) -> None:
        self._lock.release()


def test_a_refusal_stays_a_refusal() -> None:
    """An identity without rights on the project reads why, and is no outage."""
    calls = Calls()
    calls.fault = platform.PermissionDenied("User does not have CAN_USE on project p")
    with pytest.raises(Refused, match="does not permit this: User does not have CAN_USE on project p"):
        calls.password()


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({}, "without a token"),
        ({"token": None, "expire_time": "2027-01-15T09:00:00Z"}, "without a token"),
        ({"token": "", "expire_time": "2027-01-15T09:00:00Z"}, "without a token"),
        ({"token": "canary\nx", "expire_time": "2027-01-15T09:00:00Z"}, "without a token"),
        ({"token": "canary-9"}, "whose expire_time is not a time"),
        ({"token": "canary-9", "expire_time": "canary-9"}, "whose expire_time is not a time"),
    ],
)
def test_an_answer_of_another_shape_is_an_error_without_its_content(answer: dict[str, Any], said: str) -> None:
    """Nothing but a token becomes a password, and no traceback has the content of an answer."""
    calls = Calls()
    calls.answer = answer
    with pytest.raises(Transient, match=said) as caught:
        calls.password()
    assert "canary" not in "".join(traceback.format_exception(caught.value))


def test_a_machine_that_slept_takes_a_new_token() -> None:
    """The clock that only goes forward stands still while a laptop sleeps, and the token ends nevertheless."""
    calls = Calls()
    calls.password()
    calls.wall += 2 * HOUR
    assert calls.password() == "canary-2"


@pytest.mark.parametrize(("ahead", "serves_seconds"), [(5 * HOUR, HOUR - 300), (-1800.0, 1500.0)])
def test_a_wrong_clock_makes_no_token_live_longer_than_an_hour(ahead: float, serves_seconds: float) -> None:
    """No token lives longer than an hour, whatever the difference of two clocks says; a shorter life is safe."""
    calls = Calls()
    calls.workspace_ahead = ahead
    calls.password()
    calls.wait(serves_seconds - 1)
    assert calls.password() == "canary-1"
    calls.wait(2)
    assert calls.password() == "canary-2"


def test_a_clock_that_is_far_ahead_costs_requests_and_no_login() -> None:
    """To a clock two hours ahead each token has ended; every login then takes a new one, which the database takes."""
    calls = Calls()
    calls.workspace_ahead = -2 * HOUR
    assert [calls.password(), calls.password()] == ["canary-1", "canary-2"]


def test_a_token_that_a_login_refused_is_replaced_once() -> None:
    """A token that was revoked is replaced; a new token that is refused too shows another fault, and no second try."""
    calls = Calls()
    first = calls.password()
    assert not calls.credentials.doubt(first)
    calls.wait(600)
    assert calls.credentials.doubt(first)
    assert calls.password() == "canary-2"
    assert calls.credentials.doubt(first), "another thread has replaced it already"
    assert not calls.credentials.doubt("canary-2")
    assert calls.count == 2


def test_no_text_shows_a_token(caplog: pytest.LogCaptureFixture) -> None:
    """A token is a password for an hour: no log, however fine, and no repr has it."""
    caplog.set_level(logging.DEBUG)
    calls = Calls()
    calls.password()
    shown = [repr(calls.credentials), repr(calls.credentials._token), str(calls.credentials._token), caplog.text]
    assert not [each for each in shown if "canary-1" in each]
