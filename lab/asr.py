"""Speech to text measured: speed, word error rate and sentence starts on spoken how-to text, and
what real clips give.

    python lab/asr.py [--clips FOLDER] [--base]
    python lab/asr.py --labelled CLIPS [--words FILE]

--labelled measures only labelled steps, and word errors.
The speech is made by espeak-ng from texts in asr_speech.py, clean and under pink noise. Whisper
never heard such a voice, so its errors are more than on people. Prints tables and writes
lab/results/asr.json.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

import numpy as np
from asr_speech import ESPEAK_VOICES, HOW_TO_TEXTS, SAMPLE_RATE, Talk, blocks, noisy, talk
from made_transcripts.numbers import ONES_WORDS
from media import peak_mib

from stepline.media import AudioBlock, probe, read_sound
from stepline.records import Sentence, Span
from stepline.speech import AsrSettings, TranscriptionResult, transcribe

RESULT_PATH = Path(__file__).parent / "results" / "asr.json"
NO_START_ERROR_SECONDS = 60.0  # of a sentence where none is heard
NEAR_SECONDS = 6  # around a labelled step, in which its words are sought
MIN_HEARD_SHARE = 0.4  # of a step's words
WORD_OF_NUMBER = {str(value): word for value, word in enumerate(ONES_WORDS[:11])}


def words(text: str) -> list[str]:
    """Return the words that are compared: lower case, digits as words."""
    plain = re.sub(r"[^\w' ]", " ", text.lower().replace("all right", "alright"))
    return [WORD_OF_NUMBER.get(word, word) for word in plain.split()]


def errors(truth: Sequence[str], recognised: Sequence[str]) -> int:
    """Return the edit distance in words."""
    row = list(range(len(recognised) + 1))
    for i, word in enumerate(truth, 1):
        diagonal = row[0]
        row[0] = i
        for j, other in enumerate(recognised, 1):
            least = min(row[j] + 1, row[j - 1] + 1, diagonal + (word != other))
            diagonal = row[j]
            row[j] = least
    return row[-1]


def measure(talks: Sequence[Talk], settings: AsrSettings) -> dict[str, float]:
    """Return speed, word error rate (%), sentences found and the error of their starts (s)."""
    cpu_start = time.process_time()
    wall_start = time.perf_counter()
    results = [transcribe(blocks(speech.samples), settings) for speech in talks]
    cpu_seconds = time.process_time() - cpu_start
    wall_seconds = time.perf_counter() - wall_start
    seconds = sum(len(speech.samples) for speech in talks) / SAMPLE_RATE
    wrong = 0
    word_count = 0
    start_errors = []
    for speech, result in zip(talks, results, strict=True):
        truth = words(" ".join(text for _, text in speech.sentences))
        word_count += len(truth)
        wrong += errors(truth, words(text_of(result)))
        starts = [sentence.span.start for sentence in result.transcript.sentences]
        for true_start, _ in speech.sentences:
            distances = (abs(true_start - start) for start in starts)
            start_errors.append(min(distances, default=NO_START_ERROR_SECONDS))
    return {
        "word error rate %": 100 * wrong / word_count,
        "cpu s per minute": 60 * cpu_seconds / seconds,
        "x real time": seconds / wall_seconds,
        "sentences": sum(len(result.transcript.sentences) for result in results),
        "true sentences": len(start_errors),
        "dropped": sum(len(result.dropped) for result in results),
        "start error median s": float(np.median(start_errors)),
        "start error mean s": float(np.mean(start_errors)),
        "start error p90 s": float(np.quantile(start_errors, 0.9)),
    }


def text_of(result: TranscriptionResult) -> str:
    return " ".join(sentence.text for sentence in result.transcript.sentences)


def clip(path: Path) -> dict[str, object]:
    """Return what one real clip gives with the default settings."""
    sound = read_sound(path) if probe(path).has_sound else []
    result = transcribe(sound)
    sentences = []
    for sentence in result.transcript.sentences:
        span = sentence.span
        sentences.append(f"[{span.start:.2f} {span.end:.2f}] {sentence.text}")
    return {
        "language": result.transcript.language,
        "sentences": sentences,
        "dropped": [f"{sentence.text}: {sentence.reason}" for sentence in result.dropped],
    }


def labelled(clips: Path, references: dict[str, str]) -> dict[str, float]:
    """Return how many labelled steps of real clips are heard, when they are said to begin, and the
    word error rate.

    clips: holds labels.json, steps with the seconds in which they are spoken (docs/real_clips.md).
    A step is heard where two fifths of its words are, in order, within 6 s of its seconds. It
    begins with its first word.
    references: what is said, by clip.
    """
    wrong = 0
    word_count = 0
    step_count = 0
    start_errors: list[float] = []
    cpu_start = time.process_time()
    seconds = 0.0
    labels = json.loads((clips / "labels.json").read_text(encoding="utf-8"))
    for name, label in labels.items():
        spoken_steps = [step for step in label.get("steps", ()) if step.get("spoken")]
        if not spoken_steps and name not in references:
            continue
        sound = list(read_sound(clips / name))
        seconds += sum(len(block.samples) for block in sound) / SAMPLE_RATE
        parts = timed_words(transcribe(sound).transcript.sentences)
        if name in references:
            truth = words(references[name])
            wrong += errors(truth, [part.text for part in parts])
            word_count += len(truth)
        for step in spoken_steps:
            step_count += 1
            error = step_start_error(step, parts)
            if error is not None:
                start_errors.append(error)
    finite = np.array([error for error in start_errors if not np.isnan(error)])
    return {
        "word error rate %": 100 * wrong / word_count if word_count else float("nan"),
        "steps heard": len(start_errors),
        "steps": step_count,
        "start error median s": float(np.median(finite)),
        "start error p90 s": float(np.quantile(finite, 0.9)),
        "starts over 1 s off %": 100 * float(np.mean(finite > 1)),
        "cpu s per minute": 60 * (time.process_time() - cpu_start) / seconds,
    }


@dataclass(frozen=True)
class TimedWord:
    """A word as it is compared. span: when it is said."""

    text: str
    span: Span | None


def timed_words(sentences: Sequence[Sentence]) -> list[TimedWord]:
    """Return the words of sentences as they are compared."""
    parts = []
    for sentence in sentences:
        for word in sentence.words:
            for text in words(word.text):
                parts.append(TimedWord(text, word.span))
    return parts


def step_start_error(step: dict[str, Any], parts: Sequence[TimedWord]) -> float | None:
    """Return how far the start of a step is off. None where it is not heard, NaN where its first
    word is not."""
    first, last = step["spoken"]
    texts = []
    starts = []
    for part in parts:
        span = part.span
        if span and first - NEAR_SECONDS < span.start < last + NEAR_SECONDS:
            texts.append(part.text)
            starts.append(span.start)
    step_words = words(step["text"])
    matcher = SequenceMatcher(None, step_words, texts, autojunk=False)
    start_of_word = {}
    for block in matcher.get_matching_blocks():
        for k in range(block.size):
            start_of_word[block.a + k] = starts[block.b + k]
    if len(start_of_word) < max(1, MIN_HEARD_SHARE * len(step_words)):
        return None
    if 0 not in start_of_word:
        return np.nan
    return abs(start_of_word[0] - first)


def memory(model: str, minutes: int) -> dict[str, float]:
    """Return the peak memory of a process that only transcribes: the spoken texts, then noise, in
    one stream."""
    command = [sys.executable, __file__, "--memory-of", model, str(minutes)]
    process = subprocess.run(command, check=True, capture_output=True, text=True)
    return dict(json.loads(process.stdout))


def run_memory(model: str, minutes: int) -> None:
    """Transcribe and print the peak memory of this process."""
    voice, speed = ESPEAK_VOICES[0]
    talks = [talk(text, voice, speed, seed) for seed, text in enumerate(HOW_TO_TEXTS)]
    speech = np.concatenate([spoken.samples for spoken in talks])
    rng = np.random.default_rng(0)

    def stream() -> Iterator[AudioBlock]:
        for second in range(minutes * 60):
            samples = speech[second * SAMPLE_RATE : (second + 1) * SAMPLE_RATE]
            if len(samples) != SAMPLE_RATE:
                samples = rng.normal(0, 0.01, SAMPLE_RATE).astype(np.float32)
            yield AudioBlock(float(second), samples)

    mib_before = peak_mib()
    result = transcribe(stream(), AsrSettings(model=model))
    figures = {
        "peak_mib": peak_mib(),
        "before_mib": mib_before,
        "speech_s": len(speech) / SAMPLE_RATE,
        "sentences": len(result.transcript.sentences),
    }
    print(json.dumps(figures))


def read_options() -> argparse.Namespace:
    """Return what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clips", type=Path, help="a folder of real clips to transcribe as well")
    parser.add_argument("--base", action="store_true", help="measure Whisper base too")
    parser.add_argument("--memory-of", nargs=2)
    parser.add_argument(
        "--labelled", type=Path, help="a folder of clips with labels.json, the only thing measured"
    )
    parser.add_argument(
        "--words", type=Path, help="JSON: what is said in each of those clips, word for word"
    )
    return parser.parse_args()


def main() -> None:
    options = read_options()
    if options.labelled:
        print_labelled(options)
        return
    if options.memory_of:
        model, minutes = options.memory_of
        run_memory(model, int(minutes))
        return
    if shutil.which("espeak-ng") is None:
        raise SystemExit("espeak-ng is not installed; apt-get install espeak-ng")
    rows = spoken_results(with_base=options.base)
    for name, row in rows.items():
        rounded = {key: round(value, 2) for key, value in row.items()}
        print(f"{name:40s}", rounded)
    results: dict[str, object] = {**rows}
    if options.clips:
        for path in sorted(options.clips.iterdir()):
            if path.suffix not in (".mp4", ".mkv"):
                continue
            results[path.name] = clip(path)
            print(path.name, json.dumps(results[path.name], ensure_ascii=False, indent=1))
    RESULT_PATH.parent.mkdir(exist_ok=True)
    text = json.dumps(results, ensure_ascii=False, indent=1)
    RESULT_PATH.write_text(text + "\n", encoding="utf-8")


def print_labelled(options: argparse.Namespace) -> None:
    """Print what is measured on labelled clips."""
    references = {}
    if options.words:
        references = json.loads(options.words.read_text(encoding="utf-8"))
    figures = labelled(options.labelled, references)
    print({key: round(value, 3) for key, value in figures.items()})


def spoken_results(*, with_base: bool) -> dict[str, dict[str, float]]:
    """Return the rows of spoken texts and of memory. with_base: of Whisper base as well."""
    clean = []
    for seed, text in enumerate(HOW_TO_TEXTS):
        for voice, speed in ESPEAK_VOICES:
            clean.append(talk(text, voice, speed, seed))
    # Loads what every later run shares
    transcribe(blocks(clean[0].samples))
    results: dict[str, dict[str, float]] = {}
    names = ["whisper-tiny.en"]
    memory_runs = [("whisper-tiny.en", 5), ("whisper-tiny.en", 60)]
    if with_base:
        names.append("whisper-base")
        memory_runs.append(("whisper-base", 5))
    for name in names:
        for beam in (1, 5):
            results[f"{name} beam {beam}"] = measure(clean, AsrSettings(model=name, beam=beam))
    settings = AsrSettings(model="whisper-tiny.en")
    for decibels in (10.0, 0.0):
        talks = [noisy(speech, decibels) for speech in clean]
        name = f"whisper-tiny.en beam 5, noise {decibels:.0f} dB"
        results[name] = measure(talks, settings)
    for model, minutes in memory_runs:
        results[f"memory, {model}, {minutes} min"] = memory(model, minutes)
    return results


if __name__ == "__main__":
    main()
