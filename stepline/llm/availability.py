"""A check within about a second that a language model's server or file is there, without a request."""

import socket
import time
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

from stepline.llm.local_model import check_library, check_weights
from stepline.llm.requests import DEADLINE_GRACE_SECONDS, run_in_threads
from stepline.llm.servers import is_loopback, no_server_error, open_server
from stepline.llm.settings import ChatSettings

CONNECT_SECONDS = 1.0  # for a connection, the look-up of the name in it


def check_available(settings: ChatSettings) -> None:
    """Raise an error if the server or model file that the settings name is not available. No request
    is sent.

    Raises:
        WriterError: no server accepts a connection, or none is named.
        ModelError: the file is missing or no model, or its library is not installed.
    """
    open_server(settings).close()
    if settings.gguf is not None:
        check_library()
        check_weights(Path(settings.gguf).expanduser())
        return
    address = _connect_address(settings.base_url or "")
    until = time.monotonic() + CONNECT_SECONDS
    # In a thread: nothing else bounds the look-up of a name.
    failures = run_in_threads(_connect, [address], workers=1, until=until - DEADLINE_GRACE_SECONDS)
    reason = failures.get(0, f"no connection in {CONNECT_SECONDS:g} s")
    if reason:
        raise no_server_error(settings, reason)


def _connect(address: tuple[str, int]) -> str:
    """Open and close a TCP connection to (host, port), and return its error message, "" on success."""
    try:
        socket.create_connection(address, timeout=CONNECT_SECONDS).close()
    except OSError as error:
        return str(error) or type(error).__name__
    return ""


def _connect_address(url: str) -> tuple[str, int]:
    """Return the (host, port) of the server at a URL, or of the proxy that the environment sets for
    it."""
    parts = urlsplit(url)
    proxy = urllib.request.getproxies().get(parts.scheme)
    if proxy and not is_loopback(url) and not urllib.request.proxy_bypass(parts.hostname or ""):
        parts = urlsplit(proxy if "//" in proxy else f"http://{proxy}")
    return parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
