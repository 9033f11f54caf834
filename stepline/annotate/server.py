"""The page that annotators use, served on this machine alone."""

import json
from functools import partial
from http import HTTPStatus
from http.server import ThreadingHTTPServer
from importlib.resources import files
from pathlib import Path
from threading import Lock
from urllib.parse import SplitResult, parse_qs

from stepline.annotate.answers import Answer
from stepline.annotate.local_server import HOST, LocalVisit
from stepline.annotate.queue import Desk

POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; media-src 'self'; connect-src 'self'"
FILES = {
    "/": ("page.html", "text/html"),
    "/page.js": ("page.js", "text/javascript"),
    "/page.css": ("page.css", "text/css"),
}


def serve(desk: Desk, folder: Path, port: int = 0) -> ThreadingHTTPServer:
    """Return a server that listens on this machine; clips are cut into `folder` when they are first watched."""
    return ThreadingHTTPServer((HOST, port), partial(_Visit, desk, _Cuts(desk, folder)))


class _Cuts:
    """The clips as files, each cut once."""

    def __init__(self, desk: Desk, folder: Path) -> None:
        self._desk, self._folder = desk, folder
        self._lock = Lock()

    def file(self, number: int) -> bytes:
        """Return the mp4 of a clip by its place. Raises IndexError, MediaError or StoreError."""
        from stepline.media import cut

        clip = list(self._desk.clips.values())[number]
        path = self._folder / f"{number:05d}.mp4"
        with self._lock:
            if not path.exists():
                cut(Path(clip.video), clip.span, path)
        return path.read_bytes()


class _Visit(LocalVisit):
    """One request."""

    word = "annotate"
    policy = POLICY

    def __init__(self, desk: Desk, cuts: _Cuts, *rest: object) -> None:
        self._desk, self._cuts = desk, cuts
        self._numbers = {id: number for number, id in enumerate(desk.clips)}
        super().__init__(*rest)  # type: ignore[arg-type]

    def give(self, address: SplitResult) -> None:
        """Give the page, the next task or a clip."""
        if address.path in FILES:
            name, kind = FILES[address.path]
            self.reply((files(__package__) / name).read_bytes(), f"{kind}; charset=utf-8")
        elif address.path == "/next":
            self._next(parse_qs(address.query).get("annotator", [""])[0])
        elif address.path.startswith("/clip/"):
            self._clip(address.path.removeprefix("/clip/").removesuffix(".mp4"))
        else:
            self.fail(HTTPStatus.NOT_FOUND, "no such page")

    def _next(self, annotator: str) -> None:
        task = self._desk.next(_named(annotator))
        reply: dict[str, object] = {"stage": task.stage, "left": task.left}
        if task.clip is not None:
            reply |= {"clip": task.clip.id, "text": task.clip.text, "media": f"/clip/{self._numbers[task.clip.id]}.mp4"}
        self.reply(json.dumps(reply).encode(), "application/json")

    def take(self, path: str, body: bytes) -> None:
        """Take an answer, or the word that a clip has begun."""
        if path == "/begin":
            told = json.loads(body)
            self._desk.begin(_named(str(told["annotator"])), str(told["clip"]))
        elif path == "/answer":
            self._desk.answer(Answer.model_validate_json(body))
        else:
            raise KeyError(path)
        self.reply(b"{}", "application/json")

    def _clip(self, number: str) -> None:
        data = self._cuts.file(int(number))
        first, last = _range(self.headers.get("Range"), len(data))
        part = data[first : last + 1]
        extra = {"Accept-Ranges": "bytes"}
        if len(part) == len(data):
            self.reply(part, "video/mp4", extra=extra)
        else:
            extra["Content-Range"] = f"bytes {first}-{last}/{len(data)}"
            self.reply(part, "video/mp4", HTTPStatus.PARTIAL_CONTENT, extra)


def _named(annotator: str) -> str:
    """Return a fit annotator's name. Raises ValidationError for another."""
    return Answer(clip="-", annotator=annotator, shown=False, confidence="not").annotator


def _range(header: str | None, length: int) -> tuple[int, int]:
    """Return the first and last byte of an HTTP Range, all of them where there is none."""
    if header is None or not header.startswith("bytes="):
        return 0, length - 1
    first, _, last = header.removeprefix("bytes=").partition(",")[0].partition("-")
    if not first:
        return max(0, length - int(last)), length - 1
    return int(first), min(int(last), length - 1) if last else length - 1
