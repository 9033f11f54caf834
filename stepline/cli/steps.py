"""`stepline steps`, the main job, and what else is done with one video: demo, transcribe, ground,
judge, describe, summarize. Each command parses, calls one function of `stepline.pipeline`, and
prints.
"""

import json
import sys
import webbrowser
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import stepline
from stepline.cli.errors import check_address_space, complain, print_data, say
from stepline.cli.options import (
    PATH,
    VIDEO,
    PluginChoice,
    chosen_part,
    chosen_settings,
    device_options,
    out_option,
    part_options,
    settings_options,
    speech_options,
)
from stepline.cli.progress import progress_bars
from stepline.cli.sources import arriving_videos, open_video
from stepline.cli.weights import offer_weights
from stepline.errors import SettingsError
from stepline.plugins import DEFAULT_OUTPUTS

if TYPE_CHECKING:
    from stepline.pipeline.batch import VideoResult
    from stepline.pipeline.sources import VideoArgument, VideoSource
    from stepline.records import Record

DEMO = Path(stepline.__file__).parent / "demo" / "demo.mp4"


@click.command()
@click.argument("videos", nargs=-1, required=True, type=VIDEO)
@out_option("Folder.", default="out")
@click.option(
    "--texts",
    type=PATH,
    help="Your own lines to find, one a line (a recipe); site: the chapters of a link's page.",
)
@click.option("--writer", type=PluginChoice("writers"), help="Who writes the steps.")
@click.option("--backbone", type=PluginChoice("backbones"), help="What sees the picture.")
@click.option("--weights", help="The backbone's checkpoint or feature file.")
@click.option("--aligner", type=PATH, help="A trained network that places the steps.")
@click.option(
    "--describe",
    "describer",
    type=PATH,
    help="A network of `stepline train procx`, which tells the steps where speech tells none.",
)
@click.option(
    "--format",
    "formats",
    type=PluginChoice("outputs"),
    multiple=True,
    help="Only this output, and the JSON; mp4, mkv: a copy with chapters.",
)
@click.option("--clips", is_flag=True, help="Cut an mp4 of every step that is shown.")
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print JSON, of several videos a line each, not a table.",
)
@click.option("--force", is_flag=True, help="Do again what is done.")
@click.option("--overwrite", is_flag=True, help="Write also over files that Stepline did not make.")
@click.option(
    "--keep/--no-keep",
    default=True,
    show_default=True,
    help="Keep what links bring, in OUT/downloads.",
)
@click.option("--dry-run", is_flag=True, help="Ask no language model; say what it would take.")
@click.option("--open", "browse", is_flag=True, help="Show the page in the browser.")
@click.option(
    "--watch", is_flag=True, help="Go on with what arrives in the folders named, until Ctrl-C."
)
@speech_options
def steps(videos: "tuple[VideoArgument, ...]", **options: Any) -> None:
    """Find the steps of VIDEOS (files, folders or links): what to do, and the seconds in which it
    is shown.

    A link is an address of http(s): of a file, of a page that shows a video, or of a playlist, for
    which the extra `links` is needed.

    \b
    Example:
      stepline steps stepline/demo/demo.mp4 --out out
    """
    from stepline.outputs import safe_stem
    from stepline.pipeline.batch import OutputOptions, read_texts, run_video
    from stepline.pipeline.networks import load_networks
    from stepline.pipeline.sources import find_sources, is_site, name_sources

    check_address_space()
    settings, part = chosen_settings(options), chosen_part(options)
    if (
        options["dry_run"]
        and not settings.vision.witness.named
        and settings.writing.writer != "llm"
    ):
        cure = "name one with --set vision.witness.base_url=URL, or a language model that writes with --writer llm"
        raise SettingsError(f"--dry-run tells what a vision-language model would be asked; {cure}")
    offer_weights()
    formats = tuple(dict.fromkeys((*(options["formats"] or DEFAULT_OUTPUTS), "json")))
    output = OutputOptions(
        options["out"],
        formats,
        clips=options["clips"],
        force=options["force"],
        overwrite=options["overwrite"],
    )
    captions, texts = options["captions"], None
    if not is_site(options["texts"]):
        texts = read_texts(options["texts"]) if options["texts"] else ()
    sources = [] if options["watch"] else find_sources(videos, output.out, settings)
    many = len(sources) > 1 or options["watch"]
    if many and captions is not None and not is_site(captions):
        raise SettingsError(
            "--captions is for one video; run each video with its own captions file"
        )
    if many and options["weights"] is not None and options["backbone"] == "precomputed":
        raise SettingsError(
            "--backbone precomputed is for one video; run each video with its own feature file"
        )
    if options["browse"] and (many or "html" not in formats):
        raise SettingsError(
            "--open shows the page of one video; name one, and leave --watch and other formats out"
        )
    networks = load_networks(settings, several=many)

    def find_steps(source: "VideoSource") -> "VideoResult":
        with (
            open_video(
                source,
                output.out,
                settings,
                captions=captions,
                texts=texts,
                part=part,
                keep=options["keep"],
            ) as request,
            progress_bars() as progress,
        ):
            return run_video(request, settings, output, networks=networks, progress=progress)

    arrivals: Iterable[list[VideoSource]] = [sources]
    if options["watch"]:
        arrivals = (name_sources(files, output.out) for files in arriving_videos(videos))
    for batch in arrivals:
        jobs = [(source.label, partial(find_steps, source)) for source in batch]
        status, last = _run_each(jobs, "videos", options["formats"], as_json=options["as_json"])
        if options["browse"] and last is not None:
            webbrowser.open((output.out / f"{safe_stem(last.id)}.html").absolute().as_uri())
    sys.exit(status)


def _run_each(
    jobs: "Sequence[tuple[str, Callable[[], VideoResult]]]",
    noun: str,
    formats: Collection[str],
    *,
    as_json: bool,
) -> "tuple[int, Record | None]":
    """Run each job, print its record and say what there is to know.

    Return the exit code, 0 where none failed, and the last record. jobs: what messages call each,
    and what does it.
    formats: those that were asked for by name.
    """
    from stepline.outputs import plan_chapters, step_table
    from stepline.storage import to_json

    failed = status = 0
    record = None
    for name, run in jobs:
        try:
            result = run()
        except Exception as error:  # noqa: BLE001   told in a line; one video stops no other
            status = max(status, complain(error, [name]))
            failed += 1
            continue
        record = result.record
        print_warnings(record, f"{Path(name).name}: ")
        if result.earlier:
            say(f"{name}: done before with the same settings (--force does it again)")
        shown = to_json(record) if as_json else step_table(record)
        if as_json and len(jobs) > 1:
            shown = json.dumps(json.loads(shown), ensure_ascii=False) + "\n"
        print_data(shown, end="")
        say(*(f"wrote {file}" for file in result.files))
        reason = plan_chapters(record).reason if "chapters" in formats else None
        if reason is not None:
            say(f"no chapters: {reason}")
    if len(jobs) > 1:
        say(f"{len(jobs) - failed} of {len(jobs)} {noun} done, {failed} failed")
    return status, record


def print_warnings(record: "Record", prefix: str = "") -> None:
    """Print the warnings of a record, a line each."""
    say(*(f"warning: {prefix}{warning}" for warning in record.warnings), urgent=True)


@click.command()
@out_option("Folder.", default="out")
@click.option("--open", "browse", is_flag=True, help="Show the page in the browser.")
@device_options
def demo(out: Path, browse: bool) -> None:
    """Find the steps of the demo video that comes with Stepline, and name the page that shows them.

    \b
    Example:
      stepline demo --out out
    """
    from stepline.asr.settings import AsrSettings
    from stepline.outputs import output_path, step_table
    from stepline.pipeline.batch import OutputOptions, run_video
    from stepline.pipeline.request import Request, StepsSettings

    offer_weights(unasked=True)
    # its voice is synthetic: int8 errs without VNNI
    settings = StepsSettings(asr=AsrSettings(compute="float32"))
    with progress_bars() as progress:
        result = run_video(
            Request(DEMO, DEMO.stem),
            settings,
            OutputOptions(out, DEFAULT_OUTPUTS),
            progress=progress,
        )
    print_data(step_table(result.record), end="")
    page = output_path(result.record, out, "html")
    say(f"open {page} in a browser")
    if browse:
        webbrowser.open(page.absolute().as_uri())


@click.command()
@click.argument("sources", nargs=-1, required=True, type=VIDEO)
@click.option(
    "--model",
    "describer",
    required=True,
    type=PATH,
    help="A network of `stepline train procx`: its file or folder.",
)
@out_option("Folder.", default="described")
@click.option(
    "--speech",
    is_flag=True,
    help="Read what is said as well, for a network that was trained with speech.",
)
@click.option("--captions", type=PATH, help="With --speech: captions instead of recognition.")
@click.option(
    "--count",
    type=click.IntRange(min=0),
    help="Steps to tell, instead of as many as the network counts.",
)
@click.option(
    "--backbone",
    type=PluginChoice("backbones", without=("none",)),
    help="What sees the picture: as in training.",
)
@click.option("--weights", help="The backbone's checkpoint or feature file.")
@click.option(
    "--format",
    "formats",
    type=PluginChoice("outputs"),
    multiple=True,
    help="This output beside the JSON.",
)
@click.option("--clips", is_flag=True, help="Cut an mp4 of every step; videos only.")
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print JSON, of several sources a line each, not a table.",
)
@click.option("--force", is_flag=True, help="Do again what is done.")
@click.option("--overwrite", is_flag=True, help="Write also over files that Stepline did not make.")
@settings_options("One setting, e.g. procx.choose=apart.")
@part_options
@device_options
def describe(sources: "tuple[VideoArgument, ...]", **options: Any) -> None:
    """Find the steps of SOURCES and say what is done in each, from the pictures alone.

    SOURCES: videos, folders of them, links, or files of ready features.

    \b
    Example:
      stepline describe silent.mp4 --model run --format html
    """
    from stepline.features.files import is_feature_file
    from stepline.outputs import write_outputs
    from stepline.pipeline.batch import OutputOptions, VideoResult, lock_video, run_video
    from stepline.pipeline.describe import describe_features
    from stepline.pipeline.networks import load_networks
    from stepline.pipeline.request import Request
    from stepline.pipeline.sources import find_sources, is_site

    given = ["procx.when=alone", *(["procx.speech=true"] if options["speech"] else [])]
    given += [f"procx.count={options['count']}"] if options["count"] is not None else []
    settings = chosen_settings({**options, "overrides": [*options["overrides"], *given]})
    formats, captions = tuple(dict.fromkeys((*options["formats"], "json"))), options["captions"]
    part = chosen_part(options)
    output = OutputOptions(
        options["out"],
        formats,
        clips=options["clips"],
        force=options["force"],
        overwrite=options["overwrite"],
    )
    ready = [path for path in sources if isinstance(path, Path) and is_feature_file(path)]
    videos = find_sources((path for path in sources if path not in ready), output.out, settings)
    stems = [path.name.split(".")[0] for path in ready]
    ids = [*stems, *(video.id for video in videos if video.id is not None)]
    if len(set(ids)) < len(ids):
        raise SettingsError(
            "two sources have the same name; give each a folder of its own with --out"
        )
    if len(videos) + len(ready) > 1 and captions is not None and not is_site(captions):
        raise SettingsError(
            "--captions is for one video; run each video with its own captions file"
        )
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
            f"{ready[0]}: holds features, of which no part is taken; leave --from and --to out"
        )
    networks = load_networks(settings, several=len(videos) > 1) if videos else None

    def describe_ready(path: Path, identity: str) -> VideoResult:
        with lock_video(identity, output.out):
            record = describe_features(Request(path, identity, captions), settings)
            return VideoResult(
                record, tuple(write_outputs(record, output.out, formats=formats)), False
            )

    def describe_video(source: "VideoSource") -> VideoResult:
        with (
            open_video(source, output.out, settings, captions=captions, part=part) as request,
            progress_bars() as progress,
        ):
            return run_video(request, settings, output, networks=networks, progress=progress)

    jobs = [(video.label, partial(describe_video, video)) for video in videos]
    jobs += [
        (str(path), partial(describe_ready, path, id))
        for path, id in zip(ready, stems, strict=True)
    ]
    sys.exit(_run_each(jobs, "sources", options["formats"], as_json=options["as_json"])[0])
