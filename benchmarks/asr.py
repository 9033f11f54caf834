"""Speech to text measured: speed, word error rate and sentence starts on spoken how-to text, and
what real clips give.

    python benchmarks/asr.py [--clips FOLDER] [--base]
    python benchmarks/asr.py --add base memory     # these rows alone, beside those that the file has
    python benchmarks/asr.py --labelled CLIPS [--words FILE]   # only this: labelled steps, and word errors
    python benchmarks/asr.py --labelled CLIPS --words FILE --cache DIR [--again MODEL]   # unsure words heard again

The speech is made by espeak-ng from texts in this file, clean and under pink noise. Whisper never
heard such a voice, so its errors are more than on people. Prints tables and writes
benchmarks/results/asr.json.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from media import peak_mib
from real_clips import pictures

from stepline.asr import AsrSettings, TranscriptionResult, transcribe
from stepline.asr.audio_windows import AudioWindower
from stepline.asr.second_reading import PAD_SECONDS, SILENCE_SECONDS, _cut, _divide
from stepline.asr.vad import FRAME_SAMPLES, find_speech
from stepline.asr.whisper import Whisper
from stepline.media import AudioBlock, probe, read_sound
from stepline.records import Word

Samples = npt.NDArray[np.float32]

RATE = 16_000  # Hz
RESULTS = Path(__file__).parent / "results" / "asr.json"
VOICES = (("en-us", 150), ("en-gb+f3", 165))  # espeak-ng voice, words per minute
TEXTS = (
    "Hi everyone and welcome back to my kitchen. Today I'm going to show you how to make fresh lemonade. First, "
    "wash the lemons under cold water. Then cut each lemon in half with a sharp knife. Squeeze the juice into a "
    "large jug. If you find any seeds, take them out with a spoon. Now pour the sugar into a pan with one cup of "
    "water. Heat it slowly until the sugar melts. I love the smell of this. Let the syrup cool for ten minutes. "
    "Pour the syrup into the jug and stir well. Add plenty of ice and a few leaves of mint. That's it, thank you "
    "for watching and don't forget to subscribe.",
    "In this video we will build a simple wooden shelf. You need two boards, a drill, some screws and a pencil. "
    "Measure the wall and mark the height with the pencil. Hold the bracket against the wall and check that it is"
    " level. Drill a hole at every mark. Push a plug into each hole. Screw the brackets to the wall, but don't "
    "tighten them yet. Some people skip this part and regret it later. Sand the board until it feels smooth. Wipe"
    " off the dust with a damp cloth. Put the board on the brackets and fix it from below. Finally, tighten all "
    "the screws.",
    "Alright, so you got a flat tire on your bike. Turn the bike upside down so that it stands on the saddle. "
    "Loosen the brake and take the wheel out. Push a tire lever under the edge and pull it over the rim. Pull out"
    " the inner tube. Pump some air into the tube and listen for the hole. Rub the rubber with sandpaper around "
    "the hole. Spread a thin layer of glue and wait for about five minutes. Press the patch firmly onto the glue."
    " Put the tube back inside the tire. Pump it up again and you are done. See you in the next one.",
)
DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
UNSURE = 0.3  # probability of a word under which its utterance is read again
NUMBERS = {str(value): word for value, word in enumerate(DIGITS)}


@dataclass(frozen=True)
class Talk:
    """Spoken text: samples (N,) at 16 kHz, and each sentence with its true start in seconds."""

    samples: Samples
    sentences: tuple[tuple[float, str], ...]


def talk(text: str, voice: str, speed: int, seed: int) -> Talk:
    """Speak a text sentence by sentence with pauses of 0.25 to 1 s."""
    rng = np.random.default_rng(seed)
    pieces: list[Samples] = [np.zeros(RATE // 2, np.float32)]
    starts: list[tuple[float, str]] = []
    for sentence in re.findall(r"[^.!?]+[.!?]", text):
        starts.append((sum(map(len, pieces)) / RATE, sentence.strip()))
        pieces += [
            spoken(sentence, voice, speed),
            np.zeros(int(RATE * rng.uniform(0.25, 1.0)), np.float32),
        ]
    return Talk(np.concatenate(pieces), tuple(starts))


def spoken(sentence: str, voice: str, speed: int) -> Samples:
    """Speak one sentence with espeak-ng, silence at both ends cut off."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "speech.wav"
        subprocess.run(
            ["espeak-ng", "-v", voice, "-s", str(speed), "-w", str(path), sentence], check=True
        )
        samples = np.concatenate([block.samples for block in read_sound(path)])
    loud = np.flatnonzero(np.abs(samples) > 0.003)
    return samples[loud[0] : loud[-1] + 1]


def noisy(given: Talk, decibels: float) -> Talk:
    """Add pink noise, `decibels` under the speech."""
    white = np.fft.rfft(np.random.default_rng(0).normal(size=len(given.samples)))
    pink = np.fft.irfft(white / np.sqrt(np.maximum(np.arange(len(white)), 20)), len(given.samples))
    scale = given.samples.std() / pink.std() * 10 ** (-decibels / 20)
    return Talk((given.samples + scale * pink).astype(np.float32), given.sentences)


def blocks(samples: Samples) -> Iterator[AudioBlock]:
    """Cut samples into blocks of one second."""
    for first in range(0, len(samples), RATE):
        yield AudioBlock(first / RATE, samples[first : first + RATE])


def words(text: str) -> list[str]:
    """Return the words that are compared: lower case, digits as words."""
    plain = re.sub(r"[^\w' ]", " ", text.lower().replace("all right", "alright"))
    return [NUMBERS.get(word, word) for word in plain.split()]


def errors(truth: Sequence[str], found: Sequence[str]) -> int:
    """Return the edit distance in words."""
    row = list(range(len(found) + 1))
    for i, word in enumerate(truth, 1):
        last, row[0] = row[0], i
        for j, other in enumerate(found, 1):
            last, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, last + (word != other))
    return row[-1]


def measure(talks: Sequence[Talk], settings: AsrSettings) -> dict[str, float]:
    """Return speed, word error rate (%), sentences found and the error of their starts (s)."""
    began, wall = time.process_time(), time.perf_counter()
    heard = [transcribe(blocks(given.samples), settings) for given in talks]
    cpu, wall = time.process_time() - began, time.perf_counter() - wall
    seconds = sum(len(given.samples) for given in talks) / RATE
    truths = [words(" ".join(text for _, text in given.sentences)) for given in talks]
    wrong = sum(
        errors(truth, words(said(found))) for truth, found in zip(truths, heard, strict=True)
    )
    starts = [
        min(
            (abs(start - sentence.span.start) for sentence in found.transcript.sentences),
            default=60.0,
        )
        for given, found in zip(talks, heard, strict=True)
        for start, _ in given.sentences
    ]
    return {
        "word error rate %": 100 * wrong / sum(map(len, truths)),
        "cpu s per minute": 60 * cpu / seconds,
        "x real time": seconds / wall,
        "sentences": sum(len(found.transcript.sentences) for found in heard),
        "true sentences": len(starts),
        "dropped": sum(len(found.dropped) for found in heard),
        "start error median s": float(np.median(starts)),
        "start error mean s": float(np.mean(starts)),
        "start error p90 s": float(np.quantile(starts, 0.9)),
    }


def said(heard: TranscriptionResult) -> str:
    return " ".join(sentence.text for sentence in heard.transcript.sentences)


def clip(path: Path) -> dict[str, object]:
    """Return what one real clip gives with the default settings."""
    heard = transcribe(read_sound(path) if probe(path).has_sound else [])
    return {
        "language": heard.transcript.language,
        "sentences": [
            f"[{s.span.start:.2f} {s.span.end:.2f}] {s.text}" for s in heard.transcript.sentences
        ],
        "dropped": [f"{d.text}: {d.reason}" for d in heard.dropped],
    }


def labelled(clips: Path, references: dict[str, str]) -> dict[str, float]:
    """Return how many labelled steps of real clips are heard, when they are said to begin, and the
    word error rate.

    clips: holds labels.json, steps with the seconds in which they are spoken (docs/real_clips.md).
    A step is heard where two fifths of its words are, in order, within 6 s of its seconds. It
    begins with its first word.
    references: what is said, by clip.
    """
    errors_made = count = steps = 0
    starts: list[float] = []
    began = time.process_time()
    seconds = 0.0
    for name, label in json.loads((clips / "labels.json").read_text(encoding="utf-8")).items():
        spoken_steps = [step for step in label.get("steps", ()) if step.get("spoken")]
        if not spoken_steps and name not in references:
            continue
        sound = list(read_sound(clips / name))
        seconds += sum(len(block.samples) for block in sound) / RATE
        sentences = transcribe(sound).transcript.sentences
        said_words = [
            (part, word) for s in sentences for word in s.words for part in words(word.text)
        ]
        if name in references:
            truth = words(references[name])
            errors_made += errors(truth, [part for part, _ in said_words])
            count += len(truth)
        for step in spoken_steps:
            first, last = step["spoken"]
            near = [
                (part, w.span.start)
                for part, w in said_words
                if w.span and first - 6 < w.span.start < last + 6
            ]
            wanted = words(step["text"])
            pairs = SequenceMatcher(
                None, wanted, [part for part, _ in near], autojunk=False
            ).get_matching_blocks()
            found = {
                block.a + k: near[block.b + k][1] for block in pairs for k in range(block.size)
            }
            steps += 1
            if len(found) >= max(1, 0.4 * len(wanted)):
                starts.append(abs(found[0] - first) if 0 in found else np.nan)
    known = np.array([start for start in starts if not np.isnan(start)])
    return {
        "word error rate %": 100 * errors_made / count if count else float("nan"),
        "steps heard": len(starts),
        "steps": steps,
        "start error median s": float(np.median(known)),
        "start error p90 s": float(np.quantile(known, 0.9)),
        "starts over 1 s off %": 100 * float(np.mean(known > 1)),
        "cpu s per minute": 60 * (time.process_time() - began) / seconds,
    }


class PromptedWhisper(Whisper):
    """Whisper that gets what is in the picture as prompt."""

    prompt: str | None = None

    def _options(self, beam: int | None) -> dict[str, Any]:
        return {**super()._options(beam), "initial_prompt": self.prompt}


def heard_again(
    clips: Path, references: dict[str, str], cache: Path, model: str
) -> dict[str, float]:
    """Return the word errors as they are, and if utterances with an unsure word are read again.

    A word of four letters under a probability of UNSURE. Result "plain" is by the same reading,
    "told" with the text that is in the picture as prompt. The second reading stays where it is more
    certain, or where more of its words are on screen.
    cache: of real_clips.py.
    """
    settings = AsrSettings(language="en")
    whisper = PromptedWhisper(model, settings)
    wrong: Counter[str] = Counter()
    for name, reference in references.items():
        truth, lines = words(reference), pictures(clips / name, cache).cues.lines
        heard = [
            word
            for s in transcribe(read_sound(clips / name)).transcript.sentences
            for word in s.words
        ]
        kept = {
            f"{prompt}, {rule}": heard
            for prompt in ("plain", "told")
            for rule in ("surer", "on screen")
        }
        for window in AudioWindower(settings).windows(read_sound(clips / name)):
            for first, last in find_speech(
                window.voice, threshold=settings.voice, gap=SILENCE_SECONDS, pad=PAD_SECONDS
            ):
                last_frame = min(len(window.voice), -(-last // FRAME_SAMPLES))
                piece = _cut(window, (first // FRAME_SAMPLES, last_frame))
                if not any(
                    len(w.text.strip()) > 3 and w.confidence < UNSURE
                    for w in _divide(heard, piece.start, piece.end)[1]
                ):
                    continue
                near = [
                    line.text
                    for line in lines
                    if line.span.start <= piece.end + 4 and line.span.end >= piece.start - 4
                ]
                on_screen = set(words(" ".join(near)))
                for prompt in ("plain", "told"):
                    whisper.prompt = ". ".join(near)[:300] or None if prompt == "told" else None
                    again = whisper.read(piece).words
                    for rule in ("surer", "on screen"):
                        before, old, after = _divide(
                            kept[f"{prompt}, {rule}"], piece.start, piece.end
                        )
                        if rule == "surer":
                            better = _sureness(again) > _sureness(old) + 0.05
                        else:
                            better = _common(again, on_screen) > _common(old, on_screen)
                        if better:
                            kept[f"{prompt}, {rule}"] = [*before, *again, *after]
        for way, found in {"as it is": heard, **kept}.items():
            wrong[way] += errors(truth, words(" ".join(word.text for word in found)))
        wrong["words"] += len(truth)
    return dict(wrong)


def _sureness(found: Sequence[Word]) -> float:
    return float(np.mean([word.confidence or 0.0 for word in found])) if found else 0.0


def _common(found: Sequence[Word], on_screen: set[str]) -> int:
    return sum(len(part) > 2 and part in on_screen for word in found for part in words(word.text))


def memory(model: str, minutes: int) -> dict[str, float]:
    """Return the peak memory of a process that only transcribes: the spoken texts, then noise, in
    one stream."""
    command = [sys.executable, __file__, "--memory-of", model, str(minutes)]
    return dict(
        json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    )


def run_memory(model: str, minutes: int) -> None:
    """Transcribe and print the peak memory of this process."""
    spoken = np.concatenate(
        [talk(text, *VOICES[0], seed).samples for seed, text in enumerate(TEXTS)]
    )
    rng = np.random.default_rng(0)

    def stream() -> Iterator[AudioBlock]:
        for second in range(minutes * 60):
            part = spoken[second * RATE : (second + 1) * RATE]
            samples = part if len(part) == RATE else rng.normal(0, 0.01, RATE).astype(np.float32)
            yield AudioBlock(float(second), samples)

    before = peak_mib()
    found = transcribe(stream(), AsrSettings(model=model))
    counts = {"speech_s": len(spoken) / RATE, "sentences": len(found.transcript.sentences)}
    print(json.dumps({"peak_mib": peak_mib(), "before_mib": before, **counts}))


def read_options() -> argparse.Namespace:
    """Return what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clips", type=Path, help="a folder of real clips to transcribe as well")
    parser.add_argument("--base", action="store_true", help="measure Whisper base too")
    parser.add_argument(
        "--add",
        nargs="+",
        choices=("tiny", "base", "memory"),
        help="only these, added to the results",
    )
    parser.add_argument("--memory-of", nargs=2)
    parser.add_argument(
        "--labelled", type=Path, help="a folder of clips with labels.json; nothing else is measured"
    )
    parser.add_argument(
        "--words", type=Path, help="JSON: what is said in each of those clips, word for word"
    )
    parser.add_argument(
        "--cache",
        type=Path,
        help="that of real_clips.py: read unsure words again, with text on screen",
    )
    parser.add_argument(
        "--again", default="whisper-tiny.en", help="the model that reads them again"
    )
    return parser.parse_args()


def main() -> None:
    options = read_options()
    if options.labelled:
        references = json.loads(options.words.read_text(encoding="utf-8")) if options.words else {}
        if options.cache:
            print(heard_again(options.labelled, references, options.cache, options.again))
            return
        print(
            {key: round(value, 3) for key, value in labelled(options.labelled, references).items()}
        )
        return
    if options.memory_of:
        run_memory(options.memory_of[0], int(options.memory_of[1]))
        return
    if shutil.which("espeak-ng") is None:
        raise SystemExit("espeak-ng is not installed; apt-get install espeak-ng")
    clean = [
        talk(text, voice, speed, seed) for seed, text in enumerate(TEXTS) for voice, speed in VOICES
    ]
    transcribe(blocks(clean[0].samples))  # loads what every later run shares
    added = options.add or ("tiny", "memory", *(["base"] if options.base else []))
    results: dict[str, object] = {}
    for name in [
        model
        for model in ("whisper-tiny.en", "whisper-base")
        if any(part in model for part in added)
    ]:
        for beam in (1, 5):
            results[f"{name} beam {beam}"] = measure(clean, AsrSettings(model=name, beam=beam))
    for decibels in (10.0, 0.0) if "tiny" in added else ():
        louder = [noisy(given, decibels) for given in clean]
        settings = AsrSettings(model="whisper-tiny.en")
        results[f"whisper-tiny.en beam 5, noise {decibels:.0f} dB"] = measure(louder, settings)
    if "memory" in added:
        for model, minutes in (
            ("whisper-tiny.en", 5),
            ("whisper-tiny.en", 60),
            ("whisper-base", 5),
        ):
            if model != "whisper-base" or "base" in added:
                results[f"memory, {model}, {minutes} min"] = memory(model, minutes)
    for name, row in results.items():
        print(f"{name:40s}", {key: round(value, 2) for key, value in row.items()})  # type: ignore[attr-defined]
    for path in sorted(options.clips.iterdir()) if options.clips else ():
        if path.suffix not in (".mp4", ".mkv"):
            continue
        results[path.name] = clip(path)
        print(path.name, json.dumps(results[path.name], ensure_ascii=False, indent=1))
    if options.add:
        results = json.loads(RESULTS.read_text(encoding="utf-8")) | results
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(results, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
