"""Does the picture show what is said? P(shown) of every sentence, by a detector, by grounding or by wording."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from stepline.errors import SettingsError
from stepline.models.wys2.settings import JudgeSettings
from stepline.pipeline.pictures import VisualFeatures
from stepline.records import Alignment, FeatureSequence, Step, Transcript

if TYPE_CHECKING:
    from stepline.models.wys2.predict import LoadedDetector


ENGLISH_NAMES = ("en", "english")  # the language that the judgement by wording knows
# who judged, as `models["judge"]` says
BY_WORDS = "wording"
BY_GROUNDING = "grounding"
BY_DETECTOR = "detector"


def judge_sentences(
    transcript: Transcript,
    steps: Sequence[Step],
    alignment: Alignment | None,
    visual: VisualFeatures,
    settings: JudgeSettings,
    detector: "LoadedDetector | None" = None,
    media: Path | None = None,
) -> tuple[Transcript, str | None]:
    """Return the transcript with P(shown) of every sentence, and who judged. Untouched, and None,
    where no one can.

    steps: as grounded, row k of the alignment is step k. None where nothing was grounded. media:
    the video, which a detector of frames reads. No one can judge where nothing is said, or where
    the language is not the wording's and no detector was given.
    Raises SettingsError where a detector is given and there are no pictures, or none that it can
    read.
    """
    if not transcript.sentences:
        return transcript, None
    # A detector that the user gave comes first, then the grounding, then the words alone.
    if detector is not None:
        p_shown = _judge_by_detector(detector, transcript, visual, settings, media)
        return _with_shown(transcript, p_shown), BY_DETECTOR
    if not _is_english(transcript):
        return transcript, None
    from stepline.models.wys2.judge import judge_by_grounding, judge_by_words

    if alignment is not None and visual.features is not None:
        p_shown = judge_by_grounding(
            transcript, steps, alignment, seconds=settings.seconds, weights=settings.weights
        )
        return _with_shown(transcript, p_shown), BY_GROUNDING
    from stepline.text import embed

    # Without pictures, the wording counts, and whether a step cites the sentence.
    cited = {source for step in steps for source in step.sources}
    is_cited = [number in cited for number in range(len(transcript.sentences))]
    p_shown = judge_by_words(embed(_texts(transcript)), is_cited)
    return _with_shown(transcript, p_shown), BY_WORDS


def _is_english(transcript: Transcript) -> bool:
    """Whether the transcript is in English, or its language is not known."""
    if transcript.language is None:
        return True
    return transcript.language.lower().split("-")[0] in ENGLISH_NAMES


def _judge_by_detector(
    detector: "LoadedDetector",
    transcript: Transcript,
    visual: VisualFeatures,
    settings: JudgeSettings,
    media: Path | None,
) -> Sequence[float]:
    """Return P(shown) of every sentence, by a trained detector of features or of frames."""
    from stepline.models.wys2.predict import encode_texts, judge_by_detector
    from stepline.vision import PrecomputedBackbone

    backbone = visual.backbone
    if visual.features is None or backbone is None or isinstance(backbone, PrecomputedBackbone):
        reason = "a detector needs pictures and texts of one kind"
        raise SettingsError(f"{detector.path}: {reason}; set vision.backbone")
    # One kind of detector reads feature rows, the other decodes the frames itself.
    video: FeatureSequence | Path = visual.features
    if detector.network.settings.video == "s3d":
        if media is None:
            cure = "give the video to `stepline judge`, without --from and --to"
            raise SettingsError(f"{detector.path}: sees frames, not features; {cure}")
        video = media
    vectors = encode_texts(detector.space.text, backbone, _texts(transcript))
    return judge_by_detector(detector, transcript.sentences, video, vectors, settings.seconds)


def _texts(transcript: Transcript) -> list[str]:
    return [sentence.text for sentence in transcript.sentences]


def _with_shown(transcript: Transcript, p_shown: Sequence[float]) -> Transcript:
    """Return the transcript with P(shown) of every sentence."""
    sentences = tuple(
        sentence.model_copy(update={"shown": round(probability, 4)})
        for sentence, probability in zip(transcript.sentences, p_shown, strict=True)
    )
    return transcript.model_copy(update={"sentences": sentences})
