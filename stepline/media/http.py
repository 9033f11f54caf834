"""Requests over http(s) under limits: to public addresses alone, so many bytes, so much time,
whoever asks.

    limits = TransferLimits(settings)
    with open_url("https://example.org/whisk.mp4", limits) as answer:
        answer.read(65536)

An address is looked at as the connection is made, so that no name changes its meaning. The same
connections serve yt-dlp (media/links.py).
"""

import http.client
import ipaddress
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlsplit

from stepline.errors import MediaError
from stepline.media.settings import LinkSettings
from stepline.version import __version__

NAT64_NETWORK = ipaddress.IPv6Network("64:ff9b::/96")  # addresses of IPv4 within IPv6, RFC 6052
CHUNK_BYTES = 65536  # bytes read at once
MIB = 2**20


def is_public(address: str) -> bool:
    """Tell whether an IP address, and any of IPv4 within it, is of the public internet."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    held: list[ipaddress.IPv4Address | ipaddress.IPv6Address] = [ip]
    if isinstance(ip, ipaddress.IPv6Address):
        held += [each for each in (ip.sixtofour, *(ip.teredo or ())) if each is not None]
        held += [ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)] if ip in NAT64_NETWORK else []
    return all(each.is_global and not each.is_multicast for each in held)


def connect_checked(
    address: tuple[str, int], settings: LinkSettings, *, named: str | None = None
) -> socket.socket:
    """Return a connection to a host and port. named: a host that may be private, for the user named
    it.

    Raises MediaError for any other private address, OSError where nobody answers.
    """
    fault = OSError(f"{address[0]}: no address")
    for family, kind, protocol, _name, place in socket.getaddrinfo(*address, 0, socket.SOCK_STREAM):
        if not (settings.private or address[0].lower() == named or is_public(str(place[0]))):
            raise MediaError(
                f"{place[0]} is a private address; where you trust it, --set links.private=true"
            )
        connection = socket.socket(family, kind, protocol)
        try:
            connection.settimeout(settings.seconds)
            connection.connect(place)
        except OSError as error:
            connection.close()
            fault = error
            continue
        return connection
    raise fault


class TransferLimits:
    """What all requests for one link may take together; counts from its making."""

    def __init__(self, settings: LinkSettings) -> None:
        self.settings = settings
        self._bytes, self._end = settings.largest * MIB, time.monotonic() + settings.longest

    def check(self, coming: int = 0) -> None:
        """Raise MediaError where the time is over, or `coming` bytes are more than are left."""
        if time.monotonic() > self._end:
            raise MediaError(
                f"takes longer than links.longest = {self.settings.longest:g} s; raise that, or leave it"
            )
        if coming > self._bytes:
            raise MediaError(
                f"larger than links.largest = {self.settings.largest} MiB; raise that, or leave it"
            )

    def take(self, count: int) -> None:
        """Count bytes that came. Raises MediaError as `check` does."""
        self.check(count)
        self._bytes -= count

    def connect(self, address: tuple[str, int], *_: Any) -> socket.socket:
        """Return a connection to a host and port. Raises MediaError for a private address."""
        self.check()
        return connect_checked(address, self.settings)


class _LimitedResponse(http.client.HTTPResponse):
    """An answer that is read no longer, and no further, than its limits allow."""

    limits: TransferLimits

    def begin(self) -> None:
        super().begin()
        self.limits.check(self.length or 0)

    def read(self, amt: int | None = None) -> bytes:
        """Return so many bytes, or all; fewer at the end alone. Raises IncompleteRead where the
        answer breaks off."""
        parts: list[bytes] = []
        left = amt
        while left is None or left > 0:
            # one wait, for a server that drips
            part = self.read1(CHUNK_BYTES if left is None else min(left, CHUNK_BYTES))
            self.limits.take(len(part))
            if not part:
                break
            parts.append(part)
            left = None if left is None else left - len(part)
        if (left is None or left > 0) and self.length:
            raise http.client.IncompleteRead(b"".join(parts), self.length)
        if self.length == 0:
            super().read(0)  # lets the connection go
        return b"".join(parts)


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
    """Follows redirects, but none from https to http and none to another scheme."""

    def redirect_request(
        self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> Any:
        if req.type == "https" and newurl.startswith("http:"):
            raise MediaError(
                f"{req.host} leads from https to http, on whose way anybody can change it; give another"
            )
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def open_url(
    url: str,
    limits: TransferLimits,
    headers: Mapping[str, str] | None = None,
    body: bytes | None = None,
) -> Any:
    """Return the answer to a GET, or the POST of a body: `status`, `headers`, `url` after
    redirects, `read`.

    No proxy, cookie or password is used. Raises MediaError for a limit, OSError (HTTPError for a
    status of 400 and more) and HTTPException for what the network does.
    """
    opener = urllib.request.OpenerDirector()
    opener.addheaders = [("User-Agent", f"stepline/{__version__}")]
    for handler in (
        _Opener(limits),
        _Redirects(),
        urllib.request.HTTPErrorProcessor(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.UnknownHandler(),
    ):
        opener.add_handler(handler)
    asked = quote(url.partition("#")[0], safe="/%:=&?~+!$,;'@()*[]")
    return opener.open(
        urllib.request.Request(asked, data=body, headers=dict(headers or {})),
        timeout=limits.settings.seconds,
    )


def display_url(url: str) -> str:
    """Return a URL without user, password and query, as messages show it."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
