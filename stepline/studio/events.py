"""What happens in a library, told as it does: to browsers as server-sent events, to programs as
signed webhooks."""

import asyncio
import hashlib
import hmac
import http.client
import json
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

from stepline.errors import MediaError, SettingsError, StoreError
from stepline.limits import LimitError, read_limited
from stepline.media.http import TransferLimits, display_url, open_url
from stepline.media.settings import LinkSettings
from stepline.pipeline.sources import is_link
from stepline.studio.store import Event, Studio

log = logging.getLogger(__name__)

HEARTBEAT = 15.0  # s between signs of life, so that a proxy keeps the line open
LOOK = 0.5  # s between two looks whether the server stops
MOST_WAITING = 1000  # events that a slow listener may be behind; then it is cut off, and asks anew
SHORTEST_KEY = 16  # bytes of a webhook's key
PAUSE, LONGEST_PAUSE = 1.0, 600.0  # s before a webhook's second try; doubles up to
REFUSALS = 10  # answers that refuse an event until it is given up: some 9 minutes
LONGEST = 86400.0  # s after which one that nobody answers is


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

    def __init__(self) -> None:
        self._listeners: set[Listener] = set()
        self._lock = threading.Lock()

    def publish(self, name: str, data: Mapping[str, Any]) -> None:
        """Tell an event."""
        event = f"event: {name}\ndata: {json.dumps(data, ensure_ascii=True)}\n\n"
        with self._lock:
            for listener in self._listeners:
                listener.loop.call_soon_threadsafe(listener.put, event)

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
    """Posts the events of a library to a URL, each signed: HMAC-SHA256 of "TIME.BODY" with the
    secret, in hexadecimal.

    The store has them until they are told, so each comes at least once, in their order, whatever
    ends meanwhile. One that is answered by a refusal is given up after REFUSALS, for others wait
    behind it; all others after LONGEST.
    """

    def __init__(
        self, url: str, secret: bytes, settings: LinkSettings, pause: float = PAUSE
    ) -> None:
        self._url, self._secret, self._settings, self._pause = url, secret, settings, pause
        self._waits, self._closed = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, studio: Studio) -> None:
        """Send what waits in the store, and what comes to it."""
        studio.on_event = self._waits.set
        self._thread = threading.Thread(
            target=self._send_all, args=(studio,), name="webhook", daemon=True
        )
        self._thread.start()

    def close(self, patience: float = 2.0) -> None:
        """Send what waits, for so many seconds; the next start goes on with the rest."""
        self._closed.set()
        self._waits.set()
        if self._thread is not None:
            self._thread.join(patience)

    def _send_all(self, studio: Studio) -> None:
        pause = self._pause
        while True:
            self._waits.clear()
            try:
                event = studio.first_event()
                fault = None if event is None else self._send_or_give_up(studio, event)
            except StoreError as error:
                event, fault = None, str(error)
            if fault is not None and pause == self._pause:  # once, however long it lasts
                log.warning(
                    "webhook: %s is not told yet (%s); what waits for it is kept",
                    self._host(),
                    fault,
                )
            if fault is None and event is not None:
                pause = self._pause
            elif self._closed.is_set():
                return
            elif fault is None:
                self._waits.wait()
            else:
                self._closed.wait(pause)
                pause = min(2 * pause, LONGEST_PAUSE)

    def _send_or_give_up(self, studio: Studio, event: Event) -> str | None:
        """Post an event, and forget it where it is told or given up; return what went wrong where
        it is neither."""
        try:
            self._send(event)
        except (MediaError, OSError, http.client.HTTPException) as error:
            refused = isinstance(error, HTTPError)
            if event.made > time.time() - LONGEST and (
                not refused or event.refusals + 1 < REFUSALS
            ):
                if refused:
                    studio.count_refusal(event.number)
                return str(error)
            log.warning(
                "webhook: %s is never told of a %s of %.0f (%s)",
                self._host(),
                event.name,
                event.made,
                error,
            )
        studio.forget_event(event.number)
        return None

    def _send(self, event: Event) -> None:
        at = f"{time.time():.0f}"
        body = event.body.encode()
        headers = {
            "Content-Type": "application/json",
            "X-Stepline-Event": event.name,
            "X-Stepline-Id": event.id,
            "X-Stepline-Time": at,
            "X-Stepline-Signature": signature(self._secret, at, body),
        }
        with open_url(self._url, TransferLimits(self._settings), headers, body) as answer:
            answer.read(1)

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
        raise SettingsError(
            "--webhook needs --webhook-secret, a file with the key that signs what is told"
        )
    try:
        key = read_limited(secret, 4096).split(b"\n")[0].strip()
    except (OSError, LimitError) as error:
        raise SettingsError(
            f"--webhook-secret {secret}: cannot be read ({error}); write a key into it"
        ) from error
    if len(key) < SHORTEST_KEY:
        raise SettingsError(
            f"--webhook-secret {secret}: a key of {len(key)} bytes; take {SHORTEST_KEY} or more"
        )
    return Webhook(url, key, settings)
