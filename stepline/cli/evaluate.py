"""Benchmarks: `stepline evaluate` scores predictions, `predict` makes them with a trained network.

`train calibrate` fits a network's P(shown) to a benchmark. Nothing heavy is imported before a
command runs.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stepline.cli.errors import print_data, print_message
from stepline.cli.options import (
    combine_options,
    device_options,
    json_option,
    path_option,
    preset_option,
    select_options,
    settings_from_options,
    settings_options,
)
from stepline.cli.train import train
from stepline.errors import DatasetError, SettingsError, StoreError
from stepline.files.atomic_files import remove_file, write_atomic

if TYPE_CHECKING:
    from stepline.evaluate.report import Scores
    from stepline.models.training.benchmark_answers import BenchmarkAnswers


@click.command()
@click.argument("benchmark", required=False)
@path_option("--predictions", help="A system's predictions: a file or folder.")
@path_option("--reference", help="The benchmark's own annotations.")
@path_option("--against", help="Those of another system, for a comparison.")
@click.option(
    "--convention", help="How to score. `stepline evaluate BENCHMARK` lists the conventions."
)
@click.option("--subset", help="Only this split of the reference.")
@click.option(
    "--cut",
    type=click.Choice(["pdvc"]),
    help="Rank and cut a PDVC result's proposals as PDVC does it.",
)
@path_option("--per-video", help="Write one row per video to this Parquet file.")
@click.option(
    "--draws", type=click.IntRange(min=1), default=1000, help="Bootstrap draws of videos."
)
@click.option("--seed", type=int, default=0, help="Seed of the draws.")
@json_option
def evaluate(benchmark: str | None, **options: Any) -> None:
    """Score predictions on a benchmark by its exact rules.

    \b
    Example:
      stepline evaluate htm-align

    Every number comes with its rule, its interval and what was missing.

    Without a benchmark, all are listed. Without predictions and reference, the rules of that
    benchmark are printed.
    """
    from stepline.evaluate.benchmarks import evaluate as scored

    # what there is to know without predictions
    if benchmark is None:
        print_data(list_benchmarks(), end="")
        return
    predictions = options["predictions"]
    reference = options["reference"]
    if predictions is None and reference is None:
        print_data(describe_benchmark(benchmark), end="")
        return
    if predictions is None or reference is None:
        lacking = "--predictions" if predictions is None else "--reference"
        raise DatasetError(f"{lacking} is missing; give both --predictions and --reference")

    # the scores of one system or two
    named = select_options(options, "convention", "subset", "cut")
    scores = scored(benchmark, predictions, reference, **named)
    other = None
    if options["against"]:
        other = scored(benchmark, options["against"], reference, **named)
    from stepline.evaluate import report

    if options["cut"] is not None:
        _require_cut(scores, other)

    # the report
    bootstrap = {"draws": options["draws"], "seed": options["seed"]}
    score_report = report.report(scores, **bootstrap)
    comparison = report.compare(scores, other, **bootstrap) if other is not None else None
    as_text = report.as_json if options["as_json"] else report.as_table
    print_data(as_text(score_report, comparison), end="")
    if options["per_video"] is not None:
        report.write_per_video(score_report, options["per_video"])
        print_message(f"wrote {options['per_video']}")


def _require_cut(scores: "Scores", other: "Scores | None") -> None:
    """Raise DatasetError if --cut had no effect on any predictions."""
    from stepline.datasets.predictions import PDVC_CUT_NOTE

    notes = list(scores.notes)
    if other is not None:
        notes += other.notes
    if not any(PDVC_CUT_NOTE in note for note in notes):
        raise DatasetError(
            "--cut pdvc: no prediction has PDVC's proposal_score, sentence_score and "
            "pred_event_count; leave --cut out"
        )


def list_benchmarks() -> str:
    """Return a table of the benchmarks, with their conventions."""
    from stepline.evaluate.benchmarks import BENCHMARKS

    # Names are padded, so that what they measure is in one column.
    width = max(map(len, BENCHMARKS))
    lines = []
    for row in BENCHMARKS.values():
        conventions = ", ".join(row.conventions)
        lines.append(f"{row.name:<{width}}  {row.description} ({conventions})")
    return "\n".join(lines) + "\n"


def describe_benchmark(name: str) -> str:
    """Return the files and the rules of a benchmark. Raises DatasetError for an unknown name."""
    from stepline.evaluate.benchmarks import find_benchmark

    row = find_benchmark(name)
    lines = [
        f"{row.name}: {row.description}",
        f"  source       {row.source}",
        f"  reference    {row.reference_form}",
        f"  predictions  {row.predictions_form}",
        f"  default      {row.default_convention}: {row.default_reason}",
    ]
    for convention_name, convention in row.conventions.items():
        lines.append(f"  {convention_name:<11}  {convention.rule}")
    return "\n".join(lines) + "\n"


ALIGNER_BENCHMARKS = ("htm-align", "ht-step", "crosstask")
DESCRIBER_BENCHMARKS = ("youcook2", "tasty")  # what a network that describes answers
DETECTOR_BENCHMARKS = ("htm-align", "vnd")  # what a detector of visual narrations answers
MAX_NAMED_VIDEOS = 5  # missing videos that the terminal names. All are in the file


# What `predict` and `calibrate` take.
benchmark_options = combine_options(
    path_option("--features", required=True, help="Videos' features: a folder."),
    path_option("--reference", required=True, help="The benchmark's own files."),
    path_option("--texts", help="Text vectors, or else the network's encoder."),
    click.option("--subset", help="Only this split of the reference."),
    preset_option("predict"),
    settings_options("One setting."),
    device_options,
)


@click.command()
@click.argument("benchmark", type=click.Choice((*ALIGNER_BENCHMARKS, *DESCRIBER_BENCHMARKS, "vnd")))
@path_option("--aligner", help="A trained network that places texts.")
@path_option("--model", help="youcook2, tasty: a network that describes.")
@path_option("--detector", help="htm-align, vnd: a detector of visual narrations (WYS2).")
@benchmark_options
@path_option("--out", required=True, help="File to write: JSON, or .csv for ht-step.")
@click.option(
    "--order", type=click.Choice(["none", "given"]), help="given: the texts' order counts."
)
@click.option("--allow-missing", is_flag=True, help="Exit 0 although videos are missing.")
def predict(benchmark: Any, out: Path, allow_missing: bool, **options: Any) -> None:
    """Answer a benchmark with a trained network.

    \b
    Example:
      stepline predict ht-step --aligner trained --features features --reference htstep --out result.json

    The answers are in the official form of BENCHMARK, which `stepline evaluate` reads.

    An --aligner answers htm-align, ht-step and crosstask, a --model youcook2 and tasty, a
    --detector htm-align and vnd (whose reference is the list of clips). Videos without features, or
    with broken ones, are named, listed in OUT.missing.json, and end with exit code 1.
    """
    from stepline.files.locks import lock_output

    # what kind of network answers
    network_kinds = {
        "aligner": (ALIGNER_BENCHMARKS, _predict_by_aligner),
        "model": (DESCRIBER_BENCHMARKS, _predict_by_describer),
        "detector": (DETECTOR_BENCHMARKS, _predict_by_detector),
    }
    # The options of the networks that can answer this benchmark.
    accepted = [name for name, (benchmarks, _) in network_kinds.items() if benchmark in benchmarks]
    networks = [name for name in network_kinds if options[name] is not None]
    if len(networks) != 1 or networks[0] not in accepted:
        accepted_options = " or ".join(f"--{name}" for name in accepted)
        others = ", ".join(f"--{name}" for name in network_kinds if name not in accepted)
        raise SettingsError(
            f"{benchmark} is answered by {accepted_options}; give one, and leave {others} out"
        )
    (network,) = networks
    _, answer = network_kinds[network]

    # the answers, and what has none, by one process at a time
    with lock_output(out.with_name(f".{out.name}.lock"), out):
        answers = answer(benchmark, out, options)
        missing = answers.missing
        noun = "clips" if benchmark == "vnd" else "videos"
        total = f"{answers.count + len(missing)} {noun}"
        print_message(f"wrote {out}: {answers.count} of {total}")
        _report_missing(missing, out)
    if missing and not allow_missing:
        raise StoreError(
            f"{len(missing)} of {total} are not in {out}; add what is missing, or --allow-missing"
        )


def _predict_by_aligner(
    benchmark: Any, out: Path, options: dict[str, Any]
) -> "BenchmarkAnswers[Any]":
    """Write the spans of a benchmark's texts to `out`. Return them by video."""
    from stepline.models.nasva.benchmarks import write_alignments as answer

    settings = settings_from_options({**options, "model": None}).nasva.aligner
    questions, aligner, inputs = _read_benchmark_inputs(benchmark, options)
    return answer(benchmark, questions, aligner, inputs, out, settings)


def _predict_by_describer(
    benchmark: str, out: Path, options: dict[str, Any]
) -> "BenchmarkAnswers[Any]":
    """Write the steps that a network describes to `out`. Return them by video."""
    from stepline.datasets.youcook2 import id_prefix
    from stepline.models.procx.benchmark import benchmark_videos
    from stepline.models.procx.benchmark import write_predictions as answer
    from stepline.models.procx.checkpoint import load_model
    from stepline.models.training.benchmark_answers import StoredFeatures

    if options["texts"] is not None or options["order"] is not None:
        raise SettingsError(f"{benchmark} asks for no texts; leave --texts and --order out")
    settings = settings_from_options({**options, "model": None}).procx

    # the network, and what it reads
    describer = load_model(options["model"])
    features = StoredFeatures(options["features"])

    # the answers, of the videos that the reference has
    questions = benchmark_videos(benchmark, options["reference"], options["subset"])
    _print_skipped_videos(questions.count_reasons())
    prefix = id_prefix(options["reference"])
    answers = answer(questions.questions, describer, features, out, settings, prefix)
    steps = sum(len(record.steps) for record in answers.by_id.values())
    print_message(f"{steps} steps are described")
    return answers


def _predict_by_detector(
    benchmark: str, out: Path, options: dict[str, Any]
) -> "BenchmarkAnswers[Any]":
    """Write P(shown) of clips or sentences to `out`. Return them by clip or video."""
    from stepline.evaluate.htm_align import read_transcript, spoken_times
    from stepline.models.nasva.benchmarks import read_benchmark_questions
    from stepline.models.training.benchmark_answers import StoredFeatures
    from stepline.models.wys2.benchmark import (
        load_for_benchmarks,
        write_clip_scores,
        write_sentence_scores,
    )
    from stepline.pipeline.sources import find_videos, name_videos
    from stepline.review.clips import read_clips

    # the detector, and what it sees
    detector = load_for_benchmarks(options["detector"])
    # A detector of frames reads the videos, another one their features.
    if detector.sees_frames:
        videos = name_videos(find_videos([options["features"]]), options["features"])
        source: Any = partial(_find_video, videos)
    else:
        source = StoredFeatures(options["features"]).read
    if benchmark == "vnd":
        return write_clip_scores(read_clips(options["reference"]), detector, source, out)

    # the sentences of the benchmark, and when they are said
    questions = read_benchmark_questions(
        "htm-align", options["reference"], options["subset"]
    ).questions
    transcript = read_transcript(options["reference"])
    texts = {}
    times = {}
    for question in questions:
        texts[question.id] = question.texts
        sentence_times = spoken_times(transcript, question.id)
        if sentence_times is not None:
            times[question.id] = sentence_times
    return write_sentence_scores(texts, times, detector, source, out)


def _find_video(videos: Mapping[str, Path], video: str) -> Path:
    """Return the file of a video. Raises StoreError if it is missing."""
    if video not in videos:
        raise StoreError(
            f"{video}: no such video in --features, which names videos for a detector of frames; "
            "add it"
        )
    return videos[video]


@train.command()
@click.argument("benchmark", type=click.Choice(ALIGNER_BENCHMARKS))
@path_option("--aligner", required=True, help="The trained network.")
@benchmark_options
@json_option
def calibrate(benchmark: Any, as_json: bool, **options: Any) -> None:
    """Calibrate a network's confidence on a benchmark.

    \b
    Example:
      stepline train calibrate ht-step --aligner trained --features features --reference htstep --subset val_seen

    P(shown) is fitted to the truth of BENCHMARK and stored next to the network: of steps by ht-step
    and crosstask, as `steps` and `curate` need it, of narrations by htm-align. Each half of the videos
    needs 20 texts that are shown and 20 that are not.

    Use videos on which the network was not trained and will not be scored. Prints how good P(shown)
    was before, and how good it is after a fit to the other half of the videos.
    """
    from stepline.models.nasva.fit_calibration import calibrate as fit

    # the network, what it is asked, and the fit
    settings = settings_from_options(options).nasva.aligner
    questions, aligner, inputs = _read_benchmark_inputs(benchmark, options)
    quality, missing = fit(benchmark, questions, aligner, inputs, settings)
    _report_missing(missing, None)
    if benchmark == "htm-align":
        print_message("fitted for narrations; `steps` and `curate` need ht-step or crosstask")
    if as_json:
        print_data(json.dumps(asdict(quality)))
        return
    print_data(
        f"{quality.texts} texts of {quality.videos} videos, {quality.shown_fraction:.1%} shown"
    )
    print_data(f"calibration error  {quality.ece_before:.3f} before, {quality.ece_after:.3f} after")
    print_data(
        f"ROC-AUC            {quality.roc_auc_before:.3f} before, {quality.roc_auc_after:.3f} after"
    )


def _read_benchmark_inputs(benchmark: Any, options: dict[str, Any]) -> tuple[Any, Any, Any]:
    """Return the questions of a benchmark, the network, and its features and text vectors.

    A wrong path is reported before any work.
    """
    from stepline.models.nasva.benchmarks import (
        BenchmarkInputs,
        TextVectors,
        read_benchmark_questions,
    )
    from stepline.models.nasva.checkpoint import load_aligner
    from stepline.models.training.benchmark_answers import StoredFeatures

    # The network first: it is the cheapest to check.
    aligner = load_aligner(options["aligner"])
    features = StoredFeatures(options["features"])
    inputs = BenchmarkInputs(features, TextVectors(options["texts"], aligner))
    questions = read_benchmark_questions(benchmark, options["reference"], options["subset"])
    _print_skipped_videos(questions.count_reasons())
    return questions.questions, aligner, inputs


def _print_skipped_videos(reasons: dict[str, int]) -> None:
    for reason, count in reasons.items():
        print_message(f"not asked: {count} videos of the reference: {reason}")


def _report_missing(missing: dict[str, str], out: Path | None) -> None:
    lines = [f"missing: {id}: {reason}" for id, reason in missing.items()]
    print_message(*lines[:MAX_NAMED_VIDEOS])
    if len(missing) > MAX_NAMED_VIDEOS:
        print_message(f"missing: {len(missing) - MAX_NAMED_VIDEOS} more")
    if out is None:
        return
    # A list of an earlier run would be wrong where nothing is missing now.
    file = out.with_name(f"{out.name}.missing.json")
    if not missing:
        remove_file(file)
        return
    text = json.dumps(missing, indent=1, ensure_ascii=False) + "\n"
    write_atomic(file, text)
    print_message(f"wrote {file}")
