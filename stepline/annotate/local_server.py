"""A visit to a page that is served on this machine alone.

Only requests to localhost by name are answered, so no other site's page can reach it by rebinding a name, and what is
sent must carry a header that another site's form cannot send.
"""

import json
import logging
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from urllib.parse import SplitResult, urlsplit

from pydantic import ValidationError

from stepline.errors import SteplineError

log = logging.getLogger(__name__)

HOST = "127.0.0.1"


class LocalVisit(BaseHTTPRequestHandler):
    """One request. A child says what it gives and takes, its header's word, and the policy of its pages."""

    protocol_version = "HTTP/1.1"
    word = ""  # what the header X-Stepline must say
    largest = 4096  # bytes of what may be sent
    policy = "default-src 'none'"

    def give(self, address: SplitResult) -> None:
        """Answer a GET. May raise SteplineError, or what makes no sense of a request: ValueError, KeyError."""
        raise NotImplementedError

    def take(self, path: str, body: bytes) -> None:
        """Take what was sent. May raise as `give` does."""
        raise NotImplementedError

    def do_GET(self) -> None:
        """Give what is asked for."""
        if self._local():
            self._try(lambda: self.give(urlsplit(self.path)))

    def do_POST(self) -> None:
        """Take what is sent."""
        if not self._local():
            return
        length = self.headers.get("Content-Length", "")
        if self.headers.get("X-Stepline") != self.word or not length.isdigit() or int(length) > self.largest:
            self.close_connection = True
            self.fail(HTTPStatus.BAD_REQUEST, "not an answer of this page")
            return
        body = self.rfile.read(int(length))
        self._try(lambda: self.take(self.path, body))

    def _try(self, act: Callable[[], None]) -> None:
        try:
            act()
        except SteplineError as error:
            self.fail(HTTPStatus.CONFLICT, str(error))
        except (ValidationError, ValueError, KeyError, IndexError, TypeError):
            self.fail(HTTPStatus.BAD_REQUEST, "that request makes no sense here; load the page again")
        except ConnectionError:
            log.info("a visitor left before the reply was sent")

    def _local(self) -> bool:
        host = self.headers.get("Host", "").rpartition(":")[0]
        if host in ("localhost", HOST):
            return True
        self.close_connection = True
        self.fail(HTTPStatus.FORBIDDEN, f"ask for {HOST} by that name")
        return False

    def fail(self, status: HTTPStatus, reason: str) -> None:
        """Reply with what went wrong."""
        self.reply(json.dumps({"error": reason}).encode(), "application/json", status)

    def reply(
        self, data: bytes, kind: str, status: HTTPStatus = HTTPStatus.OK, extra: dict[str, str] | None = None
    ) -> None:
        """Reply with data of a media type; extra: more headers."""
        headers = {
            "Content-Type": kind,
            "Content-Length": str(len(data)),
            "Content-Security-Policy": self.policy,
            "X-Content-Type-Options": "nosniff",
            "Cache-Control": "no-store",
        }
        self.send_response(status)
        for name, value in (headers | (extra or {})).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, form: str, *values: object) -> None:
        """Tell the log instead of stderr."""
        log.info(form, *values)
