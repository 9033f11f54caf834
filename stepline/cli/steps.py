"""`stepline steps`, the main job, and what else is done with one video: demo, transcribe, ground,
judge, describe, summarize. Each command parses, calls one function of `stepline.pipeline`, and
prints.
"""

import logging
import shlex
import sys
import webbrowser
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import stepline
from stepline.cli.errors import check_address_space, print_data, print_message
from stepline.cli.options import (
    PATH_TYPE,
    VIDEO_TYPE,
    PluginChoice,
    address_options,
    device_options,
    out_option,
    part_from_options,
    part_options,
    rewrite_options,
    settings_from_options,
    settings_options,
    speech_options,
)
from stepline.cli.progress import progress_bars
from stepline.cli.results import ResultPrinter, run_in_turn
from stepline.cli.sources import arriving_videos, open_video
from stepline.cli.weights import offer_weights
from stepline.errors import SettingsError
from stepline.plugins import BUILT_IN_NAMES, DEFAULT_OUTPUTS

if TYPE_CHECKING:
    from stepline.grounding.task_graph import TaskGraph
    from stepline.pipeline.batch import VideoOutcome, VideoPool, VideoResult, VideoWorkerSetup
    from stepline.pipeline.networks import Networks
    from stepline.pipeline.output_files import OutputOptions
    from stepline.pipeline.request import Request, StepsSettings
    from stepline.pipeline.sources import VideoArgument, VideoSource
    from stepline.progress import Progress

FORMAT_NAMES = f"FORMAT is one of {', '.join(BUILT_IN_NAMES['outputs'])}. mp4 and mkv are copies with chapters."
DEMO_VIDEO = Path(stepline.__file__).parent / "cli" / "demo" / "demo.mp4"


@click.command()
@click.argument("videos", nargs=-1, required=True, type=VIDEO_TYPE)
@out_option("Folder for the results.", default="out")
@click.option(
    "--texts",
    type=PATH_TYPE,
    help="A file of your own lines to find, one per line, or comparison.json of "
    "`stepline compare`. site: the chapters of a link's page.",
)
@click.option("--title", help="Title of the video, instead of the one in its file or speech.")
@click.option("--writer", type=PluginChoice("writers"), help="Who writes the steps.")
@click.option(
    "--step-scorer",
    type=PATH_TYPE,
    metavar="RUN",
    help="A narration tagger of your own, which picks the step sentences.",
)
@click.option("--backbone", type=PluginChoice("backbones"), help="What sees the picture.")
@click.option("--weights", help="The backbone's checkpoint or feature file.")
@click.option("--aligner", type=PATH_TYPE, help="A trained network that places the steps.")
@click.option(
    "--describe",
    "describer",
    type=PATH_TYPE,
    help="A network of `stepline train procx` for videos whose speech gives no steps.",
)
@click.option(
    "--format",
    "formats",
    type=PluginChoice("outputs"),
    multiple=True,
    metavar="FORMAT",
    help=f"Write only this output and the JSON. {FORMAT_NAMES}",
)
@click.option(
    "--alignment",
    is_flag=True,
    help="Also write how each step fits each second (ID.alignment.npz).",
)
@click.option("--clips", is_flag=True, help="Cut an mp4 clip of every step that is shown.")
@address_options
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print the record as JSON. Several videos give one line each.",
)
@rewrite_options
@click.option(
    "--keep/--no-keep",
    default=True,
    show_default=True,
    help="Keep downloaded videos in OUT/downloads.",
)
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    metavar="N",
    help="Videos to process at the same time. Default: as many as cores and memory allow.",
)
@click.option("--dry-run", is_flag=True, help="Dry run: estimate the language-model cost.")
@click.option("--open", "browse", is_flag=True, help="Show the page in the browser.")
@click.option(
    "--watch", is_flag=True, help="Also process videos that arrive in the folders, until Ctrl-C."
)
@speech_options
def steps(videos: "tuple[VideoArgument, ...]", **options: Any) -> None:
    """Find the steps of videos and when each is shown.

    \b
    Example:
      stepline steps stepline/cli/demo/demo.mp4 --out out

    VIDEOS are files, folders or links. In a folder, each video has a line instead of a table, and
    videos that are done are left alone. If one fails, the others go on and the exit code is 1.

    Captions without their video (srt, vtt, sbv, csv, json) are an input too. Nothing
    counts as shown then. In a folder, captions (but not csv and json) are an input if no video has
    their name.

    A link is an http(s) address of a file, of a page that shows a video, or of a playlist. For
    pages and playlists, install the extra `links`.
    """
    from stepline.outputs import safe_stem
    from stepline.pipeline.networks import load_networks
    from stepline.pipeline.sources import find_sources, name_sources

    check_address_space()
    settings, part = settings_from_options(options), part_from_options(options)
    if options["dry_run"]:
        _check_dry_run(settings)
    offer_weights()
    formats = options["formats"] or DEFAULT_OUTPUTS
    if options["alignment"]:
        formats = (*formats, "alignment")
    output = output_from_options(options, formats)

    # the videos, and options that fit one alone
    texts, graph = _lines_of_texts(options["texts"])
    find = partial(find_sources, captions=True, force=output.force)
    sources = [] if options["watch"] else find(videos, output.out, settings)
    several = bool(len(sources) > 1 or options["watch"])
    check_captions(options["captions"], several=several)
    check_title(options["title"], several=several)
    _check_one_video_options(options, output.formats, several=several)
    networks = load_networks(settings, several=several)
    request_parts: dict[str, Any] = {
        "captions": options["captions"],
        "texts": texts,
        "graph": graph,
        "part": part,
        "title": options["title"],
        "keep": options["keep"],
        "force": output.force,
    }
    arrivals: Iterable[list[VideoSource]] = [sources]
    if options["watch"]:
        arrivals = (name_sources(files, output.out) for files in arriving_videos(videos))
    reported_formats = options["formats"] if several else formats
    printer = ResultPrinter("videos", reported_formats, as_json=options["as_json"], several=several)
    jobs = _count_jobs(options["jobs"], settings, sources, watch=options["watch"])
    setup = _worker_setup(settings, output, request_parts)
    _print_batches(printer, arrivals, setup, networks, jobs)
    if options["browse"] and printer.last is not None:
        webbrowser.open((output.out / f"{safe_stem(printer.last.id)}.html").absolute().as_uri())
    sys.exit(printer.status)


def _lines_of_texts(source: Any) -> "tuple[tuple[str, ...] | None, TaskGraph | None]":
    """Return the lines of --texts, and the graph of a comparison. None for the chapters of a link's
    page."""
    from stepline.compare.task_graph import read_lines
    from stepline.pipeline.sources import is_site

    if not source:
        return (), None
    if is_site(source):
        return None, None
    return read_lines(source)


def _count_jobs(
    jobs: int | None, settings: "StepsSettings", sources: "Sequence[VideoSource]", *, watch: bool
) -> int:
    """Return how many videos to work on at the same time. jobs: the option, None: not given."""
    from stepline.pipeline.batch import max_parallel_videos

    if watch:
        return jobs or 1
    if len(sources) < 2:
        return 1
    return min(jobs or max_parallel_videos(settings), len(sources))


def _worker_setup(
    settings: "StepsSettings", output: "OutputOptions", request_parts: Mapping[str, Any]
) -> "VideoWorkerSetup":
    """Return what the main job does with every video, for this process and others."""
    from stepline.networks.device import requested_compute, requested_device
    from stepline.pipeline.batch import LOGGER_NAMES, VideoWorkerSetup

    levels = tuple(logging.getLogger(name).level for name in LOGGER_NAMES)
    return VideoWorkerSetup(
        settings, output, request_parts, requested_device(), requested_compute(), log_levels=levels
    )


def _print_batches(
    printer: ResultPrinter,
    arrivals: "Iterable[list[VideoSource]]",
    setup: "VideoWorkerSetup",
    networks: "Networks",
    jobs: int,
) -> None:
    """Do the main job on videos as they arrive, here or in several processes. Print what becomes of
    each. networks: for the work in this process."""
    from stepline.pipeline.batch import VideoPool

    find_steps = partial(
        run_source,
        settings=setup.settings,
        output=setup.output,
        networks=networks,
        **setup.request_parts,
    )
    # One pool for all that arrives, so that its networks are loaded once.
    with ExitStack() as stack:
        pool = stack.enter_context(VideoPool(setup, jobs)) if jobs > 1 else None
        for batch in arrivals:
            labels = [source.label for source in batch]
            if pool is not None:
                printer.print_all(partial(_run_at_once, pool, batch), labels)
            else:
                in_turn = [(source.label, partial(find_steps, source)) for source in batch]
                printer.print_all(partial(run_in_turn, in_turn), labels)


def _run_at_once(
    pool: "VideoPool", sources: "Sequence[VideoSource]", _: "Progress | None"
) -> "Iterator[VideoOutcome | None]":
    """Yield what `VideoPool.run` does."""
    return pool.run(sources)


def _check_dry_run(settings: "StepsSettings") -> None:
    """Raise SettingsError where no language model would be asked."""
    if not settings.vision.vlm.named and settings.writing.writer != "llm":
        raise SettingsError(
            "--dry-run shows what a vision-language model would be asked; name one with --set "
            "vision.vlm.base_url=URL, or a language model that writes with --writer llm"
        )


def check_captions(captions: Path | None, *, several: bool) -> None:
    """Raise SettingsError where several videos would be given one file of captions."""
    from stepline.pipeline.sources import is_site

    if several and captions is not None and not is_site(captions):
        raise SettingsError(
            "--captions is for one video; run each video with its own captions file"
        )


def check_title(title: str | None, *, several: bool) -> None:
    """Raise SettingsError for a title that says nothing, or is given to several videos."""
    if title is not None and several:
        raise SettingsError("--title is for one video; run each video with its own title")
    if title is not None and not title.strip():
        raise SettingsError("--title: holds no word; write one, or leave --title out")


def output_from_options(options: dict[str, Any], formats: Iterable[str]) -> "OutputOptions":
    """Return where to write these formats, and the JSON."""
    from stepline.outputs import WebAddresses
    from stepline.pipeline.output_files import OutputOptions

    names = tuple(dict.fromkeys((*formats, "json")))
    switches = {name: options[name] for name in ("clips", "force", "overwrite")}
    web = WebAddresses(options.get("base_url"), options.get("media_url"))
    return OutputOptions(options["out"], names, **switches, web=web)


def run_source(
    source: "VideoSource",
    *,
    settings: "StepsSettings",
    output: "OutputOptions",
    networks: "Networks | None",
    progress: "Progress | None" = None,
    **request_parts: Any,
) -> "VideoResult":
    """Do the main job on a source. request_parts: what goes to `VideoSource.open`. progress: None:
    bars of its own."""
    from stepline.pipeline.batch import run_video

    with ExitStack() as stack:
        if progress is None:
            opened = open_video(source, output.out, settings, **request_parts)
            request = stack.enter_context(opened)
            progress = stack.enter_context(progress_bars())
        else:
            opened = source.open(output.out, settings, **request_parts)
            request = stack.enter_context(opened)
        return run_video(request, settings, output, networks=networks, progress=progress)


@click.command()
@out_option("Folder for the results.", default="out")
@click.option("--open", "browse", is_flag=True, help="Show the page in the browser.")
@device_options
def demo(out: Path, browse: bool) -> None:
    """Find the steps of the demo video that comes with Stepline.

    \b
    Example:
      stepline demo --out out

    The last line names the page that shows them.
    """
    from stepline.outputs import output_path, step_table
    from stepline.pipeline.batch import run_video
    from stepline.pipeline.output_files import OutputOptions
    from stepline.pipeline.request import Request, StepsSettings
    from stepline.speech.settings import AsrSettings

    offer_weights(unasked=True)
    # its voice is synthetic: int8 errs without VNNI
    settings = StepsSettings(asr=AsrSettings(compute="float32"))
    with progress_bars() as progress:
        result = run_video(
            Request(DEMO_VIDEO, DEMO_VIDEO.stem),
            settings,
            OutputOptions(out, DEFAULT_OUTPUTS),
            progress=progress,
        )
    print_data(step_table(result.record), end="")
    page = output_path(result.record, out, "html")
    print_message(
        f"open {page} in a browser",
        f"`stepline studio {shlex.quote(str(out))}` shows, corrects and searches all videos there",
    )
    if browse:
        webbrowser.open(page.absolute().as_uri())


@click.command()
@click.argument("sources", nargs=-1, required=True, type=VIDEO_TYPE)
@click.option(
    "--model",
    "describer",
    required=True,
    type=PATH_TYPE,
    help="A network of `stepline train procx`: its file or folder.",
)
@out_option("Folder for the results.", default="described")
@click.option(
    "--speech",
    is_flag=True,
    help="Read what is said as well, for a network that was trained with speech.",
)
@click.option("--captions", type=PATH_TYPE, help="With --speech: captions instead of recognition.")
@click.option(
    "--count",
    type=click.IntRange(min=0),
    help="Number of steps, instead of what the network estimates.",
)
@click.option(
    "--backbone",
    type=PluginChoice("backbones", without=("none",)),
    help="What sees the picture. Take the one of the training.",
)
@click.option("--weights", help="The backbone's checkpoint or feature file.")
@click.option(
    "--format",
    "formats",
    type=PluginChoice("outputs"),
    multiple=True,
    metavar="FORMAT",
    help=f"Also write this output. The JSON is always written. {FORMAT_NAMES}",
)
@click.option("--clips", is_flag=True, help="Cut an mp4 of every step (videos only).")
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print JSON, not a table. Several sources give one line each.",
)
@rewrite_options
@settings_options("One setting, e.g. procx.floor=0.2.")
@part_options
@device_options
def describe(sources: "tuple[VideoArgument, ...]", **options: Any) -> None:
    """Find and describe the steps from the pictures alone.

    \b
    Example:
      stepline describe silent.mp4 --model run --format html

    SOURCES: videos, folders of them, links, or files of ready features.
    """
    from stepline.features.files import is_feature_file
    from stepline.pipeline.networks import load_networks
    from stepline.pipeline.request import Request
    from stepline.pipeline.sources import find_sources

    overrides = [*options["overrides"], "procx.when=alone"]
    if options["speech"]:
        overrides.append("procx.speech=true")
    if options["count"] is not None:
        overrides.append(f"procx.count={options['count']}")
    settings = settings_from_options({**options, "overrides": overrides})
    part, captions = part_from_options(options), options["captions"]
    output = output_from_options(options, options["formats"])
    ready = [path for path in sources if isinstance(path, Path) and is_feature_file(path)]
    videos = find_sources((path for path in sources if path not in ready), output.out, settings)
    stems = [path.name.split(".")[0] for path in ready]
    ids = [*stems, *(video.id for video in videos if video.id is not None)]
    if len(set(ids)) < len(ids):
        raise SettingsError(
            "two sources have the same name; give each a folder of its own with --out"
        )
    check_captions(captions, several=len(videos) + len(ready) > 1)
    if captions is not None and not settings.procx.speech:
        raise SettingsError(
            "--captions is read only with --speech; add that, or leave --captions out"
        )
    if ready and options["clips"]:
        raise SettingsError(
            f"--clips: {ready[0]} holds features, no picture to cut; leave --clips out"
        )
    if ready and part is not None:
        raise SettingsError(
            f"{ready[0]}: holds features, which are used whole; leave --from and --to out"
        )
    describe_video = partial(
        run_source,
        settings=settings,
        output=output,
        networks=load_networks(settings, several=len(videos) > 1) if videos else None,
        captions=captions,
        part=part,
    )
    jobs = [(video.label, partial(describe_video, video)) for video in videos]
    for path, identity in zip(ready, stems, strict=True):
        request = Request(path, identity, captions)
        jobs.append((str(path), partial(_describe_ready, request, settings, output)))
    printer = ResultPrinter(
        "sources", options["formats"], as_json=options["as_json"], several=len(jobs) > 1
    )
    printer.print_all(partial(run_in_turn, jobs), [label for label, _ in jobs])
    sys.exit(printer.status)


def _describe_ready(
    request: "Request",
    settings: "StepsSettings",
    output: "OutputOptions",
    progress: "Progress | None",  # noqa: ARG001   features are read at once
) -> "VideoResult":
    """Describe a file of ready features, and write its outputs."""
    from stepline.outputs import write_outputs
    from stepline.pipeline.batch import VideoResult, lock_video
    from stepline.pipeline.describe import describe_features

    with lock_video(request.id, output.out):
        record = describe_features(request, settings)
        files = write_outputs(record, output.out, formats=output.formats)
        return VideoResult(record, tuple(files), False)


def _check_one_video_options(
    options: dict[str, Any], formats: Sequence[str], *, several: bool
) -> None:
    """Raise SettingsError for options that make sense for one video alone."""
    if several and options["weights"] is not None and options["backbone"] == "precomputed":
        raise SettingsError(
            "--backbone precomputed is for one video; run each video with its own feature file"
        )
    if options["browse"] and (several or "html" not in formats):
        cure = "name one, and leave --watch and other formats out"
        raise SettingsError(f"--open shows the page of one video; {cure}")
