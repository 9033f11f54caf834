"""Items, work and records for the tests of curate's stages."""

from stepline.curate.stage import DatasetContext, VideoContext, VideoItem
from stepline.records import Record, Sentence, Span, Transcript, Video

NARRATION = "Chop the onion into small pieces. My grandmother loved this kitchen. Then fry the onion in a pan."


def transcript(*texts, seconds=4.0, language="en"):
    """Return sentences said one after the other, each for so many seconds."""
    sentences = [
        Sentence(text=text, span=Span(n * seconds, (n + 1) * seconds))
        for n, text in enumerate(texts)
    ]
    return Transcript(language=language, sentences=tuple(sentences))


def record(id, *steps, said=None, duration=40.0):
    """Return a record with steps."""
    video = Video(id=id, duration=duration)
    return Record(id=id, video=video, transcript=said or transcript("Chop the onion."), steps=steps)


def work(recipe, item=None, **given):
    """Return what a video stage gets."""
    return VideoContext(item or VideoItem("one"), recipe, **given)


def gathered(folder, recipe, folders, failures=None):
    """Return what a dataset stage without video needs gets."""
    folder.mkdir(parents=True, exist_ok=True)
    nothing = iter(())
    return DatasetContext(
        folder, (), recipe, None, lambda stage: nothing, failures or {}, (), folders
    )
