"""The page that annotators use, served on this machine alone."""

from functools import partial
from importlib.resources import files
from pathlib import Path
from threading import Lock

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from stepline.pages.layout import BASE_STYLE, page_html
from stepline.pages.web.local_server import (
    LocalServer,
    asset_response,
    file_response,
    post_route,
    serve_page,
)
from stepline.records import FrozenModel
from stepline.review.answers import AnnotatorName, Answer
from stepline.review.queue import AnnotationQueue

CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; media-src 'self'; "
    "connect-src 'self'"
)
# by path
PAGE_FILES = {
    "page.js": files(__package__) / "page.js",
    "page.css": files(__package__) / "page.css",
    "base.css": BASE_STYLE,
}


class Annotator(FrozenModel):
    """Request of an annotator to take back the last answer."""

    annotator: AnnotatorName


class ClipStart(Annotator):
    """Request that reports when an annotator starts to watch a clip."""

    clip: str


def serve_annotation_page(queue: AnnotationQueue, folder: Path, port: int = 0) -> LocalServer:
    """Return a web server of the annotation page, for browsers on this machine.

    Args:
        queue: clips and answers.
        folder: folder for clips, which are cut when they are first watched.
        port: TCP port. 0 takes a free one.
    """
    return serve_page(
        annotation_routes(queue, folder), port, token="annotate", policy=CONTENT_POLICY
    )


def annotation_routes(queue: AnnotationQueue, folder: Path, at: str = "/") -> list[Route]:
    """Return the routes of the annotation page.

    Args:
        queue: clips and answers.
        folder: folder for clips, which are cut when they are first watched.
        at: URL path of the page, which ends with a slash.
    """
    # A clip is asked for by its number, so no path of a video reaches the page.
    clips = list(queue.clips.values())
    numbers = {clip.id: number for number, clip in enumerate(clips)}
    names = {f"{number}.mp4": number for number in range(len(clips))}
    cutting = Lock()

    template_text = (files(__package__) / "page.html").read_text(encoding="utf-8")
    html = page_html(template_text, style=None, sheets=("base.css", "page.css"), footer="")

    def page(_: Request) -> Response:
        return HTMLResponse(html)

    def file(name: str, _: Request) -> Response:
        return asset_response(PAGE_FILES[name])

    # the requests of the page
    def next_task(request: Request) -> Response:
        # raises ValidationError for a missing name
        sender = Annotator(annotator=request.query_params.get("annotator", ""))
        task = queue.next_task(sender.annotator)
        reply: dict[str, object] = {"stage": task.stage, "left": task.remaining}
        if task.clip is not None:
            media = f"{at}clip/{numbers[task.clip.id]}.mp4"
            reply |= {"clip": task.clip.id, "text": task.clip.text, "media": media}
        return JSONResponse(reply)

    def clip(request: Request) -> Response:
        from stepline.media import cut_clip

        number = names[request.path_params["name"]]
        path = folder / f"{number:05d}.mp4"
        # Two people may open a clip at the same time. It is cut once.
        with cutting:
            if not path.exists():
                cut_clip(Path(clips[number].video), clips[number].span, path)
        return file_response(request, path, "video/mp4")

    return [
        Route(at, page),
        *(Route(at + name, partial(file, name)) for name in PAGE_FILES),
        Route(f"{at}next", next_task),
        Route(f"{at}clip/{{name:path}}", clip),
        post_route(
            f"{at}begin", ClipStart, lambda start: queue.start_clip(start.annotator, start.clip)
        ),
        post_route(f"{at}undo", Annotator, lambda sender: queue.undo(sender.annotator)),
        post_route(f"{at}answer", Answer, queue.add_answer),
    ]
