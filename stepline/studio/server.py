"""The studio's server: pages, API, access rules and jobs.

The guards against other sites are those of pages/web/local_server.py.
"""

import logging
from functools import partial
from http import HTTPStatus
from importlib.resources import files
from typing import Annotated

from pydantic import Field
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import BaseRoute, Route

from stepline.library.corrected_library import CorrectedLibrary
from stepline.library.file_digests import FileDigests
from stepline.pages.layout import BASE_STYLE, page_html
from stepline.pages.web.local_server import (
    LOCAL_HOST,
    Certificate,
    LocalServer,
    RequestGuards,
    application_options,
    asset_response,
)
from stepline.pipeline.request import StepsSettings
from stepline.records import FrozenModel
from stepline.studio.access import HEADER_VALUE, Access, Password
from stepline.studio.api import api_routes
from stepline.studio.events import Broadcast, EventStreams, Webhook
from stepline.studio.jobs import JobRunner
from stepline.studio.keys import KeyFile
from stepline.studio.live import find_live_log
from stepline.studio.operations import ApiRoute, JsonBody, StudioApi, StudioApplication
from stepline.studio.search import LibrarySearch
from stepline.studio.store import Studio
from stepline.studio.uploads import MAX_CHUNK_BYTES, Uploads

log = logging.getLogger(__name__)

CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "media-src 'self' blob:; connect-src 'self'; base-uri 'none'; form-action 'none'"
)
MAX_CONNECTIONS = 400  # at a time. Fifty viewers have some six each
MAX_BODY_BYTES = 2**20  # of a request, except for the pieces of uploads
MAX_LOGIN_BYTES = 4096  # of a request to /login, which needs no token
PAGE_FILES = {
    "/": "library.html",
    "/video/{id}": "review.html",
    "/follow/{id}": "follow.html",
    "/live/{name}": "live.html",
    "/login": "login.html",
    "/api/docs": "api.html",
}
LOGIN_PAGE = "login.html"
PAGE_SHEETS = ("/static/base.css", "/static/page.css", "/static/studio.css")
LOGIN_SHEETS = ("/static/base.css", "/static/login.css")
STATIC_SUFFIXES = (".js", ".css", ".svg")


class PasswordBody(FrozenModel):
    """Request body of the login page."""

    password: Annotated[str, Field(max_length=1000)]


def _page_routes(access: Access, library: CorrectedLibrary) -> list[BaseRoute]:
    folder = files("stepline.studio") / "pages"
    # A table of names, not a path: no request reads any other file.
    static = {file.name: file for file in folder.iterdir() if file.name.endswith(STATIC_SUFFIXES)}
    # The studio's pages share the style of the page that `stepline steps` writes.
    static["page.css"] = files("stepline.outputs.page") / "style.css"
    static["base.css"] = BASE_STYLE

    # What answers: the pages, their files, the icon and the login.
    def page(name: str, request: Request) -> Response:
        if "id" in request.path_params:
            library.video(request.path_params["id"])
        if "name" in request.path_params:
            find_live_log(library.folder, request.path_params["name"])
        sheets = LOGIN_SHEETS if name == LOGIN_PAGE else PAGE_SHEETS
        template_text = (folder / name).read_text(encoding="utf-8")
        html = page_html(
            template_text, style=None, sheets=sheets, footer="", api=request.app.openapi
        )
        return HTMLResponse(html)

    def file(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in static:
            raise HTTPException(HTTPStatus.NOT_FOUND)
        return asset_response(static[name])

    def icon(_: Request) -> Response:
        return asset_response(static["icon.svg"])

    def login(request: Request, body: JsonBody[PasswordBody]) -> Response:
        address = request.client.host if request.client else ""
        password = access.password
        if password is None or not password.check(body.password, address):
            raise HTTPException(HTTPStatus.FORBIDDEN, "that is not the password")
        reply = JSONResponse({})
        access.set_session_cookie(reply)
        return reply

    return [
        *(Route(path, partial(page, name)) for path, name in PAGE_FILES.items()),
        ApiRoute(
            "/login", login, methods=["POST"], include_in_schema=False, strict_content_type=False
        ),
        Route("/static/{name}", file),
        Route("/favicon.ico", icon),
    ]


class StudioServer(LocalServer):
    """The web server of a library, which also runs its jobs.

    Attributes:
        link: the address of the studio, with the token that logs in.
    """

    def __init__(
        self,
        studio: Studio,
        *,
        port: int | None = None,
        host: str = LOCAL_HOST,
        password: Password | None = None,
        certificate: Certificate | None = None,
        at_once: int = 1,
        settings: StepsSettings | None = None,
        webhook: Webhook | None = None,
        keys: KeyFile | None = None,
    ) -> None:
        """Bind the port of the web server.

        Args:
            studio: the library.
            port: the TCP port. None: the port of the last time, or any free one. A browser stores
                unsent edits per port.
            host: the network address at which the server listens.
            password: the login password. It is required for a host that other machines can reach.
            certificate: the https certificate. None: plain http.
            at_once: number of jobs that run at the same time.
            settings: settings of all stages of finding steps. None: the defaults.
            webhook: receives the events of the library. None: no webhook.
            keys: API keys of programs. None: programs have no keys.

        Raises OSError if the port is taken, SettingsError for a host without a password.
        """
        self.studio = studio
        self.webhook = webhook
        self.broadcast = Broadcast()
        # No request waits until a video is read.
        self.digests = FileDigests()
        self.digests.on_done = lambda: self.broadcast.publish("files", {})
        studio.library.digest_of = self.digests.get
        studio.library.on_correction = lambda id, revision: self.broadcast.publish(
            "video", {"id": id, "revision": revision}
        )
        self.access = Access(host, password, https=certificate is not None, keys=keys)
        self.jobs = JobRunner(studio, self.broadcast, at_once=at_once, settings=settings)
        self.api = StudioApi(
            studio,
            self.broadcast,
            self.jobs,
            Uploads(studio, self.jobs),
            LibrarySearch(studio.library),
            self.digests,
            EventStreams(lambda: self.is_stopping),
        )

        # what is served, and who may ask
        guards = RequestGuards(
            HEADER_VALUE,
            CONTENT_POLICY,
            is_own_host=self.access.is_own_host,
            max_bytes=_max_bytes,
            refuse=self.access.refuse,
            sets_header=True,
        )
        routes = [*api_routes(), *_page_routes(self.access, studio.library)]
        application = StudioApplication(
            openapi_url="/api/openapi.json",
            docs_url=None,
            redoc_url=None,
            **application_options(routes, guards),
        )
        application.state.api = self.api
        bind = partial(
            super().__init__,
            application,
            host=host,
            max_connections=MAX_CONNECTIONS,
            certificate=certificate,
        )

        # the port of the last time, where it is free
        last_port = studio.database.port
        try:
            bind(last_port if port is None else port)
        except OSError as error:
            if port is not None or not last_port:
                raise
            cure = "unsent edits of a browser wait for that port: free it, and give --port"
            log.warning(
                "port %d, of the last time, is taken (%s); %s", last_port, error.strerror, cure
            )
            bind(0)
        studio.database.store_port(self.port)
        self.link = f"{self.address}?token={self.access.token}"

    def run(self) -> None:
        """Serve and run jobs until `stop` or Ctrl-C. The next start continues the jobs."""
        if self.webhook is not None:
            self.webhook.start(self.studio.events)
        self.jobs.start()
        try:
            super().run()
        finally:
            # Jobs end first, since their last events are still to be sent.
            self.jobs.stop()
            if self.webhook is not None:
                self.webhook.close()
            self.api.search.close()
            self.digests.close()


def _max_bytes(request: Request) -> int:
    if request.scope["path"] == "/login":  # which needs no token
        return MAX_LOGIN_BYTES
    if request.method == "PATCH":
        return MAX_CHUNK_BYTES
    return MAX_BODY_BYTES
