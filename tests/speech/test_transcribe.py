"""Real clips: what is said is written, and nothing where nobody speaks."""

import ctypes
import subprocess
import sys
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from stepline.errors import ModelError, SettingsError
from stepline.media import AudioBlock, probe, read_sound
from stepline.networks.weights import weights_fetched
from stepline.records import Sentence, Span
from stepline.settings import validate
from stepline.speech import AsrSettings, transcribe, whisper
from stepline.speech.audio_windows import FRAME_SECONDS, AudioWindow, WindowTranscript
from stepline.speech.transcribe import SentenceCollector, find_unrecognised_speech
from stepline.speech.whisper import find_model

CLIPS = Path(__file__).resolve().parents[2] / ".." / "shared" / "data" / "videos"
DEMO = Path(__file__).resolve().parents[2] / "stepline" / "cli" / "demo" / "demo.mp4"
TINY = "whisper-tiny.en"
clips = pytest.mark.skipif(not CLIPS.is_dir(), reason="needs the clips of ../shared/data/videos")
multilingual = pytest.mark.skipif(not weights_fetched("whisper-base"), reason="needs whisper-base")


@cache
def heard(clip, model=TINY):
    path = CLIPS / clip
    blocks = list(read_sound(path)) if probe(path).has_sound else []
    return transcribe(blocks, AsrSettings(model=model))


def text(found):
    return " ".join(sentence.text for sentence in found.transcript.sentences)


@clips
@pytest.mark.parametrize(
    "clip",
    "making_water.mp4 silent_cake.mp4 pancake_flip.mkv charades_phone.mp4 cpr_silent.mp4".split(),
)
def test_nothing_is_invented_where_no_one_speaks(clip):
    assert heard(clip).transcript.sentences == ()


@clips
def test_the_money_clip_is_understood_sentence_by_sentence():
    found = heard("howto100m_money_clip.mp4")
    said = text(found).lower()
    for phrase in (
        "welcome to the next tutorial",
        "cut out four strips of tape",
        "credit card",
        "stick them together",
    ):
        assert phrase in said
    starts = {s.text.lower()[:24]: s.span.start for s in found.transcript.sentences}
    assert starts["the first step you're go"] == pytest.approx(17.5, abs=0.5)
    assert 10 <= len(found.transcript.sentences) <= 16
    assert found.dropped == ()


@clips
@pytest.mark.parametrize(
    ("clip", "phrase"),
    [
        ("cocoa_tv_chef.mp4", "cocoa"),
        ("mixing_bowl_hosts.mp4", "smash it"),
        ("hair_chat.mp4", "okay"),
    ],
)
def test_short_and_noisy_speech_is_not_over_filtered(clip, phrase):
    assert phrase in text(heard(clip)).lower()


@clips
def test_chinese_gives_no_english_nonsense_with_the_english_model():
    found = heard("quilt_clip_zh.mp4")
    assert found.transcript.sentences == ()
    assert found.dropped
    assert all("unsure" in item.reason for item in found.dropped)


@clips
@multilingual
def test_chinese_is_named_when_whisper_base_is_installed():
    found = heard("quilt_clip_zh.mp4", None)
    assert (found.transcript.language, found.transcript.recogniser) == ("zh", "whisper-base")
    assert "背子" in text(found)


@clips
def test_without_whisper_base_the_doubt_names_the_extra(monkeypatch):
    monkeypatch.setattr("stepline.speech.recogniser.weights_fetched", lambda name: name == TINY)
    found = transcribe(read_sound(CLIPS / "quilt_clip_zh.mp4"))
    assert found.transcript.sentences == ()
    assert "stepline weights get whisper-base" in found.dropped[0].reason


# a text, its seconds, the probability of each of its words
Spoken = list[tuple[str, float, float, float]]


def read_by(monkeypatch, spoken, *languages, probability=1.0):
    """Let every model that is loaded hear this, window by window; it knows English, and the other
    languages given."""
    words = [
        SimpleNamespace(
            word=f" {word}", start=start + k * step, end=start + (k + 0.9) * step, probability=sure
        )
        for text, start, end, sure in spoken
        for k, word in enumerate(text.split())
        for step in [(end - start) / len(text.split())]
    ]
    model = SimpleNamespace(
        supported_languages=("en", *languages),
        model=SimpleNamespace(is_multilingual=bool(languages)),
        transcribe=lambda sound, **options: (
            [SimpleNamespace(words=words, avg_logprob=-0.3)],
            SimpleNamespace(language=(*languages, "en")[0], language_probability=probability),
        ),
    )
    monkeypatch.setattr("faster_whisper.WhisperModel", lambda *_, **__: model)
    monkeypatch.setattr("stepline.speech.whisper.find_weights", lambda name: Path(name))
    monkeypatch.setattr("stepline.speech.recogniser.weights_fetched", lambda name: name == TINY)


CLEAR = ("Cut the bread into four thin slices, and toast them.", 3.7, 7.3, 0.9)


def demo_voice():
    """Return the demo's first 8 s, in which somebody speaks from 0.7 to 3.1 and from 4.0 to 7.8
    s."""
    return [block for block in read_sound(DEMO) if block.start < 8]


def test_a_few_words_not_understood_next_to_clear_english_are_not_taken_for_another_language(
    monkeypatch,
):
    read_by(monkeypatch, [("What happened over there?", 0.4, 2.8, 0.2), CLEAR])
    found = transcribe(demo_voice())
    assert [sentence.text for sentence in found.transcript.sentences] == [CLEAR[0]]
    (left_out,) = found.dropped
    assert "unsure of the words" in left_out.reason
    assert "English" not in left_out.reason
    assert (found.transcript.language, found.warnings) == ("en", ())


def test_where_most_is_not_understood_the_cure_is_reported_once_and_no_language_is_named(
    monkeypatch,
):
    read_by(
        monkeypatch,
        [("I was younger then.", 0.4, 2.8, 0.2), ("I was like how to do it.", 3.7, 7.3, 0.2)],
    )
    found = transcribe(demo_voice())
    assert found.transcript.sentences == ()
    assert found.transcript.language is None
    assert "perhaps it is not English" in found.dropped[0].reason
    (advice,) = found.warnings
    assert "`stepline weights get whisper-base`" in advice


def test_long_speech_without_words_is_a_warning():
    # 1,250 frames of 32 ms: speech from 0 to 10 s, which a sentence covers to 4 s, and from 20 to
    # 23 s without a sentence. 6 s of the first are unread, the 3 s at the end are too few.
    voiced = np.arange(0, 40, FRAME_SECONDS, np.float32)
    voiced = voiced[(voiced < 10) | ((voiced >= 20) & (voiced < 23))]
    spans = [Span(0.0, 4.0), Span(12.0, 19.0)]
    ((start, seconds),) = find_unrecognised_speech(voiced, spans)
    assert (start, seconds) == (pytest.approx(4.0, abs=0.1), pytest.approx(6.0, abs=0.1))
    assert find_unrecognised_speech(voiced, [Span(0.0, 6.0)]) == [
        (pytest.approx(6.0, abs=0.1), pytest.approx(7.0, abs=0.1))
    ]
    assert find_unrecognised_speech(np.zeros(0, np.float32), []) == []
    # Two windows of 16 s of speech, which overlap by 6 s, with a sentence of 4 s at the beginning.
    collector = SentenceCollector(AsrSettings(), 100.0)  # of the video, where this part begins
    sentence = Sentence(text="Cut the bread.", span=Span(0.0, 4.0))
    samples, voice = np.zeros(16 * 16_000, np.float32), np.ones(500, np.float32)
    for start, sentences in ((0.0, [sentence]), (10.0, [])):
        window = AudioWindow(start, samples, voice, last=start > 0)
        collector.add(sentences, [window], [WindowTranscript((), "en", -0.1)])
    recogniser = SimpleNamespace(advice="the cure", english_only=True, name="fake")
    assert collector.result(recogniser).warnings == (
        "22 s of speech, from second 104 on, are not understood; the cure",
    )


@pytest.mark.parametrize(("unsure", "count"), [("Whisk well.", 0), ("Whisk it well.", 1)])
def test_many_unsure_words_are_a_warning_that_names_a_better_model(monkeypatch, unsure, count):
    # 2 unsure words are too few to say anything, 3 of 13 are 23 %.
    read_by(monkeypatch, [(unsure, 0.4, 2.8, 0.47), CLEAR])
    warnings = transcribe(demo_voice()).warnings
    assert len(warnings) == count
    for warning in warnings:
        assert warning.startswith("3 of 13 words are unsure")
        assert "`--model whisper-base`" in warning


@pytest.mark.parametrize(("probability", "named"), [(0.9, "es"), (0.3, None)])
def test_a_language_is_named_where_it_is_likely(monkeypatch, probability, named):
    spanish = "Corta el pan en cuatro rebanadas finas y tuesta todo."
    read_by(monkeypatch, [(spanish, *CLEAR[1:])], "es", probability=probability)
    assert transcribe(demo_voice(), AsrSettings(model="whisper-base")).transcript.language == named


def test_english_words_are_english_whatever_the_accent_was_taken_for(monkeypatch):
    read_by(monkeypatch, [CLEAR], "ms", probability=0.9)
    found = transcribe(demo_voice(), AsrSettings(model="whisper-base"))
    assert found.transcript.language == "en"


@clips
def test_speech_of_another_language_is_translated_and_the_record_says_from_which(monkeypatch):
    asked = []

    class Multilingual:
        supported_languages = ("en", "es")
        model = SimpleNamespace(is_multilingual=True)

        def transcribe(self, sound, **options):
            del sound
            asked.append(options)
            word = SimpleNamespace(word=" Stop.", start=0.2, end=0.6, probability=0.9)
            heard = SimpleNamespace(language="es", language_probability=0.9)
            return [SimpleNamespace(words=[word], avg_logprob=-0.2)], heard

    monkeypatch.setattr("faster_whisper.WhisperModel", lambda *_, **__: Multilingual())
    monkeypatch.setattr("stepline.speech.whisper.find_weights", lambda name: Path(name))
    found = transcribe(read_sound(DEMO), AsrSettings(translate=True))
    assert {options["task"] for options in asked} == {"translate"}
    assert asked[0]["language"] is None
    assert found.transcript.language == "en"
    assert found.transcript.recogniser == "whisper-base, translated from es"


def test_a_model_that_hears_only_english_and_whisperx_translate_nothing():
    with pytest.raises(
        SettingsError,
        match=r"asr.translate: whisper-tiny.en knows only English; asr.model=whisper-base",
    ):
        transcribe(read_sound(DEMO), AsrSettings(model=TINY, translate=True))
    with pytest.raises(ValueError, match="recogniser=whisper"):
        AsrSettings(recogniser="whisperx", translate=True)


def test_a_model_is_loaded_once_for_many_sounds_and_hears_the_same(monkeypatch):
    loaded = []
    load = whisper._load_model

    def counting(path, place, threads):
        loaded.append(path)
        return load(path, place, threads)

    monkeypatch.setattr(whisper, "_load_model", counting)
    blocks, settings = list(read_sound(DEMO))[:6], AsrSettings(model=TINY)
    models = {}
    together = [transcribe(blocks, settings, models=models) for _ in range(2)]
    assert len(loaded) == 1
    assert together == [transcribe(blocks, settings)] * 2
    assert len(loaded) == 2  # nobody else keeps one


# In a process of its own, as a run is: with the threads of many other tests, glibc gives large
# blocks other places.
PAGE_FAULTS = """
import resource
import numpy as np
from stepline.speech import AsrSettings
from stepline.speech.whisper import Whisper

model = Whisper("whisper-tiny.en", AsrSettings())._model
for _ in range(3):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    model.encode(np.zeros((80, 3000), np.float32))
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(
    sys.platform != "linux" or not hasattr(ctypes.CDLL(None), "mallopt"), reason="needs glibc"
)
def test_windows_after_the_first_are_read_in_memory_that_is_there_already():
    run = subprocess.run(
        [sys.executable, "-c", PAGE_FAULTS], capture_output=True, text=True, check=True, timeout=120
    )
    # pages of 4 KiB; 77,000 where large blocks are mapped anew
    assert min(map(int, run.stdout.split()[1:])) < 10_000


@clips
def test_the_size_of_the_blocks_changes_nothing():
    whole = list(read_sound(CLIPS / "howto100m_money_clip.mp4"))
    one = AudioBlock(whole[0].start, np.concatenate([block.samples for block in whole]))
    assert transcribe([one], AsrSettings(model=TINY)) == heard("howto100m_money_clip.mp4")


@clips
def test_a_stream_that_starts_later_moves_every_time():
    blocks = list(read_sound(CLIPS / "cocoa_tv_chef.mp4"))
    late = transcribe(
        [AudioBlock(block.start + 100.0, block.samples) for block in blocks],
        AsrSettings(model=TINY),
    )
    (first,), (second,) = heard("cocoa_tv_chef.mp4").transcript.sentences, late.transcript.sentences
    assert second.text == first.text
    assert second.span.start == pytest.approx(first.span.start + 100.0, abs=0.05)


@pytest.mark.parametrize("kind", ["silence", "noise", "tone", "chords"])
def test_synthetic_sound_without_speech_gives_nothing(kind):
    seconds = np.arange(16_000 * 12) / 16_000
    samples = {
        "silence": np.zeros(len(seconds)),
        "noise": np.random.default_rng(0).normal(0.0, 0.2, len(seconds)),
        "tone": 0.4 * np.sin(2 * np.pi * 220 * seconds),
        "chords": sum(0.15 * np.sin(2 * np.pi * f * seconds) for f in (220, 277, 330))
        * np.exp(-3 * (seconds % 0.5)),
    }[kind]
    assert transcribe([AudioBlock(0.0, samples.astype(np.float32))]).transcript.sentences == ()


def test_no_sound_is_an_empty_transcript():
    assert transcribe([]).transcript.sentences == ()


def test_a_language_that_the_model_cannot_hear_is_an_error():
    noise = [AudioBlock(0.0, np.zeros(16_000, np.float32))]
    with pytest.raises(
        SettingsError, match="asr.language 'zh': whisper-tiny.en knows only English"
    ):
        transcribe(noise, AsrSettings(model=TINY, language="zh"))


def test_a_language_that_whisper_lacks_asks_for_no_weights(monkeypatch):
    monkeypatch.setenv("STEPLINE_WEIGHTS", "/nowhere")
    noise = [AudioBlock(0.0, np.ones(16_000, np.float32))]
    with pytest.raises(SettingsError, match="asr.language 'aa': Whisper knows 99 languages"):
        transcribe(noise, AsrSettings(language="aa"))


@pytest.mark.parametrize("language", ["klingon", "../../x", "", "english"])
def test_a_language_that_does_not_exist_is_refused(language):
    with pytest.raises(SettingsError, match="setting language: no language has this code"):
        validate(AsrSettings, {"language": language})


@pytest.mark.parametrize("language", ["en", "pt-BR", "zh_Hant", "yue", None])
def test_a_language_tag_is_accepted(language):
    assert validate(AsrSettings, {"language": language}).language == language


def test_a_folder_without_a_model_is_an_error(tmp_path):
    with pytest.raises(ModelError, match="not a CTranslate2 Whisper model"):
        transcribe(
            [AudioBlock(0.0, np.zeros(16_000, np.float32))], AsrSettings(model=str(tmp_path))
        )


def test_a_model_that_faster_whisper_knows_is_fetched_from_the_hub_and_said_so(
    monkeypatch, caplog, tmp_path
):
    asked = []

    def download(name, *, local_files_only=False):
        asked.append(local_files_only)
        if local_files_only:
            raise FileNotFoundError(name)
        return str(tmp_path)

    monkeypatch.setattr("faster_whisper.download_model", download)
    assert find_model("large-v3") == tmp_path
    assert asked == [True, False]
    assert "large-v3 is fetched from the model hub" in caplog.text
    monkeypatch.setattr(
        "faster_whisper.download_model", lambda name, local_files_only=False: str(tmp_path / name)
    )
    caplog.clear()
    assert find_model("small") == tmp_path / "small"  # it was fetched before
    assert caplog.text == ""


def test_a_model_that_cannot_be_fetched_is_one_line_with_the_cure(monkeypatch):
    def unreachable(name, *, local_files_only=False):
        raise FileNotFoundError("no route to the hub\nand more")

    monkeypatch.setattr("faster_whisper.download_model", unreachable)
    with pytest.raises(
        ModelError, match=r"^small: cannot be fetched .*\(no route to the hub\); try again when"
    ):
        find_model("small")
    with pytest.raises(ModelError, match="nonsense: neither a known model"):
        find_model("nonsense")
