"""A receiver of alerts for the demo and tests: keeps what Alertmanager posts, a JSON line each, and prints a line.

`python -m pipeline.demo.webhook PORT FILE` serves until it is ended.
"""

import json
import sys
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

from pipeline.base.names import plain
from pipeline.base.terminal import say
from pipeline.demo.server_process import HOST

_MAX_BYTES: Final = 4_000_000
_KEPT_BYTES: Final = 20_000_000  # of the file: a demo that is left alone fills no disk


class Receiver(ThreadingHTTPServer):
    """Listens on loopback and hands on each alert of each post, with the path it was posted to."""

    daemon_threads = True

    def __init__(self, port: int, receive: Callable[[str, Mapping[str, Any]], None]) -> None:
        """Listen; port 0 is a free one. `receive` is called from several threads."""
        super().__init__((HOST, port), _Handler)
        self.receive = receive

    @property
    def url(self) -> str:
        """The address, to which a path may be added."""
        return f"http://{HOST}:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    timeout = 10

    def do_POST(self) -> None:
        """Take one message; another content than Alertmanager's is refused."""
        assert isinstance(self.server, Receiver)
        try:
            length = int(self.headers.get("Content-Length", "0"))
            alerts = json.loads(self.rfile.read(min(length, _MAX_BYTES)))["alerts"]
            found = [dict(each) for each in alerts]
        except (ValueError, KeyError, TypeError, RecursionError):
            self.send_error(400)
            return
        for each in found:
            self.server.receive(self.path, each)
        self.send_response(204)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the library
        """Log no request: the alerts themselves are printed."""


def main(arguments: list[str]) -> None:
    """Serve until a signal ends the process."""
    port, file = int(arguments[0]), Path(arguments[1])

    def receive(path: str, alert: Mapping[str, Any]) -> None:
        labels, texts = alert.get("labels", {}), alert.get("annotations", {})
        say(plain(f"{alert.get('status')} {path} {labels.get('alertname')}: {texts.get('summary')}"))
        if not file.exists() or file.stat().st_size < _KEPT_BYTES:
            with file.open("a", encoding="utf-8") as kept:
                kept.write(json.dumps({"path": path, **alert}) + "\n")

    with Receiver(port, receive) as receiver:
        receiver.serve_forever()


if __name__ == "__main__":
    main(sys.argv[1:])
