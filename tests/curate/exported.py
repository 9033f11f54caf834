"""Small records, reasons and features to export."""

import numpy as np

from stepline.curate.export.dataset import DatasetContents, export_dataset
from stepline.curate.settings import ExportSettings
from stepline.curate.stage import StageFailure, VideoItem
from stepline.features import FeatureStore, FeatureWriter
from stepline.records import Record, Rejected, Sentence, Span, Step, Transcript, Video

STAGES = ("probe", "transcribe", "write", "coarse", "gather", "export")
LEFT_OUT = {
    "bad": StageFailure("bad", "probe", "error", "no picture in it can be seen", attempts=2),
    "huge": StageFailure("huge", "transcribe", "memory", "it took more than 6144 MiB"),
    "twin": StageFailure("twin", "gather", "left out", "it is a copy of v01"),
    "zz": StageFailure("zz", "source", "left out", "evaluates: a video of youcook2"),
}


def record(number):
    """A video of two sentences and two steps, the second without a span, the first from a text
    base."""
    id = f"v{number:02}"
    told = (("First slice the lemons.", 1.0, 0.75), ("Thanks for watching!", 9.0, None))
    sentences = tuple(
        Sentence(text=text, span=Span(start, start + 2), shown=shown) for text, start, shown in told
    )
    shown = {"spans": (Span(2.0, 4.5), Span(7.0, 8.0)), "at": 3.0, "status": "placed", "score": 0.5}
    base = {"source_text": "Slice lemons.", "licence": "CC BY-SA 4.0"}
    about = {"duration": 12.0 + number, "title": f"Tea | {number}", "task": "Make Tea"}
    models = {"asr": "whisper-tiny.en", "writer": "extractive", "vision": "conse"}
    return Record(
        id=id,
        video=Video(id=id, path=f"/home/somebody/{id}.mp4", **about),
        transcript=Transcript(language="en", sentences=sentences, recogniser="whisper-tiny.en"),
        steps=(
            Step(id="1", text="slice the lemons", sources=(0,), **shown, **base),
            Step(id="2", text="squeeze", status="not_found", sources=(0,)),
        ),
        dropped=(Rejected(what="step", text="hello", reason="it is no step"),),
        models={**models, "grounding": {"a": 1}},
    )


def contents(tmp_path, count=5, **others):
    """Contents of some records with features for all but the second."""
    folder = tmp_path / "gathered-features"
    if not folder.exists():
        with FeatureWriter(folder) as writer:
            for number in (0, *range(2, count)) if count else ():
                values = np.full((3, 2), number, np.float32)
                writer.add(f"v{number:02}", values, rate=1.0, backbone="conse")
    ids = [f"v{number:02}" for number in range(count)] + list(LEFT_OUT)
    video = "/home/somebody/videos/{}.mp4"
    return DatasetContents(
        records=lambda: (record(number) for number in range(count)),
        left_out=LEFT_OUT,
        items={id: VideoItem(id, video.format(id), path=f"{id}.mp4", title=id) for id in ids},
        stages=STAGES,
        settings={
            "probe": {"media": 1},
            "train": {"texts": "clip:/weights/big/clip", "data": "/somewhere/of/mine"},
        },
        features=FeatureStore(folder) if count else None,
        **others,
    )


def export(tmp_path, name="dataset", count=5, settings=None, **others):
    """Export and return the folder with its dataset.json."""
    folder = tmp_path / name
    folder.mkdir()
    settings = settings or ExportSettings(name="Tea", rows=2)
    return folder, export_dataset(contents(tmp_path, count, **others), folder, settings)
