"""Real clips as they are not: less evidence, repeated, or with pictures of something else.

real_clips.py grounds their steps again.
"""

import math
import textwrap
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw

from stepline.media import Frame, read_frames
from stepline.pipeline.pictures import VisualFeatures
from stepline.records import FeatureSequence, Record, Sentence, Span, Step, Transcript
from stepline.vision import Activity, ActivityMeter, PictureCues, VisionSettings
from stepline.vision.on_screen_text import ScreenText

WRONG_KINDS = ("black", "noise", "still", "cards")
CARD_SECONDS = 5.0  # that a card is shown
PICTURE_SIDE = 224  # pixels of a picture that no clip has
FRAMES_PER_SECOND = 3  # of pictures that no clip has
CARD_LINE_CHARS = 16

Picture = npt.NDArray[np.uint8]

EVIDENCE_KINDS = ("likeness", "looks", "cuts", "text")
EVIDENCE_LEFT_OUT: dict[str, tuple[str, ...]] = {"all": (), "none": EVIDENCE_KINDS}
for _kind in EVIDENCE_KINDS:
    EVIDENCE_LEFT_OUT[f"without {_kind}"] = (_kind,)
for _kind in EVIDENCE_KINDS:
    _others = tuple(other for other in EVIDENCE_KINDS if other != _kind)
    EVIDENCE_LEFT_OUT[f"{_kind} alone"] = _others


def without(visual: VisualFeatures, kinds: Collection[str]) -> VisualFeatures:
    """Return what is seen less some kinds of evidence: likeness (and topic), looks, cuts, text."""
    activity = visual.activity
    assert activity is not None
    if "looks" in kinds:
        activity = replace(activity, looks=activity.looks[:0], peaks=activity.peaks[:0])
    if "cuts" in kinds:
        activity = replace(activity, cuts=())
    features = None if "likeness" in kinds else visual.features
    cues = None if "text" in kinds else visual.cues
    return replace(visual, activity=activity, features=features, cues=cues)


def later(span: Span, seconds: float) -> Span:
    """Return a span some seconds later."""
    return Span(span.start + seconds, span.end + seconds)


def repeated(record: Record, visual: VisualFeatures, times: int) -> tuple[Record, VisualFeatures]:
    """Return the record and the pictures of a clip that comes that many times on end.

    The clip is cut to whole seconds.
    """
    assert visual.activity is not None
    assert visual.features is not None
    length = min(len(visual.activity.looks), len(visual.features.values))
    starts = [length * number for number in range(times)]

    # what is said
    sentences = [sentence for sentence in record.sentences if sentence.span.end <= length]
    steps = [step for step in record.steps if step.said and step.said.end <= length]
    all_sentences: list[Sentence] = []
    all_steps: list[Step] = []
    for number, start in enumerate(starts):
        for sentence in sentences:
            update = {"span": later(sentence.span, start), "words": ()}
            all_sentences.append(sentence.model_copy(update=update))
        for step in steps:
            all_steps.append(_repeated_step(step, number, start, len(sentences)))

    language = record.transcript and record.transcript.language
    transcript = Transcript(language=language, sentences=tuple(all_sentences))
    video = record.video.model_copy(update={"duration": float(length * times)})
    update = {"video": video, "transcript": transcript, "steps": tuple(all_steps)}
    longer = record.model_copy(update=update)
    return longer, _repeated_pictures(visual, length, starts)


def _repeated_step(step: Step, number: int, start: float, sentences: int) -> Step:
    """Return a step of a later showing of its clip."""
    first = number * sentences
    sources = [source + first for source in step.sources if source < sentences]
    update = {
        "id": f"{step.id} {number}",
        "said": step.said and later(step.said, start),
        "sources": tuple(sources),
    }
    return step.model_copy(update=update)


def _repeated_pictures(visual: VisualFeatures, length: int, starts: list[int]) -> VisualFeatures:
    """Return the first `length` seconds of what is seen, at each of the starts."""
    activity = visual.activity
    features = visual.features
    cues = visual.cues
    assert activity is not None
    assert features is not None
    assert cues is not None
    times = len(starts)
    cuts = []
    lines = []
    for start in starts:
        # each showing but the first begins with a cut
        for cut in (0.0, *activity.cuts):
            if cut + start > 0 and cut < length:
                cuts.append(cut + start)
        for line in cues.lines:
            lines.append(replace(line, span=later(line.span, start)))
    longer = Activity(
        np.tile(activity.motion[:length], times),
        tuple(cuts),
        activity.rate,
        np.tile(activity.peaks[:length], times),
        np.tile(activity.looks[:length], (times, 1)),
    )
    values = np.tile(features.values[:length], (times, 1))
    sequence = FeatureSequence(values, features.rate, features.backbone)
    longer_cues = replace(cues, lines=tuple(lines))
    return replace(visual, activity=longer, features=sequence, cues=longer_cues)


def wrong_pictures(kind: str, clip: Path, record: Record, visual: VisualFeatures) -> VisualFeatures:
    """Return what would be seen if a clip had other pictures.

    kind: black, noise, one still of the clip, or cards of its steps, all read.
    """
    backbone = visual.backbone
    assert backbone is not None
    settings = VisionSettings()
    seconds = math.ceil(visual.end)
    frames = FRAMES_PER_SECOND * seconds
    images = _wrong_images(kind, clip, record, frames)

    # motion and cuts: an image stays for its seconds, the last is followed by the first again
    image_seconds = {"noise": 1 / FRAMES_PER_SECOND, "cards": CARD_SECONDS}.get(kind, math.inf)
    meter = ActivityMeter(rate=1.0, cut_ratio=settings.cut_ratio, cut_floor=settings.cut_floor)
    for number in range(frames):
        time = number / FRAMES_PER_SECOND
        image = int((time + 1e-6) / image_seconds) % len(images)
        meter.add(Frame(time, images[image]))

    # features: a row per second
    stride = FRAMES_PER_SECOND if kind == "noise" else 1
    vectors = backbone.encode_images(np.stack(images[::stride]))
    row_seconds = max(1.0, image_seconds)
    rows = [int((second + 1e-6) / row_seconds) % len(vectors) for second in range(seconds)]
    features = FeatureSequence(vectors[rows], 1.0, backbone.name)

    # text on the screen: of cards alone
    lines = []
    if kind == "cards":
        for number, start in enumerate(np.arange(0, seconds, CARD_SECONDS).tolist()):
            text = record.steps[number % len(images)].text
            lines.append(ScreenText(text, Span(start, start + CARD_SECONDS), 0.1))
    cues = PictureCues(1.0, lines=tuple(lines))
    return replace(visual, features=features, activity=meter.finish(), cues=cues)


def _wrong_images(kind: str, clip: Path, record: Record, frames: int) -> list[Picture]:
    """Return the images of one kind of wrong pictures."""
    shape = (PICTURE_SIDE, PICTURE_SIDE, 3)
    if kind == "black":
        return [np.zeros(shape, np.uint8)]
    if kind == "still":
        first = next(iter(read_frames(clip, 1.0, PICTURE_SIDE)))
        return [first.image]
    if kind == "noise":
        rng = np.random.default_rng(0)
        return [rng.integers(0, 256, shape, dtype=np.uint8) for _ in range(frames)]
    return [_card(step.text) for step in record.steps]


def _card(text: str) -> Picture:
    """Return a title card: the text in white on blue."""
    image = Image.new("RGB", (PICTURE_SIDE, PICTURE_SIDE), (20, 40, 90))
    lines = textwrap.wrap(text, CARD_LINE_CHARS)
    drawing = ImageDraw.Draw(image)
    drawing.multiline_text((12, 60), "\n".join(lines), fill="white", font_size=22)
    return np.asarray(image)
