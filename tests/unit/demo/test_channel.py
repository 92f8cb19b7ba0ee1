"""The socket by which a page or a command asks a running demo for a fault: for its user alone, and one at a time."""

import contextlib
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pipeline.base.errors import Refused, Transient
from pipeline.cli.main import cli
from pipeline.demo.breaking import channel
from pipeline.demo.breaking.channel import Active, offered
from pipeline.demo.breaking.faults import FAULTS
from pipeline.settings.tree import Paths, load
from pipeline.store.database.engine import open_store

LASTING = Active("freeze", "a", 1.0, 2.0, "frozen")


class Fake:
    """Records requests."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.active: tuple[Active, ...] = (LASTING,)
        self.looked = threading.Event()
        self.at_work, self.go_on = threading.Event(), threading.Event()

    def begin(self, fault: str, target: str) -> str:
        if fault == "slow":
            self.at_work.set()
            assert self.go_on.wait(20)
        if fault == "bug":
            raise ZeroDivisionError(target)
        if fault == "away":
            raise Transient("the broker is away")
        self.done.append(f"begin {fault} {target}")
        return f"did {fault}"

    def undo(self, fault: str, target: str) -> str:
        self.done.append(f"undo {fault} {target}")
        return f"ended {fault}"

    def look(self) -> None:
        self.looked.set()

    def end_all(self) -> None:
        self.done.append("end all")


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[tuple[Paths, Fake]]:
    paths, fake = Paths(tmp_path), Fake()
    with offered(paths, fake):
        yield paths, fake


def test_only_a_demo_that_says_so_offers_people(demo: tuple[Paths, Fake], tmp_path: Path) -> None:
    """The answer of a demo names its people; a demo without people, no demo, and a busy demo differ."""
    paths, fake = demo
    assert channel.people(paths) == ()
    other = Paths(tmp_path / "other")
    other.root.mkdir()
    assert channel.people(other) == ()
    with offered(other, fake, ("ada@demo", "ben@demo")):
        assert channel.people(other) == channel.look(other).people == ("ada@demo", "ben@demo")
        busy = threading.Thread(target=channel.begin, args=(other, "slow", "a"))
        busy.start()
        assert fake.at_work.wait(20)
        assert channel.people(other) is None
        fake.go_on.set()
        busy.join()


def raw(paths: Paths, text: bytes) -> bytes:
    """Send bytes as they are, and return the answer."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(20)
        connection.connect(json.loads(paths.break_it.read_text())["socket"])
        connection.sendall(text)
        connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(65_536), b""))


def test_a_request_is_done_and_answered(demo: tuple[Paths, Fake]) -> None:
    """Page and command ask the demo, which alone acts; the answer has what was done and what still lasts."""
    paths, fake = demo
    assert channel.is_offered(paths)
    answer = channel.begin(paths, "kill", "a\n'; rm -rf /")
    assert (answer.said, answer.active) == ("did kill", (LASTING,))
    assert channel.undo(paths, "freeze", "a").said == "ended freeze"
    assert channel.look(paths).active == (LASTING,)
    assert fake.done == ["begin kill a\n'; rm -rf /", "undo freeze a"]


def test_the_offer_ends_with_the_demo(tmp_path: Path) -> None:
    """Also a demo that fails ends every fault, and leaves neither its secret nor its socket behind."""
    paths, fake = Paths(tmp_path), Fake()
    with contextlib.suppress(ZeroDivisionError), offered(paths, fake):
        place = Path(json.loads(paths.break_it.read_text())["socket"])
        assert (paths.break_it.stat().st_mode & 0o777, place.parent.stat().st_mode & 0o777) == (0o600, 0o700)
        assert fake.looked.wait(20)
        raise ZeroDivisionError
    assert fake.done == ["end all"]
    assert not paths.break_it.exists()
    assert not place.parent.exists()
    with pytest.raises(Refused, match="No demo of yours runs"):
        channel.begin(paths, "kill", "a")


def request(paths: Paths, **changes: object) -> bytes:
    secret = json.loads(paths.break_it.read_text())["secret"]
    env = str(paths.root.resolve())
    return json.dumps({"secret": secret, "env": env, "do": "break", "fault": "kill", "target": "a", **changes}).encode()


@pytest.mark.parametrize(
    "changes",
    [
        {"secret": "guessed"},
        {"env": "/prod"},
        {"do": "shell"},
        {"fault": ["kill"]},
        {"more": "x"},
        {"target": "x" * 5_000},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_a_hostile_request_does_nothing(demo: tuple[Paths, Fake], changes: dict[str, object]) -> None:
    """A request without the secret, of another form or too long is refused, and the next good one is served."""
    paths, fake = demo
    assert b"not a request of this demo" in raw(paths, request(paths, **changes) + b"\n")
    assert fake.done == []
    assert channel.begin(paths, "kill", "a").said == "did kill"


@pytest.mark.parametrize("text", [b"", b"\n", b"[]\n", b"{}\n", b"\xff\xfe\n", b"[" * 3_000 + b"\n", b"no end"])
def test_bytes_that_are_no_request_do_nothing(demo: tuple[Paths, Fake], text: bytes) -> None:
    """The demo reads one line of JSON, and survives everything else."""
    paths, fake = demo
    assert b'"ok": false' in raw(paths, text)
    assert (fake.done, channel.is_offered(paths)) == ([], True)


def test_requests_are_served_one_at_a_time(demo: tuple[Paths, Fake]) -> None:
    """A second request waits until the first one is done: no two faults are half done at once."""
    paths, fake = demo
    threads = [threading.Thread(target=channel.begin, args=(paths, name, "a")) for name in ("slow", "kill")]
    threads[0].start()
    assert fake.at_work.wait(20)
    threads[1].start()
    assert fake.done == []
    assert channel.is_offered(paths)  # while it is busy, too: its page does not come and go
    fake.go_on.set()
    for each in threads:
        each.join(20)
    assert fake.done == ["begin slow a", "begin kill a"]


def test_a_fault_that_fails_is_answered_and_ends_nothing(demo: tuple[Paths, Fake]) -> None:
    """A refusal of a fault becomes a sentence; a bug's text stays in the demo's log, and the demo serves on."""
    paths, fake = demo
    with pytest.raises(Refused, match="the broker is away"):
        channel.begin(paths, "away", "a")
    with pytest.raises(Refused, match="its terminal says why") as refused:
        channel.begin(paths, "bug", "secret")
    assert "secret" not in str(refused.value)
    assert channel.begin(paths, "kill", "a").said == "did kill"
    assert fake.done == ["begin kill a"]


def test_an_offer_that_others_may_have_written_counts_for_nothing(demo: tuple[Paths, Fake], tmp_path: Path) -> None:
    """A file that others can read, a link, nonsense, or the offer of another environment is no offer."""
    paths, fake = demo
    offer = paths.break_it.read_text()
    other = Paths(tmp_path / "prod")
    other.root.mkdir()
    other.break_it.write_text(offer)
    other.break_it.chmod(0o600)
    assert not channel.is_offered(other)
    with pytest.raises(Refused, match="No demo of yours runs"):
        channel.begin(other, "kill", "a")
    paths.break_it.chmod(0o640)
    assert not channel.is_offered(paths)
    paths.break_it.rename(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").chmod(0o600)
    paths.break_it.symlink_to(tmp_path / "elsewhere")
    assert not channel.is_offered(paths)
    paths.break_it.unlink()
    for text in ("", "[]", "{}", '{"socket": "/nowhere", "secret": "x"}'):
        paths.break_it.write_text(text)
        paths.break_it.chmod(0o600)
        assert not channel.is_offered(paths)
    assert [each for each in fake.done if each != "look"] == []


def test_the_command_line_asks_the_demo(tmp_path: Path) -> None:
    """`turnout demo break` needs no browser: it prints the act, the signs and the mend; without a demo it refuses."""
    open_store(*load(tmp_path)).dispose()
    paths, fake = Paths(tmp_path), Fake()

    def run(*words: str) -> Result:
        return CliRunner().invoke(cli, ["demo", *words, "--env-dir", str(tmp_path)])

    with offered(paths, fake):
        begun = run("break", "kill", "a").output
        assert begun.startswith("did kill\n")
        assert all(sign.what in begun for sign in FAULTS["kill"].signs)
        assert FAULTS["kill"].mend in begun
        assert run("mend", "freeze", "a").output == "ended freeze\n"
        listed = json.loads(run("faults", "--json").output)
        assert [each["name"] for each in listed["faults"]] == list(FAULTS)
        assert [each["fault"] for each in listed["active"]] == ["freeze"]
        assert "lasts: freeze a since" in run("faults").output
    assert fake.done == ["begin kill a", "undo freeze a", "end all"]
    for words in (["break", "kill", "a"], ["mend", "freeze", "a"], ["faults"]):
        assert isinstance(run(*words).exception, Refused)
