"""Steps that ProcX describes from the pictures of a video, or from a file of features."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from pydantic import JsonValue

from stepline.errors import SettingsError
from stepline.models.procx.settings import DescribeSettings
from stepline.networks.device import one_torch_thread
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

DESCRIBED_BY_NETWORK = (
    "speech gives no step; a trained network describes the steps from the pictures"
)
DESCRIBED_BY_VLM = "no one speaks; a vision-language model describes the steps from the pictures"


@dataclass(frozen=True)
class Descriptions:
    """Steps that a network described.

    Attributes:
        steps: where speech gives no step.
        captions: where speech gives steps too.
        dropped: descriptions that were left out.
        notes: warnings for the record.
        network: the network's sha256 and a flag of earlier versions. None where none described anything.
    """

    steps: tuple[Step, ...] = ()
    captions: tuple[Step, ...] = ()
    dropped: tuple[Rejected, ...] = ()
    notes: tuple[str, ...] = ()
    network: JsonValue = None


def describe_by_network(
    describer: "LoadedDescriber | None",
    features: FeatureSequence | None,
    written: Sequence[Step],
    settings: DescribeSettings,
    duration: float,
) -> Descriptions:
    """Describe the steps that the pictures of a video show, by ProcX.

    Args:
        describer: the network. None describes nothing.
        features: (T, D) of the pictures. None describes nothing.
        written: the steps that speech gives.
        settings: of the description.
        duration: of the video, in seconds.

    Returns empty descriptions where none are needed. Raises ModelError where the features are of
    another kind than the network's.
    """
    if describer is None or features is None or (written and settings.when == "speechless"):
        return Descriptions()
    from stepline.models.procx.inference import describe

    # what the network says
    describer.check_features(features)
    with one_torch_thread():
        description = describe(
            describer.model, describer.vocabulary, features, settings, duration=duration
        )

    # next to steps that speech names, they are captions
    network: JsonValue = {"network": describer.sha256, "speech": False}
    if written:
        return Descriptions(
            captions=description.steps, dropped=description.dropped, network=network
        )
    notes = () if settings.when == "alone" else (DESCRIBED_BY_NETWORK,)
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
    """Insert the steps that a model only saw among the steps that are said.

    Args:
        written: all K steps in their order. A step that only a picture shows holds the second of that
            picture as `at`.
        placed: those of them that are grounded already, one per row of the alignment.
        alignment: of `placed`. None where nothing was grounded.
        shots: of the video, as slices of its seconds.
        duration: of the video, in seconds.
        settings: the model's rates of right and wrong answers, which give the score of a seen step.

    Returns all steps, and their alignment (K, T). A seen step is shown in the shot around its picture.
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


def describe_features(request: Request, settings: StepsSettings) -> Record:
    """Describe the steps of a file of features.

    Rows are scaled to length 1 only for a network that was trained on such rows. Raises ModelError
    where they are of another kind than the network's, StoreError or ShapeError where they cannot be
    read.
    """
    from stepline.features.files import read_feature_file

    # The network, and settings that suit it: rows are scaled as it learned them.
    vision = settings.vision.model_copy(
        update={"backbone": "precomputed", "path": request.path, "unit": False}
    )
    describer = load_describer(settings.procx, vision)
    if describer is None:
        raise SettingsError(
            "procx.path is not set; give a network that `stepline train procx` wrote, with --describe"
        )
    vision = vision.model_copy(update={"unit": describer.trained.unit})
    settings = settings.model_copy(update={"vision": vision})

    # what it reads
    features = read_feature_file(request.path, rate=settings.vision.rate, unit=settings.vision.unit)

    # what it describes
    descriptions = describe_by_network(describer, features, (), settings.procx, features.duration)
    video = Video(
        id=request.id, path=str(request.path.absolute()), duration=round(features.duration, 3)
    )
    return Record(
        id=request.id,
        video=video,
        transcript=Transcript(),
        steps=descriptions.steps,
        dropped=descriptions.dropped,
        settings=fingerprint(request, settings, Networks(describer=describer)),
        models={"vision": features.backbone, "describer": descriptions.network},
    )
