"""Every sentence judged: does the picture show what is said? Puts transcript, steps, pictures and judge together."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from stepline.errors import SettingsError
from stepline.records import Alignment, FeatureSequence, Step, Transcript
from stepline.vision.settings import VisionSettings
from stepline.wys2.settings import JudgeSettings

if TYPE_CHECKING:
    from stepline.vision import Backbone
    from stepline.wys2.predict import LoadedDetector

ENGLISH = ("en", "english")
BY_WORDS, BY_GROUNDING, BY_DETECTOR = "wording", "grounding", "detector"


class Pictures(Protocol):
    """What is known of the pictures, if anything."""

    @property
    def features(self) -> FeatureSequence | None:
        """Feature rows."""

    @property
    def backbone(self) -> "Backbone | None":
        """What made them."""


def load_judge(settings: JudgeSettings, vision: VisionSettings) -> "LoadedDetector | None":
    """Return the trained detector that the settings name, if any; before the minutes of work that a wrong one costs."""
    if settings.detector is None:
        return None
    from stepline.wys2.predict import check_backbone, load_detector

    loaded = load_detector(settings.detector)
    check_backbone(loaded.path, (loaded.video, loaded.text), vision.backbone)
    return loaded


def judged(
    transcript: Transcript,
    steps: Sequence[Step],
    alignment: Alignment | None,
    seen: Pictures,
    settings: JudgeSettings,
    detector: "LoadedDetector | None" = None,
) -> tuple[Transcript, str | None]:
    """Return the transcript with P(shown) of every sentence, and who judged; untouched, and None, where nobody can.

    steps: as grounded, row k of the alignment is step k; None where nothing was grounded. Nobody can judge where
    nothing is said, or where the language is not the wording's and no detector was given.
    """
    if not transcript.sentences:
        return transcript, None
    if detector is not None:
        shown = _detected(transcript, detector, seen, settings)
        return _with(transcript, shown), BY_DETECTOR
    if not _english(transcript):
        return transcript, None
    from stepline.wys2.judge import judge_by_grounding, judge_by_words

    if alignment is not None and seen.features is not None:
        shown = judge_by_grounding(transcript, steps, alignment, seconds=settings.seconds)
        return _with(transcript, shown), BY_GROUNDING
    from stepline.text import embed

    told = {source for step in steps for source in step.sources}
    wording = embed([sentence.text for sentence in transcript.sentences])
    shown = judge_by_words(wording, [number in told for number in range(len(wording))])
    return _with(transcript, shown), BY_WORDS


def _detected(
    transcript: Transcript, detector: "LoadedDetector", seen: Pictures, settings: JudgeSettings
) -> tuple[float, ...]:
    """Return P(shown) by a trained detector. Raises SettingsError where there are no pictures, or none it can read."""
    from stepline.vision import PrecomputedBackbone
    from stepline.wys2.predict import encode_texts, judge_by_detector

    if seen.features is None or seen.backbone is None or isinstance(seen.backbone, PrecomputedBackbone):
        raise SettingsError(f"{detector.path}: a detector needs pictures and texts of one kind; set vision.backbone")
    vectors = encode_texts(detector.text, seen.backbone, [sentence.text for sentence in transcript.sentences])
    return judge_by_detector(detector, transcript.sentences, seen.features, vectors, settings.seconds)


def _with(transcript: Transcript, shown: Sequence[float]) -> Transcript:
    sentences = tuple(
        sentence.model_copy(update={"shown": round(p, 4)})
        for sentence, p in zip(transcript.sentences, shown, strict=True)
    )
    return transcript.model_copy(update={"sentences": sentences})


def _english(transcript: Transcript) -> bool:
    return transcript.language is None or transcript.language.lower().split("-")[0] in ENGLISH
