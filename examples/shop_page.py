"""The page of the shop: ``shop.html`` in a browser, beside a served ``examples/shop.py``.

    python examples/shop_page.py [PORT] [URL of the shop]

It gives the page, and passes its calls, reads and streams on to the shop. A browser may ask only the server that its
page came from, and the shop's own address shows the console. ``Host`` and ``Origin`` are passed on as they came, so
the shop refuses pages of other sites as it does without this program.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

PAGE = Path(__file__).with_name("shop.html")
ASKED = ("Host", "Origin", "Accept", "Content-Type", "Authorization", "Last-Event-ID", "Idempotency-Key")
GIVEN = ("Content-Type", "Tidemill-Epoch", "WWW-Authenticate", "Retry-After")
BODY_BYTES_MAX = 1 << 20


class Handler(BaseHTTPRequestHandler):
    """Answers a request with the page, or with what the shop answers."""

    shop: str

    def do_GET(self) -> None:
        """The page, rows and streams."""
        if self.path == "/":
            self.answer(200, "text/html; charset=utf-8", PAGE.read_bytes())
        elif self.path.startswith(("/tables/", "/streams/")):
            self.pass_on(None)
        else:
            self.refuse(404, "there is no such path")

    def do_POST(self) -> None:
        """Calls."""
        length = self.headers.get("Content-Length", "")
        if not self.path.startswith("/call/"):
            self.refuse(404, "there is no such path")
        elif not length.isdecimal() or int(length) > BODY_BYTES_MAX:
            self.refuse(413, "the body has no length, or is too large")
        else:
            self.pass_on(self.rfile.read(int(length)))

    def pass_on(self, body: bytes | None) -> None:
        """Asks the shop, and gives its answer part by part, since a stream has no end."""
        connection = HTTPConnection(self.shop)
        try:
            headers = {name: self.headers[name] for name in ASKED if name in self.headers}
            connection.request(self.command, self.path, body, headers)
            response = connection.getresponse()
        except (OSError, HTTPException):
            connection.close()
            self.refuse(502, "the shop is not there")
            return
        try:
            self.send_response(response.status)
            for name in GIVEN:
                if name in response.headers:
                    self.send_header(name, response.headers[name])
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            while part := response.read1():
                self.wfile.write(part)
        except (OSError, HTTPException):
            pass  # One of both sides has gone: so does the other.
        finally:
            connection.close()

    def refuse(self, status: int, why: str) -> None:
        """An error in the form that the shop has for them."""
        self.answer(status, "application/json", f'{{"error":"{why}"}}\n'.encode())

    def answer(self, status: int, content: str, body: bytes) -> None:
        """A whole response."""
        self.send_response(status)
        self.send_header("Content-Type", content)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Says nothing."""


def serve(port: int, url: str) -> ThreadingHTTPServer:
    """The server of the page, for the shop at ``url``."""
    handler = type("ShopHandler", (Handler,), {"shop": urlsplit(url).netloc})
    server = ThreadingHTTPServer(("127.0.0.1", port), handler)
    server.daemon_threads = True
    return server


if __name__ == "__main__":
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 8741
    shop = sys.argv[2] if len(sys.argv) > 2 else "http://127.0.0.1:8740"
    with serve(port, shop) as server:
        print(f"http://127.0.0.1:{server.server_port}", flush=True)
        with suppress(KeyboardInterrupt):
            server.serve_forever()
