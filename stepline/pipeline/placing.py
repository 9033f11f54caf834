"""When each step is shown: grounding by speech and pictures, and the text on the screen at each step.

seen        a picture decides that the step is shown in its span
placed      the words of the step place it, or a network that is not calibrated
said_only   no picture can show the step, or a calibrated network rules it out

The words place all 11 steps of stepline/cli/demo/demo.mp4, such as:

    'slice the banana'   said (10.3, 11.1)  ->  "placed" (9.8, 15.1) at 11.5, score 0.88
"""

import logging
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from stepline.errors import ModelError, SettingsError
from stepline.grounding.correspondence import MAX_TEXT_SECONDS, is_phrase, is_said, load_weights
from stepline.grounding.evidence import shot_slices
from stepline.grounding.fusion import MAX_SAID_ONLY_PROBABILITY, picture_status, without_place
from stepline.grounding.ground import Grounding, ground_inputs
from stepline.grounding.inputs import GroundingInputs
from stepline.media import MediaInfo
from stepline.models.wys2.settings import JudgeSettings
from stepline.outputs.text import one_line, shorten, shown_span
from stepline.pipeline.describe import DESCRIBED_BY_VLM, Descriptions
from stepline.pipeline.networks import Networks
from stepline.pipeline.pictures import VisualFeatures
from stepline.pipeline.request import Request, StepsSettings
from stepline.pipeline.speech import SpeechInVideo
from stepline.records import Alignment, FeatureSequence, Sentence, Span, Status, Step, Transcript
from stepline.vision import PrecomputedBackbone, ScreenText
from stepline.writing.quantities import STOP_WORDS

if TYPE_CHECKING:
    from stepline.grounding.vision_language import VisualAnswers
    from stepline.llm.pictures import PictureReader
    from stepline.models.nasva.checkpoint import LoadedAligner
    from stepline.models.nasva.predict import AlignerGrounding
    from stepline.models.wys2.predict import LoadedDetector

log = logging.getLogger(__name__)

ON_SCREEN_PREFIX = " on screen: "  # in a remark of `seen`, before what is written in the picture
MAX_LINES = 2  # lines of text in the picture that are reported of a step: the largest
MIN_CONTENT_WORDS = 2  # of a step, in text on the screen that speaks for it
MAX_LINE_CHARS = 80  # letters of each of these lines

# Log Bayes factor that the speech instructs, below which a narration is a talk. Of 20 how-tos of so
# many sentences the least has 1.5, a news report -4.6. Shorter ones give too little evidence.
MAX_TALK_LOG_BAYES = 0.0
MIN_TALK_SENTENCES = 10


@dataclass(frozen=True)
class GroundedVideoSteps:
    """The steps of a video with the seconds in which they are shown.

    Attributes:
        steps: K steps.
        alignment: (K steps, T seconds) P(step k is shown at second t). None if no step was
            grounded.
        grounding: the full result of the method that grounded the steps. None if no step was
            grounded.
        answers: answers of a vision-language model about the steps. None if no model was asked.
        lacks_instructions: whether the speech from which the steps were written hardly instructs.
    """

    steps: tuple[Step, ...]
    alignment: Alignment | None
    grounding: "Grounding | AlignerGrounding | None"
    answers: "VisualAnswers | None"
    lacks_instructions: bool = False


def place_steps(
    request: Request,
    info: MediaInfo,
    speech: SpeechInVideo,
    visual: VisualFeatures,
    settings: StepsSettings,
    networks: Networks,
    duration: float,
) -> GroundedVideoSteps:
    """Return the steps with the seconds in which each is shown, from speech and pictures.

    A vision-language model is used too if the settings name one. Without a picture no step is
    shown.

    Args:
        request: the video.
        info: streams and duration of the video file.
        speech: K steps, and the sentences within the video.
        visual: features and cues extracted from the pictures.
        settings: settings of all stages of finding steps.
        networks: the trained networks.
        duration: duration of the video in seconds.
    """
    transcript, steps = speech.transcript, speech.steps
    grounding, answers, alignment = None, None, None
    if steps and info.has_picture:
        grounding = ground_steps(
            steps,
            duration,
            transcript,
            visual,
            settings,
            networks.aligner,
            written=not request.texts,
        )
        if settings.vision.vlm.named:
            answers = ask_vlm(request, grounding, visual, settings, duration)
            grounding = replace(grounding, steps=answers.steps, alignment=answers.alignment)
        alignment = grounding.alignment
        steps = add_screen_text_remarks(grounding.steps, transcript, visual.on_screen)
    else:
        steps = tuple(without_place(step, 0.0) for step in steps)
    is_talk = bool(steps) and not request.texts and _is_talk(transcript, grounding, settings)
    return GroundedVideoSteps(steps, alignment, grounding, answers, is_talk)


def _is_talk(
    transcript: Transcript,
    grounding: "Grounding | AlignerGrounding | None",
    settings: StepsSettings,
) -> bool:
    """Return whether the speech hardly instructs, by the grounding where it has asked already."""
    if len(transcript.sentences) < MIN_TALK_SENTENCES:
        return False
    if isinstance(grounding, Grounding):
        log_bayes = grounding.report.instruction
    else:
        log_bayes = _instruction_log_odds(transcript, settings)
    return log_bayes is not None and log_bayes < MAX_TALK_LOG_BAYES


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
    """Ground steps: find the seconds in which each is shown.

    Args:
        steps: K steps.
        duration: duration of the video in seconds.
        transcript: S sentences.
        visual: features and cues extracted from the pictures.
        settings: settings of all stages of finding steps.
        aligner: a trained network. None: the method that needs no training.
        written: True if the steps were written from the transcript, False if the user gave them.

    Returns the steps with spans and scores, the alignment and a report.
    """
    # by a trained network
    backbone = visual.backbone
    # The text vectors come from the backbone that saw the pictures, so that both share a space.
    if aligner is not None and visual.features is not None and backbone is not None:
        from stepline.models.nasva.predict import ground_by_aligner

        vectors = backbone.encode_texts([step.text for step in steps])
        options = settings.nasva.aligner
        return ground_by_aligner(
            steps, aligner, visual.features, vectors, settings=options, duration=duration
        )

    # by all evidence without one
    sentences = [sentence.text for sentence in transcript.sentences]
    sentence_vectors = None
    # Only backbones with a stored mean picture compare sentences with pictures.
    if sentences and backbone and backbone.name in load_weights().mean_pictures:
        sentence_vectors = backbone.encode_texts(sentences)
    step_vectors = None
    if backbone and backbone.name != "conse":  # ConSE places no step
        step_vectors = backbone.encode_texts([step.text for step in steps])
    inputs = GroundingInputs(
        steps,
        duration=duration,
        transcript=transcript,
        features=visual.features,
        step_vectors=step_vectors,
        activity=visual.activity,
        sentence_vectors=sentence_vectors,
        on_screen=visual.on_screen,
        written=written,
        instruction=_instruction_log_odds(transcript, settings) if written else None,
        is_screen=visual.screen is not None and bool(visual.screen.events),
    )
    return ground_inputs(inputs, settings.nasva.ground)


def _instruction_log_odds(transcript: Transcript, settings: StepsSettings) -> float | None:
    """Return the log Bayes factor that the narration gives instructions, against other talk.

    The value is None for an unsupported language, an empty transcript or missing weights.
    """
    from stepline.writing.extractive.writer import narration_instruction

    try:
        return narration_instruction(transcript, settings.writing)
    except ModelError as error:
        log.info("whether the speech instructs is judged by the number of steps: %s", error)
        return None


def ask_vlm(
    request: Request,
    grounding: "Grounding | AlignerGrounding",
    visual: VisualFeatures,
    settings: StepsSettings,
    duration: float,
) -> "VisualAnswers":
    """Ask a vision-language model about the grounded steps. Return the revised steps.

    Args:
        request: the video. Frames of it are given to the model.
        grounding: the steps with the seconds in which they are shown.
        visual: features and cues extracted from the pictures.
        settings: settings of all stages of finding steps.
        duration: duration of the video in seconds.
    """
    from stepline.grounding.vision_language import GroundedVideo, ask_about_steps

    video = GroundedVideo(
        grounding.steps,
        grounding.alignment,
        shot_slices(visual.cuts, grounding.alignment.scores.shape[1]),
        _vlm_frame_reader(request, settings),
        duration,
        request.start,
    )
    return ask_about_steps(video, settings.vision.vlm, ground=settings.nasva.ground)


def describe_with_vlm(
    request: Request, visual: VisualFeatures, settings: StepsSettings, duration: float
) -> Descriptions:
    """Describe the steps of a video without speech by a vision-language model."""
    from stepline.grounding.vision_language.describe import describe_silent_video

    answer = describe_silent_video(
        shot_slices(visual.cuts, math.ceil(duration)),
        _vlm_frame_reader(request, settings),
        duration=duration,
        settings=settings.vision.vlm,
        start=request.start,
    )
    notes = answer.notes
    if answer.steps:
        notes = (*notes, DESCRIBED_BY_VLM)
    return Descriptions(answer.steps, notes=notes, network={"witness": answer.report})


def _vlm_frame_reader(request: Request, settings: StepsSettings) -> "PictureReader":
    """Return a function that reads the pictures for a vision-language model."""
    from stepline.grounding.vision_language.segments import picture_reader

    return picture_reader(
        request.path, settings.vision.vlm.picture_size, start=request.start, media=settings.media
    )


def add_screen_text_remarks(
    steps: Sequence[Step], transcript: Transcript, on_screen: "Sequence[ScreenText]"
) -> tuple[Step, ...]:
    """Return grounded steps with `seen`: the text on the screen while each is shown, or else said.

    Two content words of the step or its sentences speak for it, or all that the step has, or a line
    of one word. Other text is quoted.

    Args:
        steps: grounded steps.
        transcript: the sentences of the video, to which the steps refer.
        on_screen: lines of text on the screen.
    """
    remarked = []
    for step in steps:
        span = shown_span(step) or step.said
        if span is not None:
            sentences = [transcript.sentences[index].text for index in step.sources]
            remarks = _screen_text_remarks(on_screen, span, step.text, " ".join(sentences))
            step = step.model_copy(update={"seen": (*remarks, *step.seen)})
        remarked.append(step)
    return tuple(remarked)


def _screen_text_remarks(
    on_screen: "Sequence[ScreenText]", span: Span, text: str, sentences: str
) -> list[str]:
    """Return remarks on the largest lines of text on the screen during the span: one on those that
    hold words of the step, and one on each other line.

    Args:
        on_screen: lines of text on the screen.
        span: seconds of the step.
        text: text of the step.
        sentences: texts of its sentences.
    """
    words = f"{text} {sentences}"
    lines = []
    for line in on_screen:
        # What is shown longer is a watermark, not text of the step.
        passing = line.span.overlap(span) > 0 and line.span.duration < MAX_TEXT_SECONDS
        if passing and (is_phrase(line.text) or is_said(line.text, words)):
            lines.append(line)
    # The largest lines, in the order in which the detectors list them.
    largest = sorted(lines, key=lambda line: -line.height)[:MAX_LINES]
    texts: dict[str, bool] = {}  # each once -> whether it is said
    for line in lines:
        if line in largest:
            texts[shorten(one_line(line.text), MAX_LINE_CHARS)] = is_said(line.text, words)
    said = " / ".join(line for line, is_spoken in texts.items() if is_spoken)
    # Function words are in every speech.
    least = min(MIN_CONTENT_WORDS, len(_content_words(text)), len(said.split())) or 1
    if len(_content_words(said) & _content_words(words)) < least:
        return [f"text{ON_SCREEN_PREFIX}{line}" for line in texts]
    others = [f"text{ON_SCREEN_PREFIX}{line}" for line in texts if not texts[line]]
    return [f"for: its words are{ON_SCREEN_PREFIX}{said}", *others]


def _content_words(text: str) -> set[str]:
    return set(re.findall(r"\d+|\w{3,}", text.lower())) - STOP_WORDS


JUDGED_BY_DETECTOR = "detector"  # in `models["judge"]`
# P(shown) by the detector from which a sentence is seen: eight of ten such claims hold
MIN_SEEN_PROBABILITY = 0.8


def judge_sentences(
    transcript: Transcript,
    visual: VisualFeatures,
    settings: JudgeSettings,
    detector: "LoadedDetector",
    media: Path | None = None,
) -> Transcript:
    """Return the transcript with P(the picture shows what is said) of every sentence.

    Args:
        transcript: the sentences.
        visual: features and cues extracted from the pictures.
        settings: length of the clip in which a sentence is judged.
        detector: a trained network.
        media: the video file, for a detector that reads frames. None: there is no file.

    Raises SettingsError if the detector cannot use the features of the pictures.
    """
    if not transcript.sentences:
        return transcript
    from stepline.models.wys2.predict import encode_texts, estimate_shown_by_detector

    backbone = visual.backbone
    if visual.features is None or backbone is None or isinstance(backbone, PrecomputedBackbone):
        raise SettingsError(
            f"{detector.path}: a detector needs pictures and texts of one kind; set vision.backbone"
        )
    # One kind of detector reads feature rows, the other decodes the frames itself.
    video: FeatureSequence | Path = visual.features
    if detector.network.settings.video == "s3d":
        if media is None:
            raise SettingsError(
                f"{detector.path}: sees frames, not features; give the video to `stepline judge`, "
                "without --from and --to"
            )
        video = media
    texts = [sentence.text for sentence in transcript.sentences]
    vectors = encode_texts(detector.space.text, backbone, texts)
    sentences = estimate_shown_by_detector(
        detector, transcript.sentences, video, vectors, settings.seconds
    )
    return transcript.model_copy(update={"sentences": sentences})


def detected_status(p_shown: float) -> Status | None:
    """Return the status that P(shown) of a detector decides, None where it is not sure."""
    if p_shown >= MIN_SEEN_PROBABILITY:
        return "seen"
    return "said_only" if p_shown <= MAX_SAID_ONLY_PROBABILITY else None


def decide_by_detector(steps: Sequence[Step], transcript: Transcript) -> tuple[Step, ...]:
    """Return the steps with the status that a detector gives to the sentences they rest on.

    The detector decides where it is sure of a step that no picture has decided yet.

    Args:
        steps: grounded steps.
        transcript: the sentences, with P(shown) of the detector.
    """
    return tuple(_apply_detector_status(step, transcript.sentences) for step in steps)


def _apply_detector_status(step: Step, sentences: Sequence[Sentence]) -> Step:
    p_shown = [sentences[source].shown or 0.0 for source in step.sources]
    status = detected_status(max(p_shown)) if p_shown else None
    if step.status not in ("placed", "said_only") or step.said is None or status is None:
        return step
    if status == "said_only":
        return without_place(step, max(p_shown))
    # The detector saw the seconds of the words.
    is_there = any(span.overlap(step.said) > 0 for span in step.spans[:1])
    spans = step.spans if is_there else (step.said,)
    at = step.at if is_there else step.said.center
    update = {"spans": spans, "at": at, "score": max(p_shown), **picture_status("network")}
    return step.model_copy(update=update)
