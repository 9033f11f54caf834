"""The figures of a studio in the text form of OpenMetrics 1.0, for Prometheus and others like it.

Source: https://prometheus.io/docs/specs/om/open_metrics_spec/
"""

import threading
import time
from collections import Counter
from typing import TypeAlias

from starlette.requests import Request

from stepline.studio.store import Studio
from stepline.version import __version__

METRICS_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"
JOB_STATES = ("waiting", "running", "done", "failed", "cancelled")
COUNTED_METHODS = ("GET", "HEAD", "POST", "PATCH", "DELETE")  # any other one is counted as "other"


# Counts by method and status.
CountsByRequest: TypeAlias = dict[tuple[str, int], int]


class RequestCounts:
    """How many requests a server has answered since its start, and in how many seconds."""

    def __init__(self) -> None:
        self.started = time.time()  # UTC, seconds since 1970
        self._lock = threading.Lock()
        self._counts: CountsByRequest = Counter()
        self._seconds = 0.0

    def add(self, request: Request, status: int, seconds: float) -> None:
        """Count a request. seconds: until its reply began."""
        method = request.method
        if method not in COUNTED_METHODS:
            method = "other"
        key = (method, status)
        with self._lock:
            self._counts[key] += 1
            self._seconds += seconds

    def snapshot(self) -> "tuple[CountsByRequest, float]":
        """Return the requests by method and status, and the seconds that all took."""
        with self._lock:
            return dict(self._counts), self._seconds


def studio_metrics(studio: Studio, counts: RequestCounts) -> str:
    """Return the figures of a studio, the last line `# EOF`."""
    # All figures are read first, so that those of one answer belong to one moment.
    requests, seconds = counts.snapshot()
    states = studio.jobs.count_states()
    rows = studio.database.rows("SELECT count(*) FROM correction")
    correction_count = rows[0][0]
    video_count = len(studio.library.videos())
    text = MetricsText()

    # the server
    text.family("stepline", "info", "The version of Stepline.")
    text.sample("stepline_info", 1, version=__version__)
    text.family("stepline_start_time_seconds", "gauge", "When the studio was started.", "seconds")
    text.sample("stepline_start_time_seconds", round(counts.started, 3))

    # the library
    text.family("stepline_videos", "gauge", "Videos of the library.")
    text.sample("stepline_videos", video_count)
    text.family("stepline_corrections", "gauge", "Corrections of the library.")
    text.sample("stepline_corrections", correction_count)
    text.family("stepline_jobs", "gauge", "Jobs of the library by their state.")
    for state in JOB_STATES:
        jobs = states.get(state, 0)
        text.sample("stepline_jobs", jobs, state=state)

    # the requests
    text.family("stepline_requests", "counter", "Requests answered since the start.")
    for (method, status), count in sorted(requests.items()):
        labels = {"method": method, "status": str(status)}
        text.sample("stepline_requests_total", count, **labels)
    text.family("stepline_request_seconds", "summary", "Until a reply began.", "seconds")
    request_count = sum(requests.values())
    text.sample("stepline_request_seconds_count", request_count)
    text.sample("stepline_request_seconds_sum", round(seconds, 6))
    return text.finish()


class MetricsText:
    """Lines of OpenMetrics: each family with its samples after it."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def family(self, name: str, kind: str, meaning: str, unit: str | None = None) -> None:
        """Begin a family. unit: its name ends with it."""
        lines = [f"# TYPE {name} {kind}"]
        if unit is not None:
            lines.append(f"# UNIT {name} {unit}")
        lines.append(f"# HELP {name} {meaning}")
        self._lines += lines

    def sample(self, name: str, value: float, **labels: str) -> None:
        """Add a sample of the family. Labels hold neither quotes nor line ends."""
        pairs = []
        for label, text in labels.items():
            pairs.append(f'{label}="{text}"')
        if pairs:
            joined = ",".join(pairs)
            name = f"{name}{{{joined}}}"
        self._lines.append(f"{name} {value}")

    def finish(self) -> str:
        """Return all of it."""
        lines = [*self._lines, "# EOF", ""]
        return "\n".join(lines)
