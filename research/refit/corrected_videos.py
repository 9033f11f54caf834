"""The corrected videos of a library, and the settings file that a refit to them writes.

videos = corrected_videos(CorrectedLibrary(folder))     records, corrections, and pictures
result = refit(videos.usable)
write_settings(result, folder / LEARNED_NAME)                only what was not refused
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from research.refit.refit import CorrectedVideo, Part, Refit, ReportMessage, refit
from stepline.errors import SettingsError, SteplineError, StoreError
from stepline.files.atomic_files import write_atomic
from stepline.library.corrected_library import CorrectedLibrary
from stepline.library.corrections import step_corrections
from stepline.pipeline.packed_features import pack_features, unpack_features
from stepline.pipeline.pictures import LookOptions, VisualFeatures, extract_features
from stepline.pipeline.request import Request, StepsSettings
from stepline.progress import Progress
from stepline.records import Record, Rejected
from stepline.settings import load_settings, validate

if TYPE_CHECKING:
    from stepline.vision import Backbone

# in the library: settings that `stepline steps --settings` takes
LEARNED_NAME = "learned.toml"
EVIDENCE_FOLDER = ".stepline-learn"  # in the library: what was seen of each video
EVIDENCE_VERSION = 1  # of those files; of another form they are made again
KEY_DIGITS = 24  # hexadecimal digits of their names
PART_TITLES: dict[Part, str] = {
    "placing": "where steps are shown, and whether",
    "judge": "which sentences are shown",
}


@dataclass(frozen=True)
class CorrectedVideos:
    """The corrected videos of a library that a refit can use, and those that it cannot, each with
    its reason."""

    usable: tuple[CorrectedVideo, ...]
    left_out: tuple[Rejected, ...]


def corrected_videos(
    library: CorrectedLibrary, progress: Progress | None = None
) -> CorrectedVideos:
    """Return the videos of a library that people corrected, with what their pictures show."""
    from stepline.vision import load_backbone

    usable: list[CorrectedVideo] = []
    left_out: list[Rejected] = []
    backbones: dict[str, Backbone] = {}
    for card in library.videos():
        if not step_corrections(library.corrections(card.id)):
            continue
        machine = library.record(card.id)
        try:
            media = library.media_file(card.id, machine.video)
            if media is None:
                raise StoreError("its video is not there; put it where its record says")
            vision = record_settings(machine).vision
            network = vision.model_dump_json()
            if network not in backbones:
                backbones[network] = load_backbone(vision)
            folder = library.folder / EVIDENCE_FOLDER
            pictures = visual_features(machine, media, folder, backbones[network], progress)
        except SteplineError as error:
            reason = "it cannot be grounded again"
            left_out.append(Rejected("video", reason, id=machine.id, value=str(error)))
            continue
        truth = library.corrected(card.id).record
        source = source_of(machine, library.video(card.id).name)
        usable.append(CorrectedVideo(machine, truth, pictures, source))
    return CorrectedVideos(tuple(usable), tuple(left_out))


def source_of(record: Record, name: str) -> str:
    """Return who made a video, where its page said so, else the folder of the library that it is
    in, else itself.

    name: of the record's file, below the library.
    """
    origin = record.video.origin
    if origin is not None and origin.uploader:
        return origin.uploader
    folder = Path(name).parent.as_posix()
    return name if folder == "." else folder


def record_settings(record: Record) -> StepsSettings:
    """Return the settings that made a record.

    Raises SettingsError where a refit could not make its steps again. That is so if a trained
    network or a vision-language model placed them. It is also so if the pictures were not looked
    at, or only a part of the video was.
    """
    values = dict(record.settings)
    inputs = values.pop("inputs", None)
    settings = validate(StepsSettings, values)
    flaws = {
        "a trained network placed its steps": settings.nasva.aligner.path is not None,
        "a vision-language model was asked": settings.vision.vlm.named,
        "its pictures were not looked at": settings.vision.backbone in ("none", "precomputed"),
        "a part of it alone was looked at": isinstance(inputs, dict) and "part" in inputs,
        "its steps were written from its pictures": settings.procx.when == "alone",
    }
    for flaw, applies in flaws.items():
        if applies:
            raise SettingsError(f"{flaw}; a refit needs the default grounding of a whole video")
    return settings


def visual_features(
    record: Record,
    media: Path,
    folder: Path,
    backbone: "Backbone",
    progress: Progress | None = None,
) -> VisualFeatures:
    """Return what the main job saw of a video: from `folder`, where it was kept, else looked at
    again.

    Raises MediaError where the video cannot be read, StoreError where it has no picture.
    """
    from stepline.media import probe

    settings = record_settings(record)
    vision = settings.vision.model_dump(mode="json")
    key = json.dumps([EVIDENCE_VERSION, record.video.sha256, vision], sort_keys=True)
    path = folder / sha256(key.encode()).hexdigest()[:KEY_DIGITS]
    if not path.is_file():
        request = Request(media, record.id)
        options = LookOptions(backbone=backbone, progress=progress)
        pictures = extract_features(request, probe(media, settings.media), settings, options)
        if pictures.features is None:
            raise StoreError("no picture of it can be seen")
        write_atomic(path, pack_features(pictures))
    # also the first time as another run will read it
    return replace(unpack_features(path.read_bytes()), backbone=backbone)


def learn(
    library: CorrectedLibrary, progress: Progress | None = None, report: ReportMessage | None = None
) -> tuple[Refit, CorrectedVideos]:
    """Refit to a library's corrections, and write `LEARNED_NAME` into it where something was
    learnt.

    What is refused leaves the settings that are in use. Raises DatasetError for too few videos or
    sources.
    """
    videos = corrected_videos(library, progress)
    result = refit(videos.usable, learned_settings(library.folder), report)
    if result.settings:
        write_settings(result, library.folder / LEARNED_NAME)
    return result, videos


def learned_settings(folder: Path) -> StepsSettings:
    """Return the main job's settings in a library: what was learnt in it over the user's own."""
    path = folder / LEARNED_NAME
    return load_settings(StepsSettings, path if path.is_file() else None)


def write_settings(result: Refit, path: Path) -> None:
    """Write what was accepted as TOML. Of a part that was refused, what the file held before
    stays."""
    from stepline.limits import MAX_SETTINGS_BYTES, parse_toml, read_limited

    before = {}
    if path.is_file():
        before = parse_toml(read_limited(path, MAX_SETTINGS_BYTES).decode())
    sections = {
        "nasva.ground": before.get("nasva", {}).get("ground", {}),
        "judge": before.get("judge", {}),
        **result.settings,
    }
    corrections = f"the corrections of {result.videos} videos"
    lines = [f"# Made by research.refit from {corrections}; delete it to forget them."]
    for section, values in sections.items():
        if values:
            lines += ["", f"[{section}]"]
            lines += [f"{name} = {value}" for name, value in values.items()]
    write_atomic(path, "\n".join(lines) + "\n")


def report(result: Refit, left_out: Sequence[Rejected] = ()) -> str:
    """Return in plain words what a refit came to: the figures of held-out videos, and what was
    refused."""
    counts = f"{result.videos} corrected videos of {result.sources} sources"
    lines = [f"{counts}, each source held out in turn"]
    heading = f"  {'':<30} {'before':>7} {'after':>7}  {'difference [95 %]':<24} {'of':>5}"
    for part, figures in result.figures.items():
        lines += ["", PART_TITLES[part], heading]
        for row in figures:
            values = f"{row.before:>7.3f} {row.after:>7.3f}"
            change = f"{row.change:+.3f} [{row.low:+.3f}, {row.high:+.3f}]"
            lines.append(f"  {row.name:<30} {values}  {change:<24} {row.of:>5}")
        reason = result.refusals.get(part)
        lines.append(f"  refused: {reason}" if reason else "  accepted")
    lines.append("")
    lines += [f"left out {item.id}: {item.value}" for item in left_out]
    return "\n".join(lines).rstrip() + "\n"
