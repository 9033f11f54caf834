"""Export of corrected videos as training data.

DIR/records/NAME.json   the corrected steps, as `steps` and as `reference`
DIR/captions/NAME.vtt   the sentences with their times, of a video whose transcript was corrected
DIR/features            a store of the features of all corrected videos, one row per second

stepline train nasva --features DIR/features --steps DIR/records --step-vectors conse ...
stepline train procx --features DIR/features --steps DIR/records --set data.target=reference ...
stepline train wys2  --features DIR/features --key-steps DIR/records ...
"""

from pathlib import Path

from stepline.errors import DatasetError, SettingsError, SteplineError, StoreError
from stepline.features import FeatureWriter
from stepline.files.atomic_files import write_atomic
from stepline.library.corrected_library import CorrectedLibrary
from stepline.library.corrections import step_corrections
from stepline.media import probe
from stepline.outputs.subtitles import spoken_vtt
from stepline.outputs.text import safe_stem, shown_span
from stepline.pipeline.pictures import VisualOptions, extract_features
from stepline.pipeline.request import Request, StepsSettings
from stepline.progress import Progress
from stepline.records import FeatureSequence, Record, Rejected
from stepline.settings import validate, without_removed_settings
from stepline.storage import write_record
from stepline.vision import Backbone, load_backbone


def export_corrected(
    library: CorrectedLibrary, out: Path, progress: Progress | None
) -> tuple[int, list[Rejected]]:
    """Write the records and features of a library's corrected videos into a new folder.

    Returns the number of videos written, and the videos that are left out because their record is
    damaged or they have no features.

    Args:
        library: the records and their corrections.
        out: a new or empty folder.
        progress: called with (stage, second, seconds) while a video is decoded. None: no reports.

    Raises DatasetError if no video is corrected, StoreError if two videos have the same id or the
    folder is not empty.
    """
    import pyarrow  # noqa: F401   a store needs it: a missing extra is reported before any work

    if out.exists() and any(out.iterdir()):
        raise StoreError(f"{out}: holds files already; give --export another folder")
    videos = {}
    left_out = []
    for card in library.videos():
        if card.damage is not None:
            left_out.append(Rejected("video", "it is damaged", id=card.title, value=card.damage))
        elif step_corrections(library.corrections(card.id)):
            videos[card.id] = library.record(card.id)
    if not videos:
        raise DatasetError(
            f"{library.folder}: no corrected video; correct some with `stepline studio`"
        )
    if len({machine.video.id for machine in videos.values()}) < len(videos):
        raise StoreError(
            "two corrected videos have one id; give one of their files another name and find its "
            "steps"
        )
    count = len(videos) + len(left_out)
    backbones: dict[str, Backbone] = {}
    with FeatureWriter(out / "features") as features:
        for id, machine in videos.items():
            try:
                media = library.media_file(id, machine.video)
                rows = _read_features(machine, media, backbones, progress)
            except SteplineError as error:
                rejected = Rejected("video", "it has no features", id=machine.id, value=str(error))
                left_out.append(rejected)
                continue
            features.add(machine.video.id, rows.values, rate=rows.rate, backbone=rows.backbone)
            record = library.corrected(id).record
            stem = safe_stem(machine.id)
            write_record(_add_reference_spans(record), out / "records" / f"{stem}.json")
            if record.transcript != machine.transcript:
                captions = out / "captions" / f"{stem}.vtt"
                captions.parent.mkdir(exist_ok=True)
                write_atomic(captions, spoken_vtt(record))
    return count - len(left_out), left_out


def _read_features(
    record: Record, media: Path | None, backbones: dict[str, Backbone], progress: Progress | None
) -> FeatureSequence:
    """Return the features of a whole video, by the network that its record names.

    Args:
        record: the video's record.
        media: path of the video file, None if it was not found.
        backbones: loaded networks by their settings as JSON, which are extended.
        progress: called while the video is decoded, None for no reports.

    Raises SettingsError for a record that used no pictures or a part of the video, StoreError or
    MediaError if the file cannot be read.
    """
    if media is None:
        raise StoreError("its video is not there; put it where its record says")
    settings = settings_of_record(record)
    network = settings.vision.model_dump_json()
    if network not in backbones:
        backbones[network] = load_backbone(settings.vision)
    options = VisualOptions(backbones[network], measures_motion=False, progress=progress)
    info = probe(media, settings.media)
    visual = extract_features(Request(media, record.id), info, settings, options)
    if visual.features is None:
        raise StoreError("no picture of it can be seen")
    return visual.features


def settings_of_record(record: Record) -> StepsSettings:
    """Return the settings with which a record was made.

    Raises SettingsError if it was made without pictures, or from a part of the video.
    """
    values = without_removed_settings(record.settings)
    inputs = values.pop("inputs", None)
    settings = validate(StepsSettings, values)
    if settings.vision.backbone in ("none", "precomputed"):
        raise SettingsError("its pictures were not looked at; find its steps by its pictures")
    if isinstance(inputs, dict) and "part" in inputs:
        raise SettingsError("a part of it alone was looked at; find the steps of the whole video")
    return settings


def _add_reference_spans(record: Record) -> Record:
    """Return the record with its own steps as `reference`.

    A reference step that is seen or placed without a doubt has its best span, other steps have none.
    """
    reference = []
    for step in record.steps:
        span = shown_span(step) if step.doubt is None else None
        spans = () if span is None else (span,)
        reference.append(step.model_copy(update={"spans": spans}))
    return record.model_copy(update={"reference": tuple(reference)})
