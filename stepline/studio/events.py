"""What happens in a library, told as it does: to browsers as server-sent events, to programs as signed webhooks."""

import asyncio
import hashlib
import hmac
import http.client
import json
import logging
import queue
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stepline.errors import MediaError, SettingsError
from stepline.limits import LimitError, read_limited
from stepline.media.http import TransferLimits, display_url, open_url
from stepline.media.settings import LinkSettings
from stepline.pipeline.sources import is_link

log = logging.getLogger(__name__)

HEARTBEAT = 15.0  # s between signs of life, so that a proxy keeps the line open
LOOK = 0.5  # s between two looks whether the server stops
MOST_WAITING = 1000  # events that a slow listener may be behind; then it is cut off, and asks anew
SHORTEST_KEY = 16  # bytes of a webhook's key
ATTEMPTS, PAUSE = 4, 1.0  # tries of a webhook, s before the second; doubles


@dataclass(eq=False)
class Listener:
    """One open line of a browser."""

    loop: asyncio.AbstractEventLoop
    events: "asyncio.Queue[str | None]" = field(default_factory=lambda: asyncio.Queue(MOST_WAITING))

    def put(self, event: str) -> None:
        """Add an event; cut the line where too many wait."""
        if self.events.full():
            while not self.events.empty():
                self.events.get_nowait()
            self.events.put_nowait(None)
        else:
            self.events.put_nowait(event)


class Broadcast:
    """Gives each event to all who listen, from any thread."""

    def __init__(self, webhook: "Webhook | None" = None) -> None:
        self._listeners: set[Listener] = set()
        self._lock = threading.Lock()
        self._webhook = webhook

    def close(self) -> None:
        """Have the webhook send what waits."""
        if self._webhook is not None:
            self._webhook.close()

    def publish(self, name: str, data: Mapping[str, Any], *, kept: bool = True) -> None:
        """Tell an event. kept: whether a webhook tells it too; progress it does not."""
        event = f"event: {name}\ndata: {json.dumps(data, ensure_ascii=True)}\n\n"
        with self._lock:
            for listener in self._listeners:
                listener.loop.call_soon_threadsafe(listener.put, event)
        if kept and self._webhook is not None:
            self._webhook.tell(name, data)

    async def listen(self, stops: Callable[[], bool]) -> AsyncIterator[str]:
        """Yield the events from now on, as text/event-stream has them, until the server stops."""
        listener = Listener(asyncio.get_running_loop())
        with self._lock:
            self._listeners.add(listener)
        try:
            yield "retry: 2000\n\n"
            silent = 0.0
            while not stops():
                try:
                    event = await asyncio.wait_for(listener.events.get(), LOOK)
                except TimeoutError:
                    silent += LOOK
                    if silent < HEARTBEAT:
                        continue
                    event = ":\n\n"
                if event is None:
                    return
                silent = 0.0
                yield event
        finally:
            with self._lock:
                self._listeners.discard(listener)


class Webhook:
    """Posts events to a URL, each signed: HMAC-SHA256 of "TIME.BODY" with the secret, in hexadecimal.

    One thread sends them in their order; one that is refused ATTEMPTS times is given up, with a warning.
    """

    def __init__(self, url: str, secret: bytes, settings: LinkSettings, pause: float = PAUSE) -> None:
        self._url, self._secret, self._settings, self._pause = url, secret, settings, pause
        self._waiting: queue.Queue[tuple[str, bytes] | None] = queue.Queue(MOST_WAITING)
        self._thread = threading.Thread(target=self._send_all, name="webhook", daemon=True)
        self._thread.start()

    def tell(self, name: str, data: Mapping[str, Any]) -> None:
        """Send an event, soon."""
        try:
            self._waiting.put_nowait((name, json.dumps({"event": name, **data}).encode()))
        except queue.Full:
            log.warning("webhook: %d events wait for %s; %s is not told", MOST_WAITING, self._host(), name)

    def close(self, patience: float = 2.0) -> None:
        """Send what waits, for so many seconds."""
        self._waiting.put(None)
        self._thread.join(patience)

    def _send_all(self) -> None:
        while (event := self._waiting.get()) is not None:
            pause = self._pause
            for attempt in range(1, ATTEMPTS + 1):
                fault = self._send(*event)
                if fault is None:
                    break
                if attempt == ATTEMPTS:
                    log.warning("webhook: %s is not told of a %s (%s)", self._host(), event[0], fault)
                else:
                    time.sleep(pause)
                    pause *= 2

    def _send(self, name: str, body: bytes) -> str | None:
        """Post one event; return what went wrong."""
        at = f"{time.time():.0f}"
        headers = {
            "Content-Type": "application/json",
            "X-Stepline-Event": name,
            "X-Stepline-Time": at,
            "X-Stepline-Signature": signature(self._secret, at, body),
        }
        try:
            with open_url(self._url, TransferLimits(self._settings), headers, body) as answer:
                answer.read(1)
        except (MediaError, OSError, http.client.HTTPException) as error:
            return str(error)
        return None

    def _host(self) -> str:
        return display_url(self._url)


def signature(secret: bytes, at: str, body: bytes) -> str:
    """Return what X-Stepline-Signature says of a webhook's body that was sent at a time."""
    return "sha256=" + hmac.new(secret, at.encode() + b"." + body, hashlib.sha256).hexdigest()


def open_webhook(url: str | None, secret: Path | None, settings: LinkSettings) -> Webhook | None:
    """Return what tells a URL, None without one; the first line of the file is the key.

    Raises SettingsError for what is no address of http(s), and for a key that is missing or short.
    """
    if url is None:
        return None
    if not is_link(url):
        raise SettingsError(f"--webhook {url}: no address; it begins with http:// or https://")
    if secret is None:
        raise SettingsError("--webhook needs --webhook-secret, a file with the key that signs what is told")
    try:
        key = read_limited(secret, 4096).split(b"\n")[0].strip()
    except (OSError, LimitError) as error:
        raise SettingsError(f"--webhook-secret {secret}: cannot be read ({error}); write a key into it") from error
    if len(key) < SHORTEST_KEY:
        raise SettingsError(f"--webhook-secret {secret}: a key of {len(key)} bytes; take {SHORTEST_KEY} or more")
    return Webhook(url, key, settings)
