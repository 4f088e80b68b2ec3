"""The HTTP server of the live page: the page itself at `/`, and what is new as JSON at `/changes`.

It only answers GET. A page of another site in the same browser cannot read it: the name in the Host header must be that of
this server, so that a name which an attacker lets point here is refused (DNS rebinding).
"""

import gzip
import ipaddress
import json
from collections.abc import Collection
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from fedsim.errors import ConfigError
from fedsim.report.page import page_text
from fedsim.watch.watcher import Watcher

LOOPBACK = ("127.0.0.1", "localhost", "::1")
NUMBERS = ("version", "generation", "after")  # of a question
SMALL = 2000  # bytes: shorter answers are not compressed
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class Server(ThreadingHTTPServer):
    """Serves a watcher at an address; port 0: any that is free. Raises ConfigError if it cannot listen there."""

    daemon_threads = True

    def __init__(self, watcher: Watcher, host: str = LOOPBACK[0], port: int = 0) -> None:
        self.watcher = watcher
        self.page = page_text({"live": True}).encode()
        self.names = {*LOOPBACK, host.lower()}
        try:
            super().__init__((host, port), Handler)
        except OSError as error:
            raise ConfigError(f"cannot listen on {host}:{port}: {error.strerror or error}") from error

    @property
    def url(self) -> str:
        host, port = self.server_address[:2]
        return f"http://{host!s}:{port}/"


class Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"
    timeout = 60  # seconds without a request, after which a connection is closed

    def do_GET(self) -> None:
        if not is_named(self.headers.get("Host", ""), self.server.names):
            return self._answer(b"this server has another name\n", "text/plain", HTTPStatus.MISDIRECTED_REQUEST)
        address = urlsplit(self.path)
        if address.path == "/":
            return self._answer(self.server.page, "text/html")
        if address.path != "/changes":
            return self._answer(b"there is no such page\n", "text/plain", HTTPStatus.NOT_FOUND)
        try:
            known = {k: int(v) if k in NUMBERS else v for k, v in parse_qsl(address.query)}
        except ValueError:
            return self._answer(b"a number is expected\n", "text/plain", HTTPStatus.BAD_REQUEST)
        found = self.server.watcher.changes(known)
        return self._answer(json.dumps(found, separators=(",", ":")).encode(), "application/json")

    def _answer(self, content: bytes, kind: str, status: HTTPStatus = HTTPStatus.OK) -> None:
        self.send_response(status)
        if len(content) > SMALL and "gzip" in self.headers.get("Accept-Encoding", ""):
            content = gzip.compress(content, 1)
            self.send_header("Content-Encoding", "gzip")
        for name, value in {**HEADERS, "Content-Type": f"{kind}; charset=utf-8"}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not printed."""


def is_named(host: str, names: Collection[str]) -> bool:
    """Whether the Host header names this server: by one of its names, or by an address, which nobody can redirect."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return False
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return name in names
    return True
