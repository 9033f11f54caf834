"""Where steps are shown: by speech and pictures, and what speaks for and against each step."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from stepline.grounding.correspondence import (
    AFTER,
    BEFORE,
    HARDLY_FIT,
    STANDING,
    is_phrase,
    is_said,
)
from stepline.outputs.text import one_line, shorten, shown_span
from stepline.pipeline.describe import FROM_WITNESS, Descriptions, with_seen_steps
from stepline.pipeline.networks import Networks
from stepline.pipeline.pictures import VisualFeatures
from stepline.pipeline.request import Request, StepsSettings
from stepline.pipeline.speech import SpeechInVideo
from stepline.records import Alignment, Step, Transcript

if TYPE_CHECKING:
    import numpy.typing as npt

    from stepline.chat.pictures import PictureReader
    from stepline.grounding.ground import Grounding
    from stepline.media import MediaInfo
    from stepline.nasva.checkpoint import LoadedAligner
    from stepline.nasva.predict import AlignerGrounding
    from stepline.vision_language import VisualAnswers


ON_SCREEN = " on screen: "  # in a remark of `seen`, before what is written in the picture
# how surely a face looks at the camera, and in how many of a step's seconds, to be told
PRESENTER, HALF = 0.5, 0.5
# lines of text in the picture that are told of a step, the largest, and letters of each
MOST_LINES, LINE = 2, 80


@dataclass(frozen=True)
class PlacedSteps:
    """The steps where they are shown, and what says so: None where nothing was grounded, or no
    witness asked."""

    steps: tuple[Step, ...]
    alignment: Alignment | None
    grounding: "Grounding | AlignerGrounding | None"
    answers: "VisualAnswers | None"


def _place_steps(
    request: Request,
    info: "MediaInfo",
    inside: SpeechInVideo,
    visual: VisualFeatures,
    settings: StepsSettings,
    networks: Networks,
    duration: float,
) -> PlacedSteps:
    """Return the steps where they are shown, by speech, pictures and a witness, with what speaks
    for and against each.

    Of a sound without a picture no step is shown. Steps that a writer saw and nobody says stand
    where it saw them.
    """
    from stepline.grounding.ground import GroundReport

    transcript = inside.transcript
    spoken = tuple(step for step in inside.steps if step.sources or step.at is None)
    grounding, answers, alignment = None, None, None
    if spoken and info.has_picture:
        grounding = ground_steps(
            spoken,
            duration,
            transcript,
            visual,
            settings,
            networks.aligner,
            written=not request.texts,
        )
        if settings.vision.witness.named:
            answers = ask_witness(request, grounding, visual, settings, duration)
            grounding = replace(grounding, steps=answers.steps, alignment=answers.alignment)
        unclear = (
            grounding.report.unclear if isinstance(grounding.report, GroundReport) else HARDLY_FIT
        )
        doing = doing_by_second(grounding.steps, transcript, visual)
        steps = tuple(
            describe_evidence(step, transcript, visual, unclear=unclear, doing=doing)
            for step in grounding.steps
        )
        alignment = grounding.alignment
    else:
        steps = tuple(
            step.model_copy(update={"status": "said" if step.said else "not found", "score": 0.0})
            for step in spoken
        )
    if len(spoken) < len(inside.steps):
        pieces, asked_before = _shots(visual, math.ceil(duration)), settings.vision.witness
        steps, alignment = with_seen_steps(
            inside.steps, steps, alignment, pieces, duration, asked_before
        )
    return PlacedSteps(steps, alignment, grounding, answers)


def ground_steps(
    steps: Sequence[Step],
    duration: float,
    transcript: Transcript,
    visual: VisualFeatures,
    settings: StepsSettings,
    aligner: "LoadedAligner | None" = None,
    *,
    written: bool = True,
) -> "Grounding | AlignerGrounding":
    """Return the steps with the seconds in which they are shown, their scores and the alignment.

    aligner: a trained network that does it; else the default grounder, which needs none. written:
    whether the steps are what a writer found in the transcript, not the user's own lines.
    """
    vectors = (
        visual.backbone.encode_texts([step.text for step in steps]) if visual.backbone else None
    )
    if aligner is not None and visual.features is not None and vectors is not None:
        from stepline.nasva.predict import ground_by_aligner

        options = settings.nasva.aligner
        return ground_by_aligner(
            steps, aligner, visual.features, vectors, settings=options, duration=duration
        )
    from stepline.grounding.correspondence import load_weights
    from stepline.grounding.ground import ground

    backbone, said = visual.backbone, [sentence.text for sentence in transcript.sentences]
    known = backbone is not None and backbone.name in load_weights().mean_pictures
    return ground(
        steps,
        duration=duration,
        transcript=transcript,
        features=visual.features,
        step_vectors=vectors,
        activity=visual.activity,
        sentence_vectors=backbone.encode_texts(said)
        if backbone is not None and known and said
        else None,
        on_screen=visual.cues.lines if visual.cues is not None else (),
        written=written,
        settings=settings.nasva.ground,
    )


def ask_witness(
    request: Request,
    grounding: "Grounding | AlignerGrounding",
    visual: VisualFeatures,
    settings: StepsSettings,
    duration: float,
) -> "VisualAnswers":
    """Return what a vision-language model makes of the grounded steps, by pictures of the video
    itself."""
    from stepline.vision_language import GroundedVideo, ask_about_steps

    video = GroundedVideo(
        grounding.steps,
        grounding.alignment,
        _shots(visual, grounding.alignment.scores.shape[1]),
        _question_pictures(request, settings, duration),
        duration,
        request.part.start if request.part is not None else 0.0,
    )
    return ask_about_steps(video, settings.vision.witness, ground=settings.nasva.ground)


def describe_by_witness(
    request: Request,
    visual: VisualFeatures,
    settings: StepsSettings,
    duration: float,
    found: Descriptions,
) -> Descriptions:
    """Return the steps of a video in which nobody speaks, in a vision-language model's words for
    its pictures.

    found: what a network describes, if one is given; its places are asked about then.
    """
    from stepline.vision_language.describe import describe_places

    told = describe_places(
        _shots(visual, math.ceil(duration)),
        _question_pictures(request, settings, duration),
        duration=duration,
        settings=settings.vision.witness,
        found=found.steps,
        start=request.part.start if request.part is not None else 0.0,
    )
    network = found.network if isinstance(found.network, dict) else {}
    notes = (*found.notes, *told.notes, *([FROM_WITNESS] if told.steps else []))
    dropped = (*found.dropped, *told.dropped)
    return Descriptions(
        told.steps, found.captions, dropped, notes, {**network, "witness": told.report}
    )


def _shots(visual: VisualFeatures, seconds: int) -> list[slice]:
    """Return the shots of a video of so many seconds as slices of them; one where cuts are not
    known."""
    from stepline.grounding.evidence import shot_slices

    return shot_slices(visual.activity.cuts if visual.activity else (), seconds)


def _question_pictures(
    request: Request, settings: StepsSettings, duration: float
) -> "PictureReader":
    """Return what reads what a vision-language model is shown of a video, or of its part, by
    seconds."""
    from stepline.vision_language.pictures import question_pictures

    start = request.part.start if request.part is not None else 0.0
    witness = settings.vision.witness
    return question_pictures(
        request.path, witness, duration=duration, start=start, media=settings.media
    )


def doing_by_second(
    steps: Sequence[Step], transcript: Transcript, visual: VisualFeatures
) -> "npt.NDArray[np.float64] | None":
    """Return (T,): log odds of doing against talk in each second; None where no faces were looked
    for."""
    if visual.cues is None or not len(visual.cues.presenter) or visual.cues.rate != 1.0:
        return None
    from stepline.grounding.shots import doing_odds, told_and_chat

    presenter = visual.cues.presenter.astype(np.float64)
    return doing_odds(presenter, *told_and_chat(steps, transcript, len(presenter)))


def describe_evidence(
    step: Step,
    transcript: Transcript,
    visual: VisualFeatures,
    *,
    unclear: str = HARDLY_FIT,
    doing: "npt.NDArray[np.float64] | None" = None,
) -> Step:
    """Return the step with `seen`: what the picture says for and against it where it is shown, else
    while it is said.

    For it: a shot that begins with its sentence, its words on screen. Against it: a presenter's
    face for half of the time or longer, unless it is likelier at work (doing: (T,) log odds), what
    makes it unclear. Neither: other text that a person can compare.
    """
    span = shown_span(step) or step.said
    if span is None:
        return step
    seen = [f"against: {unclear}"] if step.status == "unclear" else []
    cuts = visual.activity.cuts if visual.activity is not None else ()
    sentences = [transcript.sentences[index] for index in step.sources]
    if any(-BEFORE <= cut - sentence.span.start <= AFTER for sentence in sentences for cut in cuts):
        seen.append("for: a new shot begins with its sentence")
    if visual.cues is not None:
        during = visual.cues.between(span.start, span.end)
        faces = during.presenter[np.isfinite(during.presenter)]
        works = doing is not None and float(doing[int(span.start) : math.ceil(span.end)].sum()) > 0
        if len(faces) and float((faces >= PRESENTER).mean()) >= HALF and not works:
            seen.append("against: a face looks into the camera, as a presenter's does")
        words = " ".join([step.text, *(sentence.text for sentence in sentences)])
        lines = [
            line
            for line in visual.cues.lines
            if line.span.overlap(span) > 0 and line.span.duration < STANDING
        ]
        lines = [line for line in lines if is_phrase(line.text) or is_said(line.text, words)]
        largest = sorted(lines, key=lambda line: -line.height)[:MOST_LINES]
        texts = {
            shorten(one_line(line.text), LINE): is_said(line.text, words)
            for line in lines
            if line in largest
        }
        seen += [
            f"{'for: its words stand' if own else 'text'}{ON_SCREEN}{text}"
            for text, own in texts.items()
        ]
    return step.model_copy(update={"seen": (*seen, *step.seen)})
