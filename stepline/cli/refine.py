"""`stepline refine`: the steps of a dataset, placed where they are shown by self-training."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stepline.cli.errors import (
    MIN_DATASET_ADDRESS_BYTES,
    check_address_space,
    print_data,
    print_message,
)
from stepline.cli.options import (
    device_option,
    exclude_option,
    json_option,
    lock_out_folder,
    preset_option,
    run_option,
    settings_options,
    store_option,
)

if TYPE_CHECKING:
    from stepline.models.nasva.pseudo_labels import RoundReport
    from stepline.models.nasva.refine import RefineResult
    from stepline.models.training.loop import Progress


@click.command()
@click.argument("dataset")
@store_option
@run_option
@click.option(
    "--step-vectors",
    metavar="VECTORS",
    default="minilm",
    show_default=True,
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
@exclude_option
@click.option(
    "--rounds",
    type=click.IntRange(min=0, max=20),
    help="Times that labels are made again.  [default: 1]",
)
@preset_option("refine")
@settings_options("One setting, e.g. rounds.teachers=1.")
@device_option
@json_option
@lock_out_folder
def refine(
    dataset: str, features: Path | str, out: Path, settings_file: Path | None, **options: Any
) -> None:
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
    check_address_space("refine", MIN_DATASET_ADDRESS_BYTES)

    from stepline.models.nasva.refine import RefineSources, refine_dataset
    from stepline.models.nasva.settings import RefineRunSettings
    from stepline.models.training.distributed import end_processes, is_first
    from stepline.settings import load_settings

    # what is refined, and by what
    overrides = [*options["overrides"]]
    if options["rounds"] is not None:
        overrides.append(f"rounds.rounds={options['rounds']}")
    settings = load_settings(RefineRunSettings, settings_file, overrides, preset=options["preset"])
    names = ("step_vectors", "narrations", "narration_vectors")
    sources = RefineSources(
        dataset,
        features,
        **{name: options[name] for name in names},
        excluded=tuple(options["exclude"]),
    )

    # Only the last step of each training is reported, by the first process.
    def say_end(name: str, progress: "Progress") -> None:
        if progress.step == progress.steps and is_first():
            cost = f"loss {progress.loss:.3f}, {progress.seconds:.1f} s"
            print_message(f"{name}: {progress.steps} steps, {cost}")

    # the rounds
    result = refine_dataset(sources, out, settings, say_end)
    if is_first():
        _print_refined(result, out, as_json=options["as_json"])
    end_processes()


def _print_refined(result: "RefineResult", out: Path, *, as_json: bool) -> None:
    """Print a line a round, and on stderr what is refined and what is left out."""
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
    """Return a line a round: fractions in per cent, seconds, - where a number is not known."""

    # Fractions are per cent. One column is in seconds.
    def cell(name: str, value: float | None) -> str:
        if value is None:
            return "-"
        if name == "moved":
            return f"{value:.1f} s"
        return f"{100 * value:.1f}"

    rows: list[tuple[Any, ...]] = [("round", "texts", *ROUND_COLUMNS)]
    for row in rounds:
        numbers = (cell(name, getattr(row, name)) for name in ROUND_COLUMNS)
        rows.append((row.number, row.texts, *numbers))
    return "\n".join("  ".join(f"{text:>9}" for text in line) for line in rows)
