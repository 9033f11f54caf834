"""`stepline train nasva | procx | wys2`: networks from records and features.

Each command parses, calls one function of its system, and prints: files on stdout, what was trained
on and left out on stderr. A run that was stopped goes on when the same command is given again.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stepline.cli.errors import (
    MIN_DATASET_ADDRESS_BYTES,
    Group,
    check_address_space,
    print_data,
    print_message,
)
from stepline.cli.options import (
    PATH_TYPE,
    STORE_TYPE,
    device_option,
    exclude_option,
    json_option,
    lock_out_folder,
    preset_option,
    run_option,
    settings_options,
    store_option,
)
from stepline.cli.progress import progress_report, training_bar

if TYPE_CHECKING:
    from stepline.models.nasva.train import PreparedAligner
    from stepline.models.procx.train import PreparedRun as ProcxPrepared
    from stepline.models.training.loop import Progress


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
@exclude_option
@run_option
@click.option("--start", type=PATH_TYPE, help="Network to train on: ours, or the authors' .pth.")
@preset_option("train nasva")
@settings_options("One setting, e.g. train.epochs=3.")
@device_option
@json_option
@lock_out_folder
def nasva(
    out: Path, settings_file: Path | None, overrides: tuple[str, ...], **options: Any
) -> None:
    """Train the network that places steps (NaSVA).

    \b
    Example:
      stepline train nasva --features store --steps howtostep:HowToStep.tar.gz --out run --set train.bf16=true

    It learns from narrations, from steps, or from both, each one sample per video and epoch.

    The same command continues a run that was stopped. Under torchrun, the processes share each
    batch: torchrun --nproc-per-node 4 -m stepline train nasva ...
    """
    check_address_space("train", MIN_DATASET_ADDRESS_BYTES)

    from stepline.models.nasva.settings import AlignerRunSettings
    from stepline.models.nasva.train import BEST_FILE, FINAL_FILE, AlignerSources, train_aligner_run
    from stepline.models.training.distributed import end_processes, is_first
    from stepline.settings import load_settings

    settings = load_settings(AlignerRunSettings, settings_file, overrides, preset=options["preset"])
    names = ("features", "narrations", "steps", "narration_vectors", "step_vectors")
    sources = AlignerSources(
        **{name: options[name] for name in names}, excluded=tuple(options["exclude"])
    )
    # the training, whose last step says what it cost
    say_samples = partial(_say_nasva_samples, excluding=bool(sources.excluded))
    with progress_report() as report:
        last = _LastStep(report)
        train_aligner_run(
            sources, out, settings, start=options["start"], report=last, on_prepared=say_samples
        )

    # of several processes the first reports
    if is_first():
        _print_run(out, (FINAL_FILE, BEST_FILE), last.progress, as_json=options["as_json"])
    end_processes()


class _LastStep:
    """Reports each step, and keeps the last one. progress: None where the run was finished
    before."""

    def __init__(self, report: "Callable[[Progress], None]") -> None:
        self._report = report
        self.progress: Progress | None = None

    def __call__(self, progress: "Progress") -> None:
        self.progress = progress
        self._report(progress)


def _print_run(out: Path, names: Sequence[str], last: "Progress | None", *, as_json: bool) -> None:
    """Print the files of a run, and what it cost. last: its last step, None: it was finished
    before."""
    from stepline.models.training.distributed import peak_memory

    files = [str(out / name) for name in names if (out / name).exists()]
    if as_json:
        summary: dict[str, Any] = {"files": files, "peak_bytes": peak_memory()}
        if last is not None:
            summary["steps"] = last.steps
            summary["loss"] = last.loss
            summary["seconds"] = round(last.seconds, 1)
            summary["waited"] = round(last.waited, 1)
            if last.score is not None:
                summary["score"] = last.score
        print_data(json.dumps(summary))
        return
    cost = "the run was finished before"
    if last is not None:
        waited_share = last.waited / max(last.seconds, 1e-9)
        cost = f"{last.steps} steps, loss {last.loss:.3f}, {last.seconds:.1f} s, "
        if last.score is not None:
            cost += f"held-out score {last.score:.3f}, "
        cost += f"{waited_share:.1%} of it waiting for features, "
        cost += f"at most {peak_memory() / 2**30:.2f} GiB"
    print_message(cost)
    print_data("\n".join(files))


def _say_nasva_samples(prepared: "PreparedAligner", *, excluding: bool) -> None:
    """Say what is trained on, what is left out, and that nothing was, where lists of videos were to
    be."""
    from stepline.models.training.distributed import is_first
    from stepline.models.training.sources import EXCLUDED_REASON

    if not is_first():
        return
    samples = prepared.samples
    amount = f"{len(samples)} samples of {len(samples.videos)} videos"
    others = f"{len(prepared.held_out)} more held out"
    labels = f"{samples.labelled} of {samples.texts} texts have a label"
    print_message(f"{amount}, {others}; {labels}")
    _say_left_out(samples.count_reasons())
    if excluding and EXCLUDED_REASON not in samples.count_reasons():
        print_message("warning: no video of the sources is in the lists of --exclude")


def _say_left_out(reasons: Mapping[str, int]) -> None:
    print_message(*(f"left out {count}: {reason}" for reason, count in reasons.items()))


@train.command("procx")
@store_option
@click.option(
    "--steps", metavar="SOURCE", required=True, help="Videos with steps: records or DATASET:PATH."
)
@click.option("--subset", help="Only this split of the dataset.")
@click.option("--words", metavar="SOURCE", multiple=True, help="More texts for the vocabulary.")
@exclude_option
@run_option
@click.option("--start", type=PATH_TYPE, help="Network to train on: fine-tuning.")
@preset_option("train procx")
@settings_options("One setting, e.g. train.epochs=3.")
@device_option
@json_option
@lock_out_folder
def train_procx(
    out: Path, settings_file: Path | None, overrides: tuple[str, ...], **options: Any
) -> None:
    """Train the network that describes silent videos (ProcX).

    \b
    Example:
      stepline train procx --features store --steps youcook2:yc2_train.json --start pretrained --out run

    Pre-train on what `stepline sieve-swap` made, then fine-tune with --start. The same command
    continues a run that was stopped. Under torchrun, the processes share each batch.
    """
    check_address_space("train", MIN_DATASET_ADDRESS_BYTES)

    from stepline.models.procx.settings import ProcxRunSettings
    from stepline.models.procx.train import BEST_FILE, FINAL_FILE, ProcxSources, train_procx_run
    from stepline.models.training.distributed import end_processes, is_first
    from stepline.settings import load_settings

    settings = load_settings(ProcxRunSettings, settings_file, overrides, preset=options["preset"])
    names = ("features", "steps", "subset", "words")
    sources = ProcxSources(
        **{name: options[name] for name in names}, excluded=tuple(options["exclude"])
    )

    # the training, whose last step says what it cost
    with progress_report() as report:
        last = _LastStep(report)
        train_procx_run(
            sources,
            out,
            settings,
            start=options["start"],
            report=last,
            on_prepared=_say_procx_samples,
        )
    if is_first():
        _print_run(out, (FINAL_FILE, BEST_FILE), last.progress, as_json=options["as_json"])
    end_processes()


def _say_procx_samples(prepared: "ProcxPrepared") -> None:
    """Say what is trained on, what is left out, and what the network cannot hold."""
    from stepline.models.training.distributed import is_first

    if not is_first():
        return
    samples = prepared.samples
    amount = f"{sum(samples.counts)} steps of {len(samples)} videos"
    others = f"{len(prepared.held_out)} more held out"
    print_message(f"{amount}, {others}; a vocabulary of {len(prepared.vocabulary)} tokens")
    _say_left_out(samples.count_reasons())
    if prepared.crowded:
        queries = prepared.settings.model.queries
        reason = f"{prepared.crowded} videos have more steps than {queries} queries"
        cure = "those that fit best are learned; raise model.queries"
        print_message(f"warning: {reason}: {cure}")


@train.command("wys2")
@click.option("--features", type=STORE_TYPE, help="Store of the videos' features.")
@click.option(
    "--videos",
    type=PATH_TYPE,
    help="Instead: a folder of the videos, for S3D to be trained on their frames.",
)
@click.option(
    "--weights", type=PATH_TYPE, help="With --videos: s3d_howto100m.pth, from which S3D begins."
)
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
    show_default=True,
    help="Vectors of sentences by minilm, conse, clip:FOLDER, s3d:WEIGHTS or a folder.",
)
@exclude_option
@run_option
@preset_option("train wys2")
@settings_options("One setting, e.g. labels.kind=vr.")
@device_option
@json_option
@lock_out_folder
def train_wys2(
    out: Path, settings_file: Path | None, overrides: tuple[str, ...], as_json: bool, **options: Any
) -> None:
    """Train the detector of speech that is shown (WYS2).

    \b
    Example:
      stepline train wys2 --features store --key-steps coin:COIN.json --narrations records --out run

    A fifth of the videos is withheld, the rest split 80:20 for training and validation. With
    --videos, S3D is trained from end to end, as in the paper (--preset paper). Its weights are
    s3d_wys2.pth in the run's folder.
    """
    check_address_space("train", MIN_DATASET_ADDRESS_BYTES)

    from stepline.models.wys2.detector import NETWORK
    from stepline.models.wys2.settings import Wys2Settings
    from stepline.models.wys2.train import DetectorSources, train_detector_run
    from stepline.pipeline.sources import find_videos, name_videos
    from stepline.settings import load_settings

    # what is trained, and on what
    settings = load_settings(Wys2Settings, settings_file, overrides, preset=options["preset"])
    videos = None
    if options["videos"] is not None:
        videos = name_videos(find_videos([options["videos"]]), out)
    names = ("features", "key_steps", "narrations", "unlabelled", "vectors")
    sources = DetectorSources(
        **{name: options[name] for name in names},
        videos=videos,
        s3d=options["weights"],
        excluded=tuple(options["exclude"]),
    )

    # the training, a round after the other
    clips = sources.prepare_clips(out, settings, _say_left_out)
    with training_bar() as bar:
        run = train_detector_run(clips, out, settings, report=bar)

    # what came of each round
    rounds = []
    for row in run.rounds:
        clip_count = f"{row.pairs} clips"
        if row.of:
            clip_count += f", {row.pseudo_labelled} of {row.of} unlabelled ones"
        print_message(f"round {row.number}: {clip_count}; ROC-AUC on validation {row.auc:.3f}")
        rounds.append({name: row.as_row()[name] for name in ("number", "pairs", "kept", "auc")})
    print_message(run.calibration_report)
    path = str(out / NETWORK.file_names[-1])
    if as_json:
        error = None if run.calibration is None else run.calibration.error
        print_data(json.dumps({"detector": path, "rounds": rounds, "calibration_error": error}))
    else:
        print_data(path)
