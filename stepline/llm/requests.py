"""Parts of every use of a language model: a cache of replies, limits, and parallel requests.

ReplyCache        accepted replies on disk, keyed by all that they depend on
RequestLimits     maximal numbers of requests and tokens, and the numbers used so far
run_in_threads    parallel calls until a deadline; results that are later are left out
"""

import hashlib
import json
import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from stepline.errors import StoreError
from stepline.files.atomic_files import cache_folder, write_atomic
from stepline.limits import parse_json
from stepline.llm.servers import RequestError

logger = logging.getLogger(__name__)

ENTRY_VERSION = 1  # of an entry's shape. Another one is not read


class ReplyCache:
    """Cache of accepted replies on disk. It holds no API key.

    Attributes:
        folder: the folder of its files. None caches nothing.
        write_error: a note to the user after a reply could not be written, None before. Nothing more
            is written then.
    """

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self.write_error: str | None = None

    def get(self, key: str) -> str | None:
        """Return the cached reply of a key from `cache_key`, None without a readable one."""
        if self.folder is None:
            return None
        path = self._path(key)
        try:
            entry = parse_json(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, RecursionError) as error:
            kind = type(error).__name__
            logger.warning("%s: damaged reply in the cache (%s); it is asked for again", path, kind)
            return None
        is_current = isinstance(entry, dict) and entry.get("version") == ENTRY_VERSION
        if not is_current or not isinstance(entry.get("reply"), str):
            logger.warning("%s: no reply of version %d; it is asked for again", path, ENTRY_VERSION)
            return None
        return str(entry["reply"])

    def put(self, key: str, reply: str) -> None:
        """Store a reply under a key from `cache_key`. If the folder cannot be written, that is logged once
        and nothing more is stored."""
        if self.folder is None or self.write_error is not None:
            return
        try:
            write_atomic(self._path(key), json.dumps({"version": ENTRY_VERSION, "reply": reply}))
        except StoreError as error:
            self.write_error = (
                f"replies of the model are not kept: {error}; STEPLINE_CACHE names another folder"
            )
            logger.warning("%s", self.write_error)

    def _path(self, key: str) -> Path:
        return Path(self.folder or ".") / f"{key}.json"


def open_cache(enabled: bool) -> ReplyCache:
    """Return the reply cache in the user's cache folder. enabled: False gives one that caches nothing."""
    return ReplyCache(cache_folder() / "replies" if enabled else None)


def cache_key(**parts: str | float | int | bool | None) -> str:
    """Return the cache key of a reply: the hex sha256 of all that it depends on, given by name."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode("utf-8")).hexdigest()


class NotSentError(RequestError):
    """Raised where no request was sent because the time or a limit is used up. A retry would not
    help."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason, is_transient=False)


@dataclass
class RequestLimits:
    """Limits of requests and tokens, with the numbers used so far.

    Attributes:
        requests: maximal number of requests, None without a limit.
        tokens: maximal number of tokens of prompts and replies, None without a limit.
        sent: number of requests so far.
        used: number of tokens so far.
    """

    requests: int | None = None
    tokens: int | None = None
    sent: int = 0
    used: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def count_request(self, tokens: int) -> None:
        """Count a request. tokens: its estimated number of tokens, of prompt and reply.

        Raises NotSentError if a limit would be exceeded. Then nothing is counted.
        """
        with self._lock:
            if self.requests is not None and self.sent >= self.requests:
                raise NotSentError(f"the limit of {self.requests} requests is reached")
            if self.tokens is not None and self.used + tokens > self.tokens:
                raise NotSentError(f"the limit of {self.tokens} tokens is reached")
            self.sent += 1
            self.used += tokens

    def add_to_estimate(self, tokens: int) -> None:
        """Correct the number of used tokens. tokens: the server's count less the estimate."""
        with self._lock:
            self.used += tokens


Item = TypeVar("Item")
Result = TypeVar("Result")

DEADLINE_GRACE_SECONDS = 1.0  # after the deadline, for calls that watch the deadline to return


def run_in_threads(
    function: Callable[[Item], Result], items: Sequence[Item], *, workers: int, until: float
) -> dict[int, Result]:
    """Call a function for each item in parallel, and return the results by index of the item.

    Results that miss the deadline are absent. The first exception is raised, and no further call
    starts. The threads are daemons, so a hanging one does not delay the end of the process.

    Args:
        function: called once per item.
        items: the arguments.
        workers: maximal number of threads.
        until: deadline, in seconds of the clock `time.monotonic`. Results that come within
            DEADLINE_GRACE_SECONDS after it are kept.
    """
    pending: queue.SimpleQueue[int] = queue.SimpleQueue()
    finished: queue.SimpleQueue[tuple[int, Result | None, Exception | None]] = queue.SimpleQueue()
    stopped = threading.Event()
    for index in range(len(items)):
        pending.put(index)

    # each thread takes the next item, until one fails
    def worker() -> None:
        while not stopped.is_set():
            try:
                index = pending.get_nowait()
            except queue.Empty:
                return
            try:
                finished.put((index, function(items[index]), None))
            except Exception as error:  # noqa: BLE001 - it is raised in the caller's thread
                stopped.set()
                finished.put((index, None, error))

    # what has come by the deadline
    try:
        for _ in range(min(workers, len(items))):
            threading.Thread(target=worker, daemon=True, name="stepline-chat").start()
        results: dict[int, Result] = {}
        while len(results) < len(items):
            try:
                index, result, error = finished.get(
                    timeout=max(0.0, until + DEADLINE_GRACE_SECONDS - time.monotonic())
                )
            except queue.Empty:
                break
            if error is not None:
                raise error
            results[index] = result  # type: ignore[assignment]
        return results
    finally:
        stopped.set()
