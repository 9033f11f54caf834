"""A library of corrected videos: a list stays cheap however many of its videos are corrected."""

import shutil

import pytest
from correction_samples import correction

from stepline.library import corrected_library as module
from stepline.library.corrected_library import CorrectedLibrary, open_corrections, video_id
from stepline.records import Record, Sentence, Span, Step, Transcript, Video
from stepline.storage import write_record

COUNT = 20  # videos, more than the records that are kept in memory


def correct(library, number, base=0, text="Cut it"):
    edit = {"do": "change", "step": "a", "text": text, "status": "said_only"}
    id = video_id(f"v{number}.json")
    new = correction(base, edit, video=id)
    return library.correct(id, new.model_copy(update={"id": f"{number}.{base}"}))


@pytest.fixture
def folder(tmp_path, small_video):
    said = Sentence(text="cut it", span=Span(1.0, 2.0))
    step = Step(id="a", text="Slice it", spans=(said.span,), at=1.5, status="placed", sources=(0,))
    film = shutil.copyfile(small_video, tmp_path / "film.mp4")
    for number in range(COUNT):
        record = Record(
            id=f"v{number}",
            video=Video(id=f"v{number}", path=str(film), title=f"Title {number:03d}"),
            transcript=Transcript(language="en", sentences=(said,)),
            steps=(step,),
        )
        write_record(record, tmp_path / f"v{number}.json")
    return tmp_path


@pytest.fixture
def library(folder, monkeypatch):
    monkeypatch.setattr(module, "MAX_RECORDS_IN_MEMORY", 10)
    monkeypatch.setattr(module, "MAX_VIDEOS_IN_MEMORY", 10)
    library = CorrectedLibrary(folder)
    for number in range(COUNT):
        correct(library, number)
    yield library
    library.close()


@pytest.fixture
def reads(monkeypatch):
    """Yield a list that holds a word for each record that is read, or corrected."""
    calls = []
    for name in ("read_record", "from_json", "apply_corrections"):
        function = getattr(module, name)

        def counted(*arguments, name=name, function=function):
            calls.append(name)
            return function(*arguments)

        monkeypatch.setattr(module, name, counted)
    return calls


def test_a_second_list_of_many_corrected_videos_reads_no_record(library, reads):
    first = library.videos()
    assert [card.seen_steps for card in first] == [0] * COUNT
    reads.clear()
    assert library.videos() == first
    assert library.card(first[0].id) == first[0]
    assert reads == []


def test_a_correction_changes_one_card_and_reads_one_record(library, reads):
    before = library.videos()
    reads.clear()
    assert correct(library, 3, base=1, text="Chop it") == 2
    after = library.videos()
    assert [card.revision for card in after if card not in before] == [2]
    assert reads.count("apply_corrections") <= 2  # before and after the correction
    assert reads.count("read_record") == 0


def test_the_records_that_were_used_last_stay_in_memory(library, reads):
    used = library.videos()[0].id
    for card in library.videos():
        library.record(card.id)
        reads.clear()
        library.record(used)
        assert reads == []


def test_a_folder_without_corrections_has_no_database(tmp_path):
    assert open_corrections(tmp_path) is None
    assert list(tmp_path.iterdir()) == []
