"""Opening the videos of a command, running the main job on them, and printing their results."""

import contextlib
import json
import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from stepline.cli.errors import is_quiet, print_data, print_error, print_message
from stepline.cli.progress import FolderProgress, download_progress, progress_bars
from stepline.plugins import DEFAULT_OUTPUTS

if TYPE_CHECKING:
    from stepline.library.corrected_library import CorrectedLibrary
    from stepline.pipeline.batch import VideoOutcome, VideoResult
    from stepline.pipeline.networks import Networks
    from stepline.pipeline.output_files import OutputOptions
    from stepline.pipeline.request import Request, StepsSettings
    from stepline.pipeline.sources import VideoArgument, VideoSource
    from stepline.progress import Progress
    from stepline.records import Record, Span


@contextlib.contextmanager
def open_video(
    source: "VideoSource", out: Path, settings: "StepsSettings", **options: Any
) -> "Iterator[Request]":
    """Yield the request for a video, as `source.open` does.

    The download of a link shows its progress.

    Args:
        source: the video.
        out: the folder of the results.
        settings: settings of all stages of finding steps.
        options: arguments of `source.open`.
    """
    # Only a link takes a while before its work begins.
    is_link = source.kind == "link"
    if is_link:
        print_message(f"fetching {source.label}")
    with contextlib.ExitStack() as stack:
        with download_progress() if is_link else contextlib.nullcontext() as report:
            request = stack.enter_context(source.open(out, settings, report=report, **options))
        yield request


@contextlib.contextmanager
def open_single_video(
    video: "VideoArgument",
    settings: "StepsSettings",
    out: Path | None = None,
    captions: Path | None = None,
    part: "Span | None" = None,
) -> "Iterator[Request]":
    """Yield the request for the only video of a command. A link is downloaded, with a progress bar.

    Args:
        video: a path or an address.
        settings: settings of all stages of finding steps.
        out: the folder for a download. None: a temporary folder.
        captions: a file that replaces speech recognition.
        part: the only seconds of the video that are used.
    """
    from stepline.pipeline.sources import open_single_source

    with contextlib.ExitStack() as stack:
        with download_progress() if isinstance(video, str) else contextlib.nullcontext() as report:
            request = stack.enter_context(
                open_single_source(
                    video, settings, out, captions=captions, part=part, report=report
                )
            )
        yield request


def run_sequentially(
    sources: "Sequence[VideoSource]",
    settings: "StepsSettings",
    output: "OutputOptions",
    networks: "Networks | None",
    request_parts: dict[str, Any],
    progress: "Progress | None",
) -> "Iterator[VideoOutcome]":
    """Yield the result or the error of each video, done one after another in this process.

    Args:
        sources: the videos.
        settings: settings of all stages of finding steps.
        output: which files are written.
        networks: None loads them for each video.
        request_parts: arguments of `VideoSource.open`.
        progress: None shows each video's own progress.
    """
    from stepline.pipeline.batch import VideoOutcome, run_video

    for source in sources:
        open_source = partial(open_video, source) if progress is None else source.open
        try:
            with (
                open_source(output.out, settings, **request_parts) as request,
                contextlib.nullcontext(progress) if progress else progress_bars() as show,
            ):
                result = run_video(request, settings, output, networks=networks, progress=show)
        except Exception as error:  # noqa: BLE001   printed in a line; one video stops no other
            yield VideoOutcome(source.label, error=error)
        else:
            yield VideoOutcome(source.label, result)


class ResultPrinter:
    """Prints the result or error of each video, and stores the exit code.

    Results are printed as videos end, but JSON in the order of the videos.

    Args:
        formats: keys of OUTPUTS that were asked for. If "chapters" cannot be written, the reason is
            printed.
        as_json: whether records are printed as JSON.
        several: whether there is more than one video. Then each has a line instead of a table,
            unless --verbose is given.

    Attributes:
        status: the exit code, 0 if no video failed.
        ids: the ids of the records, in the order in which they came.
    """

    def __init__(self, formats: Collection[str], *, as_json: bool, several: bool) -> None:
        self.status = 0
        self.ids: list[str] = []
        self._formats = formats
        self._as_json = as_json
        self._several = several
        self._labels: deque[str] = deque()  # of videos whose JSON is not printed yet
        self._json_texts: dict[str, str] = {}  # by label. Empty for a video that failed
        self._prints_tables = not several or logging.getLogger().isEnabledFor(logging.INFO)

    def print_outcomes(
        self,
        iterate_outcomes: "Callable[[Progress | None], Iterable[VideoOutcome | None]]",
        labels: Sequence[str],
        folder: FolderProgress | None,
    ) -> None:
        """Print the outcomes of videos as they come.

        Args:
            iterate_outcomes: runs the videos and yields their outcomes, or None while there are none. Its
                argument is a callback for progress, None if each video shows its own progress.
            labels: names of the videos, in their order.
            folder: shows the progress of several videos. None for one video.
        """
        total = len(labels)
        self._labels.extend(labels)
        with folder or contextlib.nullcontext():
            # None comes now and then, so that the time left is right between two videos.
            for outcome in iterate_outcomes(folder.show_counts if folder is not None else None):
                if outcome is not None:
                    self._print(outcome)
                    is_earlier = outcome.result is not None and outcome.result.is_from_earlier_run
                    if folder is not None:
                        failed = outcome.error is not None
                        folder.add(outcome.label, failed=failed, earlier=is_earlier)
                if folder is not None:
                    folder.show_counts()
        if folder is not None:
            success_count = total - folder.failed
            counts = f"{success_count:,} of {total:,} videos done, {folder.failed:,} failed"
            if folder.earlier:
                counts += f"; {folder.earlier:,} were done before (--force does them again)"
            print_message(counts)

    def _print(self, outcome: "VideoOutcome") -> None:
        if outcome.error is not None:
            self.status = max(self.status, print_error(outcome.error, [outcome.label]))
            self._print_json(outcome.label, "")
        elif outcome.result is not None:
            self._print_result(outcome.label, outcome.result)

    def _print_result(self, label: str, result: "VideoResult") -> None:
        from stepline.outputs import plan_chapters, step_table
        from stepline.storage import to_json

        record = result.record
        self.ids.append(record.id)
        # A result of an earlier run has shown its warnings already.
        if self._prints_tables or not result.is_from_earlier_run:
            print_warnings(record, f"{Path(label).name}: ")

        # the record
        if self._as_json:
            text = to_json(record)
            if self._several:
                text = json.dumps(json.loads(text), ensure_ascii=False) + "\n"
            self._print_json(label, text)
        elif self._prints_tables:
            print_data(step_table(record), end="")
        elif not result.is_from_earlier_run and not is_quiet():
            print_data(step_table(record).partition("\n")[0])

        # the files
        if self._prints_tables:
            if result.is_from_earlier_run:
                print_message(
                    f"{label}: done before with the same settings (--force does it again)"
                )
            print_message(*(f"wrote {file}" for file in result.files))

        # why a file of chapters is missing
        if "chapters" in self._formats:
            reason = plan_chapters(record).reason
            if reason is not None:
                prefix = f"{record.id}: " if self._several else ""
                # --quiet hides it where --format did not ask for chapters
                is_urgent = self._formats != DEFAULT_OUTPUTS
                print_message(f"{prefix}no chapters: {reason}", urgent=is_urgent)

    def _print_json(self, label: str, text: str) -> None:
        """Print the JSON of a video once all videos before it have theirs."""
        # Several processes finish in any order, and JSON keeps that of the videos.
        self._json_texts[label] = text
        while self._labels and self._labels[0] in self._json_texts:
            print_data(self._json_texts.pop(self._labels.popleft()), end="")


def print_warnings(record: "Record", prefix: str = "") -> None:
    """Print the warnings of a record on stderr, a line each, also with --quiet.

    prefix: begins each warning, such as the file's name.
    """
    print_message(*(f"warning: {prefix}{warning}" for warning in record.warnings), urgent=True)


def print_corrections_of(out: Path, ids: Iterable[str]) -> None:
    """Print the line of `print_corrections` for the videos with these ids in a folder."""
    from stepline.library.corrected_library import open_corrections
    from stepline.outputs import safe_stem

    names = {f"{safe_stem(id)}.json" for id in ids}
    corrections = open_corrections(out) if names else None
    if corrections is not None:
        print_corrections(corrections, names)
        corrections.close()


def print_corrections(library: "CorrectedLibrary", names: Collection[str]) -> None:
    """Print a line if people corrected steps that are uncorrected in the files of their videos.

    Args:
        library: the corrections.
        names: paths of the videos' JSON files, relative to the library's folder.
    """
    count = library.count_step_corrections(names)
    if count:
        print_message(
            f"{count} correction{' is' if count == 1 else 's are'} not in these pages and files; "
            f"`stepline studio {quote(str(library.folder))}` "
            "shows the corrected steps, and 'Save as' writes them"
        )
