"""What networks learn from: `stepline features`, `excluded`, `text-base` and `sieve-swap`.

Each command parses, calls one function of its package, and prints.
"""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stepline.cli.errors import Group, print_data, say
from stepline.cli.options import (
    PATH,
    VIDEO,
    PluginChoice,
    chosen_settings,
    device_option,
    device_options,
    exclude_option,
    json_option,
    one_writer,
    out_option,
    preset_option,
    settings_options,
    together,
)
from stepline.cli.progress import download_bar, progress_bars

if TYPE_CHECKING:
    from stepline.features.import_files import ImportReport
    from stepline.pipeline.extract import ExtractionReport
    from stepline.pipeline.sources import VideoArgument
    from stepline.sieve_swap.run import Job, RunResult
    from stepline.text_base.manifest import Manifest
    from stepline.text_base.settings import TextBaseSettings


@click.group(cls=Group)
def features() -> None:
    """Keep the features of many videos, or of their texts, in one store on disk."""


@features.command("import")
@click.argument("source", type=PATH)
@out_option("The store: a folder.")
@click.option(
    "--rate",
    type=click.FloatRange(min=0, min_open=True),
    default=1.0,
    show_default=True,
    help="Rows a second, for files that do not say it.",
)
@click.option("--backbone", help="Who made the features, for example internvideo.")
@click.option(
    "--width", type=click.IntRange(min=1), help="What all must be wide; else the first decides."
)
@click.option("--ending", help="Only files whose names end so, for example .video.npy.")
@json_option
@one_writer
def import_(source: Path, out: Path, as_json: bool, **options: Any) -> None:
    """Add the features of SOURCE: a folder of .npy, .pth.tar, .pth or .safetensors, a .tar (.gz),
    or one file.

    Each file is named after its video (docs/nasva.md has the rules). What is no features is left
    out and listed in dropped.jsonl. An import that was stopped goes on where it was.

    \b
    Example:
      stepline features import internvideo/ --out store --backbone internvideo
    """
    from stepline.errors import StoreError
    from stepline.features import import_features
    from stepline.features.store import UNREADABLE_FILE
    from stepline.records import count_reasons

    done = import_features(source, out, **options)
    reasons = count_reasons(done.dropped)
    _print_added(out, done, "items", {"dropped": reasons}, as_json)
    say(*(f"dropped {count}: {reason}" for reason, count in reasons.items()))
    if not done.added and not done.already:
        first = done.dropped[0]
        raise StoreError(
            f"{source}: nothing in it could be stored; {first.location}: {first.reason} ({first.value})"
        )
    if reasons.get(UNREADABLE_FILE):
        raise StoreError(
            f"{source}: {reasons[UNREADABLE_FILE]} of its files could not be read, see {out}/dropped.jsonl; "
            "the rest is stored"
        )


def _print_added(
    out: Path,
    done: "ImportReport | ExtractionReport",
    things: str,
    left_out: dict[str, dict[str, int]],
    as_json: bool,
) -> None:
    """Print what a store has got. left_out: its name in the JSON -> counts by reason."""
    if as_json:
        counts = {"added": len(done.added), "rows": done.rows, "already": done.already, **left_out}
        print_data(json.dumps(counts))
    else:
        print_data(
            f"{out}: added {len(done.added)} {things} ({done.rows} rows), {done.already} were there already"
        )


@features.command()
@click.argument("videos", nargs=-1, required=True, type=VIDEO)
@out_option("The store: a folder.")
@click.option(
    "--backbone",
    type=PluginChoice("backbones", without=("precomputed", "none")),
    help="What sees a video.  [default: conse]",
)
@click.option("--weights", help="The backbone's checkpoint.")
@settings_options("One setting, e.g. vision.rate=2.")
@json_option
@device_options
@one_writer
def extract(videos: "tuple[VideoArgument, ...]", out: Path, as_json: bool, **options: Any) -> None:
    """Extract the features of VIDEOS, files and folders of them, into a store: one row a second, as
    the papers' are.

    s3d: 512 numbers a row, of length 1, in one space with texts; s3d-mixed5c: the 1024 before that,
    as HowTo100M's released rows; clip and conse: a picture a row. A video is named by its file; one
    that cannot be read is listed in omitted.jsonl, and the rest go on. A run that was stopped goes
    on when the same command is given again.

    \b
    Example:
      stepline features extract videos --backbone s3d-mixed5c --weights s3d_howto100m.pth --out store
    """
    from stepline.errors import MediaError
    from stepline.pipeline.extract import extract_to_store
    from stepline.pipeline.sources import fetch_sources
    from stepline.records import count_reasons

    settings = chosen_settings(options)
    with download_bar(None) as report:
        files = fetch_sources(videos, out, settings, report)
    with progress_bars() as progress:
        done = extract_to_store(files, out, settings, progress=progress, report=say)
    reasons = count_reasons(done.omitted)
    _print_added(out, done, "videos", {"omitted": reasons}, as_json)
    say(*(f"left out {count}: {reason}" for reason, count in reasons.items()))
    if not done.added and not done.already:
        first = done.omitted[0]
        raise MediaError(
            f"none of {len(done.omitted)} videos has features; {first.id}: {first.reason} {first.value}"
        )


@features.command()
@click.argument("store", type=PATH)
@json_option
def check(store: Path, as_json: bool) -> None:
    """Read all of STORE and say what it holds; end with 1 when rows are damaged, empty or not
    finite.

    \b
    Example:
      stepline features check store
    """
    from stepline.features import FeatureStore
    from stepline.features.import_files import DROPPED_NAME, read_dropped
    from stepline.records import count_reasons

    opened = FeatureStore(store)
    items, faults = opened.values(), list(opened.check())
    contents = {
        "items": len(opened),
        "rows": sum(item.rows for item in items),
        "hours": round(sum(item.rows / item.rate for item in items) / 3600, 2),
        "widths": list(opened.widths),
        "backbones": sorted({item.backbone for item in items}),
        "faults": count_reasons(faults),
        "dropped": count_reasons(read_dropped(store / DROPPED_NAME)),
    }
    if as_json:
        print_data(json.dumps(contents))
    else:
        print_data("\n".join(f"{name:<10} {_plain(value)}" for name, value in contents.items()))
    say(*(f"{fault.id}: {fault.reason} {fault.value}".rstrip() for fault in faults))
    sys.exit(1 if faults else 0)


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{count} x {reason}" for reason, count in value.items()) or "none"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


@click.command()
@click.argument("datasets", nargs=-1, required=True, metavar="DATASET[:SPLIT,...]=PATH...")
@out_option("The list file to write.")
def excluded(datasets: tuple[str, ...], out: Path) -> None:
    """List the videos of evaluation sets, to be kept out of training sets with `--exclude`.

    Of each dataset all splits but the training one are listed, or those given; its test videos
    always are.

    \b
    Example:
      stepline excluded ht-step=htstep youcook2:validation=youcookii_annotations_trainval.json --out excluded.txt
    """
    from stepline.datasets.excluded import ExcludedSource, collect_excluded, write_excluded
    from stepline.errors import SettingsError

    sources = []
    for given in datasets:
        name, equals, path = given.partition("=")
        if not equals or not path:
            raise SettingsError(
                f"{given!r}: write it as DATASET=PATH, for example youcook2=annotations.json"
            )
        name, _, splits = name.partition(":")
        sources.append(ExcludedSource(name, Path(path), tuple(filter(None, splits.split(",")))))
    videos = collect_excluded(sources)
    write_excluded(videos, out)
    for name, count in (*videos.counts().items(), ("together", len(videos))):
        print_data(f"{name:<14} {count:>7} videos")
    say(f"wrote {out}")


ENGINES = ("lists", "flat", "ivf", "hnsw")

base_settings_options = together(
    preset_option("sieve-swap"),
    settings_options("e.g. text_base.memory=1024.", "A TOML file of settings (docs/settings.md)."),
)


@click.group("text-base", cls=Group)
def text_base() -> None:
    """Build, index, ask and describe a base of how-to texts."""


@text_base.command()
@click.argument("sources", nargs=-1, required=True, type=PATH)
@click.option("--out", required=True, type=PATH, help="The folder of the base.")
@click.option("--licence", help="Licence of the texts whose source states none.")
@click.option("--append", is_flag=True, help="Add to the base that is there.")
@base_settings_options
@device_option
@one_writer
def build(
    sources: tuple[Path, ...], out: Path, licence: str | None, append: bool, **options: Any
) -> None:
    """Build a base of SOURCES: csv (RecipeNLG), JSON, Parquet, .txt and .md, or folders of them.

    A build that was stopped goes on where it was when it is asked for again.

    \b
    Example:
      stepline text-base build recipes.json manuals --out base --licence "CC BY 4.0"
    """
    from stepline.text_base import build_base

    base = build_base(sources, out, _text_base_settings(options), licence=licence, append=append)
    say(describe_base(base.manifest))


@text_base.command()
@click.argument("base", type=PATH)
@click.option(
    "--engine",
    type=click.Choice(ENGINES),
    default="lists",
    show_default=True,
    help="lists needs no FAISS.",
)
@base_settings_options
@device_option
def index(base: Path, engine: str, **options: Any) -> None:
    """Add an approximate index to BASE and measure its recall against exact search.

    \b
    Example:
      stepline text-base index base --engine lists --set text_base.recall=0.99
    """
    from stepline.locks import LOCK_NAME, lock_output
    from stepline.text_base import add_index

    settings = _text_base_settings(options).model_copy(update={"engine": engine})
    with lock_output(base / LOCK_NAME, base):
        entry = add_index(base, settings)
    say(f"{engine}: recall@1 {entry.recall:.3f} at effort {entry.effort}, of {entry.probes} lines")


@text_base.command()
@click.argument("base", type=PATH)
@click.option("--json", "as_json", is_flag=True, help="Print the whole manifest.")
def show(base: Path, as_json: bool) -> None:
    """Print what BASE holds: sources, licences, lines merged, what was left out and why.

    \b
    Example:
      stepline text-base show base
    """
    from stepline.text_base.index import require_manifest

    manifest = require_manifest(base)
    text = json.dumps(manifest.model_dump(mode="json"), ensure_ascii=False, indent=2)
    print_data(text if as_json else describe_base(manifest))


@text_base.command()
@click.argument("base", type=PATH)
@click.argument("texts", nargs=-1, required=True)
@click.option(
    "-k", "count", type=click.IntRange(min=1), default=3, show_default=True, help="Steps a text."
)
@click.option(
    "--engine",
    type=click.Choice(("exact", *ENGINES)),
    help="By default the index built last, if any.",
)
@device_option
def ask(base: Path, texts: tuple[str, ...], count: int, engine: str | None) -> None:
    """Print the steps of BASE that are nearest to each of TEXTS: cosine, step, source.

    \b
    Example:
      stepline text-base ask base "chop the onion"
    """
    from stepline.text_base import open_base

    opened = open_base(base)
    rows, cosines = opened.nearest(opened.embed(texts), count, engine=engine)  # type: ignore[arg-type]
    for text, nearest, likeness in zip(texts, rows, cosines, strict=True):
        print_data(f"{text}:")
        for step, cosine in zip(
            opened.steps(nearest[nearest >= 0]), likeness[nearest >= 0], strict=True
        ):
            print_data(
                f"  {cosine:.2f}  {step.text}  [{step.source}, {step.licence or 'licence not stated'}]"
            )


def describe_base(manifest: "Manifest") -> str:
    """Return what a base holds, in lines."""
    lines = [
        f"{manifest.documents} documents, {manifest.steps} different steps, embedded by {manifest.encoder}"
    ]
    for part in manifest.parts:
        merged = f"{part.same} of the same words and {part.near} near-duplicates merged"
        lines.append(
            f"part {part.name}: {part.documents} documents, {part.read} steps read, {merged}"
        )
        for source in part.sources:
            stated = source.licence or "licence not stated"
            lines.append(
                f"  {source.name}: {source.documents} documents, {source.steps} steps ({stated})"
            )
            lines += [
                f"    left out: {d.count} ({d.reason}), e.g. {d.examples[0]}"
                for d in source.dropped
            ]
    lines += [
        f"index {e.engine}: recall@1 {e.recall:.3f} at effort {e.effort}" for e in manifest.indexes
    ]
    return "\n".join(lines)


def _text_base_settings(options: dict[str, Any]) -> "TextBaseSettings":
    from stepline.settings import load_settings
    from stepline.sieve_swap.settings import SieveSwapSettings

    file, overrides = options["settings_file"], options["overrides"]
    return load_settings(SieveSwapSettings, file, overrides, preset=options["preset"]).text_base


VARIANTS = ("raw", "only-sieve", "swap", "mix")
HEARD = "heard"  # folder in --out for what is said in given video files


@click.command("sieve-swap")
@click.argument("videos", nargs=-1, required=True, type=VIDEO)
@click.option("--text-base", "base", required=True, type=PATH, help="A base, or texts for one.")
@click.option("-o", "--out", required=True, type=PATH, help="Folder.")
@exclude_option
@click.option(
    "--variant", type=click.Choice(VARIANTS), help="What becomes of a sentence that tells a step."
)
@preset_option("sieve-swap")
@settings_options(
    "One setting, e.g. match.similarity=0.7.", "A TOML file of settings (docs/settings.md)."
)
@click.option("--json", "as_json", is_flag=True, help="Print the counts as JSON.")
@device_options
@one_writer
def sieve_swap(videos: "tuple[VideoArgument, ...]", base: Path, out: Path, **options: Any) -> None:
    """Sieve the narration of VIDEOS and swap it for the nearest human-written steps of a text base.

    VIDEOS: records (.parquet, .json, .jsonl or a folder of them), HowTo100M's caption.json or csv
    of each video, or video files and links, which are transcribed first. A run that was stopped
    goes on where it was when it is asked for again. Where something could not be read, what could
    be is done and the exit code is 1.

    \b
    Example:
      stepline sieve-swap records --text-base base --out swapped --exclude excluded.txt
    """
    from stepline.datasets.excluded import read_excluded
    from stepline.errors import DatasetError
    from stepline.pipeline.request import StepsSettings
    from stepline.pipeline.sources import fetch_sources
    from stepline.settings import load_settings
    from stepline.sieve_swap.report import write_report
    from stepline.sieve_swap.run import Job, run
    from stepline.sieve_swap.settings import SieveSwapSettings
    from stepline.sieve_swap.videos import UNREADABLE_VIDEO
    from stepline.text_base import prepared_base

    given = [f"match.variant={json.dumps(options['variant'])}"] if options["variant"] else []
    overrides = [*options["overrides"], *given]
    settings = load_settings(
        SieveSwapSettings, options["settings_file"], overrides, preset=options["preset"]
    )
    with download_bar(None) as report:
        given_files = fetch_sources(videos, out, load_settings(StepsSettings), report)
    records, unheard = _records(given_files, out)
    job = Job(
        videos=records,
        base=prepared_base(base, out / "text_base", settings.text_base),
        out=out,
        settings=settings,
        excluded=read_excluded(options["exclude"]),
        say=say,
    )
    outcome = run(job)
    files = write_report(job, outcome)
    print_data(
        outcome.statistics.model_dump_json()
        if options["as_json"]
        else _sieve_swap_table(job, outcome)
    )
    say(*(f"wrote {file}" for file in files))
    lost = outcome.statistics.videos.get(UNREADABLE_VIDEO, 0) + unheard
    if lost:
        raise DatasetError(f"{lost} of the videos could not be read, see above; the rest is done")


def _records(videos: list[Path], out: Path) -> tuple[Path, int]:
    """Return where the records are, as given or what is heard in given video files, and how many
    could not be heard.

    Each is transcribed once.
    """
    from stepline.atomic_files import files_below
    from stepline.errors import MediaError, SettingsError, SteplineError
    from stepline.pipeline.batch import transcribe
    from stepline.pipeline.sources import find_videos, name_videos
    from stepline.sieve_swap.videos import DATA_SUFFIXES
    from stepline.storage import write_record

    if len(videos) == 1:
        (source,) = videos
        inside = files_below(source) if source.is_dir() else [source]
        if any(file.suffix in DATA_SUFFIXES for file in inside) or not source.exists():
            return source, 0
    if any(path.suffix in DATA_SUFFIXES for path in videos):
        raise SettingsError(
            "VIDEOS: give one file or folder of records, or video files, not both; join records first"
        )
    heard, failed = out / HEARD, 0
    named = name_videos(find_videos(videos), heard)
    for identity, path in named.items():
        if (heard / f"{identity}.json").is_file():
            continue
        try:
            with progress_bars() as progress:
                record = transcribe(path, progress=progress)
        except SteplineError as error:
            say(f"error: {error}")
            failed += 1
            continue
        title = record.video.model_copy(
            update={"id": identity, "title": path.stem.replace("_", " ")}
        )
        write_record(
            record.model_copy(update={"id": identity, "video": title}), heard / f"{identity}.json"
        )
    if failed == len(named):
        raise MediaError(f"none of {len(named)} videos could be heard; see above")
    return heard, failed


def _sieve_swap_table(job: "Job", outcome: "RunResult") -> str:
    """Return the counts as a table."""
    counted = outcome.statistics
    groups = {"videos": counted.videos, "sentences": counted.sentences, "swaps": counted.checks}
    lines = []
    for head, counts in {**groups, "evaluation videos kept out": counted.excluded}.items():
        lines += (
            [head, *(f"  {count:>9,}  {name}" for name, count in counts.items())] if counts else []
        )
    return "\n".join([*lines, f"open {job.out / 'report.html'}"])
