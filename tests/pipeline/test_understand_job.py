import itertools
import os
import signal
import threading
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import stepline
from stepline.curate.stages import per_video
from stepline.errors import CaptionError, ModelError, SettingsError
from stepline.media import AudioBlock, Frame, KeyFrame
from stepline.pipeline import pictures, speech
from stepline.pipeline import understand as pipeline
from stepline.pipeline.networks import Networks
from stepline.pipeline.pictures import NO_PICTURE, VisualFeatures
from stepline.pipeline.placing import add_screen_text_remarks
from stepline.pipeline.request import Request, StepsSettings
from stepline.pipeline.speech import Speech, drop_speech_past_end
from stepline.pipeline.understand import understand
from stepline.records import Sentence, Span, Step, Transcript
from stepline.speech import TranscriptionResult
from stepline.vision import ScreenText
from stepline.vision.conse import ConSEBackbone
from stepline.writing import WrittenSteps


def looking(look):
    """Return settings by which key frames are looked at, or all of the video."""
    return StepsSettings.model_validate({"vision": {"look": look}})


class Endless:
    """Stands for a reader of sound, of pictures or, without a rate, of key frames, that never ends;
    `at_third` is called at its third item."""

    warnings, end = (), 0.0
    at_third = staticmethod(lambda: None)

    def __init__(self, _path, *, frame_rate=None, sound=False, **_options):
        black = np.zeros((64, 64, 3), np.uint8)
        if sound:
            self.item = AudioBlock(0.0, np.zeros(8, np.float32))
        else:
            self.item = KeyFrame(0.0, 0.0, black) if frame_rate is None else Frame(0.0, black)

    def __iter__(self):
        for count in itertools.count():
            if count == 3:
                self.at_third()
            yield self.item


def test_a_missing_backbone_is_reported_without_listening_to_the_end(small_video, monkeypatch):
    monkeypatch.setattr(pictures, "MediaReader", Endless)
    monkeypatch.setattr(speech, "MediaReader", Endless)
    monkeypatch.setattr(speech, "transcribe", lambda blocks, _settings, **_: list(blocks))
    settings = StepsSettings.model_validate_json('{"vision": {"backbone": "clip", "path": "none"}}')
    with pytest.raises(ModelError, match="no such folder"):
        understand(Request(small_video, "small"), settings)


@pytest.mark.parametrize("look", ["auto", "all"])
def test_an_interrupt_while_the_picture_is_waited_for_stops_it(small_video, monkeypatch, look):
    waiting = threading.Event()

    def interrupt():
        waiting.wait()
        os.kill(os.getpid(), signal.SIGINT)

    def nothing_to_do(*_arguments):
        waiting.set()
        return WrittenSteps()

    monkeypatch.setattr(pictures, "MediaReader", Endless)
    monkeypatch.setattr(pictures, "KeyFrameReader", Endless)
    monkeypatch.setattr(Endless, "at_third", staticmethod(interrupt))
    silence = Speech(transcript=Transcript())
    monkeypatch.setattr(pipeline, "recognise_speech", lambda *_, **__: silence)
    monkeypatch.setattr(pipeline, "propose_steps", nothing_to_do)
    # a background process may ignore it
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            understand(Request(small_video, "small"), looking(look))
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_video_replaced_while_it_is_read_is_known_by_what_was_there_first(
    small_video, tmp_path, monkeypatch
):
    video = tmp_path / "v.mp4"
    video.write_bytes(small_video.read_bytes())
    before = pipeline.sha256(video)

    def replaced(*_arguments, **_options):
        video.write_bytes(b"another video")
        return Speech(transcript=Transcript(), end=16.0)

    monkeypatch.setattr(pipeline, "recognise_speech", replaced)
    settings = StepsSettings.model_validate_json('{"vision": {"backbone": "none"}}')
    assert understand(Request(video, "v"), settings).record.video.sha256 == before


def test_other_features_under_the_same_path_are_another_input(tmp_path):
    folder = tmp_path / "features"
    folder.mkdir()
    settings = StepsSettings.model_validate_json(
        f'{{"vision": {{"backbone": "precomputed", "path": "{folder}"}}}}'
    )
    prints = []
    for value in (1.0, 2.0):
        np.save(folder / "v.npy", np.full((4, 2), value, np.float32))
        prints.append(
            pipeline.describe_inputs(Request(tmp_path / "v.mp4", "v"), settings, Networks())
        )
    assert prints[0] != prints[1]


def test_no_writer_is_named_for_lines_of_the_users_own(small_video):
    settings = StepsSettings.model_validate_json('{"vision": {"backbone": "none"}}')
    record = understand(Request(small_video, "small", texts=("move the square",)), settings).record
    assert record.models["writer"] is None


def test_a_sound_without_a_picture_shows_nothing(captions_file, tmp_path):
    import wave

    path = tmp_path / "talk.wav"
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, 16_000, 0, "NONE", ""))
        file.writeframes(bytes(2 * 16_000 * 16))
    record = understand(Request(path, "talk", captions_file), StepsSettings()).record
    assert {step.status for step in record.steps} == {"said_only"}
    assert not any(step.spans for step in record.steps)
    assert NO_PICTURE in record.warnings


@pytest.mark.skipif(
    not os.path.exists("/proc/self/mem"), reason="needs a file that opens and cannot be read"
)
def test_a_captions_file_that_cannot_be_read_is_one_line(small_video):
    with pytest.raises(SettingsError, match="/proc/self/mem: cannot be read"):
        understand(Request(small_video, "small", Path("/proc/self/mem")), StepsSettings())


@pytest.mark.parametrize("look", ["auto", "all"])
@pytest.mark.parametrize("captioned", [True, False])
def test_pictures_are_decoded_by_a_thread_ahead_of_their_networks(
    small_video, captions_file, monkeypatch, captioned, look
):
    names = {Frame: set(), KeyFrame: set(), AudioBlock: set()}

    class Named:
        def __iter__(self):
            for item in super().__iter__():
                names[type(item)].add(threading.current_thread().name.rpartition("_")[0])
                yield item

    for module, name in (
        (pictures, "MediaReader"),
        (pictures, "KeyFrameReader"),
        (speech, "MediaReader"),
    ):
        monkeypatch.setattr(module, name, type(name, (Named, getattr(module, name)), {}))
    monkeypatch.setattr(
        speech, "transcribe", lambda *_given, **_options: TranscriptionResult(TRANSCRIPT)
    )
    result = understand(
        Request(small_video, "small", captions_file if captioned else None), looking(look)
    )
    seen, other = (KeyFrame, Frame) if look == "auto" else (Frame, KeyFrame)
    assert (names[seen], names[other]) == ({"read-ahead"}, set())
    assert result.record.video.duration == pytest.approx(16.0, abs=0.1)


def test_the_text_encoder_is_loaded_while_steps_are_written(
    small_video, captions_file, monkeypatch
):
    loaded = threading.Event()
    backbone = ConSEBackbone(
        None, np.zeros((1000, 4), np.float32), class_count=1, text_model="mine"
    )
    monkeypatch.setattr(
        pipeline, "extract_features", lambda *_given, **_options: VisualFeatures(backbone=backbone)
    )
    monkeypatch.setattr(
        "stepline.pipeline.pictures.load_encoder",
        lambda name="minilm": loaded.set() if name == "mine" else None,
    )
    monkeypatch.setattr(
        pipeline, "propose_steps", lambda *_: WrittenSteps(notes=(str(loaded.wait(60)),))
    )
    record = understand(Request(small_video, "small", captions_file), StepsSettings()).record
    assert "True" in record.warnings


def test_the_text_encoder_is_loaded_before_the_grammar_takes_its_memory(monkeypatch):
    calls = []
    monkeypatch.setattr(
        "stepline.pipeline.understand.load_encoder", lambda: calls.append("encoder")
    )
    monkeypatch.setattr(
        "stepline.writing.extractive.narration.parse_narration", lambda *_: calls.append("grammar")
    )
    sentence = Sentence(text="Whisk the eggs.", span=Span(0, 2))
    transcript = Transcript(language="en", sentences=(sentence,))
    pipeline._parse_narration(Request(Path("v.mp4"), "v"), transcript, StepsSettings())
    assert calls == ["encoder", "grammar"]


def test_a_recogniser_is_kept_from_one_call_to_the_next(small_video, tmp_path, monkeypatch):
    given = []

    def recognise(*_given, models=None, **_options):
        given.append(models)
        return Speech(transcript=Transcript(), end=16.0)

    for module in ("pipeline.understand", "pipeline.batch", "curate.stages.per_video"):
        monkeypatch.setattr(f"stepline.{module}.recognise_speech", recognise)
    settings = StepsSettings.model_validate_json('{"vision": {"backbone": "none"}}')
    other = StepsSettings.model_validate_json(
        '{"vision": {"backbone": "none"}, "asr": {"beam": 2}}'
    )
    stepline.steps(small_video, settings=settings)
    stepline.steps(small_video, settings=settings, out=tmp_path)
    stepline.transcribe(small_video, settings=settings)
    recipe, item = SimpleNamespace(steps=settings), SimpleNamespace(id="small")
    per_video.run_transcribe(
        SimpleNamespace(recipe=recipe, item=item, captions=None, media=small_video, notes={})
    )
    assert isinstance(given[0], dict)
    assert all(models is given[0] for models in given)
    stepline.steps(small_video, settings=other)
    assert given[-1] is not given[0]


TRANSCRIPT = Transcript(
    sentences=tuple(
        Sentence(text=f"said at {start}", span=Span(start, start + 3.0))
        for start in (0.0, 8.0, 12.0)
    )
)


def spoken_step(*sources):
    return Step(id="1", text="cut", sources=sources, said=Span(0.0, 20.0))


def test_what_lies_within_is_untouched():
    kept = drop_speech_past_end(12.5, TRANSCRIPT, [spoken_step(2)], keep_all_steps=False)
    assert kept.transcript is TRANSCRIPT
    assert kept.steps == (spoken_step(2),)
    assert kept.dropped == kept.warnings == ()


def test_sentences_after_the_end_go_with_the_steps_that_rest_on_nothing_else():
    kept = drop_speech_past_end(
        12.0,
        TRANSCRIPT,
        [spoken_step(1), spoken_step(2), spoken_step(0, 2)],
        keep_all_steps=False,
        start=60.0,
    )
    assert [sentence.span.start for sentence in kept.transcript.sentences] == [0.0, 8.0]
    assert [one.sources for one in kept.steps] == [(1,), (0,)]
    assert kept.steps[1].said == Span(0.0, 3.0)
    dropped = [(item.what, item.text) for item in kept.dropped]
    assert dropped == [("sentence", "said at 12.0"), ("step", "cut")]
    assert {item.reason for item in kept.dropped} == {"it is said after the video ends at 72.0 s"}
    assert "1 of 3 sentences are said after the video ends at 72.0 s" in kept.warnings[0]


def test_captions_of_another_video_are_an_error_where_no_step_is_left():
    steps = [spoken_step(1), spoken_step(2)]
    assert drop_speech_past_end(9.0, TRANSCRIPT, steps, keep_all_steps=False).steps == (steps[0],)
    with pytest.raises(CaptionError, match="2 of 3 sentences .* give the captions of this video"):
        drop_speech_past_end(5.0, TRANSCRIPT, steps, keep_all_steps=False)


@pytest.mark.parametrize("sources", [(), (2,)])
def test_a_line_of_the_users_own_stays(sources):
    (line,) = drop_speech_past_end(
        12.0, TRANSCRIPT, [spoken_step(*sources)], keep_all_steps=True
    ).steps
    assert line.sources == ()
    assert (line.said is None) == (sources == (2,))


def test_a_step_reports_what_the_picture_holds():
    sentences = tuple(
        Sentence(text="now cut it", span=Span(start, start + 3)) for start in (0.0, 10.0, 20.0)
    )
    lines = (
        ScreenText("SOME OTHER THING", Span(11, 13), 0.05),
        ScreenText("small print", Span(12, 13), 0.01),
        ScreenText("THE CHANNEL", Span(0, 40), 0.1),
        ScreenText("CUT  NOW", Span(10, 12), 0.2),
        ScreenText("DANEL", Span(10, 12), 0.3),  # a bit of a word
        ScreenText("later", Span(16, 18), 0.2),
    )
    transcript = Transcript(sentences=sentences)

    def seen(**known):
        steps = [Step(id="1", text="cut", **known)]
        return add_screen_text_remarks(steps, transcript, lines)[0].seen

    told = ("for: its words are on screen: CUT NOW", "text on screen: SOME OTHER THING")
    assert seen(said=Span(10, 16), status="said_only", spans=(Span(30, 33),), sources=(1,)) == told
    assert seen(said=Span(10, 16), status="placed", spans=(Span(20, 24),), sources=(2,)) == ()
    assert seen(status="not_found") == ()
    # one piece of evidence, though it fills two lines
    lines = [ScreenText(text, Span(10, 12), 0.2) for text in ("cut the", "red onion")]
    step = Step(
        id="1", text="cut the red onion", said=Span(10, 16), status="placed", spans=(Span(10, 12),)
    )
    (step,) = add_screen_text_remarks([step], Transcript(), lines)
    assert step.seen == ("for: its words are on screen: cut the / red onion",)


@pytest.mark.parametrize(
    ("step", "lines", "is_evidence"),
    [
        ("tap them gently", ["Get them gently"], False),  # one content word of two
        ("tap them gently", ["tap gently"], True),
        ("put it in order", ["SO IN ORDER TO", "IT AND THEN FROM HERE"], False),
        ("sift the flour", ["FLOUR"], True),  # a label
        ("sift the flour", ["flour or"], False),
        ("stir it", ["now stir it"], True),  # all content words of the step
        ("do it", ["do it now"], False),
    ],
)
def test_only_content_words_on_the_screen_speak_for_a_step(step, lines, is_evidence):
    sentences = (Sentence(text=f"and then so from here {step} now", span=Span(10, 14)),)
    on_screen = [ScreenText(text, Span(10, 12), 0.2) for text in lines]
    placed = Step(id="1", text=step, said=Span(10, 14), status="said_only", sources=(0,))
    (seen,) = add_screen_text_remarks([placed], Transcript(sentences=sentences), on_screen)
    start = "for: its words are on screen: " if is_evidence else "text on screen: "
    assert seen.seen
    assert all(remark.startswith(start) for remark in seen.seen)


def test_a_file_that_is_cut_off_is_done_with_a_warning_everywhere(tmp_path, stepline):
    demo = (Path(pipeline.__file__).parents[1] / "cli" / "demo" / "demo.mp4").read_bytes()
    (tmp_path / "cut.mp4").write_bytes(demo[: len(demo) // 12])  # its index is at the front
    result = stepline("steps", tmp_path / "cut.mp4", "--out", tmp_path / "out")
    assert result.exit_code == 0, result.stderr
    (warning,) = [line for line in result.stderr.splitlines() if "can be read" in line]
    assert warning.endswith("copy the file again")
    for ending in ("json", "html"):
        assert "copy the file again" in (tmp_path / "out" / f"cut.{ending}").read_text()
