"""What networks learn from: `stepline features`, `curate excluded`, `text-base` and `sieve-swap`.

Each command parses, calls one function of its package, and prints.
"""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stepline.cli.curate import curate
from stepline.cli.errors import Group, print_data, print_message
from stepline.cli.options import (
    ADDRESS_TYPE,
    PATH_TYPE,
    PluginChoice,
    device_option,
    device_options,
    exclude_option,
    json_option,
    load_from_options,
    lock_out_folder,
    out_option,
    path_option,
    preset_option,
    settings_from_options,
    settings_options,
)
from stepline.cli.progress import download_progress, progress_bars
from stepline.errors import DatasetError, MediaError, SettingsError, StoreError

if TYPE_CHECKING:
    from stepline.features.import_files import ImportReport
    from stepline.pipeline.extract import ExtractionReport
    from stepline.pipeline.sources import VideoArgument
    from stepline.sieve_swap.run import SieveSwapResult
    from stepline.sieve_swap.text_base.base import TextBaseManifest


@click.group(cls=Group)
def features() -> None:
    """Import, extract and check features of many videos."""


@features.command("import")
@click.argument("source", type=PATH_TYPE)
@out_option("The store: a folder.")
@click.option(
    "--rate",
    type=click.FloatRange(min=0, min_open=True),
    default=1.0,
    help="Rows per second, for files that do not state it.",
)
@click.option("--backbone", help="Backbone of the features, for example internvideo.")
@click.option(
    "--width", type=click.IntRange(min=1), help="Width of every row. Default: that of most."
)
@json_option
@lock_out_folder
def import_(source: Path, out: Path, as_json: bool, **options: Any) -> None:
    """Add ready features to a store.

    \b
    Example:
      stepline features import internvideo/ --out store --backbone internvideo

    SOURCE is a folder of .npy, .pth.tar, .pth or .safetensors, a .tar (.gz), or one file.

    Each file is named after its video (docs/features.md has the rules). Other content is left out
    and listed in dropped.jsonl. The same command continues an import that was stopped.
    """
    from stepline.features import import_features
    from stepline.features.store import UNREADABLE_FILE
    from stepline.records import count_reasons

    # The import itself raises nothing for single files, so the counts decide.
    report = import_features(source, out, **options)
    reasons = count_reasons(report.dropped)
    notes = {"dropped": reasons, "warnings": report.warnings}
    _print_store_counts(out, report, "items", notes, as_json)
    print_message(*report.warnings)
    print_message(*(f"dropped {count}: {reason}" for reason, count in reasons.items()))
    if not report.added_ids and not report.already_stored:
        first = report.dropped[0]
        raise StoreError(
            f"{source}: nothing in it could be stored; {first.location}: {first.reason} "
            f"({first.value})"
        )
    if reasons.get(UNREADABLE_FILE):
        count = reasons[UNREADABLE_FILE]
        reason = f"{count} of its files could not be read, see {out}/dropped.jsonl"
        raise StoreError(f"{source}: {reason}; the rest is stored")


def _print_store_counts(
    out: Path,
    report: "ImportReport | ExtractionReport",
    noun: str,
    notes: dict[str, Any],
    as_json: bool,
) -> None:
    """Print how many items were added to a feature store, as text or JSON.

    Args:
        out: the store.
        report: counts of the import or extraction.
        noun: plural noun for the items, such as "videos".
        notes: further fields of the JSON.
        as_json: whether JSON is printed.
    """
    count = len(report.added_ids)
    if as_json:
        counts = {"added": count, "rows": report.rows, "already": report.already_stored, **notes}
        print_data(json.dumps(counts))
        return
    print_data(
        f"{out}: added {count} {noun} ({report.rows} rows), {report.already_stored} were there "
        "already"
    )


@features.command("extract")
@click.argument("videos", nargs=-1, required=True, type=ADDRESS_TYPE)
@out_option("The store: a folder.")
@click.option(
    "--backbone",
    type=PluginChoice("backbones", without=("precomputed", "none")),
    help="Encoder of the pictures.  [default: conse]",
)
@click.option("--weights", help="The backbone's checkpoint.")
@settings_options("One setting, e.g. vision.rate=2.")
@json_option
@device_options
@lock_out_folder
def extract_features(
    videos: "tuple[VideoArgument, ...]", out: Path, as_json: bool, **options: Any
) -> None:
    """Extract the features of videos into a store.

    \b
    Example:
      stepline features extract videos --backbone s3d-mixed5c --weights s3d_howto100m.pth --out store

    VIDEOS are files and folders. A store has one row per second, as the papers' have.

    A row of s3d has 512 numbers, of length 1, in one space with texts. A row of s3d-mixed5c has the
    1024 before that, as HowTo100M's released rows. internvideo reads 8 pictures per row, and clip
    and conse read one. A video is named by its file. Videos that cannot be read are listed in
    omitted.jsonl, and the others go on. The same command continues a run that was stopped.
    """
    from stepline.pipeline.extract import extract_to_store
    from stepline.pipeline.sources import fetch_sources
    from stepline.records import count_reasons

    # the videos, links fetched first
    settings = settings_from_options(options)
    with download_progress() as report:
        files = fetch_sources(videos, out, settings, report)
    with progress_bars() as progress:
        extraction = extract_to_store(files, out, settings, progress=progress, report=print_message)

    # what came of it
    reasons = count_reasons(extraction.omitted)
    _print_store_counts(out, extraction, "videos", {"omitted": reasons}, as_json)
    print_message(*(f"left out {count}: {reason}" for reason, count in reasons.items()))
    if not extraction.added_ids and not extraction.already_stored:
        first = extraction.omitted[0]
        reason = f"none of {len(extraction.omitted)} videos has features"
        raise MediaError(f"{reason}; {first.id}: {first.reason} {first.value}")


@features.command()
@click.argument("store", type=PATH_TYPE)
@json_option
def check(store: Path, as_json: bool) -> None:
    """Read a whole store and report what it holds.

    \b
    Example:
      stepline features check store

    The exit code is 1 when rows are damaged, changed, transposed, empty or not finite.
    """
    from stepline.features import FeatureStore
    from stepline.features.import_files import DROPPED_NAME, read_dropped
    from stepline.records import count_reasons

    # what the store holds
    opened = FeatureStore(store)
    items = opened.values()
    faults = list(opened.check())
    seconds = sum(item.rows / item.rate for item in items)
    backbones = {item.backbone for item in items}
    contents = {
        "items": len(opened),
        "rows": sum(item.rows for item in items),
        "hours": round(seconds / 3600, 2),
        "widths": list(opened.widths),
        "backbones": sorted(backbones),
        "faults": count_reasons(faults),
        "dropped": count_reasons(read_dropped(store / DROPPED_NAME)),
    }

    # the report, and the faults one by one
    text = json.dumps(contents)
    if not as_json:
        lines = [f"{name:<10} {_format_value(value)}" for name, value in contents.items()]
        text = "\n".join(lines)
    print_data(text)
    print_message(*(f"{fault.id}: {fault.reason} {fault.value}".rstrip() for fault in faults))
    sys.exit(1 if faults else 0)


def _format_value(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join([f"{count} x {reason}" for reason, count in value.items()]) or "none"
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return str(value)


@curate.command()
@click.argument("datasets", nargs=-1, required=True, metavar="DATASET[:SPLIT,...]=PATH...")
@out_option("The list file to write.")
def excluded(datasets: tuple[str, ...], out: Path) -> None:
    """List evaluation videos to exclude from training.

    \b
    Example:
      stepline curate excluded ht-step=htstep youcook2:validation=youcookii_annotations_trainval.json --out excluded.txt

    All splits of a dataset but the training one are listed, or those that you name. Its test videos
    are always listed. Name the training split too where no annotated video may be learned from, as
    for the pre-training of ProcX: youcook2:train=yc2_train.json.
    """
    from stepline.datasets.excluded import ExcludedSource, collect_excluded, write_excluded

    # Each argument names a dataset, its splits, and where its annotations are.
    sources = []
    for dataset in datasets:
        name_and_splits, equals, path = dataset.partition("=")
        if not equals or not path:
            raise SettingsError(
                f"{dataset!r}: write it as DATASET=PATH, for example youcook2=annotations.json"
            )
        name, _, splits_text = name_and_splits.partition(":")
        splits = tuple(filter(None, splits_text.split(",")))
        sources.append(ExcludedSource(name, Path(path), splits))
    videos = collect_excluded(sources)
    write_excluded(videos, out)
    for name, count in (*videos.counts().items(), ("together", len(videos))):
        print_data(f"{name:<14} {count:>7} videos")
    print_message(f"wrote {out}")


NO_LICENCE = "licence not stated"


@click.group("text-base", cls=Group)
def text_base() -> None:
    """Build and query a base of how-to texts."""


@text_base.command()
@click.argument("sources", nargs=-1, required=True, type=PATH_TYPE)
@path_option("--out", required=True, help="The folder of the base.")
@click.option("--licence", help="Licence of the texts whose source states none.")
@preset_option("sieve-swap")
@settings_options("e.g. text_base.batch=256.")
@device_option
@lock_out_folder
def build(sources: tuple[Path, ...], out: Path, licence: str | None, **options: Any) -> None:
    """Build a text base.

    \b
    Example:
      stepline text-base build recipes.json manuals --out base --licence "CC BY 4.0"

    SOURCES are csv (RecipeNLG), JSON, Parquet, .txt and .md, or folders of them.

    The same command continues a build that was stopped.
    """
    from stepline.sieve_swap.settings import SieveSwapSettings
    from stepline.sieve_swap.text_base import build_base

    settings = load_from_options(SieveSwapSettings, options).text_base
    print_message(describe_base(build_base(sources, out, settings, licence=licence).manifest))


@text_base.command()
@click.argument("base", type=PATH_TYPE)
@json_option
def show(base: Path, as_json: bool) -> None:
    """Print what a text base holds.

    \b
    Example:
      stepline text-base show base

    That is sources, licences, lines merged, what was left out and why.
    """
    from stepline.sieve_swap.text_base.base import require_manifest

    manifest = require_manifest(base)
    text = json.dumps(manifest.model_dump(mode="json"), ensure_ascii=False, indent=2)
    print_data(text if as_json else describe_base(manifest))


@text_base.command()
@click.argument("base", type=PATH_TYPE)
@click.argument("texts", nargs=-1, required=True)
@click.option("-k", "count", type=click.IntRange(min=1), default=3, help="Steps per text.")
@device_option
def ask(base: Path, texts: tuple[str, ...], count: int) -> None:
    """Print the steps nearest to each text.

    \b
    Example:
      stepline text-base ask base "chop the onion"

    Each row has the cosine, the step and its source.
    """
    from stepline.sieve_swap.text_base import open_base

    opened = open_base(base)
    rows, cosines = opened.find_nearest_steps(opened.embed(texts), count)
    for text, nearest, similarity in zip(texts, rows, cosines, strict=True):
        print_data(f"{text}:")
        # Where there are too few steps, the rest of a row is -1.
        matches = nearest >= 0
        for step, cosine in zip(opened.steps(nearest[matches]), similarity[matches], strict=True):
            licence = step.licence or NO_LICENCE
            print_data(f"  {cosine:.2f}  {step.text}  [{step.source}, {licence}]")


def describe_base(manifest: "TextBaseManifest") -> str:
    """Return the contents of a text base, in lines."""
    amount = f"{manifest.documents} documents, {manifest.steps} different steps"
    lines = [f"{amount}, embedded by {manifest.encoder}"]
    for part in manifest.parts:
        lines.append(f"{part.read} steps read, {part.read - part.steps} of them merged")
        for source in part.sources:
            licence = source.licence or NO_LICENCE
            amount = f"{source.documents} documents, {source.steps} steps"
            lines.append(f"  {source.name}: {amount} ({licence})")
            for drop in source.dropped:
                example = drop.examples[0]
                lines.append(f"    left out: {drop.count} ({drop.reason}), e.g. {example}")
    return "\n".join(lines)


VARIANT_NAMES = ("raw", "only-sieve", "swap", "mix")


@click.command("sieve-swap")
@click.argument("videos", type=PATH_TYPE)
@path_option("--text-base", "base", required=True, help="A base, or texts for one.")
@out_option("Folder for the results.")
@exclude_option
@click.option(
    "--variant",
    type=click.Choice(VARIANT_NAMES),
    help="What becomes of a sentence that states a step.",
)
@preset_option("sieve-swap")
@settings_options("One setting, e.g. match.similarity=0.7.")
@json_option
@device_options
@lock_out_folder
def sieve_swap(videos: Path, base: Path, out: Path, **options: Any) -> None:
    """Swap narration for the nearest steps that people wrote.

    \b
    Example:
      stepline sieve-swap records --text-base base --out swapped --exclude excluded.txt

    The narration of VIDEOS is sieved first. The steps come from a text base.

    VIDEOS are records (.parquet, .json, .jsonl or a folder of them), or HowTo100M's caption.json or
    csv of each video. The same command continues a run that was stopped. Where something cannot be
    read, the rest is done and the exit code is 1.
    """
    from stepline.datasets.excluded import read_excluded
    from stepline.sieve_swap.report import require_training_videos, write_report
    from stepline.sieve_swap.run import SieveSwapJob, check_encoder, run_job
    from stepline.sieve_swap.settings import SieveSwapSettings
    from stepline.sieve_swap.text_base import open_or_build_base
    from stepline.sieve_swap.videos import UNREADABLE_VIDEO

    # what is asked
    overrides = []
    if options["variant"]:
        overrides.append(f"match.variant={json.dumps(options['variant'])}")
    settings = load_from_options(SieveSwapSettings, options, overrides)
    opened = open_or_build_base(base, out / "text_base", settings.text_base)
    if options["preset"] is not None:
        check_encoder(opened, settings)
    job = SieveSwapJob(
        videos=videos,
        base=opened,
        out=out,
        settings=settings,
        excluded=read_excluded(options["excluded"]),
        report=print_message,
    )
    outcome = run_job(job)
    files = write_report(job, outcome)
    if options["as_json"]:
        print_data(outcome.statistics.model_dump_json())
    else:
        print_data(_sieve_swap_table(outcome))
    print_message(*(f"wrote {file}" for file in files))
    # What could be done is done. The exit code still says that something is missing.
    lost = outcome.statistics.videos.get(UNREADABLE_VIDEO, 0)
    if lost:
        raise DatasetError(f"{lost} of the videos could not be read, see above; the rest is done")
    require_training_videos(outcome.statistics)


def _sieve_swap_table(outcome: "SieveSwapResult") -> str:
    """Return the counts of videos and sentences as a table."""
    # A heading, and below it how many there are of each.
    counted = outcome.statistics
    groups = {"videos": counted.videos, "sentences": counted.sentences}
    lines = []
    for head, counts in {**groups, "evaluation videos kept out": counted.excluded}.items():
        if counts:
            lines += [head, *(f"  {count:>9,}  {name}" for name, count in counts.items())]
    return "\n".join(lines)
