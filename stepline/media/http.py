"""The HTTP client for every server that Stepline asks: of links, webhooks and language models.

    limits = LinkLimits(settings)
    with open_url("https://example.org/whisk.mp4", limits) as answer:
        answer.read(65536)

Whatever its status, an answer is read under limits. They are of its status line and headers, and of
its body as it comes and as it unpacks. One is of the time for all of it. The same connections serve
yt-dlp (media/links.py).
"""

import http.client
import io
import socket
import time
import urllib.error
import urllib.request
import zlib
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from stepline.errors import MediaError
from stepline.files.remote.addresses import connect_checked
from stepline.media.settings import LinkSettings
from stepline.version import __version__

CHUNK_BYTES = 65536  # bytes per read
MIB_BYTES = 2**20
MAX_HEAD_BYTES = 2**17  # of status line, headers and what precedes them. Servers send some 1,000
MAX_WHOLE_BYTES = 64 * MIB_BYTES  # of an answer that is read into memory whole, a page say
# times `most_bytes` that may come over the line: chunks have lengths of their own
MAX_LINE_FACTOR = 2
GZIP_OR_ZLIB = zlib.MAX_WBITS | 32  # which of them it is, zlib finds out
ZLIB_METHOD = 8  # low half of the first byte of a zlib stream. Deflate without one has any


class TransferLimits:
    """What all requests for one thing may take together. Counts from its making.

    most_bytes: of bodies.
    seconds: in all.
    silence: seconds that a server may say nothing.
    private: whether it may be at an address that is not public.
    """

    def __init__(
        self, *, most_bytes: int, seconds: float, silence: float, private: bool = False
    ) -> None:
        self.silence = silence
        self.private = private
        self._body_bytes = most_bytes
        self._line_bytes = MAX_LINE_FACTOR * most_bytes + MAX_HEAD_BYTES
        self._end = time.monotonic() + seconds

    def fault(self, reason: str) -> Exception:
        """Return the error of an answer that is not taken."""
        return MediaError(reason)

    def too_late(self) -> Exception:
        """Return the error of an answer that takes too long."""
        return self.fault("the answer takes too long")

    def too_large(self) -> Exception:
        """Return the error of an answer that is too large."""
        return self.fault("the answer is too large")

    def check(self, coming: int = 0) -> None:
        """Raise `too_late` where the time is over, `too_large` where `coming` bytes are more than
        are left."""
        if time.monotonic() > self._end:
            raise self.too_late()
        if coming > self._body_bytes:
            raise self.too_large()

    def take(self, count: int) -> None:
        """Count bytes of a body, unpacked. Raises as `check` does."""
        self.check(count)
        self._body_bytes -= count

    def take_from_line(self, count: int) -> None:
        """Count bytes as they came. Raises as `check` does."""
        self.check()
        self._line_bytes -= count
        if self._line_bytes < 0:
            raise self.too_large()

    @property
    def patience(self) -> float:
        """Seconds to wait for the next bytes."""
        return min(self.silence, max(0.01, self._end - time.monotonic()))

    def connect(self, address: tuple[str, int], *_: Any) -> socket.socket:
        """Return a connection to a host and port. Raises as `check` does, and MediaError for a
        private address that is not allowed."""
        self.check()
        return connect_checked(address, self.patience, private=self.private)


class LinkLimits(TransferLimits):
    """Limits of what a link brings, by the settings of links."""

    def __init__(self, settings: LinkSettings) -> None:
        super().__init__(
            most_bytes=settings.largest * MIB_BYTES,
            seconds=settings.longest,
            silence=settings.seconds,
            private=settings.private,
        )
        self.settings = settings

    def too_late(self) -> Exception:
        """Return the error of a link that takes too long, with its setting."""
        longest = self.settings.longest
        return self.fault(
            f"takes longer than links.longest = {longest:g} s; raise that, or leave it"
        )

    def too_large(self) -> Exception:
        """Return the error of a link that is too large, with its setting."""
        largest = self.settings.largest
        return self.fault(f"larger than links.largest = {largest} MiB; raise that, or leave it")


class _LimitedLine(io.RawIOBase):
    """Bytes of a connection as they come, counted and timed.

    head_left: of a status line and headers. None while a body is read.
    """

    def __init__(self, line: io.RawIOBase, connection: Any, limits: TransferLimits) -> None:
        self._line = line
        self._connection = connection
        self._limits = limits
        self.head_left: int | None = MAX_HEAD_BYTES

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read what is there. Raises as the limits do, and TimeoutError after silence."""
        self._limits.check()
        self._connection.settimeout(self._limits.patience)
        try:
            count = self._line.readinto(buffer) or 0
        except TimeoutError:
            self._limits.check()  # names the limit that it was
            raise
        self._limits.take_from_line(count)

        # a server could send headers without end
        if self.head_left is not None:
            self.head_left -= count
            if self.head_left < 0:
                size = f"{MAX_HEAD_BYTES // 1024} KiB"
                raise self._limits.fault(f"the server sends more than {size} of headers")
        return count

    def close(self) -> None:
        """Let the connection go."""
        self._line.close()
        super().close()


class _LimitedResponse(http.client.HTTPResponse):
    """An answer that is read no longer, and no further, than its limits allow.

    is_packed: it came compressed, and is read unpacked.
    """

    limits: TransferLimits
    is_packed = False

    def __init__(self, sock: Any, *arguments: Any, **options: Any) -> None:
        super().__init__(sock, *arguments, **options)
        self._line = _LimitedLine(self.fp.detach(), sock, self.limits)
        self.fp = io.BufferedReader(self._line)
        self._unpacker: Any = None

    def begin(self) -> None:
        super().begin()
        self._line.head_left = None
        self.limits.check(self.length or 0)
        coding = self.headers.get("Content-Encoding", "identity").strip().lower()
        if coding in ("", "identity"):
            return
        if coding not in ("gzip", "x-gzip", "deflate"):
            raise self.limits.fault(f"the answer's compression {coding[:40]!r} is not supported")
        self.is_packed = True
        # Who reads it gets it unpacked, of a length that is not known.
        del self.headers["Content-Encoding"]
        del self.headers["Content-Length"]

    def read(self, amt: int | None = None) -> bytes:
        """Return that many bytes, or all. Fewer at the end alone. Raises IncompleteRead where the
        answer breaks off. Whatever is raised, the connection is let go."""
        try:
            return self._read(amt)
        except BaseException:
            self.close()
            raise

    def _read(self, amt: int | None) -> bytes:
        parts: list[bytes] = []
        whole_bytes = 0
        while amt is None or whole_bytes < amt:
            # one wait, for a server that drips
            chunk_bytes = CHUNK_BYTES
            if amt is not None:
                chunk_bytes = min(amt - whole_bytes, CHUNK_BYTES)
            part = self.read1(chunk_bytes)
            self.limits.take(len(part))
            if not part:
                break
            parts.append(part)
            whole_bytes += len(part)
            if amt is None and whole_bytes > MAX_WHOLE_BYTES:
                size = f"{MAX_WHOLE_BYTES // MIB_BYTES} MiB"
                raise self.limits.fault(f"the server sends more than {size} for one page")
        is_unpacked = self._unpacker is not None and self._unpacker.eof  # what follows is not part

        # an answer that broke off is not a whole one
        lacks_bytes = amt is None or whole_bytes < amt
        if lacks_bytes and self.length and not is_unpacked:
            raise http.client.IncompleteRead(b"".join(parts), self.length)
        if self.length == 0:
            super().read(0)  # lets the connection go
        return b"".join(parts)

    def read1(self, n: int = -1) -> bytes:
        """Return what one wait brings, at most n bytes, unpacked. Nothing at the end."""
        if not self.is_packed:
            return super().read1(n)
        part = b""
        while not part:
            packed = b""
            if self._unpacker is not None:
                if self._unpacker.eof:
                    return b""
                packed = self._unpacker.unconsumed_tail
            packed = packed or super().read1(CHUNK_BYTES)
            if not packed:
                if self._unpacker is not None:
                    raise http.client.IncompleteRead(b"")
                return b""
            part = self._unpack(packed, n)
        return part

    def _unpack(self, packed: bytes, most: int) -> bytes:
        if self._unpacker is None:
            # Some servers send deflate without zlib's head.
            is_bare = packed[0] & 15 != ZLIB_METHOD and packed[0] != 0x1F
            self._unpacker = zlib.decompressobj(-zlib.MAX_WBITS if is_bare else GZIP_OR_ZLIB)
        try:
            return bytes(self._unpacker.decompress(packed, max(0, most)))
        except zlib.error as error:
            raise http.client.HTTPException(f"the answer cannot be unpacked ({error})") from error


def connection_class(kind: type[http.client.HTTPConnection], limits: TransferLimits) -> Any:
    """Return `kind`, HTTPConnection or HTTPSConnection, under limits."""

    class LimitedConnection(kind):  # type: ignore[valid-type,misc]
        response_class = type("LimitedResponse", (_LimitedResponse,), {"limits": limits})

        def connect(self) -> None:
            self._create_connection = limits.connect  # after whoever has set it
            super().connect()

    return LimitedConnection


class _Opener(urllib.request.AbstractHTTPHandler):
    """Opens http and https addresses by connections under limits."""

    def __init__(self, limits: TransferLimits) -> None:
        super().__init__()
        self._limits = limits

    http_request = https_request = urllib.request.AbstractHTTPHandler.do_request_

    def http_open(self, request: urllib.request.Request) -> Any:
        """Return the answer."""
        return self.do_open(connection_class(http.client.HTTPConnection, self._limits), request)

    def https_open(self, request: urllib.request.Request) -> Any:
        """Return the answer."""
        return self.do_open(connection_class(http.client.HTTPSConnection, self._limits), request)


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects of a GET, but none from https to http and none to another scheme.

    A message goes to the address that it is for: a redirect would drop its body, or hand it on.
    """

    def redirect_request(
        self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> Any:
        if req.data is not None:
            reason = "it leads elsewhere; give the address that it leads to"
            raise urllib.error.HTTPError(req.full_url, code, reason, headers, fp)
        if req.type == "https" and newurl.startswith("http:"):
            risk = "leads from https to http, where anyone can change it on the way"
            raise MediaError(f"{req.host} {risk}; give another")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def open_url(
    url: str,
    limits: TransferLimits,
    headers: Mapping[str, str] | None = None,
    body: bytes | None = None,
    *,
    by_proxy: bool = False,
) -> Any:
    """Return the answer to a GET, or the POST of a body: `status`, `headers`, `url` after
    redirects, `read`.

    No cookie or password is used, and no proxy unless `by_proxy` allows those of the environment.
    Raises what the limits raise (MediaError). Raises OSError (HTTPError for a status of 400 and
    more, and for the redirect of a POST) and HTTPException for what the network does.
    """
    # nothing but http(s): no files, no ftp, no data
    opener = urllib.request.OpenerDirector()
    opener.addheaders = [("User-Agent", f"stepline/{__version__}")]
    handlers: list[urllib.request.BaseHandler] = [
        _Opener(limits),
        _Redirects(),
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
    request = urllib.request.Request(address, data=body, headers=dict(headers or {}))
    return opener.open(request, timeout=limits.silence)
