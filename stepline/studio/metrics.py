"""The figures of a studio in the text form of OpenMetrics 1.0, for Prometheus and others like it.

Source: https://prometheus.io/docs/specs/om/open_metrics_spec/
"""

import threading
import time
from collections import Counter

from starlette.requests import Request

from stepline.studio.store import Studio
from stepline.version import __version__

METRICS_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"
JOB_STATES = ("waiting", "running", "done", "failed", "cancelled")
COUNTED_METHODS = ("GET", "HEAD", "POST", "PATCH", "DELETE")  # any other one is counted as "other"


class RequestCounts:
    """How many requests a server has answered since its start, and in how many seconds."""

    def __init__(self) -> None:
        self.started = time.time()  # UTC, seconds since 1970
        self._lock = threading.Lock()
        self._count_ignoring_case: Counter[tuple[str, int]] = Counter()  # by method and status
        self._seconds = 0.0

    def add(self, request: Request, status: int, seconds: float) -> None:
        """Count a request. seconds: until its reply began."""
        method = request.method if request.method in COUNTED_METHODS else "other"
        with self._lock:
            self._count_ignoring_case[method, status] += 1
            self._seconds += seconds

    def snapshot(self) -> "tuple[dict[tuple[str, int], int], float]":
        """Return the requests by method and status, and the seconds that all took."""
        with self._lock:
            return dict(self._count_ignoring_case), self._seconds


def studio_metrics(studio: Studio, counts: RequestCounts) -> str:
    """Return the figures of a studio, the last line `# EOF`."""
    requests, seconds = counts.snapshot()
    states = studio.jobs.count_states()
    corrections = studio.database.rows("SELECT count(*) FROM correction")[0][0]
    lines = [
        *_family("", "info", "The version of Stepline."),
        f'stepline_info{{version="{__version__}"}} 1',
        *_family("_start_time_seconds", "gauge", "When the studio was started.", "seconds"),
        f"stepline_start_time_seconds {round(counts.started, 3)}",
        *_family("_videos", "gauge", "Videos of the library."),
        f"stepline_videos {len(studio.library.videos())}",
        *_family("_corrections", "gauge", "Corrections of the library."),
        f"stepline_corrections {corrections}",
        *_family("_jobs", "gauge", "Jobs of the library by their state."),
        *(f'stepline_jobs{{state="{state}"}} {states.get(state, 0)}' for state in JOB_STATES),
        *_family("_requests", "counter", "Requests answered since the start."),
    ]
    for (method, status), count in sorted(requests.items()):
        lines.append(f'stepline_requests_total{{method="{method}",status="{status}"}} {count}')
    lines += [
        *_family("_request_seconds", "summary", "Until a reply began.", "seconds"),
        f"stepline_request_seconds_count {sum(requests.values())}",
        f"stepline_request_seconds_sum {round(seconds, 6)}",
        "# EOF",
        "",
    ]
    return "\n".join(lines)


def _family(name: str, kind: str, meaning: str, unit: str | None = None) -> list[str]:
    """Return the lines that describe a family of samples. unit: its name ends with it."""
    units = [] if unit is None else [f"# UNIT stepline{name} {unit}"]
    return [f"# TYPE stepline{name} {kind}", *units, f"# HELP stepline{name} {meaning}"]
