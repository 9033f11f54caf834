import pytest
from wys2_samples import record

from stepline.errors import DatasetError
from stepline.models.wys2.clips import cut_into_clips, split_videos
from stepline.models.wys2.settings import ClipSettings
from stepline.records import Record, Span, Video

PLAIN = ClipSettings(resolve=False)


def test_a_short_sentence_is_one_clip_around_its_middle():
    [clip] = cut_into_clips(record((10, 12, "chop the onion")), PLAIN)
    assert clip.span == Span(9.5, 12.5)
    assert (clip.video, clip.sentence_index) == ("v", 0)
    assert (clip.text, clip.task) == ("chop the onion", "salad")


def test_a_long_sentence_is_cut_into_clips_of_about_the_stride():
    clips = cut_into_clips(record((10, 16, "chop")), PLAIN)
    # middles 11.5 and 14.5
    assert [clip.span for clip in clips] == [Span(10.0, 13.0), Span(13.0, 16.0)]
    assert (
        len(cut_into_clips(record((10, 16, "chop")), PLAIN.model_copy(update={"stride": 1.0}))) == 6
    )


def test_clips_at_the_ends_are_moved_into_the_video():
    clips = cut_into_clips(record((0, 1, "a"), (29, 30, "b")), PLAIN)
    assert [clip.span for clip in clips] == [Span(0.0, 3.0), Span(27.0, 30.0)]
    [whole] = cut_into_clips(record((0, 1, "a"), duration=2.0), PLAIN)
    assert whole.span == Span(0.0, 2.0)


def test_a_clip_shows_the_key_step_over_its_middle():
    steps = [("slice onion", 10, 12), ("fry", 20, 25)]
    clips = cut_into_clips(record((9, 11, "a"), (11, 13, "b"), (21, 22, "c"), steps=steps), PLAIN)
    # middles 10, 12 (half-open), 21.5
    assert [clip.key_step for clip in clips] == ["slice onion", None, "fry"]


def test_candidates_are_the_nearest_sentences_the_own_one_first():
    said = [(0, 2, "a"), (4, 6, "b"), (7, 9, "c"), (20, 22, "d")]
    clips = cut_into_clips(record(*said), ClipSettings(resolve=False, candidates=3))
    candidates = [clip.candidate_sentences for clip in clips]
    assert candidates == [(0, 1, 2), (1, 2, 0), (2, 1, 0), (3, 2, 1)]


def test_pronouns_are_named_before_texts_are_compared():
    clips = cut_into_clips(record((0, 3, "Peel the banana and cut it."), (4, 7, "Eat it  now.")))
    # The second pronoun is not sure enough.
    assert [clip.text for clip in clips] == ["Peel the banana and cut the banana.", "Eat it  now."]


def test_a_sentence_that_ends_after_the_video_stays_inside_it():
    [clip] = cut_into_clips(record((28, 34, "bye")), PLAIN)  # 2 s of it lie in the video
    assert clip.span == Span(27.0, 30.0)


def test_narration_after_the_end_of_the_video_is_an_error():
    with pytest.raises(DatasetError, match=r"speaks at 31 s of 30 s"):
        cut_into_clips(record((1, 2, "a"), (31, 33, "b")), PLAIN)


def test_a_video_without_narration_is_an_error():
    for silent in (record(), Record(id="v", video=Video(id="v", duration=9.0))):
        with pytest.raises(DatasetError, match="no narration"):
            cut_into_clips(silent, PLAIN)


def test_key_steps_without_times_are_an_error_but_none_at_all_is_unlabelled():
    with pytest.raises(DatasetError, match="none of its 2 key-steps has a time"):
        cut_into_clips(record((0, 2, "a"), steps=[("fry",), ("cut",)]), PLAIN)
    assert cut_into_clips(record((0, 2, "a")), PLAIN)[0].key_step is None


def test_a_fifth_is_withheld_and_the_rest_split_four_to_one():
    ids = [f"v{number}" for number in range(100)]
    parts = split_videos(ids, 0)
    assert [len(part) for part in parts] == [64, 16, 20]
    assert frozenset.union(*parts) == set(ids)
    assert split_videos(ids[::-1] * 2, 0) == parts
    assert split_videos(ids, 1) != parts
    with pytest.raises(DatasetError, match="2 videos"):
        split_videos(["a", "b"], 0)
