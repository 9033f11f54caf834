"""Keeps good replies of a model on disk, keyed by all that they depend on; a damaged entry is asked for again."""

import hashlib
import json
import logging
from pathlib import Path

from stepline import models
from stepline.errors import StoreError
from stepline.store import write_atomic

logger = logging.getLogger(__name__)

VERSION = 1  # of an entry's shape; another one is not read


class ReplyCache:
    """A folder of replies; `folder` None keeps none. Keys and entries hold no API key."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self.broken: str | None = None  # why nothing more can be written, for a note to the user

    def get(self, key: str) -> str | None:
        """Return the reply under `key`, None when there is none that can be read."""
        if self.folder is None:
            return None
        path = self._path(key)
        try:
            entry = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, RecursionError) as error:
            logger.warning("%s: damaged reply in the cache (%s); it is asked for again", path, type(error).__name__)
            return None
        if not isinstance(entry, dict) or entry.get("version") != VERSION or not isinstance(entry.get("reply"), str):
            logger.warning("%s: no reply of version %d; it is asked for again", path, VERSION)
            return None
        return str(entry["reply"])

    def put(self, key: str, reply: str) -> None:
        """Keep a reply; where the folder cannot be written, say so once and go on without."""
        if self.folder is None or self.broken is not None:
            return
        try:
            write_atomic(self._path(key), json.dumps({"version": VERSION, "reply": reply}))
        except StoreError as error:
            self.broken = f"replies of the model are not kept: {error}; STEPLINE_CACHE names another folder"
            logger.warning("%s", self.broken)

    def _path(self, key: str) -> Path:
        return Path(self.folder or ".") / f"{key}.json"


def open_cache(use: bool) -> ReplyCache:
    """Return the user's cache of replies, or one that keeps nothing."""
    return ReplyCache(models.cache_folder() / "replies" if use else None)


def key(**parts: str | float | int | bool | None) -> str:
    """Return the hex sha256 of everything that a reply depends on."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode("utf-8")).hexdigest()
