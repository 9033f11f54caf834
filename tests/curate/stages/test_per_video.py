"""The stages of one video: what each hands on, and which videos are left out."""

import itertools
import json

import numpy as np
import pytest
from curate_cells import NARRATION, transcript, work
from llm_fakes import Answers, FakeServer, completion
from small_video import draw_video

from stepline.curate.settings import FilterSettings
from stepline.curate.stage import LeftOutError, Recipe, VideoItem
from stepline.curate.stages import intermediate, per_video
from stepline.errors import MediaError, WriterError
from stepline.pipeline.pictures import VisualFeatures
from stepline.pipeline.speech import Speech
from stepline.records import FeatureSequence, Span, Step, Transcript
from stepline.settings import load_settings
from stepline.speech import TranscriptionResult
from stepline.writing import WrittenSteps

VTT = "WEBVTT\n\n00:01.000 --> 00:04.000\nChop the onion into small pieces.\n"


def run(stage, result_type, *given, **more):
    """Run a stage of a video and return its result."""
    return intermediate.load_result(result_type, stage(work(*given, **more)))


def test_captions_replace_recognition(tmp_path):
    (tmp_path / "one.vtt").write_text(VTT)
    spoken = run(per_video.run_transcribe, Speech, Recipe(), captions=tmp_path / "one.vtt")
    assert spoken.transcript.sentences[0].text == "Chop the onion into small pieces."


def test_an_item_without_a_file_says_nothing_and_lasts_as_its_source_tells():
    item = VideoItem("one", duration=30.0)
    spoken = run(per_video.run_transcribe, Speech, Recipe(), item)
    assert spoken.transcript.sentences == ()
    assert run(per_video.run_probe, intermediate.ProbeResult, Recipe(), item).duration == 30.0
    assert intermediate.unpack_features(per_video.run_encode(work(Recipe(), item))).features is None


def test_what_is_said_in_a_video_is_recognised(tmp_path, monkeypatch):
    def heard(blocks, *_, **options):
        assert options["models"] is not None
        seconds = sum(len(block.samples) for block in blocks) / 16_000
        return TranscriptionResult(transcript(f"It lasts {round(seconds)} seconds."))

    monkeypatch.setattr("stepline.pipeline.speech.transcribe", heard)
    said = {}
    for name, seconds, sound in (("two", 2, True), ("silent", 2, False)):
        draw_video(tmp_path / f"{name}.mp4", seconds=seconds, sound=sound)
        given = {"media": tmp_path / f"{name}.mp4"}
        video = run(per_video.run_transcribe, Speech, Recipe(), VideoItem(name), **given)
        sentences = video.transcript.sentences
        said[name] = [sentence.text for sentence in sentences]
    assert said == {"two": ["It lasts 2 seconds."], "silent": []}


def test_a_part_that_a_server_left_open_is_asked_again_and_a_useless_reply_is_not():
    start = "sentences 1-10: provisional, from the extractive writer, because "
    late, useless = start + "the deadline passed", start + "the reply is not a numbered list"
    unsupported = start + "no sentence supports any step of the reply"
    assert per_video.find_unanswered_part((useless, unsupported, "a reply was refused")) is None
    assert per_video.find_unanswered_part((useless, late)) == late


def cells(*texts, steps, duration=20.0):
    rows = np.eye(20, 384, dtype=np.float32)
    return {
        "probe": intermediate.dump_result(
            intermediate.ProbeResult(duration=duration, picture=True, sound=True)
        ),
        "transcribe": intermediate.dump_result(Speech(transcript=transcript(*texts))),
        "write": intermediate.dump_result(WrittenSteps(steps=steps)),
        "encode": intermediate.pack_features(
            VisualFeatures(FeatureSequence(rows, 1.0, "conse"), end=duration)
        ),
    }


def coarse(results, recipe=None, item=None):
    return run(
        per_video.run_coarse, intermediate.CoarseSteps, recipe or Recipe(), item, results=results
    )


def ground_and_judge(results):
    """Run three stages and return grounded steps, arrays and the judged transcript."""
    results["coarse"] = per_video.run_coarse(work(Recipe(), results=results))
    results["ground"] = per_video.run_ground(work(Recipe(), results=results))
    judged = run(per_video.run_judge, intermediate.JudgedTranscript, Recipe(), results=results)
    return *intermediate.unpack_arrays(intermediate.GroundedSteps, results["ground"]), judged


def test_a_step_is_said_where_the_sentences_most_like_it_are():
    steps = (Step(id="1", text="fry the onion"), Step(id="2", text="chop the onion"))
    placed = coarse(cells(*NARRATION.split(". "), steps=steps)).steps
    assert [(step.said.start, step.sources) for step in placed] == [(8.0, (2,)), (0.0, (0,))]


def test_the_line_model_places_steps_in_their_order_where_the_recipe_asks_for_it():
    sentences = (
        "We fry the onion.",
        "That comes much later in this video.",
        "So now chop the onion into small pieces.",
        "And then you can fry the onion in the hot pan.",
    )
    steps = (Step(id="1", text="chop the onion"), Step(id="2", text="fry the onion"))
    results = cells(*sentences, steps=steps)
    recipe = load_settings(Recipe, None, ["steps.nasva.coarse.matching=line-model"])
    assert [step.sources for step in coarse(results).steps] == [(2,), (0,)]
    assert [step.sources for step in coarse(results, recipe).steps] == [(2,), (3,)]


def test_cited_sentences_stay_where_the_recipe_says_so_and_what_is_past_the_end_goes():
    recipe = load_settings(Recipe, None, ["coarse.said=cited"])
    said = transcript(*NARRATION.split(". ")).sentences
    steps = tuple(Step(id=str(n), text="do it", said=said[n].span, sources=(n,)) for n in (0, 2))
    placed = coarse(cells(*NARRATION.split(". "), steps=steps, duration=7.0), recipe)
    assert [step.sources for step in placed.steps] == [(0,)]
    assert placed.duration == 7.0
    assert [one.what for one in placed.dropped] == ["sentence", "step"]


def test_captions_without_a_video_last_until_their_last_sentence_ends_and_a_video_has_a_length():
    results = cells("Chop the onion.", "Fry it.", steps=(), duration=0.0)
    with pytest.raises(MediaError, match="its length is not known"):
        coarse(results)
    results["encode"] = intermediate.pack_features(VisualFeatures())
    placed = coarse(results, item=VideoItem("v", captions="v.vtt"))
    assert placed.duration == placed.transcript.sentences[-1].span.end


@pytest.mark.parametrize("seen", [True, False])
def test_steps_that_no_one_can_see_are_only_said_and_not_judged(seen):
    results = cells("Chop the onion.", steps=(Step(id="1", text="chop the onion"),))
    if not seen:
        results["encode"] = intermediate.pack_features(VisualFeatures(end=20.0))
    grounded, arrays, judged = ground_and_judge(results)
    (step,) = grounded.steps
    assert step.status in (("seen", "placed", "said_only") if seen else ("said_only",))
    assert {name: array.shape for name, array in arrays.items()} == (
        {"scores": (1, 20)} if seen else {}
    )
    assert judged.judge is None  # without a detector
    assert judged.transcript.sentences[0].shown is None


def test_labels_end_where_the_next_step_s_begin():
    texts = ("chop the onion", "fry the onion", "salt the rice", "stir the soup")
    steps = tuple(Step(id=str(n), text=text) for n, text in enumerate(texts))
    grounded, *_ = ground_and_judge(cells(*(f"Now {text}." for text in texts), steps=steps))
    placed = sorted(grounded.steps, key=lambda step: step.at or 0.0)
    assert all(step.spans for step in placed)
    for first, second in itertools.pairwise(placed):
        assert first.spans[0].end <= second.spans[0].start


SETTINGS = FilterSettings(shortest=5, longest=600, words=10, words_a_minute=15, steps=2)


@pytest.mark.parametrize(
    ("language", "duration", "words", "steps", "reason"),
    [
        ("en", 60.0, 100, 3, None),
        ("en-US", 60.0, 100, 3, None),
        (None, 60.0, 100, 3, None),  # nobody tells the language
        ("en", 4.9, 100, 3, per_video.TOO_SHORT),
        ("en", 600.5, 2000, 3, per_video.TOO_LONG),
        ("es", 60.0, 100, 3, per_video.OTHER_LANGUAGE),
        ("es", 60.0, 9, 3, per_video.TOO_FEW_WORDS),  # two words are no language
        ("en", 60.0, 14, 3, per_video.SLOW_SPEECH),
        ("en", 60.0, 15, 3, None),
        ("en", 60.0, 100, 1, per_video.TOO_FEW_STEPS),
        ("en", 0.0, 100, 2, None),  # of an unknown length nothing is said
    ],
)
def test_a_video_is_left_out_for_its_first_reason(language, duration, words, steps, reason):
    counts = per_video.FilterCounts(language=language, words=words, steps=steps)
    assert per_video.left_out_reason(counts, duration, SETTINGS) == reason


def test_the_stage_counts_words_and_raises_the_reason():
    steps = tuple(Step(id=str(n), text="chop it") for n in range(2))
    results = cells(*NARRATION.split(". "), steps=steps)
    assert b'"words":18' in per_video.run_filter(work(Recipe(), results=results))
    few = {"write": intermediate.dump_result(WrittenSteps(steps=()))}
    spoken = Speech(transcript=Transcript(), warnings=("it is not understood",))
    deaf = {"transcribe": intermediate.dump_result(spoken)}
    for other, said in ((few, "too few steps"), (deaf, "too little is said; it is not understood")):
        with pytest.raises(LeftOutError, match=said):
            per_video.run_filter(work(Recipe(), results=results | other))


def says_a(handler):
    """Picture A for every step."""
    count = handler.question["messages"][0]["content"][0]["text"].split("\n\n")[1].count("<step>")
    reply = {str(n): {"after": "done", "shown": "A"} for n in range(1, count + 1)}
    Answers.raw(completion(json.dumps(reply)))(handler)


def test_a_vision_language_model_is_asked_where_the_recipe_names_one(
    small_video, tmp_path, monkeypatch
):
    monkeypatch.setenv("STEPLINE_CACHE", str(tmp_path / "cache"))
    steps = (
        Step(id="1", text="fry the onion", said=Span(8.0, 12.0)),
        Step(id="2", text="chop the onion"),
    )
    results = cells(*NARRATION.split(". "), steps=steps, duration=20.0)
    without = results | {"coarse": per_video.run_coarse(work(Recipe(), results=results))}
    with FakeServer(says_a) as server:
        options = [f"steps.vision.vlm.base_url={server.url}", "steps.vision.vlm.pause=0.0"]
        recipe = load_settings(Recipe, None, options)
        context = work(recipe, media=small_video, results=without)
        header, arrays = intermediate.unpack_arrays(
            intermediate.GroundedSteps, per_video.run_ground(context)
        )
        assert header.vlm is not None
        assert header.vlm["requests"] == len(server.asked) > 0
    assert arrays["scores"].shape == (2, 20)
    with FakeServer(Answers.status(503)) as server:
        options[0] = f"steps.vision.vlm.base_url={server.url}"
        recipe = load_settings(Recipe, None, [*options, "steps.vision.vlm.retries=0"])
        with pytest.raises(WriterError, match="--retry-failed asks again"):
            per_video.run_ground(work(recipe, media=small_video, results=without))
    plain = per_video.run_ground(work(Recipe(), media=small_video, results=without))
    assert b"witness" not in plain
