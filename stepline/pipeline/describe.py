"""Steps described from the pictures by a trained network, where speech names none. Also those of
ready features."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from pydantic import JsonValue

from stepline.errors import SettingsError
from stepline.models.procx.settings import DescribeSettings
from stepline.networks.device import one_torch_thread
from stepline.outputs.text import one_line
from stepline.pipeline.networks import Networks, fingerprint, load_describer
from stepline.pipeline.request import Request, StepsSettings
from stepline.records import (
    Alignment,
    FeatureSequence,
    Record,
    Rejected,
    Span,
    Step,
    Transcript,
    Video,
)
from stepline.vision.settings import VisionLanguageSettings

if TYPE_CHECKING:
    from stepline.models.procx.checkpoint import LoadedProcx as LoadedDescriber
    from stepline.vision import ScreenText

FROM_PICTURES = "speech gives no step; a trained network describes the steps from the pictures"
STEPS_DESCRIBED_BY_VLM = (
    "no one speaks; a vision-language model describes the steps from the pictures"
)


@dataclass(frozen=True)
class Descriptions:
    """Steps that a network describes. captions: shown next to steps from speech.

    network: its digest and whether it read speech, None where none described anything.
    """

    steps: tuple[Step, ...] = ()
    captions: tuple[Step, ...] = ()
    dropped: tuple[Rejected, ...] = ()
    notes: tuple[str, ...] = ()
    network: JsonValue = None


def describe_pictures(
    describer: "LoadedDescriber | None",
    features: FeatureSequence | None,
    transcript: Transcript,
    written: Sequence[Step],
    settings: DescribeSettings,
    duration: float,
) -> Descriptions:
    """Return the steps that the pictures of a video show. None where there is no network, no
    picture, or no need.

    written: the steps that speech names. Raises ModelError where the features are not the
    network's.
    """
    if describer is None or features is None or (written and settings.when == "speechless"):
        return Descriptions()
    from stepline.models.procx.inference import describe

    # what the network says
    describer.check_features(features)
    with one_torch_thread():
        description = describe(
            describer.model,
            describer.vocabulary,
            features,
            settings,
            duration=duration,
            speech=transcript.sentences,
            around=describer.trained.around or 0.0,
        )

    # next to steps that speech names, they are captions
    network: JsonValue = {"network": describer.sha256, "speech": settings.speech}
    if written:
        return Descriptions(
            captions=description.steps, dropped=description.dropped, network=network
        )
    notes = () if settings.when == "alone" else (FROM_PICTURES,)
    return Descriptions(
        steps=description.steps, dropped=description.dropped, notes=notes, network=network
    )


def insert_described_steps(
    written: Sequence[Step],
    placed: Sequence[Step],
    alignment: Alignment | None,
    shots: Sequence[slice],
    duration: float,
    settings: VisionLanguageSettings,
) -> tuple[tuple[Step, ...], Alignment | None]:
    """Return all written steps in their order, and their alignment: those that no one says in the
    place they were seen.

    written: of these `placed` are placed already, row by row of the alignment. The others hold the
    second of the picture that they rest on as `at`. They are shown in the place around it, as
    surely as a model is reliable by the settings.
    """
    from stepline.grounding.vision_language.places import video_places

    shot_places = video_places(shots)
    placed_rows = {step.id: row for row, step in enumerate(placed)}
    # The share of right answers, which is how far such a model can be trusted.
    score = settings.right / (settings.right + settings.wrong)

    # each step with its row, placed or around its picture
    steps = []
    rows = []
    for step in written:
        placed_row = placed_rows.get(step.id)
        if placed_row is not None:
            steps.append(placed[placed_row])
            if alignment is not None:
                rows.append(alignment.scores[placed_row])
            continue
        # Times are cut to the video, since a model may name a second past its end.
        at = min(step.at or 0.0, duration)
        around = [shot for shot in shot_places if shot.start <= at < shot.stop]
        shot = around[0] if around else shot_places[-1]
        span = Span(float(shot.start), min(float(shot.stop), duration))
        update = {"spans": (span,), "at": at, "status": "shown", "score": score}
        steps.append(step.model_copy(update=update))
        if alignment is not None:
            # Its row is the score inside the span, so that the alignment agrees with the step.
            seconds = (np.arange(alignment.scores.shape[1]) + 0.5) / alignment.rate  # (T,)
            is_inside = (seconds >= span.start) & (seconds < span.end)
            rows.append(np.where(is_inside, score, 0.0).astype(np.float32))
    if alignment is None:
        return tuple(steps), None
    texts = tuple(step.text for step in steps)
    scores = np.stack(rows)  # (K, T)
    return tuple(steps), Alignment(texts, scores, alignment.rate, alignment.kind)


# s from a picture within which a line on screen counts as read in it. Lines are read once per second
MAX_TEXT_DISTANCE_SECONDS = 1.0
AMOUNT_NOT_READ_REMARK = (
    "against: no one says the amount {}, and it is not read in the picture: the model's claim"
)
AMOUNT_READ_REMARK = "for: the amount {} is on screen: {}"


def check_amounts(
    step: Step, transcript: Transcript, lines: "Sequence[ScreenText]", start: float = 0.0
) -> Step:
    """Return the step with a remark on each amount in it that a model took from a picture: read
    there too, or not.

    Amounts that a sentence of its sources says need none.
    lines: text on screen, by an own reader that misses small letters.
    start: second of the whole video at which the part with the lines begins.
    """
    from stepline.grounding.vision_language.describe import SEEN_BY_VLM
    from stepline.writing.llm.citing import named_seconds
    from stepline.writing.quantities import quantities

    # Remarks name seconds of the whole video, lines those of the part.
    seconds = [second - start for second in named_seconds(step)]
    # when the model saw it
    spans = []
    for second in seconds:
        start = max(0.0, second - MAX_TEXT_DISTANCE_SECONDS)
        spans.append(Span(start, second + MAX_TEXT_DISTANCE_SECONDS))
    if SEEN_BY_VLM in step.seen:
        spans += step.spans
    if not spans:
        return step

    # the amounts that are said, and the lines on screen then
    spoken_amounts = []
    for index in step.sources:
        spoken_amounts += quantities(transcript.sentences[index].text)
    lines_then = []
    for line in lines:
        if any(line.span.overlap(span) > 0 for span in spans):
            lines_then.append(line.text)

    # A remark for each amount that no one says.
    remarks = []
    for amount in quantities(step.text):
        if any(amount.is_same(other) for other in spoken_amounts):
            continue
        remark = AMOUNT_NOT_READ_REMARK.format(amount)
        for text in lines_then:
            if any(amount.is_same(other) for other in quantities(text)):
                remark = AMOUNT_READ_REMARK.format(amount, one_line(text))
                break
        remarks.append(remark)
    return step.model_copy(update={"seen": (*step.seen, *dict.fromkeys(remarks))})


def describe_features(request: Request, settings: StepsSettings) -> Record:
    """Return a record of the steps in a file of precomputed features, with captions as speech.

    Rows are scaled to length 1 only for a network that learned from such. Raises ModelError where
    they are not the network's, StoreError or ShapeError where they cannot be read.
    """
    from stepline.features.files import read_feature_file

    # The network, and settings that suit it: rows are scaled as it learned them.
    vision = settings.vision.model_copy(
        update={"backbone": "precomputed", "path": request.path, "unit": False}
    )
    describer = load_describer(settings.procx, vision)
    if describer is None:
        raise SettingsError(
            "procx.path is not set; give a network that `stepline train procx` wrote, with --model"
        )
    vision = vision.model_copy(update={"unit": describer.trained.unit})
    settings = settings.model_copy(update={"vision": vision})

    # what it reads
    features = read_feature_file(request.path, rate=settings.vision.rate, unit=settings.vision.unit)
    transcript = Transcript()
    if request.captions is not None and settings.procx.speech:
        from stepline.speech import read_captions

        captions = read_captions(request.captions, video_id=request.id, settings=settings.asr)
        transcript = captions.transcript

    # what it describes
    descriptions = describe_pictures(
        describer, features, transcript, (), settings.procx, features.duration
    )
    video = Video(
        id=request.id, path=str(request.path.absolute()), duration=round(features.duration, 3)
    )
    return Record(
        id=request.id,
        video=video,
        transcript=transcript,
        steps=descriptions.steps,
        dropped=descriptions.dropped,
        settings=fingerprint(request, settings, Networks(describer=describer)),
        models={"vision": features.backbone, "describer": descriptions.network},
    )
