"""Items, work and records for the tests of curate's stages."""

from collections.abc import Mapping
from pathlib import Path

from stepline.curate.stage import DatasetContext, Recipe, StageFailure, VideoContext, VideoItem
from stepline.records import Record, Sentence, Span, Step, Transcript, Video

NARRATION = "Chop the onion into small pieces. My grandmother loved this kitchen. Then fry the onion in a pan."


def transcript(*texts: str, seconds: float = 4.0, language: str | None = "en") -> Transcript:
    """Return sentences said one after the other, each for so many seconds."""
    sentences = [
        Sentence(text=text, span=Span(n * seconds, (n + 1) * seconds))
        for n, text in enumerate(texts)
    ]
    return Transcript(language=language, sentences=tuple(sentences))


def record(id: str, *steps: Step, said: Transcript | None = None, duration: float = 40.0) -> Record:
    """Return a record with steps."""
    video = Video(id=id, duration=duration)
    return Record(id=id, video=video, transcript=said or transcript("Chop the onion."), steps=steps)


def work(recipe: Recipe, item: VideoItem | None = None, **given: object) -> VideoContext:
    """Return what a video stage gets."""
    return VideoContext(item or VideoItem("one"), recipe, **given)  # type: ignore[arg-type]


def gathered(
    folder: Path,
    recipe: Recipe,
    folders: Mapping[str, Path],
    failures: Mapping[str, StageFailure] | None = None,
) -> DatasetContext:
    """Return what a dataset stage without video needs gets."""
    folder.mkdir(parents=True, exist_ok=True)
    nothing = iter(())
    return DatasetContext(
        folder, (), recipe, None, lambda stage: nothing, failures or {}, (), folders
    )  # type: ignore[arg-type]
