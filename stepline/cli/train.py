"""`stepline train nasva | procx | wys2` and `stepline refine`: networks from records and features.

Each command parses, calls one function of its system, and prints: files on stdout, what was trained
on and left out on stderr. The same command continues a run that was stopped.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from stepline.cli.errors import Group, print_data, print_message
from stepline.cli.options import (
    ADDRESS_TYPE,
    combine_options,
    device_option,
    exclude_option,
    json_option,
    load_from_options,
    lock_out_folder,
    out_option,
    path_option,
    preset_files,
    preset_option,
    select_options,
    settings_options,
    store_option,
)
from stepline.cli.progress import TrainingProgressLine

if TYPE_CHECKING:
    from stepline.models.nasva.pseudo_labels import RoundReport
    from stepline.models.nasva.refine import RefineResult
    from stepline.models.nasva.train import PreparedAligner
    from stepline.models.procx.train import PreparedRun as ProcxPrepared
    from stepline.models.training.loop import Progress

F = TypeVar("F", bound=Callable[..., Any])


def training_options(command: str, example: str) -> Callable[[F], F]:
    """Return a decorator that adds the options of all training commands, and locks the run folder.

    Args:
        command: name of the command, such as "train nasva", by which presets are found.
        example: a setting that the help of --set shows, such as "train.steps=100".
    """
    options = [out_option("Folder of the run."), settings_options(f"One setting, e.g. {example}.")]
    if preset_files(command):
        options += [exclude_option, preset_option(command)]
    return combine_options(*options, device_option, json_option, lock_out_folder)


@click.group(cls=Group)
def train() -> None:
    """Train a network, also on several GPUs (torchrun)."""


@train.command()
@store_option
@click.option(
    "--narrations",
    metavar="SOURCE",
    help="What is said: records, DATASET:PATH, or a store with times.",
)
@click.option("--steps", metavar="SOURCE", help="Steps and their places: the same kinds of source.")
@click.option(
    "--narration-vectors",
    metavar="VECTORS",
    help="A store of text features, minilm, conse or clip:FOLDER.",
)
@click.option("--step-vectors", metavar="VECTORS", help="The same, of the steps.")
@path_option("--start", help="Network to train on: ours, or the authors' .pth.")
@training_options("train nasva", "train.epochs=3")
def nasva(out: Path, **options: Any) -> None:
    """Train the network that places steps (NaSVA).

    \b
    Example:
      stepline train nasva --features store --steps howtostep:HowToStep.tar.gz --out run --set train.bf16=true

    It learns from narrations, from steps, or from both, each one sample per video and epoch.

    The same command continues a run that was stopped. Under torchrun, the processes share each
    batch: torchrun --nproc-per-node 4 -m stepline train nasva ...
    """
    from stepline.models.nasva.settings import AlignerRunSettings
    from stepline.models.nasva.train import BEST_FILE, FINAL_FILE, AlignerSources, train_aligner_run
    from stepline.models.training.distributed import end_processes, is_first

    settings = load_from_options(AlignerRunSettings, options)
    sources = AlignerSources(
        **select_options(
            options,
            "features",
            "narrations",
            "steps",
            "narration_vectors",
            "step_vectors",
            "excluded",
        )
    )
    print_samples = partial(_print_nasva_samples, excluding=bool(sources.excluded))
    with TrainingProgressLine() as line:
        train_aligner_run(
            sources, out, settings, start=options["start"], report=line, on_prepared=print_samples
        )
    # of several processes the first reports
    if is_first():
        _print_run(out, (FINAL_FILE, BEST_FILE), line.last, as_json=options["as_json"])
    end_processes()


def _print_run(
    out: Path, names: tuple[str, ...], last: "Progress | None", *, as_json: bool
) -> None:
    """Print the files of a training run, and what it cost.

    last: progress at the last step. None: an earlier run had finished the training.
    """
    from stepline.models.training.distributed import peak_memory

    files = [str(out / name) for name in names if (out / name).exists()]
    if as_json:
        summary: dict[str, Any] = {"files": files, "peak_bytes": peak_memory()}
        if last is not None:
            summary |= {
                "steps": last.step_count,
                "loss": last.loss,
                "seconds": round(last.seconds, 1),
                "waited": round(last.wait_seconds, 1),
            }
            if last.score is not None:
                summary["score"] = last.score
        print_data(json.dumps(summary))
        return
    cost = "the run was finished before"
    if last is not None:
        waited_share = last.wait_seconds / max(last.seconds, 1e-9)
        cost = f"{last.step_count} steps, loss {last.loss:.3f}, {last.seconds:.1f} s, "
        if last.score is not None:
            cost += f"held-out score {last.score:.3f}, "
        cost += f"{waited_share:.1%} of it waiting for features, "
        cost += f"at most {peak_memory() / 2**30:.2f} GiB"
    print_message(cost)
    print_data("\n".join(files))


def _print_nasva_samples(prepared: "PreparedAligner", *, excluding: bool) -> None:
    """Print what is trained on and what is left out. Warn if --exclude excluded nothing."""
    from stepline.models.training.distributed import is_first
    from stepline.models.training.sources import EXCLUDED_REASON

    if not is_first():
        return
    samples = prepared.samples
    print_message(
        f"{len(samples)} samples of {len(samples.videos)} videos, {len(prepared.held_out)} more "
        f"held out; {samples.labelled} of {samples.texts} texts have a label"
    )
    _print_left_out(samples.count_reasons())
    if excluding and EXCLUDED_REASON not in samples.count_reasons():
        print_message("warning: no video of the sources is in the lists of --exclude")


def _print_left_out(reasons: Mapping[str, int]) -> None:
    print_message(*(f"left out {count}: {reason}" for reason, count in reasons.items()))


@train.command("procx")
@store_option
@click.option(
    "--steps", metavar="SOURCE", required=True, help="Videos with steps: records or DATASET:PATH."
)
@click.option("--subset", help="Only this split of the dataset.")
@click.option("--words", metavar="SOURCE", multiple=True, help="More texts for the vocabulary.")
@path_option("--start", help="Network to train on: fine-tuning.")
@training_options("train procx", "train.epochs=3")
def train_procx(out: Path, **options: Any) -> None:
    """Train the network that describes silent videos (ProcX).

    \b
    Example:
      stepline train procx --features store --steps youcook2:yc2_train.json --start pretrained --out run

    Pre-train on what `stepline sieve-swap` made, then fine-tune with --start. The same command
    continues a run that was stopped. Under torchrun, the processes share each batch.
    """
    from stepline.models.procx.settings import ProcxRunSettings
    from stepline.models.procx.train import BEST_FILE, FINAL_FILE, ProcxSources, train_procx_run
    from stepline.models.training.distributed import end_processes, is_first

    settings = load_from_options(ProcxRunSettings, options)
    sources = ProcxSources(
        **select_options(options, "features", "steps", "subset", "words", "excluded")
    )
    with TrainingProgressLine() as line:
        train_procx_run(
            sources,
            out,
            settings,
            start=options["start"],
            report=line,
            on_prepared=_print_procx_samples,
        )
    if is_first():
        _print_run(out, (FINAL_FILE, BEST_FILE), line.last, as_json=options["as_json"])
    end_processes()


def _print_procx_samples(prepared: "ProcxPrepared") -> None:
    """Print what is trained on, what is left out, and videos with too many steps."""
    from stepline.models.training.distributed import is_first

    if not is_first():
        return
    samples = prepared.samples
    print_message(
        f"{sum(samples.counts)} steps of {len(samples)} videos, {len(prepared.held_out)} more held "
        f"out; a vocabulary of {len(prepared.vocabulary)} tokens"
    )
    _print_left_out(samples.count_reasons())
    if prepared.crowded_count:
        queries = prepared.settings.model.queries
        print_message(
            f"warning: {prepared.crowded_count} videos have more steps than {queries} queries: "
            "those that fit best are learned; raise model.queries"
        )


@train.command("wys2")
@click.option("--features", type=ADDRESS_TYPE, help="Store of the videos' features.")
@path_option(
    "--videos", help="Instead: a folder of the videos, for S3D to be trained on their frames."
)
@path_option("--weights", help="With --videos: s3d_howto100m.pth, from which S3D begins.")
@click.option(
    "--key-steps",
    metavar="SOURCE",
    multiple=True,
    required=True,
    help="Videos with key-steps: records or DATASET:PATH (repeatable).",
)
@click.option(
    "--narrations",
    metavar="SOURCE",
    multiple=True,
    help="What is said in them, if the key-steps' source does not have it (repeatable).",
)
@click.option(
    "--unlabelled",
    metavar="SOURCE",
    multiple=True,
    help="Narrated videos without key-steps, for pseudo-labels (repeatable).",
)
@click.option(
    "--vectors",
    metavar="ENCODER",
    default="minilm",
    help="Vectors of sentences by minilm, conse, clip:FOLDER, s3d:WEIGHTS or a folder.",
)
@training_options("train wys2", "labels.kind=vr")
def train_wys2(out: Path, as_json: bool, **options: Any) -> None:
    """Train the detector of speech that is shown (WYS2).

    \b
    Example:
      stepline train wys2 --features store --key-steps coin:COIN.json --narrations records --out run

    A fifth of the videos is withheld, the rest split 80:20 for training and validation. With
    --videos, S3D is trained from end to end, as in the paper (--preset paper). Its weights are
    s3d_wys2.pth in the run's folder.
    """
    from stepline.models.wys2.detector import NETWORK
    from stepline.models.wys2.settings import Wys2Settings
    from stepline.models.wys2.train import DetectorSources, train_detector_run
    from stepline.pipeline.sources import find_videos, name_videos

    # what is trained, and on what
    settings = load_from_options(Wys2Settings, options)
    videos = None
    if options["videos"] is not None:
        videos = name_videos(find_videos([options["videos"]]), out)
    sources = DetectorSources(
        **select_options(options, "features", "key_steps", "narrations", "unlabelled", "excluded"),
        videos=videos,
        text_encoder=options["vectors"],
        s3d_weights=options["weights"],
    )

    # the training, a round after the other
    clips = sources.prepare_clips(out, settings, _print_left_out)
    with TrainingProgressLine() as line:
        run = train_detector_run(clips, out, settings, report=line)

    # what came of each round
    rounds = []
    for row in run.rounds:
        clip_count = f"{row.pairs} clips"
        if row.scored_count:
            clip_count += f", {row.pseudo_labelled} of {row.scored_count} unlabelled ones"
        print_message(f"round {row.number}: {clip_count}; ROC-AUC on validation {row.auc:.3f}")
        rounds.append({name: row.as_row()[name] for name in ("number", "pairs", "kept", "auc")})
    print_message(run.calibration_report)
    path = str(out / NETWORK.file_names[-1])
    if as_json:
        error = None if run.calibration is None else run.calibration.error
        print_data(json.dumps({"detector": path, "rounds": rounds, "calibration_error": error}))
    else:
        print_data(path)


@click.command()
@click.argument("dataset")
@store_option
@click.option(
    "--step-vectors",
    metavar="VECTORS",
    default="minilm",
    help="A store of text features, minilm, conse or clip:FOLDER.",
)
@click.option(
    "--narrations", metavar="SOURCE", help="What is said. The final network also learns it (W + S)."
)
@click.option(
    "--narration-vectors",
    metavar="VECTORS",
    help="The same for narrations. Default: their own, or the steps' encoder.",
)
@click.option(
    "--rounds",
    type=click.IntRange(min=0, max=20),
    help="Times that labels are made again.  [default: 1]",
)
@training_options("refine", "rounds.teachers=1")
def refine(dataset: str, features: Path | str, out: Path, **options: Any) -> None:
    """Place the steps of a data set by self-training.

    \b
    Example:
      stepline refine howtostep:HowToStep.tar.gz --features store --out refined --set rounds.teachers=3

    DATASET is records, or NAME:PATH of a public data set.

    First labels are where the steps are said. Networks learn them, stop early and label all videos
    again. The last labels are written as records (refined.parquet), next to a network that was
    trained on them (aligner.safetensors). The same command continues a run that was stopped, round
    by round. Under torchrun, the processes share the trainings and the labelling.
    """
    from stepline.models.nasva.refine import RefineSources, refine_dataset
    from stepline.models.nasva.settings import RefineRunSettings
    from stepline.models.training.distributed import end_processes, is_first

    # what is refined, and by what
    overrides = []
    if options["rounds"] is not None:
        overrides.append(f"rounds.rounds={options['rounds']}")
    settings = load_from_options(RefineRunSettings, options, overrides)
    sources = RefineSources(
        dataset,
        features,
        **select_options(options, "step_vectors", "narrations", "narration_vectors", "excluded"),
    )

    # Only the last step of each training is reported, by the first process.
    def say_end(name: str, progress: "Progress") -> None:
        if progress.step == progress.step_count and is_first():
            print_message(
                f"{name}: {progress.step_count} steps, loss {progress.loss:.3f}, "
                f"{progress.seconds:.1f} s"
            )

    # the rounds
    result = refine_dataset(sources, out, settings, say_end)
    if is_first():
        _print_refined(result, out, as_json=options["as_json"])
    end_processes()


def _print_refined(result: "RefineResult", out: Path, *, as_json: bool) -> None:
    """Print a table of the rounds, and on stderr the files and what is left out."""
    from stepline.models.nasva.refine import REFINED_FILE

    for video in result.omitted[:MAX_NAMED_VIDEOS]:
        print_message(f"left out {video.id}: {video.reason} {video.value}".rstrip())
    print_message(f"{result.videos} videos refined, {len(result.omitted)} left out")
    files = [str(out / REFINED_FILE), str(out / "aligner.safetensors")]
    rounds = result.trained.rounds
    if as_json:
        print_data(json.dumps({"rounds": [asdict(row) for row in rounds], "files": files}))
        return
    print_data(_round_table(rounds))
    print_message(*(f"wrote {file}" for file in files))


MAX_NAMED_VIDEOS = 3  # of those left out, that stderr names
ROUND_COLUMNS = ("kept", "moved", "iou")


def _round_table(rounds: "tuple[RoundReport, ...]") -> str:
    """Return a table, a row per round.

    Fractions are in per cent, `moved` in seconds, - is unknown.
    """

    # Fractions are per cent. One column is in seconds.
    def format_cell(name: str, value: float | None) -> str:
        if value is None:
            return "-"
        if name == "moved":
            return f"{value:.1f} s"
        return f"{100 * value:.1f}"

    rows: list[tuple[Any, ...]] = [("round", "texts", *ROUND_COLUMNS)]
    for row in rounds:
        numbers = (format_cell(name, getattr(row, name)) for name in ROUND_COLUMNS)
        rows.append((row.number, row.texts, *numbers))
    return "\n".join("  ".join(f"{text:>9}" for text in line) for line in rows)
