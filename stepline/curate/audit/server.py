"""The report served on this machine, so that what auditors say is on disk when they say it."""

import json
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from http.server import ThreadingHTTPServer
from urllib.parse import SplitResult, parse_qs

from stepline.annotate.local_server import HOST, LocalVisit
from stepline.curate.audit.sample import Sample
from stepline.curate.audit.verdicts import Verdict, Verdicts
from stepline.errors import DatasetError


def serve(page: Callable[[], str], sample: Sample, verdicts: Verdicts, port: int = 0) -> ThreadingHTTPServer:
    """Return a server that listens on this machine; `page` is made anew for each visit, with the verdicts so far."""
    return ThreadingHTTPServer((HOST, port), partial(_Visit, page, sample, verdicts))


class _Visit(LocalVisit):
    """One request. The page carries its own, stricter policy."""

    word = "audit"
    policy = "default-src 'self' 'unsafe-inline' data:; frame-ancestors 'none'"

    def __init__(self, page: Callable[[], str], sample: Sample, verdicts: Verdicts, *rest: object) -> None:
        self._page, self._verdicts = page, verdicts
        self._known = frozenset(asked.id for asked in sample.asked)
        super().__init__(*rest)  # type: ignore[arg-type]

    def give(self, address: SplitResult) -> None:
        """Give the page, or what one person has said so far."""
        if address.path == "/":
            self.reply(self._page().encode(), "text/html; charset=utf-8")
        elif address.path == "/verdicts":
            name = _named(parse_qs(address.query).get("annotator", [""])[0])
            said = {verdict.asked: verdict.said for verdict in self._verdicts if verdict.annotator == name}
            self.reply(json.dumps({"said": said}).encode(), "application/json")
        else:
            self.fail(HTTPStatus.NOT_FOUND, "no such page")

    def take(self, path: str, body: bytes) -> None:
        """Take a verdict."""
        if path != "/verdict":
            raise KeyError(path)
        verdict = Verdict.model_validate_json(body)
        if verdict.asked not in self._known:
            raise DatasetError(f"{verdict.asked!r} is not in this sample; load the page again")
        self._verdicts.add(verdict)
        self.reply(b"{}", "application/json")


def _named(annotator: str) -> str:
    """Return a fit annotator's name. Raises ValidationError for another."""
    return Verdict(asked="-", annotator=annotator, said="unsure").annotator
