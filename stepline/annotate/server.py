"""The page that annotators use, served on this machine alone."""

from importlib.resources import files
from pathlib import Path
from threading import Lock

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from stepline.annotate.answers import AnnotatorName, Answer
from stepline.annotate.queue import AnnotationQueue
from stepline.records import FrozenModel
from stepline.web.local_server import LocalServer, file_response, local_application, post

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; media-src 'self'; connect-src 'self'"
)
FILES = {
    "": ("page.html", "text/html"),
    "page.js": ("page.js", "text/javascript"),
    "page.css": ("page.css", "text/css"),
}


class Undo(FrozenModel):
    """What the page sends to take the last answer back."""

    annotator: AnnotatorName


class ClipStart(FrozenModel):
    """What the page sends when an annotator starts to watch a clip."""

    annotator: AnnotatorName
    clip: str


def serve(queue: AnnotationQueue, folder: Path, port: int = 0) -> LocalServer:
    """Return a server on this machine; clips are cut into `folder` when they are first watched."""
    routes = annotation_routes(queue, folder)
    return LocalServer(local_application(routes, token="annotate", policy=POLICY), port)


def annotation_routes(queue: AnnotationQueue, folder: Path, at: str = "/") -> list[Route]:
    """Return the page and what it asks for below the path `at`; clips are cut into `folder` when
    first watched."""
    clips = list(queue.clips.values())
    media = {f"{number}.mp4": number for number in range(len(clips))}
    numbers = {clip.id: number for number, clip in enumerate(clips)}
    cutting = Lock()

    def page(request: Request) -> Response:
        name, media_type = FILES[request.url.path.removeprefix(at)]
        return Response((files(__package__) / name).read_bytes(), media_type=media_type)

    def next_task(request: Request) -> Response:
        name = request.query_params.get("annotator", "")
        # raises ValidationError for no name
        task = queue.next(ClipStart(annotator=name, clip="").annotator)
        reply: dict[str, object] = {"stage": task.stage, "left": task.left}
        if task.clip is not None:
            reply |= {
                "clip": task.clip.id,
                "text": task.clip.text,
                "media": f"{at}clip/{numbers[task.clip.id]}.mp4",
            }
        return JSONResponse(reply)

    def clip(request: Request) -> Response:
        from stepline.media import cut_clip

        name = request.path_params["name"]
        if name not in media:
            raise LookupError(name)
        number = media[name]
        path = folder / f"{number:05d}.mp4"
        with cutting:
            if not path.exists():
                cut_clip(Path(clips[number].video), clips[number].span, path)
        return file_response(request, path, "video/mp4")

    def begin(body: bytes) -> None:
        start = ClipStart.model_validate_json(body)
        queue.begin(start.annotator, start.clip)

    return [
        *(Route(at + path, page) for path in FILES),
        Route(f"{at}next", next_task),
        Route(f"{at}clip/{{name:path}}", clip),
        post(f"{at}begin", begin),
        post(f"{at}undo", lambda body: queue.undo(Undo.model_validate_json(body).annotator)),
        post(f"{at}answer", lambda body: queue.answer(Answer.model_validate_json(body))),
    ]
