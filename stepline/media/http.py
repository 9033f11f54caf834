"""HTTP client with limits, for links, webhooks and language models.

    limits = LinkLimits(settings)
    with open_url("https://example.org/whisk.mp4", limits) as response:
        response.read(65536)

The limits bound the headers, the body and the total time. Compressed bodies are refused, and none
is requested. The same connections serve yt-dlp (media/page_videos.py), which uses http.client too,
so no other library fits both.
"""

import base64
import http.client
import io
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, unquote_to_bytes, urlsplit

from stepline.errors import MediaError
from stepline.files.remote.addresses import connect_checked
from stepline.media.settings import LinkSettings
from stepline.version import __version__

CHUNK_BYTES = 65536  # bytes per read
MIB_BYTES = 2**20
MAX_HEAD_BYTES = 2**17  # of status line, headers and what precedes them. Servers send some 1,000
MAX_WHOLE_BYTES = 64 * MIB_BYTES  # of an answer that is read into memory whole, a page say
# times `max_bytes` that may be received: chunks have lengths of their own
MAX_RECEIVED_FACTOR = 2


class TransferLimits:
    """Limits on the bytes and seconds of one transfer, shared by all its requests."""

    def __init__(self, *, max_bytes: int, seconds: float, silence: float, private: bool) -> None:
        """Start the transfer.

        Args:
            max_bytes: maximal bytes of all response bodies together.
            seconds: maximal duration of the transfer from now on.
            silence: seconds without a byte after which a request fails.
            private: whether the server may have a private network address.
        """
        self.silence = silence
        self.private = private
        self._body_bytes_left = max_bytes
        self._received_bytes_left = MAX_RECEIVED_FACTOR * max_bytes + MAX_HEAD_BYTES
        self._deadline = time.monotonic() + seconds

    def refusal(self, reason: str) -> Exception:
        """Return the exception for a response that is refused. reason: text of its message."""
        return MediaError(reason)

    def timeout_error(self) -> Exception:
        """Return the exception for a transfer that takes too long."""
        return self.refusal("the answer takes too long")

    def size_error(self) -> Exception:
        """Return the exception for a transfer that is too large."""
        return self.refusal("the answer is too large")

    def check_limits(self, expected_bytes: int = 0) -> None:
        """Raise `timeout_error` after the deadline, `size_error` if the bodies are too large.

        expected_bytes: bytes that are still to come, added to those received.
        """
        if time.monotonic() > self._deadline:
            raise self.timeout_error()
        if expected_bytes > self._body_bytes_left:
            raise self.size_error()

    def count_body_bytes(self, count: int) -> None:
        """Add `count` bytes to the size of the bodies. Raises as `check_limits` does."""
        self.check_limits(count)
        self._body_bytes_left -= count

    def count_received_bytes(self, count: int) -> None:
        """Add `count` to the received bytes of headers and bodies.

        Raises `size_error` beyond MAX_RECEIVED_FACTOR times the limit, `timeout_error` after the
        deadline.
        """
        self.check_limits()
        self._received_bytes_left -= count
        if self._received_bytes_left < 0:
            raise self.size_error()

    @property
    def read_timeout(self) -> float:
        """Seconds that the next read may wait for bytes."""
        return min(self.silence, max(0.01, self._deadline - time.monotonic()))

    def connect(self, address: tuple[str, int], *_: Any) -> socket.socket:
        """Return a new socket connected to an address (host, port).

        Raises as `check_limits` does, and MediaError for a private address that is not allowed.
        """
        self.check_limits()
        return connect_checked(address, self.read_timeout, private=self.private)


class LinkLimits(TransferLimits):
    """Limits on the download of a link, taken from its LinkSettings."""

    def __init__(self, settings: LinkSettings) -> None:
        super().__init__(
            max_bytes=settings.largest * MIB_BYTES,
            seconds=settings.longest,
            silence=settings.seconds,
            private=settings.private,
        )
        self.settings = settings

    def timeout_error(self) -> Exception:
        """Return the error for a download that takes too long, with the setting to change."""
        return self.refusal(
            f"takes longer than links.longest = {self.settings.longest:g} s; raise that, or leave "
            "it"
        )

    def size_error(self) -> Exception:
        """Return the error for a download that is too large, with the setting to change."""
        return self.refusal(
            f"larger than links.largest = {self.settings.largest} MiB; raise that, or leave it"
        )


class _LimitedSocketReader(io.RawIOBase):
    """Raw stream that reads from a socket and counts bytes and time.

    Attributes:
        header_bytes_left: bytes that the status line and headers may still have, None once the body
            has begun.
    """

    def __init__(self, raw: io.RawIOBase, connection: Any, limits: TransferLimits) -> None:
        self._raw = raw
        self._connection = connection
        self._limits = limits
        self.header_bytes_left: int | None = MAX_HEAD_BYTES

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Read available bytes into a buffer, and return how many. Raises TimeoutError after
        silence, and the errors of `TransferLimits.check_limits`."""
        self._limits.check_limits()
        self._connection.settimeout(self._limits.read_timeout)
        try:
            count = self._raw.readinto(buffer) or 0
        except TimeoutError:
            self._limits.check_limits()  # names the limit that it was
            raise
        self._limits.count_received_bytes(count)

        # a server could send headers without end
        if self.header_bytes_left is not None:
            self.header_bytes_left -= count
            if self.header_bytes_left < 0:
                raise self._limits.refusal(
                    f"the server sends more than {MAX_HEAD_BYTES // 1024} KiB of headers"
                )
        return count

    def close(self) -> None:
        self._raw.close()
        super().close()


class _LimitedResponse(http.client.HTTPResponse):
    """An HTTP response whose reads raise an error beyond the limits.

    Attributes:
        limits: limits of the transfer.
    """

    limits: TransferLimits

    def __init__(self, sock: Any, *arguments: Any, **options: Any) -> None:
        super().__init__(sock, *arguments, **options)
        self._reader = _LimitedSocketReader(self.fp.detach(), sock, self.limits)
        self.fp = io.BufferedReader(self._reader)

    def begin(self) -> None:
        super().begin()
        self._reader.header_bytes_left = None
        self.limits.check_limits(self.length or 0)
        coding = self.headers.get("Content-Encoding", "identity").strip().lower()
        if coding not in ("", "identity"):
            raise self.limits.refusal(f"the answer's compression {coding[:40]!r} is not supported")

    def read(self, amt: int | None = None) -> bytes:
        """Return the next `amt` bytes of the body, or all remaining bytes if `amt` is None.

        Fewer bytes come only at the end. Raises IncompleteRead for a truncated body. Any error
        closes the connection.
        """
        try:
            return self._read(amt)
        except BaseException:
            self.close()
            raise

    def _read(self, amt: int | None) -> bytes:
        body = bytearray()
        while amt is None or len(body) < amt:
            # one wait per part, since a server may drip
            part = self.read1(CHUNK_BYTES if amt is None else min(amt - len(body), CHUNK_BYTES))
            self.limits.count_body_bytes(len(part))
            if not part:
                break
            body += part
            if amt is None and len(body) > MAX_WHOLE_BYTES:
                raise self.limits.refusal(
                    f"the server sends more than {MAX_WHOLE_BYTES // MIB_BYTES} MiB for one page"
                )

        # a body that broke off is not a whole one
        if self.length and (amt is None or len(body) < amt):
            raise http.client.IncompleteRead(bytes(body), self.length)
        if self.length == 0:
            super().read(0)  # closes the connection
        return bytes(body)


def connection_class(kind: type[http.client.HTTPConnection], limits: TransferLimits) -> Any:
    """Return a subclass of HTTPConnection or HTTPSConnection that enforces the limits.

    Args:
        kind: HTTPConnection or HTTPSConnection.
        limits: limits of the transfer.
    """

    class LimitedConnection(kind):  # type: ignore[valid-type,misc]
        response_class = type("LimitedResponse", (_LimitedResponse,), {"limits": limits})

        def connect(self) -> None:
            self._create_connection = limits.connect  # yt-dlp has set another
            super().connect()

    return LimitedConnection


class _LimitedHandler(urllib.request.AbstractHTTPHandler):
    """urllib handler that opens http and https URLs by connections with limits."""

    def __init__(self, limits: TransferLimits) -> None:
        super().__init__()
        self._limits = limits

    http_request = https_request = urllib.request.AbstractHTTPHandler.do_request_

    def http_open(self, request: urllib.request.Request) -> Any:
        return self.do_open(connection_class(http.client.HTTPConnection, self._limits), request)

    def https_open(self, request: urllib.request.Request) -> Any:
        return self.do_open(connection_class(http.client.HTTPSConnection, self._limits), request)


class _RedirectHandler(urllib.request.HTTPRedirectHandler):
    """urllib handler that follows redirects of GET requests.

    Redirects from https to http or to another scheme are refused. A POST is never redirected, since
    that would drop its body or send it to another server.
    """

    def redirect_request(
        self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> Any:
        if req.data is not None:
            reason = "it leads elsewhere; give the address that it leads to"
            raise urllib.error.HTTPError(req.full_url, code, reason, headers, fp)
        if req.type == "https" and newurl.startswith("http:"):
            raise MediaError(
                f"{req.host} leads from https to http, where anyone can change it on the way; give "
                "another"
            )
        request = super().redirect_request(req, fp, code, msg, headers, newurl)
        # the same server needs the password again
        login = req.unredirected_hdrs.get("Authorization")
        if login and request is not None and (request.type, request.host) == (req.type, req.host):
            request.add_unredirected_header("Authorization", login)
        return request


def open_url(
    url: str,
    limits: TransferLimits,
    headers: Mapping[str, str] | None = None,
    body: bytes | None = None,
    *,
    by_proxy: bool = False,
) -> Any:
    """Return the HTTP response to a GET, or to a POST if there is a body.

    No cookies are sent, and no user and password but those in the URL (basic authentication), which
    no other server gets by a redirect.

    Args:
        url: http or https URL.
        limits: limits of the transfer, which several requests may share.
        headers: request headers. None for none.
        body: body of a POST. None for a GET.
        by_proxy: whether to use the proxies that environment variables name.

    Raises the errors of the limits (such as MediaError). Raises HTTPError for a status of 400 or
    more and for the redirect of a POST. Raises OSError and HTTPException for network errors.
    """
    # nothing but http(s): no files, no ftp, no data
    opener = urllib.request.OpenerDirector()
    opener.addheaders = [("User-Agent", f"stepline/{__version__}")]
    handlers: list[urllib.request.BaseHandler] = [
        _LimitedHandler(limits),
        _RedirectHandler(),
        urllib.request.HTTPErrorProcessor(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.UnknownHandler(),
    ]
    if by_proxy:
        handlers.append(urllib.request.ProxyHandler())
    for handler in handlers:
        opener.add_handler(handler)

    # letters that an address may hold are quoted as they are
    without_fragment, _, _ = url.partition("#")
    address = quote(without_fragment, safe="/%:=&?~+!$,;'@()*[]")
    parts = urlsplit(address)
    login, _, host = parts.netloc.rpartition("@")
    if login:
        address = parts._replace(netloc=host).geturl()
    request = urllib.request.Request(address, data=body, headers=dict(headers or {}))
    if login:
        token = base64.b64encode(unquote_to_bytes(login)).decode()
        request.add_unredirected_header("Authorization", f"Basic {token}")
    return opener.open(request, timeout=limits.silence)
