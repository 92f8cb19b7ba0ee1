"""Guards the ports of a driver against other users of the machine: Python's, py4j's and Spark's own."""

import json
import os
import struct
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipeline.data.streams.warming import WORKERS

STRANGER = """
import json, socket, sys
port, packets = json.load(sys.stdin)
replies = []
for packet in packets:
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall(bytes.fromhex(packet))
        try:
            replies.append(connection.recv(1000).decode(errors="replace"))
        except ConnectionResetError:
            replies.append("")
print(json.dumps(replies))
"""


def replies_to_a_stranger(port: int, packets: Sequence[str | bytes]) -> list[str]:
    """Send each packet on a connection of its own, as another user where this one may become another."""
    command = [sys.executable, "-I", "-S", "-c", STRANGER]
    sent = [packet.encode().hex() if isinstance(packet, str) else packet.hex() for packet in packets]
    submitted: dict[str, Any] = {
        "input": json.dumps([port, sent]),
        "capture_output": True,
        "text": True,
        "timeout": 60,
        "cwd": "/",
    }
    try:
        done = subprocess.run(command, user="nobody" if os.geteuid() == 0 else None, check=True, **submitted)
    except PermissionError:  # root's Python, which no other user may start
        done = subprocess.run(command, check=True, **submitted)
    replies: list[str] = json.loads(done.stdout)
    return replies


@pytest.mark.proves("G179")
def test_a_session_has_the_token_before_anything_calls_back(spark: SparkSession) -> None:
    """Each session of turnout starts the server with a token, and its JVM knows it; no listener or query has to."""
    gateway: Any = spark.sparkContext._gateway
    token = gateway.callback_server_parameters.auth_token
    held = gateway.jvm.java.lang.Class.forName("py4j.CallbackClient").getDeclaredField("authToken")
    held.setAccessible(True)
    assert len(token) >= 32
    assert token == held.get(gateway.java_gateway_server.getCallbackClient())


@pytest.mark.proves("G179")
def test_another_user_commands_no_driver(spark: SparkSession, tmp_path: Path) -> None:
    """Packets without the token and with a wrong one are refused, and foreachBatch is called as before."""
    gateway: Any = spark.sparkContext._gateway
    source = tmp_path / "in"
    source.mkdir()
    seen: list[str] = []
    query = (
        spark.readStream.text(str(source))
        .writeStream.foreachBatch(lambda rows, _: seen.extend(row.value for row in rows.collect()))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        (source / "first.txt").write_text("first\n")
        query.processAllAvailable()
        proxies = [each for each in gateway.gateway_property.pool.dict if each.startswith("p")][-10:]
        removals = [f"g\n{each}\ne\n" for each in proxies]
        calls = [f"c\n{each}\ncall\nn\ni7\ne\n" for each in proxies]
        guesses = ["A\nguess\ne\n", "A\n\ne\n", f"A\nguess\ne\n{removals[-1]}"]
        replies = replies_to_a_stranger(gateway._callback_server.port, [*removals, *calls, *guesses])
        assert [each for each in replies if each.startswith("!y")] == [], "a reply of success"
        assert set(proxies) <= set(gateway.gateway_property.pool.dict)
        (source / "second.txt").write_text("second\n")
        query.processAllAvailable()
    finally:
        query.stop()
    assert seen == ["first", "second"]


@pytest.mark.proves("G179")
def test_another_user_commands_no_jvm(spark: SparkSession) -> None:
    """The other direction has PySpark's own token: the JVM answers no packet that comes without it."""
    gateway: Any = spark.sparkContext._gateway
    message = "r\nu\njava.lang.System\nrj\ne\n"
    (unasked, guessed) = replies_to_a_stranger(gateway.java_parameters.port, [message, f"A\nguess\ne\n{message}"])
    assert not unasked.startswith("!y")
    assert not guessed.startswith("!y")


@pytest.mark.proves("G179")
def test_another_user_commands_no_spark(spark: SparkSession) -> None:
    """Spark's own port obeys its own session alone: a stranger's message that ends all tasks is not taken."""
    jvm: Any = spark._jvm
    message = jvm.java.lang.Class.forName("org.apache.spark.scheduler.local.StopExecutor$").getDeclaredField("MODULE$")
    message.setAccessible(True)
    written = jvm.java.io.ByteArrayOutputStream()
    stream = jvm.java.io.ObjectOutputStream(written)
    stream.writeObject(message.get(None))
    stream.flush()
    port = int(spark.sparkContext.getConf().get("spark.driver.port") or 0)
    to = struct.pack(">H", 9) + b"127.0.0.1" + struct.pack(">i", port)
    end = b"LocalSchedulerBackendEndpoint"
    body = b"\0\1" + to + struct.pack(">H", len(end)) + end + bytes(written.toByteArray())
    head = b"\3" + struct.pack(">qi", 1, len(body))  # a request to an endpoint
    (reply,) = replies_to_a_stranger(port, [struct.pack(">q", 8 + len(head) + len(body)) + head + body])
    assert spark.sparkContext.parallelize([1, 2], 1).count() == 2
    assert reply == "" or "Sasl" in reply or "uthenticat" in reply or "Expected" in reply, reply


@pytest.mark.proves("G283")
def test_workers_wait_at_no_port(spark: SparkSession) -> None:
    """A daemon of Python workers forks for each connection before it asks for a secret, so it listens on no port.

    Its socket is in a folder of its owner, in which the kernel lets no other user connect.
    """
    assert spark.sparkContext.parallelize([1], 1).map(lambda number: number + 1).collect() == [2]
    daemons = [pid for pid in children_of(os.getpid()) if WORKERS in words_of(pid)]
    assert daemons != []
    assert [listens_on(pid) for pid in daemons] == [[] for _ in daemons]
    folder = Path(str(spark.conf.get("spark.python.unix.domain.socket.dir")))
    assert folder.stat().st_mode & 0o777 == 0o700
    assert [each for each in folder.iterdir() if each.is_socket()] != []


def children_of(pid: int) -> list[int]:
    """Return the processes that one started, and those that they started."""
    found = []
    for each in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, each.read_text("ascii").split()):
            found += [child, *children_of(child)]
    return found


def words_of(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")


def listens_on(pid: int) -> list[str]:
    """Return the TCP addresses at which a process listens, as the kernel writes them."""
    held = set()
    for each in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            held.add(str(each.readlink()))
    rows = [
        line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/{pid}/net/{name}").read_text().splitlines()
    ]
    return [row[1] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in held]
