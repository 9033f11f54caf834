"""Does the picture show what is said? P(shown) of every sentence, by a detector, by grounding or by wording."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from stepline.errors import SettingsError
from stepline.pipeline.pictures import VisualFeatures
from stepline.records import Alignment, FeatureSequence, Step, Transcript
from stepline.wys2.settings import JudgeSettings

if TYPE_CHECKING:
    from stepline.wys2.predict import LoadedDetector


ENGLISH = ("en", "english")  # what the judgement by wording knows
# who judged, as `models["judge"]` says
BY_WORDS, BY_GROUNDING, BY_DETECTOR = "wording", "grounding", "detector"


def judge_sentences(
    transcript: Transcript,
    steps: Sequence[Step],
    alignment: Alignment | None,
    visual: VisualFeatures,
    settings: JudgeSettings,
    detector: "LoadedDetector | None" = None,
    media: Path | None = None,
) -> tuple[Transcript, str | None]:
    """Return the transcript with P(shown) of every sentence, and who judged; untouched, and None,
    where nobody can.

    steps: as grounded, row k of the alignment is step k; None where nothing was grounded. media:
    the video, which a detector of frames reads. Nobody can judge where nothing is said, or where
    the language is not the wording's and no detector was given.
    Raises SettingsError where a detector is given and there are no pictures, or none that it can
    read.
    """
    if not transcript.sentences:
        return transcript, None
    texts = [sentence.text for sentence in transcript.sentences]
    if detector is not None:
        from stepline.vision import PrecomputedBackbone
        from stepline.wys2.predict import encode_texts, judge_by_detector

        if (
            visual.features is None
            or visual.backbone is None
            or isinstance(visual.backbone, PrecomputedBackbone)
        ):
            what = "a detector needs pictures and texts of one kind"
            raise SettingsError(f"{detector.path}: {what}; set vision.backbone")
        seen: FeatureSequence | Path = visual.features
        if detector.network.settings.video == "s3d":
            if media is None:
                cure = "give the video to `stepline judge`, without --from and --to"
                raise SettingsError(f"{detector.path}: sees frames, not features; {cure}")
            seen = media
        vectors = encode_texts(detector.text, visual.backbone, texts)
        shown = judge_by_detector(detector, transcript.sentences, seen, vectors, settings.seconds)
        return _with_shown(transcript, shown), BY_DETECTOR
    if transcript.language is not None and transcript.language.lower().split("-")[0] not in ENGLISH:
        return transcript, None
    from stepline.wys2.judge import judge_by_grounding, judge_by_words

    if alignment is not None and visual.features is not None:
        shown = judge_by_grounding(
            transcript, steps, alignment, seconds=settings.seconds, weights=settings.weights
        )
        return _with_shown(transcript, shown), BY_GROUNDING
    from stepline.text import embed

    cited = {source for step in steps for source in step.sources}
    shown = judge_by_words(embed(texts), [number in cited for number in range(len(texts))])
    return _with_shown(transcript, shown), BY_WORDS


def _with_shown(transcript: Transcript, shown: Sequence[float]) -> Transcript:
    judged = zip(transcript.sentences, shown, strict=True)
    sentences = tuple(sentence.model_copy(update={"shown": round(p, 4)}) for sentence, p in judged)
    return transcript.model_copy(update={"sentences": sentences})
