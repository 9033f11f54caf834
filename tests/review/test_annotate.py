"""Clips, answers, who is asked what, and what is kept."""

import json

import pytest

from stepline.errors import DatasetError, StoreError
from stepline.records import Record, Sentence, Span, Transcript, Video
from stepline.review import (
    AnnotationClip,
    AnnotationQueue,
    Answer,
    AnswerLog,
    agreement,
    consensus,
    read_clips,
    write_clips,
)
from stepline.review.answers import export_annotations, fleiss_kappa
from stepline.review.clips import check_qualifying
from stepline.storage import to_json


def clip(name, seconds=4.0, **more):
    return AnnotationClip(
        id=name, video="film.mp4", span=Span(0.0, seconds), text=f"say {name}", **more
    )


def said(name, who, shown, **more):
    return Answer(clip=name, annotator=who, shown=shown, confidence="very", **more)


def votes(name, yes, no):
    return [said(name, f"w{n}", n < yes) for n in range(yes + no)]


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def watch(queue, clock, who, shown, seconds=4.0):
    task = queue.next_task(who)
    queue.start_clip(who, task.clip.id)
    clock.now += seconds
    queue.add_answer(said(task.clip.id, who, shown))
    return task


def test_five_of_seven_must_agree():
    assert consensus(votes("a", 5, 2)) == {"a": True}
    assert consensus(votes("a", 2, 5)) == {"a": False}
    assert consensus(votes("a", 4, 3)) == {"a": None}
    assert consensus(votes("a", 5, 1)) == {}  # six answers only
    # an eighth does not count
    assert consensus([*votes("a", 4, 3), said("a", "late", True)]) == {"a": None}


def test_kappa_by_hand():
    # Two items, four raters: (4, 0) and (1, 3). Pairs that agree: 1 and 6/12; their mean .75.
    # Shares 5/8 and 3/8: chance 34/64 = .53125; kappa (.75 - .53125) / (1 - .53125) = .4667.
    import numpy as np

    kappa, same = fleiss_kappa(np.array([[4, 0], [1, 3]]))
    assert same == pytest.approx(0.75)
    assert kappa == pytest.approx(0.466667, abs=1e-6)
    # everyone always says yes: nothing to correct for
    assert fleiss_kappa(np.array([[3, 0], [3, 0]])) == (None, 1.0)
    assert fleiss_kappa(np.zeros((0, 2), int)) == (None, None)


def test_agreement_counts_only_clips_with_all_answers():
    found = agreement(votes("a", 7, 0) + votes("b", 1, 6) + votes("c", 4, 3) + votes("d", 3, 0))
    assert (found.clips, found.complete, found.shown, found.unshown) == (4, 3, 1, 1)


def test_qualifying_questions_come_first_and_gate(tmp_path, clock):
    questions = [clip(f"q{n}", shown=True) for n in range(3)]
    answers, asked = AnswerLog(tmp_path / "a.jsonl"), {"qualifying": questions, "right": 2}
    queue = AnnotationQueue([clip("a")], answers, **asked, annotators=2, clock=clock)
    for shown in (True, True, False):
        assert watch(queue, clock, "ann", shown).stage == "qualify"
    assert watch(queue, clock, "ann", True).stage == "annotate"
    assert queue.next_task("ann").stage == "done"
    for shown in (True, False, False):
        watch(queue, clock, "bob", shown)
    assert queue.next_task("bob").stage == "not qualified"
    assert [answer.annotator for answer in queue.annotations()] == ["ann"]


def test_clips_nearest_to_all_their_answers_come_first(tmp_path, clock):
    def queue_of(*names):
        answers = AnswerLog(tmp_path / "a.jsonl")
        return AnnotationQueue(list(map(clip, names)), answers, annotators=2, clock=clock)

    queue = queue_of("a", "b")
    assert watch(queue, clock, "ann", True).clip.id == "a"
    assert watch(queue, clock, "ann", True).clip.id == "b"
    queue = queue_of("c", "b", "a")
    assert watch(queue, clock, "bob", True).clip.id == "b"  # an answer each, and it stands first
    assert watch(queue, clock, "bob", True).clip.id == "a"
    assert queue.next_task("cat").clip.id == "c"  # the others have both of theirs


def test_a_clip_stays_an_annotators_whatever_others_answer(tmp_path, clock):
    answers = AnswerLog(tmp_path / "a.jsonl")
    queue = AnnotationQueue([clip("a"), clip("b")], answers, annotators=2, clock=clock)
    given = queue.next_task("ann").clip.id
    assert given == "a"
    queue.start_clip("ann", "a")
    answers.add(said("b", "bob", True))  # now b is nearer to having all its answers
    assert queue.next_task("ann").clip.id == "a"
    for who in ("cat", "dan"):
        answers.add(said("a", who, True))  # and now a has all of its own
    clock.now = 4.0
    queue.add_answer(said("a", "ann", False))
    assert queue.next_task("ann").clip.id == "b"
    assert queue.next_task("eve").clip.id == "b"  # a is nobody's any more


def test_an_answer_before_the_clip_can_have_ended_is_refused(tmp_path, clock):
    queue = AnnotationQueue([clip("a", 4.0)], AnswerLog(tmp_path / "a.jsonl"), clock=clock)
    with pytest.raises(DatasetError, match="not watched to its end"):
        queue.add_answer(said("a", "ann", True))
    queue.start_clip("ann", "a")
    clock.now = 3.0
    with pytest.raises(DatasetError, match="4.0 s long"):
        queue.add_answer(said("a", "ann", True))
    clock.now = 4.0
    queue.add_answer(said("a", "ann", True, seconds=99.0))
    # the server's clock, not the page's
    assert [answer.seconds for answer in AnswerLog(tmp_path / "a.jsonl")] == [4.0]


def test_the_last_answer_can_be_taken_back_once_and_given_again(tmp_path, clock):
    queue = AnnotationQueue([clip("a"), clip("b")], AnswerLog(tmp_path / "a.jsonl"), clock=clock)
    watch(queue, clock, "ann", True)
    assert queue.next_task("ann").clip.id == "b"
    queue.undo("ann")
    assert (queue.next_task("ann").clip.id, queue.next_task("ann").remaining_count) == ("a", 1)
    with pytest.raises(DatasetError, match="only the last one can, once"):
        queue.undo("ann")
    watch(queue, clock, "ann", False)
    assert queue.next_task("ann").clip.id == "b"
    assert [(row.item, row.shown) for row in queue.annotations()] == [("a", False)]
    with pytest.raises(DatasetError, match="no answer can be taken back"):
        queue.undo("bob")


def test_only_the_clip_that_was_asked_about_can_be_answered(tmp_path, clock):
    queue = AnnotationQueue([clip("a"), clip("b")], AnswerLog(tmp_path / "a.jsonl"), clock=clock)
    queue.start_clip("ann", "b")
    clock.now = 9.0
    with pytest.raises(DatasetError, match="not the clip that was asked about"):
        queue.add_answer(said("b", "ann", True))
    with pytest.raises(DatasetError, match="no such clip"):
        queue.start_clip("ann", "z")


def test_answers_outlive_a_kill_in_mid_line(tmp_path):
    path = tmp_path / "answers.jsonl"
    answers = AnswerLog(path)
    answers.add(said("a", "ann", True))
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"clip": "b", "anno')
    again = AnswerLog(path)
    assert [answer.item for answer in again] == ["a"]
    again.add(said("c", "ann", False))
    assert [answer.item for answer in AnswerLog(path)] == ["a", "c"]
    path.write_text("{}\n" + whole.decode())
    with pytest.raises(StoreError, match=r"answers.jsonl:1: not an answer"):
        AnswerLog(path)


def test_sentences_of_records_become_clips_of_three_seconds_at_least(tmp_path):
    def sentence(start, end):
        return Sentence(text=f"at {start}", span=Span(start, end))

    spoken = Transcript(sentences=(sentence(0.0, 1.0), sentence(4.0, 9.0), sentence(9.0, 10.0)))
    record = Record(
        id="listed", video=Video(id="film", path="/film.mp4", duration=10.0), transcript=spoken
    )
    (tmp_path / "film.json").write_text(to_json(record))
    clips = read_clips(tmp_path / "film.json")
    spans = [(clip.span.start, clip.span.end) for clip in clips]
    assert spans == [(0.0, 3.0), (4.0, 9.0), (7.0, 10.0)]
    assert clips[2].video_id == "listed"


def test_a_wrong_list_of_clips_is_named(tmp_path):
    backwards = '[{"id": "a", "video": "v", "span": {"start": 2, "end": 1}, "text": "t"}]'
    wrong = {"[]": "no sentence with a video", "nonsense": "not JSON"}
    for text, message in (wrong | dict.fromkeys(("[1]", backwards), "not a list of clips")).items():
        (tmp_path / "clips.json").write_text(text)
        with pytest.raises(DatasetError, match=message):
            read_clips(tmp_path / "clips.json")


def test_clips_are_read_as_written_and_ids_occur_once(tmp_path):
    clips = [clip("a", shown=False), clip("b")]
    write_clips(clips, tmp_path / "clips.json")
    assert read_clips(tmp_path / "clips.json") == clips
    write_clips([clip("c")], tmp_path / "shard.json")
    both = read_clips(tmp_path / "clips.json", tmp_path / "shard.json")
    assert both == [*clips, clip("c")]
    with pytest.raises(DatasetError, match="'b' has no known answer"):
        check_qualifying(clips, tmp_path / "clips.json")
    write_clips([clip("a"), clip("a")], tmp_path / "clips.json")
    with pytest.raises(DatasetError, match="'a'; every clip needs its own"):
        read_clips(tmp_path / "clips.json")
    answers, asked = AnswerLog(tmp_path / "a.jsonl"), {"qualifying": [clip("q", shown=True)]}
    with pytest.raises(DatasetError, match="cannot be"):
        AnnotationQueue([clip("a")], answers, **asked, right=6)


def test_the_set_is_scored_as_any_other_reference(tmp_path, stepline):
    clips = [clip("a"), clip("b"), clip("c")]
    export_annotations(clips, votes("a", 6, 1) + votes("b", 0, 7) + votes("c", 4, 3), tmp_path)
    assert json.loads((tmp_path / "vnd.json").read_text()) == {"a": 1, "b": 0}
    assert [one.shown for one in read_clips(tmp_path / "vnd_clips.json")] == [True, False]
    report = json.loads((tmp_path / "vnd_report.json").read_text())
    assert report["without consensus"] == ["c"]
    (tmp_path / "p.json").write_text('{"a": 0.9, "b": 0.2}')
    given = ("--predictions", tmp_path / "p.json", "--reference", tmp_path / "vnd.json")
    done = stepline("evaluate", "vnd", *given, "--json")
    assert done.exit_code == 0, done.output
    assert '"ROC-AUC"' in done.stdout


def test_nothing_agreed_is_an_error_of_one_line(tmp_path, stepline):
    write_clips([clip("a")], tmp_path / "clips.json")
    files = (tmp_path / "clips.json", tmp_path / "shard.json")
    write_clips([clip("b")], files[1])
    done = stepline("annotate", "vnd", *files, "--out", tmp_path, "--export")
    assert (done.exit_code, len(done.stderr.splitlines())) == (1, 1)
    done = stepline("annotate", "vnd", tmp_path / "clips.json", "--out", tmp_path, "--needed", "3")
    assert "more than half" in done.stderr


def test_answers_of_earlier_releases_are_read(tmp_path):
    clips = tmp_path / "answers.jsonl"
    line = {"clip": "a", "annotator": "ann", "shown": False, "confidence": "not", "seconds": 3.5}
    clips.write_text(json.dumps(line | {"reason": "dark"}) + "\n")
    expected = Answer(
        item="a", annotator="ann", answer="not shown", confidence="not", reason="dark", seconds=3.5
    )
    assert list(AnswerLog(clips)) == [expected]
    texts = tmp_path / "verdicts.jsonl"
    texts.write_text('{"asked": "v/step 1", "annotator": "ann", "said": "misplaced"}\n')
    assert list(AnswerLog(texts)) == [Answer(item="v/step 1", annotator="ann", answer="misplaced")]


@pytest.mark.parametrize("fields", [{"confidence": None}, {"answer": "misplaced"}])
def test_an_answer_about_a_clip_is_shown_or_not_and_how_sure(tmp_path, fields):
    queue = AnnotationQueue([clip("a")], AnswerLog(tmp_path / "a.jsonl"), clock=lambda: 0.0)
    queue.start_clip("ann", "a")
    with pytest.raises(DatasetError, match="shown or not, and how sure"):
        queue.add_answer(said("a", "ann", True).model_copy(update=fields))
