"""The studio's server: its pages, the API behind them, who may ask, and the jobs that run
meanwhile.

The guards are those of web/local_server.py; access.py tells who may ask.
"""

import logging
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from importlib.resources import files
from pathlib import Path
from typing import Annotated

from pydantic import Field
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from stepline.pipeline.request import StepsSettings
from stepline.records import FrozenModel
from stepline.studio.access import HEADER, Access, Password
from stepline.studio.annotation import AnnotationView, AuditView
from stepline.studio.api import LARGEST, StudioApi, read_body
from stepline.studio.events import Broadcast, Webhook
from stepline.studio.jobs import JobRunner
from stepline.studio.store import Studio
from stepline.studio.uploads import PIECE
from stepline.web.local_server import HOST, Certificate, LocalServer, local_application

log = logging.getLogger(__name__)

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; media-src 'self' blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'"
)
CONNECTIONS = 400  # at a time; fifty viewers have some six each
PAGES = {
    "/": "library.html",
    "/video/{id}": "review.html",
    "/follow/{id}": "follow.html",
    "/live/{name}": "live.html",
    "/login": "login.html",
}
STATIC = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


class PasswordBody(FrozenModel):
    """What the first page of a server with a password sends."""

    password: Annotated[str, Field(max_length=1000)]


def _pages(access: Access) -> list[Route]:
    folder = files("stepline.studio") / "pages"
    static = {each.name: each for each in folder.iterdir() if Path(each.name).suffix in STATIC}
    # the studio's pages look like the page
    static["page.css"] = files("stepline.outputs.page") / "style.css"

    def page(name: str, _: Request) -> Response:
        return Response((folder / name).read_bytes(), media_type="text/html")

    def file(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in static:
            raise HTTPException(HTTPStatus.NOT_FOUND)
        return Response(static[name].read_bytes(), media_type=STATIC[Path(name).suffix])

    async def login(request: Request) -> Response:
        body = await read_body(request, PasswordBody)
        address = request.client.host if request.client else ""
        if access.password is None or not await run_in_threadpool(
            access.password.check, body.password, address
        ):
            raise HTTPException(HTTPStatus.FORBIDDEN, "that is not the password")
        reply = JSONResponse({})
        access.let_in(reply)
        return reply

    there = {path: name for path, name in PAGES.items() if (folder / name).is_file()}
    return [
        *(Route(path, partial(page, name)) for path, name in there.items()),
        Route("/login", login, methods=["POST"]),
        Route("/static/{name}", file),
        Route(
            "/favicon.ico",
            lambda _: Response(static["icon.svg"].read_bytes(), media_type="image/svg+xml"),
        ),
    ]


@dataclass(frozen=True)
class StudioOptions:
    """How a studio is served. password: for a host that others reach. at_once: jobs. settings: of
    the main job.
    certificate: None for plain http.

    port: None for the one at which the library was served last, else any free one; what a browser
    could not send yet lies under that address.
    audit: the OUT of `stepline curate` whose dataset people check at /audit/; None: the library's
    own folder.
    """

    port: int | None = None
    host: str = HOST
    password: Password | None = None
    certificate: Certificate | None = None
    at_once: int = 1
    settings: StepsSettings | None = None
    webhook: Webhook | None = None
    audit: Path | None = None


class StudioServer(LocalServer):
    """The studio of a library on a port, and its jobs. link: its address with the token.

    Raises OSError where the port is not free, SettingsError for a host without a password.
    """

    def __init__(self, studio: Studio, options: StudioOptions | None = None) -> None:
        chosen = options or StudioOptions()
        https = chosen.certificate is not None
        self.studio, self.broadcast = studio, Broadcast()
        self.access = Access(chosen.host, chosen.password, https=https)
        self.webhook = chosen.webhook
        self.jobs = JobRunner(
            studio, self.broadcast, at_once=chosen.at_once, settings=chosen.settings
        )
        annotation, audit = AnnotationView(studio), AuditView(studio, chosen.audit or studio.folder)
        self.api = StudioApi(studio, self.broadcast, self.jobs, audit)
        routes = [
            Route(row.path, row.endpoint, methods=[row.method]) for row in self.api.operations()
        ]
        application = local_application(
            [*routes, annotation.route(), audit.route(), *_pages(self.access)],
            token=HEADER,
            policy=POLICY,
            answers_to=self.access.answers_to,
            largest=lambda request: PIECE if request.method == "PATCH" else LARGEST,
            refuse=self.access.refuse,
        )
        serve = partial(
            super().__init__,
            application,
            host=chosen.host,
            connections=CONNECTIONS,
            certificate=chosen.certificate,
        )
        try:
            serve(studio.port if chosen.port is None else chosen.port)
        except OSError as error:
            if chosen.port is not None or not studio.port:
                raise
            told = "what a browser could not send to it waits there: free it, and give --port"
            log.warning(
                "port %d, of the last time, is taken (%s); %s", studio.port, error.strerror, told
            )
            serve(0)
        studio.keep_port(self.port)
        self.api.stops = lambda: self.is_stopping
        studio.on_video = lambda id, revision: self.broadcast.publish(
            "video", {"id": id, "revision": revision}
        )
        self.link = f"{self.address}?token={self.access.token}"

    def run(self) -> None:
        """Serve, and do jobs, until `stop` is called or Ctrl-C; jobs that run then go on at the
        next start."""
        if self.webhook is not None:
            self.webhook.start(self.studio)
        self.jobs.start()
        try:
            super().run()
        finally:
            self.jobs.stop()
            if self.webhook is not None:
                self.webhook.close()
            self.api.close()
