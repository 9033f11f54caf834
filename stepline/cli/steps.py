"""`stepline steps`, the main job, and what else is done with one video: demo, transcribe, ground,
judge, describe, summarize. Each command parses, calls one function of `stepline.pipeline`, and
prints.
"""

import contextlib
import json
import re
import sys
import time
import webbrowser
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import stepline
from stepline.cli.errors import check_address_space, complain, print_data, say
from stepline.cli.options import (
    BACKBONES,
    PATH,
    VIDEO,
    PluginChoice,
    chosen_part,
    chosen_settings,
    device_options,
    json_option,
    out_option,
    part_options,
    read_seconds,
    settings_options,
    speech_options,
)
from stepline.cli.progress import progress_bars
from stepline.cli.weights import download_bar, offer_weights
from stepline.errors import SettingsError

if TYPE_CHECKING:
    from stepline.curate.audit.sentences import SentenceCheck
    from stepline.pipeline.batch import VideoResult
    from stepline.pipeline.request import Request, StepsSettings
    from stepline.pipeline.sources import VideoArgument, VideoSource
    from stepline.pipeline.summary import Summary
    from stepline.records import Record, Span
    from stepline.wys2.settings import SummarySettings

USUAL = ("json", "html", "vtt", "srt", "chapters", "jsonld")
FORMATS = (
    *USUAL,
    "markdown",
    "recipe",
    "docx",
    "pdf",
    "ffmetadata",
    "mp4",
    "mkv",
    "otio",
    "edl",
    "labelstudio",
    "webp",
    "gif",
)
DEMO = Path(stepline.__file__).parent / "demo" / "demo.mp4"


@click.command()
@click.argument("videos", nargs=-1, required=True, type=VIDEO)
@out_option("Folder.", default="out")
@click.option(
    "--texts",
    type=PATH,
    help="Your own lines to find, one a line (a recipe); site: the chapters of a link's page.",
)
@click.option(
    "--writer", type=PluginChoice(["extractive", "llm"], "writers"), help="Who writes the steps."
)
@click.option(
    "--backbone", type=PluginChoice(BACKBONES, "backbones"), help="What sees the picture."
)
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
    type=PluginChoice(FORMATS, "outputs"),
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
    formats = tuple(dict.fromkeys((*(options["formats"] or USUAL), "json")))
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
            _opened(
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
        arrivals = (name_sources(files, output.out) for files in _arriving_videos(videos))
    for batch in arrivals:
        jobs = [(source.label, partial(find_steps, source)) for source in batch]
        status, last = _run_each(jobs, "videos", options["formats"], as_json=options["as_json"])
        if options["browse"] and last is not None:
            webbrowser.open((output.out / f"{safe_stem(last.id)}.html").absolute().as_uri())
    sys.exit(status)


@contextlib.contextmanager
def _opened(
    source: "VideoSource", out: Path, settings: "StepsSettings", **options: Any
) -> "Iterator[Request]":
    """Yield what `source.open` does; of a link, print what is fetched, with a bar on a
    terminal."""
    if not source.is_link:
        with source.open(out, settings, **options) as request:
            yield request
        return
    say(f"fetching {source.label}")
    with contextlib.ExitStack() as stack:
        with download_bar(None) as report:
            opened = source.open(out, settings, report=report, **options)
            request = stack.enter_context(opened)
        yield request


@contextlib.contextmanager
def _opened_only(
    video: "VideoArgument",
    settings: "StepsSettings",
    out: Path | None = None,
    captions: Path | None = None,
    part: "Span | None" = None,
) -> "Iterator[Request]":
    """Yield what `open_only_source` does; of a link, with a bar on a terminal while it is
    fetched."""
    from stepline.pipeline.sources import open_only_source

    with contextlib.ExitStack() as stack:
        with download_bar(None) if isinstance(video, str) else contextlib.nullcontext() as report:
            request = stack.enter_context(
                open_only_source(video, settings, out, captions=captions, part=part, report=report)
            )
        yield request


LOOK_AGAIN = 2.0  # s between two looks into the folders that are watched


def _arriving_videos(folders: "Sequence[VideoArgument]") -> Iterator[list[Path]]:
    """Yield, for ever, the videos that have come or changed since, once their size has stood still
    between two looks.

    Raises SettingsError where a path is no folder.
    """
    from stepline.pipeline.sources import find_videos

    for folder in folders:
        if not Path(folder).is_dir():
            raise SettingsError(
                f"--watch: {folder} is no folder; name the folders in which videos arrive"
            )
    seen: dict[Path, tuple[int, int]] = {}
    done: dict[Path, tuple[int, int]] = {}
    say("watching; Ctrl-C ends it")
    while True:
        now: dict[Path, tuple[int, int]] = {}
        for path in find_videos(map(Path, folders), needed=False):
            with contextlib.suppress(FileNotFoundError):  # it has gone between the two
                now[path] = (path.stat().st_size, path.stat().st_mtime_ns)
        ready = [
            path
            for path, state in now.items()
            if state == seen.get(path) and state != done.get(path)
        ]
        if ready:
            done |= {path: now[path] for path in ready}
            yield ready
        seen = now
        time.sleep(LOOK_AGAIN)


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
        _say_warnings(record, f"{Path(name).name}: ")
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


def _say_warnings(record: "Record", prefix: str = "") -> None:
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
            Request(DEMO, DEMO.stem), settings, OutputOptions(out, USUAL), progress=progress
        )
    print_data(step_table(result.record), end="")
    page = output_path(result.record, out, "html")
    say(f"open {page} in a browser")
    if browse:
        webbrowser.open(page.absolute().as_uri())


@click.command()
@click.argument("video", type=VIDEO)
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "srt", "vtt"]),
    default="text",
    show_default=True,
)
@speech_options
def transcribe(video: "VideoArgument", form: str, **options: Any) -> None:
    """Print what is said in VIDEO; with --captions, what they say, cleaned and in sentences.

    \b
    Example:
      stepline transcribe stepline/demo/demo.mp4 --format srt
    """
    from stepline.outputs import TRANSCRIPTS
    from stepline.pipeline import batch

    settings = chosen_settings(options)
    offer_weights()
    part = chosen_part(options)
    with (
        _opened_only(video, settings, captions=options["captions"]) as request,
        progress_bars() as progress,
    ):
        record = batch.transcribe(
            request.path, captions=request.captions, settings=settings, part=part, progress=progress
        )
    say(*(f"left out: {item.text!r} ({item.reason})" for item in record.dropped))
    _say_warnings(record)
    if record.transcript and record.transcript.language:
        say(f"language: {record.transcript.language}")
    print_data(TRANSCRIPTS[form](record), end="")


@click.command()
@click.argument("source", type=VIDEO)
@click.option("--texts", required=True, type=PATH, help="The lines to find, one a line.")
@click.option("--aligner", required=True, type=PATH, help="The trained network: file or folder.")
@click.option(
    "--mode",
    type=click.Choice(["step", "narration"]),
    help="Steps, or what is spoken, in its order.",
)
@click.option(
    "--order",
    help="none; given: as the lines stand; or a JSON table of P(line i comes before line j).",
)
@click.option("--text-features", type=PATH, help="Ready vectors of the lines.")
@click.option(
    "--backbone", type=PluginChoice(BACKBONES[:-2], "backbones"), help="What sees a video."
)
@click.option("--weights", help="The backbone's checkpoint.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
@settings_options("One setting.")
@device_options
def ground(source: "VideoArgument", **options: Any) -> None:
    """Find lines of text in SOURCE, a video or a file of ready features: the seconds in which each
    is shown, if any.

    \b
    Example:
      stepline ground lemonade.mp4 --texts recipe.txt --aligner trained --order given
    """
    from stepline.outputs import step_table
    from stepline.pipeline.batch import read_texts
    from stepline.pipeline.ground_texts import ground_texts, read_order
    from stepline.storage import to_json

    table = None if options["order"] in (None, "none", "given") else Path(options["order"])
    settings = chosen_settings({**options, "order": None if table else options["order"]})
    texts = read_texts(options["texts"])
    before = read_order(table, len(texts)) if table else None
    with _opened_only(source, settings) as request:
        record = ground_texts(
            request.path, texts, settings, vectors=options["text_features"], before=before
        )
    _say_warnings(record, f"{request.path.name}: ")
    print_data(to_json(record) if options["as_json"] else step_table(record), end="")


@click.command()
@click.argument("video", type=VIDEO)
@out_option("Folder.", default="out")
@click.option("--detector", help="A detector that `stepline train wys2` made: its file or folder.")
@click.option(
    "--ask",
    "count",
    type=click.IntRange(min=1),
    help="Have the vision-language model of "
    "--set vision.witness.base_url=URL look at so many sentences, drawn at random.",
)
@click.option(
    "--people",
    type=PATH,
    help="With --ask: what people say of them, answers.jsonl of `annotate vnd` or "
    "verdicts.jsonl of an audit; sentences are drawn from theirs.",
)
@json_option
@speech_options
def judge(
    video: "VideoArgument",
    out: Path,
    detector: str | None,
    count: int | None,
    people: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Say of every sentence of VIDEO how likely the picture shows what is said, while it is said.

    Without --detector the wording and what is seen in the picture decide; the main job's record in
    OUT is used or made. A model that --ask names decides nothing: it says how well judge, model and
    people agree.

    \b
    Example:
      stepline judge stepline/demo/demo.mp4 --out out
    """
    from stepline.outputs.text import clock

    given = [f"judge.detector={json.dumps(detector)}"] if detector is not None else []
    settings = chosen_settings({**options, "overrides": [*options["overrides"], *given]})
    witness, check = settings.vision.witness, None
    if count is None:
        if people is not None:
            raise SettingsError(
                "--people is compared with what a vision-language model says; add --ask N"
            )
        _, record = _find_steps(video, out, settings, options)
    else:
        if not witness.named:
            raise SettingsError(
                "--ask asks a vision-language model; name one with --set vision.witness.base_url=URL"
            )
        # The judge that it is compared with must not have been moved by its answers.
        vision = settings.vision.model_copy(update={"witness": type(witness)()})
        request, record = _find_steps(
            video, out, settings.model_copy(update={"vision": vision}), options
        )
        check = _check_sentences(request, record, count, people, settings)
    _say_warnings(record)
    say(f"judged by: {record.models.get('judge') or _why_nobody_judged(record)}")
    if as_json:
        rows = [
            {"text": s.text, "start": s.span.start, "end": s.span.end, "shown": s.shown}
            for s in record.sentences
        ]
        judgement = {"id": record.id, "judge": record.models.get("judge"), "sentences": rows}
        print_data(
            json.dumps(judgement | (_told(check) if check else {}), ensure_ascii=False, indent=2)
        )
        return
    for number, sentence in enumerate(record.sentences):
        shown = "  – " if sentence.shown is None else f"{sentence.shown:4.0%}"
        said = f"  {check.said.get(number, ''):<9}" if check else ""
        print_data(f"  {clock(sentence.span.start):>7}  {shown}{said}  {sentence.text}")
    for row in check.agreements if check else ():
        print_data(
            f"{row.question}: Cohen's kappa {row} over {row.texts} sentences by {', '.join(row.people)}"
        )


def _check_sentences(
    request: "Request", record: "Record", count: int, people: Path | None, settings: "StepsSettings"
) -> "SentenceCheck":
    """Return what a vision-language model says of so many sentences, and say how the asking
    went."""
    from stepline.chat.pictures import VideoPictures
    from stepline.curate.audit.sentences import check_sentences, read_people
    from stepline.media import probe
    from stepline.pipeline.part import part_info
    from stepline.vision_language.pictures import question_pictures

    given = read_people(people, record) if people is not None else ()
    duration = part_info(probe(request.path, settings.media), request.part).duration
    start, witness = (request.start, settings.vision.witness)
    read = question_pictures(
        request.path, witness, duration=duration, start=start, media=settings.media
    )
    check = check_sentences(
        record, count, VideoPictures(read, duration, start), witness, people=given
    )
    say(*check.asking.notes)
    if check.asking.server:
        spent = f"{check.asking.requests} requests, about {check.asking.tokens} tokens"
        seconds = ", ".join(f"{second:.1f}" for second in check.asking.pictures.get(record.id, ()))
        say(
            f"{check.asking.answered} of {check.asking.asked} sentences looked at in {spent}",
            f"pictures went to {check.asking.server}: those at {seconds} s",
        )
    return check


def _told(check: "SentenceCheck") -> dict[str, Any]:
    """Return what JSON says of a vision-language model's look at some sentences."""
    asking = check.asking
    return {
        "witness": {
            "server": asking.server,
            "requests": asking.requests,
            "tokens": asking.tokens,
            "pictures": [second for each in asking.pictures.values() for second in each],
            "said": {str(number): said for number, said in sorted(check.said.items())},
        },
        "agreement": [
            # NaN is no JSON
            {key: None if value != value else value for key, value in asdict(row).items()}
            for row in check.agreements
        ],
    }


def _find_steps(
    video: "VideoArgument", out: Path, settings: "StepsSettings", options: dict[str, Any]
) -> "tuple[Request, Record]":
    """Return what the main job is asked of one video, and its record, which OUT holds or is made
    now."""
    from stepline.pipeline.batch import OutputOptions, run_video

    offer_weights()
    opened = _opened_only(video, settings, out, options["captions"], chosen_part(options))
    with opened as request, progress_bars() as progress:
        return request, run_video(
            request, settings, OutputOptions(out, ("json",)), progress=progress
        ).record


def _why_nobody_judged(record: "Record") -> str:
    if record.transcript is None or not record.transcript.sentences:
        return "nobody: nothing is said"
    language = record.transcript.language
    foreign = language is not None and not language.lower().startswith("en")
    return "nobody: not English, and no --detector" if foreign else "nobody: there is no picture"


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
    type=PluginChoice(BACKBONES[:-1], "backbones"),
    help="What sees the picture: as in training.",
)
@click.option("--weights", help="The backbone's checkpoint or feature file.")
@click.option(
    "--format",
    "formats",
    type=PluginChoice(FORMATS, "outputs"),
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
            _opened(source, output.out, settings, captions=captions, part=part) as request,
            progress_bars() as progress,
        ):
            return run_video(request, settings, output, networks=networks, progress=progress)

    jobs = [(video.label, partial(describe_video, video)) for video in videos]
    jobs += [
        (str(path), partial(describe_ready, path, id))
        for path, id in zip(ready, stems, strict=True)
    ]
    sys.exit(_run_each(jobs, "sources", options["formats"], as_json=options["as_json"])[0])


@click.command()
@click.argument("video", type=VIDEO)
@out_option("Folder.", default="out")
@click.option(
    "--length",
    help="At most so long: 45 (seconds), 1:30 or 25%. Without it every shown step is kept.",
)
@click.option(
    "--summarizer",
    type=PATH,
    help="What weighs the seconds: a network of `stepline train summarizer`, its file or folder.",
)
@json_option
@speech_options
def summarize(
    video: "VideoArgument",
    out: Path,
    length: str | None,
    summarizer: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Cut VIDEO down to the seconds that show its steps: an mp4 and a storyboard.

    The steps come from `stepline steps`, which is run first where OUT does not hold its result.

    \b
    Example:
      stepline summarize stepline/demo/demo.mp4 --out out --length 30
    """
    from stepline.pipeline.networks import load_summarizer
    from stepline.pipeline.summary import score_seconds, write_summary

    limits = read_length(length)
    settings = chosen_settings(options)
    network = None if summarizer is None else load_summarizer(summarizer, settings.vision)
    request, record = _find_steps(video, out, settings, options)
    with progress_bars() as progress:
        importance = (
            None if network is None else score_seconds(record, request, settings, network, progress)
        )
    summary = write_summary(record, request.path, out, limits, importance)
    print_data(_summary_json(summary) if as_json else _summary_table(summary))
    say(*(f"wrote {file}" for file in summary.files))


def read_length(text: str | None) -> "SummarySettings":
    """Return the settings of a summary from "45", "1:30" or "25%". Raises SettingsError for
    anything else."""
    from stepline.wys2.settings import SummarySettings

    if text is None:
        return SummarySettings()
    fraction = re.fullmatch(r"(\d+(?:\.\d+)?)%", text)
    seconds = read_seconds(text) if text.count(":") < 2 else None
    if fraction and 0 < float(fraction[1]) <= 100:
        return SummarySettings(share=float(fraction[1]) / 100)
    if seconds:
        return SummarySettings(seconds=seconds)
    raise SettingsError(f"--length {text!r}: give seconds (45), minutes (1:30) or a share (25%)")


def _summary_table(summary: "Summary") -> str:
    from stepline.outputs.text import clock, step_line

    count = len(summary.segments)
    lines = [f"{summary.duration:.1f} s in {count} segment{'' if count == 1 else 's'}", ""]
    for segment in summary.segments:
        texts = "; ".join(step_line(step) for step in segment.steps)
        lines.append(f"  {clock(segment.span.start)} – {clock(segment.span.end)}  {texts}")
    return "\n".join(lines)


def _summary_json(summary: "Summary") -> str:
    rows = [
        {
            "start": segment.span.start,
            "end": segment.span.end,
            "value": round(segment.value, 4),
            "steps": [
                {"id": step.id, "text": step.text, "kind": step.kind} for step in segment.steps
            ],
        }
        for segment in summary.segments
    ]
    return json.dumps(
        {"seconds": round(summary.duration, 3), "segments": rows}, ensure_ascii=False, indent=2
    )
