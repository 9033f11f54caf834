"""Events of a library, sent to browsers as server-sent events and to programs as signed webhooks."""

import asyncio
import hashlib
import hmac
import http.client
import json
import logging
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

from starlette.responses import StreamingResponse

from stepline.errors import MediaError, SettingsError, StoreError
from stepline.files.remote.addresses import check_url, display_url
from stepline.limits import LimitError, read_limited
from stepline.media.http import TransferLimits, open_url
from stepline.media.settings import LinkSettings
from stepline.pipeline.sources import is_link
from stepline.studio.store import EventOutbox, OutboxEvent

log = logging.getLogger(__name__)

HEARTBEAT_SECONDS = 15.0  # between two comments, so that a proxy keeps the connection open
POLL_SECONDS = 0.5  # between two checks whether the server stops
HEARTBEAT_EVENT = ":\n\n"
# Open event streams: half of the connections of the server, the rest is for other requests.
MAX_STREAMS = 200
MAX_WAITING_EVENTS = 1000  # of a slow listener, which is then cut off and connects again
MIN_KEY_BYTES = 16  # of a webhook's key
MAX_KEY_FILE_BYTES = 4096
FIRST_PAUSE_SECONDS = 1.0  # before a webhook's second try. Doubles with each try
MAX_PAUSE_SECONDS = 600.0
MAX_REFUSALS = 10  # of one event, then it is given up: some 9 minutes
MAX_EVENT_AGE_SECONDS = 86400.0  # then an event without any answer is given up
MAX_WEBHOOK_SECONDS = 60.0  # for an answer. One that never ends holds up what waits
MAX_WEBHOOK_BYTES = 65536  # of an answer. Its status alone counts
MAX_FAULT_CHARS = 200  # of what a server says of a fault
CLOSE_SECONDS = 2.0  # to send what waits when the server ends


@dataclass(eq=False)
class Listener:
    """An open event stream of a browser.

    Attributes:
        loop: the asyncio event loop in which the queue is read.
        events: texts of events to send. None in the queue ends the stream.
    """

    loop: asyncio.AbstractEventLoop
    events: "asyncio.Queue[str | None]" = field(
        default_factory=lambda: asyncio.Queue(MAX_WAITING_EVENTS)
    )

    def put(self, event: str) -> None:
        """Queue an event. Close the stream if too many events wait."""
        if not self.events.full():
            self.events.put_nowait(event)
            return
        # It is too slow: what waits is lost, and None ends the connection.
        while not self.events.empty():
            self.events.get_nowait()
        self.events.put_nowait(None)


class Broadcast:
    """Sends events to all open event streams, from any thread."""

    def __init__(self) -> None:
        self._listeners: set[Listener] = set()
        self._lock = threading.Lock()

    def publish(self, name: str, data: Mapping[str, Any]) -> None:
        """Send an event to all open event streams.

        Args:
            name: the type of the event.
            data: the content of the event, as JSON values.
        """
        event = f"event: {name}\ndata: {json.dumps(data)}\n\n"
        with self._lock:
            # A queue of asyncio belongs to its loop, and events come from other threads.
            for listener in self._listeners:
                listener.loop.call_soon_threadsafe(listener.put, event)

    async def listen(self, is_stopping: Callable[[], bool]) -> AsyncIterator[str]:
        """Yield the events from now on, as text/event-stream, until the server stops."""
        listener = Listener(asyncio.get_running_loop())
        with self._lock:
            self._listeners.add(listener)
        try:
            # Milliseconds after which a browser connects again.
            yield "retry: 2000\n\n"

            # a line now and then shows both ends that the connection holds
            seconds_since_event = 0.0
            while not is_stopping():
                try:
                    event = await asyncio.wait_for(listener.events.get(), POLL_SECONDS)
                except TimeoutError:
                    seconds_since_event += POLL_SECONDS
                    if seconds_since_event < HEARTBEAT_SECONDS:
                        continue
                    event = HEARTBEAT_EVENT
                if event is None:
                    return
                seconds_since_event = 0.0
                yield event
        finally:
            with self._lock:
                self._listeners.discard(listener)


@dataclass(eq=False)
class OpenStream:
    """An open stream of server-sent events.

    Attributes:
        user: name of the API key with which a program opened it, "" for a browser page.
        events: yields the events.
        ended: done once the stream has to end because too many are open.
    """

    user: str
    events: AsyncIterator[str]
    ended: "asyncio.Future[None]"

    async def next_event(self) -> str | None:
        """Return the next event, None at the end. It does not wait longer once `ended` is done."""
        event = asyncio.ensure_future(anext(self.events, None))
        try:
            await asyncio.wait((event, self.ended), return_when=asyncio.FIRST_COMPLETED)
            return event.result() if event.done() else None
        finally:
            event.cancel()


class EventStreams:
    """The open event streams of a server, MAX_STREAMS at most.

    Args:
        is_stopping: returns whether the server ends.
    """

    def __init__(self, is_stopping: Callable[[], bool]) -> None:
        self._is_stopping = is_stopping
        self._streams: list[OpenStream] = []

    def response(
        self, user: str, events: Callable[[Callable[[], bool]], AsyncIterator[str]]
    ) -> StreamingResponse:
        """Return a response of server-sent events.

        Args:
            user: name of the key of the program. Empty for people.
            events: yields the events until the function that it is given returns True.
        """
        ended = asyncio.get_running_loop().create_future()
        stream = OpenStream(user, events(self._is_stopping), ended)
        # X-Accel-Buffering makes nginx pass each event on when it comes.
        return StreamingResponse(
            self._stream(stream),
            media_type="text/event-stream",
            headers={"X-Accel-Buffering": "no"},
        )

    async def _stream(self, stream: OpenStream) -> AsyncIterator[str]:
        self._streams.append(stream)
        if len(self._streams) > MAX_STREAMS:
            # The oldest stream of the user with the most streams ends. A browser connects again.
            busiest_user, _ = Counter(other.user for other in self._streams).most_common(1)[0]
            oldest = next(other for other in self._streams if other.user == busiest_user)
            oldest.ended.set_result(None)
            self._streams.remove(oldest)
        try:
            while (event := await stream.next_event()) is not None:
                yield event
        finally:
            if not stream.ended.done():
                self._streams.remove(stream)


class Webhook:
    """Posts the events of a library to a URL.

    Each request is signed: HMAC-SHA256 of "TIME.BODY" with the key, in hexadecimal. An event stays
    in the outbox until the URL accepts it. So each event arrives at least once, in order. An event
    is dropped after MAX_REFUSALS refusals, or after MAX_EVENT_AGE_SECONDS without any answer.

    Args:
        url: the http(s) address that receives the events.
        key: the secret key of the signature.
        settings: settings of web requests, such as the timeout.
        pause: seconds before the second try. The pause doubles after each further failure.
    """

    def __init__(
        self, url: str, key: bytes, settings: LinkSettings, pause: float = FIRST_PAUSE_SECONDS
    ) -> None:
        self._url = url
        self._key = key
        self._settings = settings
        self._pause = pause
        self._host = display_url(url)
        self._wake_event = threading.Event()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, outbox: EventOutbox) -> None:
        """Send the events of the outbox, and later ones, in a thread."""
        outbox.on_event = self._wake_event.set
        self._thread = threading.Thread(
            target=self._send_all, args=(outbox,), name="webhook", daemon=True
        )
        self._thread.start()

    def close(self, timeout_seconds: float = CLOSE_SECONDS) -> None:
        """Send the remaining events, for at most `timeout_seconds`.

        The next start sends the rest.
        """
        self._closed.set()
        self._wake_event.set()
        if self._thread is not None:
            self._thread.join(timeout_seconds)

    def _send_all(self, outbox: EventOutbox) -> None:
        pause = self._pause
        while True:
            # Cleared before the outbox is read: an event that comes in between wakes the next wait.
            self._wake_event.clear()
            event = None
            fault = None
            try:
                event = outbox.read_oldest()
                if event is not None:
                    fault = self._send_or_give_up(outbox, event)
            except StoreError as error:
                fault = str(error)

            # how long to wait for the next try
            if fault is not None:
                if pause == self._pause:  # one warning, however long it lasts
                    log.warning(
                        "webhook: %s cannot be reached yet (%s); its events are kept",
                        self._host,
                        fault,
                    )
                if self._closed.is_set():
                    return
                self._closed.wait(pause)
                pause = min(2 * pause, MAX_PAUSE_SECONDS)
            elif event is not None:
                # What was sent makes the next fault wait as short as the first.
                pause = self._pause
            elif self._closed.is_set():
                return
            else:
                self._wake_event.wait()

    def _send_or_give_up(self, outbox: EventOutbox, event: OutboxEvent) -> str | None:
        """Post an event. Remove it if it was received or is given up, else return the error."""
        try:
            self._send(event)
        except (MediaError, OSError, http.client.HTTPException, ValueError) as error:
            is_refusal = isinstance(error, HTTPError)
            fault = str(error)[:MAX_FAULT_CHARS]
            if isinstance(error, HTTPError):
                error.close()

            # an event is given up when it is old, or refused too often
            is_old = event.created <= time.time() - MAX_EVENT_AGE_SECONDS
            if not is_old and not (is_refusal and event.refusals + 1 >= MAX_REFUSALS):
                if is_refusal:
                    outbox.count_refusal(event.number)
                return fault
            log.warning(
                "webhook: %s never gets a %s of %.0f (%s)",
                self._host,
                event.name,
                event.created,
                fault,
            )
        outbox.remove(event.number)
        return None

    def _send(self, event: OutboxEvent) -> None:
        when = f"{time.time():.0f}"
        body = event.body.encode()
        # The time is signed as well: a receiver can refuse an old message that is sent again.
        headers = {
            "Content-Type": "application/json",
            "X-Stepline-Event": event.name,
            "X-Stepline-Id": event.id,
            "X-Stepline-Time": when,
            "X-Stepline-Signature": signature(self._key, when, body),
        }

        # a receiver may be as slow as a link, and not send much
        limits = TransferLimits(
            max_bytes=MAX_WEBHOOK_BYTES,
            seconds=MAX_WEBHOOK_SECONDS,
            silence=self._settings.seconds,
            private=self._settings.private,
        )
        with open_url(self._url, limits, headers, body):
            pass  # its status, 2xx, says that it was received


def signature(key: bytes, when: str, body: bytes) -> str:
    """Return the value of the header X-Stepline-Signature of a webhook request.

    Args:
        key: the secret key of the signature.
        when: the value of the header X-Stepline-Time.
        body: the body of the request.
    """
    return "sha256=" + hmac.new(key, when.encode() + b"." + body, hashlib.sha256).hexdigest()


def open_webhook(url: str | None, key_file: Path | None, settings: LinkSettings) -> Webhook | None:
    """Return the webhook of a URL, None without a URL.

    Args:
        url: the http(s) address that receives the events. None: no webhook.
        key_file: the file whose first line is the secret key.
        settings: settings of web requests.

    Raises SettingsError if the address is not http(s), or a private IP address that the settings
    do not allow, or if the key is missing or short.
    """
    if url is None:
        return None
    if not is_link(url):
        raise SettingsError(
            f"--webhook {display_url(url)}: not an address; start it with http:// or https://"
        )

    # refused here instead of at the first event
    try:
        check_url(url, private=settings.private)
    except MediaError as error:
        raise SettingsError(f"--webhook {error}") from error

    # the key that signs what is sent
    if key_file is None:
        raise SettingsError(
            "--webhook needs --webhook-secret, a file with the key that signs what is sent"
        )
    try:
        key = read_limited(key_file, MAX_KEY_FILE_BYTES).split(b"\n")[0].strip()
    except (OSError, LimitError) as error:
        raise SettingsError(
            f"--webhook-secret {key_file}: cannot be read ({error}); write a key into it"
        ) from error
    if len(key) < MIN_KEY_BYTES:
        raise SettingsError(
            f"--webhook-secret {key_file}: a key of {len(key)} bytes; take {MIN_KEY_BYTES} or more"
        )
    return Webhook(url, key, settings)
