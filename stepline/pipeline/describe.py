"""Steps described from the pictures by a trained network, where speech names none. Also those of
ready features."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import JsonValue

from stepline.errors import SettingsError
from stepline.models.procx.settings import DescribeSettings
from stepline.networks.device import one_torch_thread
from stepline.outputs.text import one_line
from stepline.pipeline.networks import Networks, fingerprint, load_describer
from stepline.pipeline.request import Request, StepsSettings
from stepline.records import FeatureSequence, Record, Rejected, Step, Transcript, Video

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
    describer.check(features)
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


AMOUNT_NOT_READ_REMARK = (
    "against: no one says the amount {}, and it is not read in the picture: the model's claim"
)
AMOUNT_READ_REMARK = "for: the amount {} is on screen: {}"


def check_amounts(step: Step, lines: "Sequence[ScreenText]") -> Step:
    """Return a step that a vision-language model described, with a remark for each amount in its
    text: whether the amount is also read on screen while the step is shown.

    lines: text on screen, by an own reader that misses small letters.
    """
    from stepline.grounding.vision_language.describe import SEEN_BY_VLM
    from stepline.writing.quantities import quantities

    if SEEN_BY_VLM not in step.seen:
        return step
    lines_then = []
    for line in lines:
        if any(line.span.overlap(span) > 0 for span in step.spans):
            lines_then.append(line.text)
    remarks = []
    for amount in quantities(step.text):
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
