"""The report served on this machine, so that what auditors say is on disk when they say it."""

from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from stepline.annotate.local_server import LocalServer, local_application, post
from stepline.curate.audit.sample import AuditSample
from stepline.curate.audit.verdicts import Verdict, Verdicts
from stepline.errors import DatasetError

POLICY = "default-src 'self' 'unsafe-inline' data:; frame-ancestors 'none'"  # the page carries its own, stricter one


def serve(page: Callable[[], str], sample: AuditSample, verdicts: Verdicts, port: int = 0) -> LocalServer:
    """Return a server on this machine; `page` is made anew for each visit, with the verdicts so far."""
    ids = frozenset(text.id for text in sample.texts)

    def said(request: Request) -> Response:
        name = request.query_params.get("annotator", "")
        annotator = Verdict(asked="-", annotator=name, said="unsure").annotator  # raises ValidationError for no name
        return JSONResponse(
            {"said": {verdict.asked: verdict.said for verdict in verdicts if verdict.annotator == annotator}}
        )

    def take(body: bytes) -> None:
        verdict = Verdict.model_validate_json(body)
        if verdict.asked not in ids:
            raise DatasetError(f"{verdict.asked!r} is not in this sample; load the page again")
        verdicts.add(verdict)

    routes = [Route("/", lambda _: HTMLResponse(page())), Route("/verdicts", said), post("/verdict", take)]
    return LocalServer(local_application(routes, token="audit", policy=POLICY), port)
