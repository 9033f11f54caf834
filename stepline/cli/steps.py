"""`stepline steps`, the main job on one video or many, and `stepline demo`."""

import logging
import shlex
import sys
import webbrowser
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import stepline
from stepline.cli.errors import print_data, print_message
from stepline.cli.options import (
    ADDRESS_TYPE,
    PluginChoice,
    device_options,
    json_option,
    out_option,
    part_from_options,
    path_option,
    select_options,
    settings_from_options,
    speech_options,
)
from stepline.cli.progress import FolderProgress, progress_bars
from stepline.cli.results import ResultPrinter, print_corrections_of, run_sequentially
from stepline.cli.weights import offer_weights
from stepline.errors import SettingsError
from stepline.plugins import BUILT_IN_NAMES, DEFAULT_OUTPUTS

if TYPE_CHECKING:
    from stepline.grounding.speech import TaskGraph
    from stepline.pipeline.sources import VideoArgument

FORMAT_NAMES = f"FORMAT is one of {', '.join(BUILT_IN_NAMES['outputs'])}. mp4 and mkv are copies with chapters."
DEMO_VIDEO = Path(stepline.__file__).parent / "cli" / "demo" / "demo.mp4"


@click.command()
@click.argument("videos", nargs=-1, required=True, type=ADDRESS_TYPE)
@out_option("Folder for the results.", default="out")
@path_option(
    "--texts",
    help="A file of your own lines to find, one per line in the order of the video, or comparison.json of "
    "`stepline compare`. site: the chapters of a link's page.",
)
@click.option("--title", help="Title of the video, instead of the one in its file or speech.")
@click.option("--writer", type=PluginChoice("writers"), help="What writes the steps.")
@path_option(
    "--step-scorer",
    metavar="RUN",
    help="A narration tagger of your own, which picks the step sentences.",
)
@click.option("--backbone", type=PluginChoice("backbones"), help="Encoder of the pictures.")
@click.option("--weights", help="The backbone's checkpoint or feature file.")
@path_option("--aligner", help="A trained network that places the steps.")
@path_option(
    "--describe",
    "describer",
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
@click.option("--clips", is_flag=True, help="Cut an mp4 clip of every step that is seen or placed.")
@click.option(
    "--base-url",
    metavar="URL",
    help="Address at which OUT will be published. It makes the links of HowTo and Recipe absolute, "
    "as search engines ask.",
)
@click.option(
    "--media-url",
    metavar="PREFIX",
    help="Start of a video's address, before its file name, for the page, HowTo, Recipe and Label "
    "Studio.",
)
@json_option
@click.option("--force", is_flag=True, help="Redo videos that are already done.")
@click.option(
    "--overwrite", is_flag=True, help="Also overwrite files that Stepline did not create."
)
@click.option("--keep/--no-keep", default=True, help="Keep downloaded videos in OUT/downloads.")
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    metavar="N",
    help="Videos to process at the same time. Default: as many as cores and memory allow.",
)
@click.option("--dry-run", is_flag=True, help="Send nothing, estimate the language-model cost.")
@click.option("--open", "browse", is_flag=True, help="Show the page in the browser.")
@speech_options
def steps(videos: "tuple[VideoArgument, ...]", **options: Any) -> None:
    """Find the steps of videos and the seconds of each.

    \b
    Example:
      stepline steps stepline/cli/demo/demo.mp4 --out out

    VIDEOS are files, folders or links. With --describe, they may be files of ready features. With
    several videos, each gets a line instead of a table, and finished ones are skipped. If one fails,
    the others continue and the exit code is 1.

    VIDEOS may also be captions without a video (srt, vtt, sbv, csv, json). Their steps are only
    said. In a folder, captions (but not csv and json) are read if no video has their name.

    A link is an http(s) address of a file, of a page that shows a video, or of a playlist. For
    pages and playlists, install the extra `links`.
    """
    from stepline.features.files import is_feature_file
    from stepline.media.container import claimed_duration
    from stepline.networks.device import requested_compute, requested_device
    from stepline.outputs import WebAddresses, safe_stem
    from stepline.pipeline.batch import (
        LOGGER_NAMES,
        VideoPool,
        VideoWorkerSetup,
        max_parallel_videos,
    )
    from stepline.pipeline.networks import load_networks
    from stepline.pipeline.output_files import OutputOptions
    from stepline.pipeline.sources import find_sources

    settings, part = settings_from_options(options), part_from_options(options)
    if options["dry_run"] and not settings.vision.vlm.named and settings.writing.writer != "llm":
        raise SettingsError(
            "--dry-run shows what a vision-language model would be asked; name one with --set "
            "vision.vlm.base_url=URL, or a language model that writes with --writer llm"
        )
    offer_weights()
    formats = options["formats"] or DEFAULT_OUTPUTS
    output = OutputOptions(
        options["out"],
        tuple(dict.fromkeys((*formats, "json"))),
        **select_options(options, "clips", "force", "overwrite"),
        web=WebAddresses(options["base_url"], options["media_url"]),
    )

    # the videos, and options that fit only one
    texts, graph = _lines_of_texts(options["texts"])
    sources = find_sources(videos, output.out, settings, captions=True, force=output.force)
    several = len(sources) > 1
    _check_one_video_options(options, output.formats, several=several)
    request_parts = {
        **select_options(options, "captions", "title", "keep", "force"),
        "texts": texts,
        "graph": graph,
        "part": part,
    }

    # Ready features need no network but the one that describes, which is loaded for them alone.
    has_features = any(is_feature_file(Path(source.label)) for source in sources)
    networks = None if has_features else load_networks(settings, several=several)
    reported_formats = options["formats"] if several else formats
    printer = ResultPrinter(reported_formats, as_json=options["as_json"], several=several)
    jobs = 1
    if several and not has_features:
        jobs = min(options["jobs"] or max_parallel_videos(settings), len(sources))
    labels = [source.label for source in sources]
    folder = None
    if several:
        durations = [claimed_duration(Path(label), settings.media) for label in labels]
        folder = FolderProgress(labels, durations, jobs)
    if jobs > 1:
        networks = None  # each process reads its own
        levels = tuple(logging.getLogger(name).level for name in LOGGER_NAMES)
        setup = VideoWorkerSetup(
            settings, output, request_parts, requested_device(), requested_compute(), levels
        )
        with VideoPool(setup, jobs) as pool:
            printer.print_outcomes(lambda _: pool.run(sources), labels, folder)
    else:
        run = partial(run_sequentially, sources, settings, output, networks, request_parts)
        printer.print_outcomes(run, labels, folder)
    print_corrections_of(output.out, printer.ids)
    if options["browse"] and printer.ids:
        webbrowser.open((output.out / f"{safe_stem(printer.ids[-1])}.html").absolute().as_uri())
    sys.exit(printer.status)


def _lines_of_texts(source: Path | None) -> "tuple[tuple[str, ...] | None, TaskGraph | None]":
    """Return the lines of --texts, and the graph of a comparison.

    The lines are None for the chapters of the page of a link.
    """
    from stepline.compare.task_graph import read_lines_to_find
    from stepline.pipeline.sources import is_link_page_option

    if source is None:
        return (), None
    if is_link_page_option(source):
        return None, None
    return read_lines_to_find(source)


def _check_one_video_options(
    options: dict[str, Any], formats: tuple[str, ...], *, several: bool
) -> None:
    """Raise SettingsError for options that fit one video only, given with several.

    Args:
        options: option name -> value, of the command.
        formats: keys of `outputs.OUTPUTS` that are written.
        several: whether there is more than one video.
    """
    from stepline.pipeline.sources import is_link_page_option

    captions, title = options["captions"], options["title"]
    if several and captions is not None and not is_link_page_option(captions):
        raise SettingsError(
            "--captions is for one video; run each video with its own captions file"
        )
    if several and title is not None:
        raise SettingsError("--title is for one video; run each video with its own title")
    if title is not None and not title.strip():
        raise SettingsError("--title: holds no word; write one, or leave --title out")
    if several and options["weights"] is not None and options["backbone"] == "precomputed":
        raise SettingsError(
            "--backbone precomputed is for one video; run each video with its own feature file"
        )
    if options["browse"] and (several or "html" not in formats):
        raise SettingsError(
            "--open shows the page of one video; name one, and leave other formats out"
        )


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

    offer_weights(without_asking=True)
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
    print_corrections_of(out, [result.record.id])
    page = output_path(result.record, out, "html")
    print_message(
        f"open {page} in a browser",
        f"`stepline studio {shlex.quote(str(out))}` shows, corrects and searches all videos there",
    )
    if browse:
        webbrowser.open(page.absolute().as_uri())
