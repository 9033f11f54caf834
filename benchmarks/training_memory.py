"""The memory that each trainer and `refine` need at NaSVA's 340,000 videos, all videos gone
through.

    python benchmarks/training_memory.py            # two sizes, and the line through them at 340,000
    python benchmarks/training_memory.py --check 340000 --only refine "procx with speech"    # a third size, of these

Records of 100 sentences and 10 steps of their own, made as they are read. The indexes of their
features, texts and digests are in memory as a store's would be. Rows are drawn when they are read,
20 of 16 numbers per video, because what is read of them is gone after each batch. Networks are as
small. `nasva` learns steps and narrations, `procx` steps, once with what is said around them.
`wys2` has all videos as unlabelled clips (5 per video: the number of clips changes nothing,
unlabelled_memory.py). `refine` labels all videos by two untrained teachers and gathers their
narrations. What `procx` keeps of a sentence is packed, so what it gets packs as real narration
does: 100 sentences of TutorialVQA cut to 60 characters (5.9 kB) pack to 3.2 kB, those drawn here to
3.8 kB. Two words per video occur in no other. Each trainer has a process of its own. Counted are
the most that it has held (ru_maxrss, with Python, torch and all else), and CPU seconds. Results:
benchmarks/results/training_memory.json.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache, partial
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from stepline.features import FeatureStore, RowTexts
from stepline.features.shard_index import Digests, FeatureLocation, text_digest
from stepline.nasva.dataset import gather_samples
from stepline.nasva.model import Aligner
from stepline.nasva.refine import _VideoReader
from stepline.nasva.self_training import SelfTraining
from stepline.nasva.settings import AlignerNetworkSettings, RefineRunSettings, RefineSettings
from stepline.nasva.train import train_aligner
from stepline.procx.dataset import gather_samples as gather_step_samples
from stepline.procx.settings import (
    AttentionSettings,
    CaptionerSettings,
    DataSettings,
    ModelSettings,
    VocabularySettings,
)
from stepline.procx.train import train_procx
from stepline.procx.vocabulary import train_vocabulary
from stepline.records import Matrix, Record, Sentence, Span, Step, Transcript, Video
from stepline.training.loop import Progress
from stepline.training.settings import TrainSettings
from stepline.training.sources import LabelledTexts, labelled_texts
from stepline.wys2.clips import ClipTextPair
from stepline.wys2.detector import Detector
from stepline.wys2.pseudo_labels import ValidationClips, choose_clips
from stepline.wys2.settings import ClipSettings, DetectorSettings, PseudoSettings
from stepline.wys2.train import train_detector
from stepline.wys2.unlabelled import ClipStream

OUT = Path(__file__).resolve().parent / "results" / "training_memory.json"
WHOLE, SIZES = 340_000, (500, 4_000)
WIDTH, ROWS, SENTENCES, STEPS = 16, 20, 100, 10
WORDS, WORDS_A_SENTENCE = 3_000, 10  # of what is said around ProcX's steps
STEPS_TAKEN = 3  # of the trainings; every one holds one batch
VERBS = ("chop", "fold", "whisk", "spread", "boil", "fry", "cut", "pour")
ALIGNER = AlignerNetworkSettings(
    video_width=WIDTH,
    text_width=WIDTH,
    width=16,
    heads=2,
    encoder_layers=1,
    decoder_layers=1,
    feed_forward=16,
    projection=8,
    text_positions=128,
)
PROCX = ModelSettings(
    features=WIDTH,
    attention=AttentionSettings(width=16, heads=2),
    encoder_layers=1,
    decoder_layers=1,
    feed_forward=16,
    rows=32,
    captioner=CaptionerSettings(
        width=16, heads=2, feed_forward=16, projection=8, longest_transcript=16
    ),
)


@cache
def spoken(sentences: int) -> Transcript:
    """Return what is said in every video. Of sentences, none keeps more than digests."""
    said = tuple(
        Sentence.model_construct(
            text=f"then we {VERBS[n % 8]} the onion number {n}",
            words=(),
            span=Span(ROWS / sentences * n, ROWS / sentences * (n + 1)),
        )
        for n in range(sentences)
    )
    return Transcript.model_construct(language="en", sentences=said)


@cache
def lexicon() -> list[str]:
    """Return made-up words, of 2 to 8 letters."""
    rng = np.random.default_rng(0)
    return [
        "".join(map(chr, rng.integers(ord("a"), ord("z") + 1, rng.integers(2, 9))))
        for _ in range(WORDS)
    ]


def drawn_speech(number: int) -> Transcript:
    """Return what is said in one video alone: sentences of some 60 characters, at times of
    milliseconds."""
    words, rng = lexicon(), np.random.default_rng([number, 1])
    # the n-th word has a share of 1 / n, as Zipf's
    ranks = len(words) ** rng.random(SENTENCES * WORDS_A_SENTENCE)
    drawn = [words[int(rank) - 1] for rank in ranks]
    drawn[0], drawn[-1] = f"name{number}", f"brand{number}"
    starts = (
        ((np.arange(SENTENCES) + rng.random(SENTENCES) / 2) * ROWS / SENTENCES).round(3).tolist()
    )
    texts = (" ".join(drawn[n::SENTENCES]) for n in range(SENTENCES))
    said = tuple(
        Sentence.model_construct(text=text, words=(), span=Span(start, start + 0.09))
        for text, start in zip(texts, starts, strict=True)
    )
    return Transcript.model_construct(language="en", sentences=said)


def record(number: int, sentences: int = SENTENCES, transcript: Transcript | None = None) -> Record:
    """Return a video in which someone speaks all the time. Its steps are its own. transcript:
    None: that of all."""
    steps = tuple(
        Step.model_construct(
            id=str(n),
            text=f"{VERBS[(n + number) % 8]} the onion of pan {number % 999} for {n} minutes, then turn",
            spans=(Span(2.0 * n, 2.0 * n + 1.5),),
            said=Span(2.0 * n, 2.0 * n + 1.0),
            alternatives=(),
            status="shown",
        )
        for n in range(STEPS)
    )
    video = Video.model_construct(id=f"v{number:07d}", duration=float(ROWS), task=None)
    return Record.model_construct(
        id=video.id,
        video=video,
        transcript=transcript or spoken(sentences),
        steps=steps,
        reference=(),
        dropped=(),
    )


class DrawnStore(FeatureStore):
    """The index of a store of that many videos. Rows are drawn when they are read, digests made
    when they are asked for.

    texts: what the rows of a video are vectors of, of a store that knows it.
    """

    def __init__(self, videos: int, rows: int, kind: str | None = None) -> None:
        self.folder, self.shown, a_shard = Path("drawn"), "drawn", 640
        ids = (f"v{number:07d}" for number in range(videos))
        self._locations = {
            id: FeatureLocation(
                id, number // a_shard, number % a_shard * rows, rows, WIDTH, 1.0, "drawn"
            )
            for number, id in enumerate(ids)
        }
        self._kind, self._known = kind, dict[str, Digests]()

    def forget_texts(self) -> None:
        """Let go of the digests."""
        self._known.clear()

    def matrix(self, id: str, rows: slice = slice(None)) -> Matrix:
        """Return rows that differ from video to video."""
        first, stop, _ = rows.indices(self[id].rows)
        return np.random.default_rng([int(id[1:]), first]).standard_normal(
            (stop - first, WIDTH), np.float32
        )

    def texts(self, id: str) -> RowTexts | None:
        """Return what is said in a video."""
        said = record(int(id[1:]), self[id].rows).transcript
        return (
            None if said is None else RowTexts(tuple(sentence.text for sentence in said.sentences))
        )

    def text_digests(self, id: str) -> Digests | None:
        """Return, and keep, the digests of a video's texts."""
        if self._kind is not None and id not in self._known:
            (texts,) = labelled_texts([record(int(id[1:]))], self._kind)  # type: ignore[arg-type]
            self._known[id] = np.array([text_digest(text) for text in texts.texts], np.uint64)
        return self._known.get(id)


class EnoughError(Exception):
    """Ends a training after a few steps."""


def few_steps(told: Progress) -> None:
    """End a training."""
    if told.steps_taken == STEPS_TAKEN:
        raise EnoughError


def stores(videos: int) -> tuple[DrawnStore, DrawnStore, DrawnStore]:
    """Return the stores of videos, steps and narrations."""
    return (
        DrawnStore(videos, ROWS),
        DrawnStore(videos, STEPS, "step"),
        DrawnStore(videos, SENTENCES, "narration"),
    )


def nasva(videos: int, folder: Path) -> None:
    """Gather steps and narrations, and take a few steps."""
    seen, steps, said = stores(videos)
    texts = (
        one
        for kind in ("step", "narration")
        for one in labelled_texts(map(record, range(videos)), kind)
    )  # type: ignore[arg-type]
    samples = gather_samples(texts, seen, {"step": steps, "narration": said})
    assert len(samples) == 2 * videos
    train_aligner(samples, folder, model=ALIGNER, report=few_steps)


def procx(videos: int, folder: Path, speech: float = 0.0) -> None:
    """Gather steps, with what is said around them where it is asked for, make the vocabulary, and
    take a few steps."""
    data = DataSettings(target="steps", speech=speech)
    told = (
        record(number, transcript=drawn_speech(number) if speech else None)
        for number in range(videos)
    )
    samples = gather_step_samples(told, DrawnStore(videos, ROWS), data)
    assert len(samples) == videos
    vocabulary = train_vocabulary(samples.texts(), VocabularySettings(size=1_000))
    train_procx(samples, folder, vocabulary=vocabulary, model=PROCX, data=data, report=few_steps)


def wys2(videos: int, folder: Path, sentences: int = 5) -> None:
    """Go through unlabelled clips, choose among them, and take steps on what is chosen."""

    def store(texts: Iterable[LabelledTexts]) -> DrawnStore:
        for _ in texts:  # vectors are not written, which would fill a disk
            pass
        return DrawnStore(videos, sentences)

    records = partial(map, partial(record, sentences=sentences), range(videos))
    stream = ClipStream(records, DrawnStore(videos, ROWS), store, ClipSettings(resolve=False))
    pairs = [
        ClipTextPair(str(k), np.full((3, WIDTH), k, np.float32), np.ones((1, WIDTH), np.float32))
        for k in (1, 2)
    ]
    held = ValidationClips(pairs, np.array([False, True]))
    network = Detector(DetectorSettings(video_width=WIDTH, text_width=WIDTH))
    settings = PseudoSettings(threshold="share", share=0.9)
    _, kept = choose_clips(network, stream, held, settings, np.random.default_rng(0))
    training = TrainSettings(epochs=1, batch=128)
    train_detector(
        stream.pairs(kept), folder, detector=network.settings, settings=training, report=few_steps
    )


def refine(videos: int, folder: Path) -> None:
    """Gather videos and narrations, label all by two teachers, and take a few steps of the final
    training."""
    seen, steps, said = stores(videos)
    settings = RefineRunSettings(said="given")
    reading = _VideoReader(seen, steps, settings)
    records: Iterator[Record] = map(record, range(videos))
    found = [video for one in records if (video := reading.take(one)) is not None]
    assert len(found) == videos
    narrations = gather_samples(
        labelled_texts(map(record, range(videos)), "narration"),
        seen,
        {"narration": said},
        settings.data,
    )
    rounds = settings.rounds.model_copy(
        update={"refine": RefineSettings(threshold=0.0, agree=None)}
    )
    training = SelfTraining(
        found,
        folder,
        narrations,
        ALIGNER,
        settings=rounds,
        progress=lambda _, told: few_steps(told),
    )
    teachers = [Aligner(ALIGNER), Aligner(ALIGNER)]
    SelfTraining._teachers = lambda *_: teachers  # type: ignore[method-assign]
    SelfTraining._done = lambda _, reports: len(reports) == 2  # type: ignore[method-assign]
    training.run()


SPEECH = "procx with speech"
TRAINERS = {
    "refine": refine,
    "nasva": nasva,
    "procx": procx,
    SPEECH: partial(procx, speech=1.0),
    "wys2": wys2,
}


def run(name: str, videos: int) -> dict[str, float]:
    """Return what a trainer has held at most, in this process, whose earlier sizes were smaller."""
    with tempfile.TemporaryDirectory() as scratch, suppress(EnoughError):
        TRAINERS[name](videos, Path(scratch))
    used = resource.getrusage(resource.RUSAGE_SELF)
    seconds = round(used.ru_utime + used.ru_stime, 1)
    return {"videos": videos, "MiB": round(used.ru_maxrss / 1024, 1), "CPU seconds so far": seconds}


def main() -> None:
    """Print and keep what each trainer holds at two sizes, at the whole by the line through them,
    and at a third."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--check", type=int, help="a third number of videos, which the line did not see"
    )
    parser.add_argument("--only", nargs="+", choices=TRAINERS, default=list(TRAINERS))
    parser.add_argument("--one", choices=TRAINERS)
    chosen = parser.parse_args()
    sizes = SIZES if chosen.check is None else (*SIZES, chosen.check)
    if chosen.one:
        print(json.dumps([run(chosen.one, size) for size in sizes]))
        return
    for name in chosen.only:
        command = [sys.executable, __file__, "--one", name]
        command += [] if chosen.check is None else ["--check", str(chosen.check)]
        rows = json.loads(
            subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        )
        each = (rows[1]["MiB"] - rows[0]["MiB"]) / (SIZES[1] - SIZES[0])
        line = (rows[0]["MiB"] + each * (WHOLE - SIZES[0])) / 1024
        told = json.loads(OUT.read_text()) if OUT.exists() else {}
        told[name] = {
            "rows": rows,
            "bytes a video": round(each * 2**20),
            f"GiB at {WHOLE}": round(line, 2),
        }
        print(name, told[name], flush=True)
        OUT.write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()
