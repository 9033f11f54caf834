"""Corrected videos as data: what trainers read."""

import pytest

from stepline.errors import SettingsError
from stepline.features import FeatureStore, FeatureWriter
from stepline.files.digests import sha256
from stepline.library.corrected_library import video_id
from stepline.library.corrections import ChangeEdit, Correction, DeleteEdit
from stepline.library.training_data import settings_of_record
from stepline.library.transcript_edits import WordsEdit
from stepline.library.video_edits import TagEdit
from stepline.models.nasva.dataset import gather_samples as nasva_samples
from stepline.models.procx.settings import DataSettings
from stepline.models.procx.train import gather_samples as procx_samples
from stepline.models.training.sources import read_labelled_texts, read_records
from stepline.models.wys2.dataset import gather_clips, infer_labels
from stepline.models.wys2.settings import ClipSettings, LabelSettings
from stepline.records import Record, Sentence, Span, Step, Transcript, Video
from stepline.speech.subtitles import parse_subtitles
from stepline.storage import write_record
from stepline.studio.store import Studio
from stepline.text import embed

TOLD = (
    "slice the lemons",
    "pour the juice into the bowl",
    "whisk the sugar into the water",
    "chill it for an hour",
)


def narrated(name, *, gap=12.0, video=None):
    """Return a record in which one of two sentences tells a step, every `gap` seconds."""
    heard, steps = [], []
    for number, text in enumerate(TOLD):
        start = gap * number
        said = Span(start + gap / 6, start + gap / 2)
        shown = Span(start + gap / 4, start + 3 * gap / 4)
        chat = Span(start + 2 * gap / 3, start + gap)
        heard.append(Sentence(text=f"now {text}", span=said))
        heard.append(Sentence(text="my neighbour told me this story", span=chat))
        place = {"spans": (shown,), "at": shown.center, "status": "placed", "score": 0.9}
        place |= {"said": said, "sources": (2 * number,)}
        steps.append(Step(id=str(number), text=text, **place))
    video = video or Video(id=name, duration=4 * gap)
    transcript = Transcript(language="en", sentences=tuple(heard))
    return Record(id=name, video=video, transcript=transcript, steps=tuple(steps))


def correct(studio, number, by, base, *edits):
    """Correct a record of a library."""
    video = video_id(f"v{number}.json")
    id = f"{by} {number} {base}"
    new = Correction(id=id, video=video, by=by, when=float(base), base=base, edits=edits)
    studio.library.correct(video, new)


def later(step):
    """The edit that has a step shown after its words."""
    span = Span(step.said.end + 1.2, step.said.end + 2)
    return ChangeEdit(do="change", step=step.id, span=span, status="placed")


@pytest.fixture(scope="module")
def library(tmp_path_factory, small_video):
    """Nine records of one small film: eight corrected by Ann, the last of them by Bob too, one by
    nobody; Cy tagged the first and the last, and corrected a sentence of the first."""
    folder = tmp_path_factory.mktemp("library")
    digest = sha256(small_video)
    for number in range(9):
        video = Video(id=f"v{number}", path=str(small_video), duration=16.0, sha256=digest)
        write_record(narrated(f"v{number}", gap=4.0, video=video), folder / f"v{number}.json")
    studio = Studio(folder)
    for number in range(8):
        steps = studio.library.record(video_id(f"v{number}.json")).steps
        correct(studio, number, "Ann", 0, *map(later, steps))
    moved = ChangeEdit(do="change", step="0", span=Span(13, 15))
    correct(studio, 7, "Bob", 1, moved, DeleteEdit(do="delete", step="1"))
    # a tag corrects no step
    for number, base in ((0, 1), (8, 0)):
        correct(studio, number, "Cy", base, TagEdit(do="tag", tag="Kitchen"))
    words = WordsEdit(do="words", sentence=0, text="now slice the limes")
    correct(studio, 0, "Cy", 2, words)
    yield studio
    studio.close()


def test_what_people_corrected_is_what_trainers_read(library, stepline, tmp_path):
    data = tmp_path / "data"
    result = stepline("curate", "corrections", library.library.folder, "--export", data)
    assert result.exit_code == 0, result.output
    records = list(read_records(str(data / "records")))
    assert [record.id for record in records] == [f"v{number}" for number in range(8)]
    store = FeatureStore(data / "features")
    assert len(store) == 8
    texts = list(read_labelled_texts(str(data / "records"), "step", "shown"))
    with FeatureWriter(data / "vectors") as vectors:
        for video in texts:
            vectors.add(video.video, embed(video.texts), rate=1.0, backbone="minilm")
    # corrected words: as narration, and as pairs of sound and text
    narration = next(iter(read_labelled_texts(str(data / "records"), "narration", "shown")))
    assert narration.texts[0] == "now slice the limes"
    assert [path.name for path in (data / "captions").iterdir()] == ["v0.vtt"]
    cues = parse_subtitles((data / "captions" / "v0.vtt").read_text(), "v0.vtt").captions
    assert cues[0].texts == ["now slice the limes"]
    assert (cues[0].start, cues[0].end) == (pytest.approx(4 / 6, abs=0.001), 2.0)
    assert len(cues) == len(narration.texts)
    aligner = nasva_samples(texts, store, {"step": FeatureStore(data / "vectors")})
    assert (len(aligner), aligner.labelled) == (8, 31)
    describer = procx_samples(records, store, DataSettings(target="reference"))
    assert len(describer) == 8
    assert not describer.omitted
    clips = gather_clips(records, store, embed, ClipSettings())
    labels = infer_labels(clips, LabelSettings(kind="vr"))
    assert 0 < labels.sum() < len(labels)
    again = stepline("curate", "corrections", library.library.folder, "--export", data)
    assert "holds files already" in again.stderr


def test_an_export_says_which_videos_it_left_out_and_needs_a_corrected_one(
    library, stepline, tmp_path, small_video
):
    folder = tmp_path / "library"
    folder.mkdir()
    write_record(narrated("v0"), folder / "v0.json")
    words = ("curate", "corrections", folder, "--export", tmp_path / "data")
    assert "no corrected video" in stepline(*words).stderr
    studio = Studio(folder)
    correct(studio, 0, "Ann", 0, DeleteEdit(do="delete", step="1"))
    studio.close()
    result = stepline(*words)
    assert (result.exit_code, list((tmp_path / "data").glob("records/*"))) == (0, [])
    assert "left out v0: its video is not there; put it where its record says" in result.stderr


@pytest.mark.parametrize(
    "settings",
    [{"vision": {"backbone": "none"}}, {"inputs": {"part": [0, 9]}}],
    ids=["no pictures", "part"],
)
def test_a_record_without_the_pictures_of_its_whole_video_gives_no_features(settings):
    with pytest.raises(SettingsError, match="find"):
        settings_of_record(narrated("v").model_copy(update={"settings": settings}))
