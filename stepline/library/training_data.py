"""Export of corrected videos as training data: records, features, and a test set on which
people agree.

    DIR/records/NAME.json   the corrected steps, as `steps` and as `reference`
    DIR/features            a store of the features of all corrected videos, one row per second
    DIR/test/NAME.json      of videos that several people corrected: as `reference`, the steps on which they agree
    DIR/agreement.json      how well they agree

    stepline train nasva --features DIR/features --steps DIR/records --step-vectors conse ...
    stepline train procx --features DIR/features --steps DIR/records --set data.target=reference ...
    stepline train wys2  --features DIR/features --key-steps DIR/records ...

Videos of the test set are not in DIR/records.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path

import numpy as np

from stepline.errors import DatasetError, SettingsError, SteplineError, StoreError
from stepline.features import FeatureWriter
from stepline.files.atomic_files import write_atomic
from stepline.library.corrected_library import CorrectedLibrary
from stepline.library.corrections import Correction, corrected, corrects_steps, step_corrections
from stepline.media import probe
from stepline.outputs.text import safe_stem
from stepline.pipeline.pictures import VisualOptions, extract_features
from stepline.pipeline.request import Request, StepsSettings
from stepline.progress import Progress
from stepline.records import FeatureSequence, Record, Rejected, Span, Step
from stepline.review.answers import cohen_kappa
from stepline.settings import validate, without_constants
from stepline.storage import write_record
from stepline.vision import Backbone, load_backbone

MIN_IOU = 0.5  # from which two people mean the same seconds

# Categories of a step, in people's agreement.
NO_STEP = 0
SHOWN_STEP = 1
UNSHOWN_STEP = 2


@dataclass(frozen=True)
class CorrectorAgreement:
    """How well people agree who corrected the same videos, over pairs of people and the machine's
    steps.

    kappa: Cohen's, of "shown", "not shown" and "no step". same: the fraction of equal judgements.
    overlap: the mean tIoU over `both`, the steps that both have as shown. None where undefined. The
    second person saw the work of the first one, so these are upper bounds.
    """

    videos: int
    pairs: int
    steps: int
    both: int
    kappa: float | None
    same: float | None
    overlap: float | None


@dataclass(frozen=True)
class ExportSummary:
    """What an export wrote. trained, tested: videos in DIR/records and DIR/test. left_out: videos
    without features."""

    trained: int
    tested: int
    agreement: CorrectorAgreement
    left_out: tuple[Rejected, ...]


def export_corrected(
    library: CorrectedLibrary, out: Path, progress: Progress | None = None
) -> ExportSummary:
    """Write the corrected videos of a library into a new folder.

    Raises DatasetError where no video is corrected, StoreError where two have one id, or the folder
    holds files.
    """
    import pyarrow  # noqa: F401   a store needs it: a missing extra is reported before any work

    if out.exists() and any(out.iterdir()):
        raise StoreError(f"{out}: holds files already; give --export another folder")
    videos = {}
    for card in library.videos():
        if step_corrections(library.corrections(card.id)):
            videos[card.id] = library.record(card.id)
    if not videos:
        raise DatasetError(
            f"{library.folder}: no corrected video; correct some with `stepline studio`"
        )
    if len({machine.video.id for machine in videos.values()}) < len(videos):
        cure = "give one of their files another name and find its steps"
        raise StoreError(f"two corrected videos have one id; {cure}")
    left_out = []
    backbones: dict[str, Backbone] = {}
    tested: list[tuple[Record, dict[str, Record]]] = []
    trained = 0
    # Features of all. What one person corrected is for training, what several did for the test.
    with FeatureWriter(out / "features") as features:
        for id, machine in videos.items():
            try:
                media = library.media_file(id, machine.video)
                rows = _read_features(machine, media, backbones, progress)
            except SteplineError as error:
                reason = "it has no features"
                left_out.append(Rejected("video", reason, id=machine.id, value=str(error)))
                continue
            features.add(machine.video.id, rows.values, rate=rows.rate, backbone=rows.backbone)
            record = library.corrected(id).record
            by_person = records_by_person(machine, library.corrections(id))
            if len(by_person) > 1:
                tested.append((machine, by_person))
                folder = out / "test"
                steps = agreed_steps([*by_person.values(), record])
            else:
                trained += 1
                folder = out / "records"
                steps = record.steps
            name = f"{safe_stem(machine.id)}.json"
            write_record(_add_reference_spans(record, steps), folder / name)
    summary = ExportSummary(trained, len(tested), agreement(tested), tuple(left_out))
    agreement_tree = json.dumps(asdict(summary.agreement), indent=2)
    write_atomic(out / "agreement.json", agreement_tree + "\n")
    return summary


def _read_features(
    machine: Record, media: Path | None, backbones: dict[str, Backbone], progress: Progress | None
) -> FeatureSequence:
    """Return the features of a whole video, with the network that its record names.

    backbones: the networks that were loaded, by their settings. Raises SettingsError for a record
    without pictures or of a part of a video, StoreError and MediaError where its file cannot be
    read.
    """
    if media is None:
        raise StoreError("its video is not there; put it where its record says")
    settings = record_settings(machine)
    network = settings.vision.model_dump_json()
    if network not in backbones:
        backbones[network] = load_backbone(settings.vision)
    options = VisualOptions(backbones[network], motion=False, progress=progress)
    info = probe(media, settings.media)
    visual = extract_features(Request(media, machine.id), info, settings, options)
    if visual.features is None:
        raise StoreError("no picture of it can be seen")
    return visual.features


def record_settings(record: Record) -> StepsSettings:
    """Return the settings that made a record.

    Raises SettingsError where the features of its whole video cannot be made by them.
    """
    values = without_constants(record.settings)
    inputs = values.pop("inputs", None)
    settings = validate(StepsSettings, values)
    if settings.vision.backbone in ("none", "precomputed"):
        raise SettingsError("its pictures were not looked at; find its steps by its pictures")
    if isinstance(inputs, dict) and "part" in inputs:
        raise SettingsError("a part of it alone was looked at; find the steps of the whole video")
    return settings


def records_by_person(machine: Record, corrections: Sequence[Correction]) -> dict[str, Record]:
    """Return, by person, the record after that person's last correction of a step."""
    by_id = {correction.id: correction for correction in corrections}
    last = {}
    for number, correction in enumerate(corrections, start=1):
        if corrects_steps(correction, by_id):
            last[correction.by] = number
    records = {}
    for person, number in last.items():
        records[person] = corrected(machine, corrections[:number]).record
    return records


def agreement(videos: Sequence[tuple[Record, dict[str, Record]]]) -> CorrectorAgreement:
    """Return how well people agree on videos, each the machine's record and each person's."""
    categories: list[tuple[int, int]] = []
    overlaps = []
    pairs = 0
    for machine, by_person in videos:
        # Each two people, on each step of the machine.
        for first, second in combinations(by_person.values(), 2):
            pairs += 1
            for step in machine.steps:
                a = _corrected_step(first, step.id)
                b = _corrected_step(second, step.id)
                both = (_category(a), _category(b))
                categories.append(both)
                if a and b and both == (SHOWN_STEP, SHOWN_STEP) and a.spans and b.spans:
                    overlaps.append(a.spans[0].iou(b.spans[0]))
    # Two columns, also where there is no row.
    first_categories, second_categories = np.array(categories, dtype=np.int_).reshape(-1, 2).T
    same = float((first_categories == second_categories).mean()) if categories else None
    overlap = float(np.mean(overlaps)) if overlaps else None
    kappa = cohen_kappa(first_categories, second_categories)
    return CorrectorAgreement(
        len(videos), pairs, len(categories), len(overlaps), kappa, same, overlap
    )


def _corrected_step(record: Record, id: str) -> Step | None:
    return next((step for step in record.steps if step.id == id), None)


def _category(step: Step | None) -> int:
    if step is None:
        return NO_STEP
    if step.status == "shown":
        return SHOWN_STEP
    return UNSHOWN_STEP


def agreed_steps(records: Sequence[Record]) -> tuple[Step, ...]:
    """Return the last record's steps on which all agree: that they are steps, whether shown, and
    where."""
    steps = []
    for step in records[-1].steps:
        if all(_have_same_steps(step, _corrected_step(record, step.id)) for record in records):
            steps.append(step)
    return tuple(steps)


def _have_same_steps(step: Step, other: Step | None) -> bool:
    if other is None or _category(step) != _category(other):
        return False
    if not step.spans or not other.spans:
        return True
    return step.spans[0].iou(other.spans[0]) >= MIN_IOU


def _add_reference_spans(record: Record, steps: Sequence[Step]) -> Record:
    """Return the record with steps that people placed as its reference: the best span of those that
    are shown."""
    reference = []
    for step in steps:
        spans: tuple[Span, ...] = ()
        if step.status == "shown":
            spans = step.spans[:1]
        reference.append(step.model_copy(update={"spans": spans}))
    return record.model_copy(update={"reference": tuple(reference)})
