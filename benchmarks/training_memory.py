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
import itertools
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from functools import cache, partial
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from drawn_store import FEATURE_WIDTH, DrawnRows

from stepline.features import RowTexts
from stepline.features.shard_index import Digests, text_digest
from stepline.models.nasva.dataset import gather_samples
from stepline.models.nasva.model import Aligner
from stepline.models.nasva.refine import _VideoReader
from stepline.models.nasva.self_training import SelfTraining
from stepline.models.nasva.settings import AlignerNetworkSettings, RefineRunSettings, RefineSettings
from stepline.models.nasva.train import train_aligner
from stepline.models.procx.dataset import gather_samples as gather_step_samples
from stepline.models.procx.settings import (
    AttentionSettings,
    CaptionerSettings,
    DataSettings,
    ModelSettings,
    VocabularySettings,
)
from stepline.models.procx.train import train_procx
from stepline.models.procx.vocabulary import train_vocabulary
from stepline.models.training.loop import Progress
from stepline.models.training.settings import TrainSettings
from stepline.models.training.sources import LabelledTexts, NarratedRecords, labelled_texts
from stepline.models.wys2.clips import ClipTextPair
from stepline.models.wys2.detector import Detector
from stepline.models.wys2.pseudo_labels import ValidationClips, choose_clips
from stepline.models.wys2.settings import ClipSettings, DetectorSettings, PseudoSettings
from stepline.models.wys2.train import train_detector
from stepline.models.wys2.unlabelled import ClipStream
from stepline.records import Record, Sentence, Span, Step, Transcript, Video

RESULT_PATH = Path(__file__).resolve().parent / "results" / "training_memory.json"
ALL_VIDEOS = 340_000
VIDEO_COUNTS = (500, 4_000)
VIDEO_ROWS = 20
VIDEO_SENTENCES = 100
VIDEO_STEPS = 10
LEXICON_WORDS = 3_000  # of what is said around ProcX's steps
WORDS_PER_SENTENCE = 10
STEPS_TAKEN = 3  # of the trainings. Each step holds one batch
COOKING_VERBS = ("chop", "fold", "whisk", "spread", "boil", "fry", "cut", "pour")
ALIGNER_SETTINGS = AlignerNetworkSettings(
    video_width=FEATURE_WIDTH,
    text_width=FEATURE_WIDTH,
    width=16,
    heads=2,
    encoder_layers=1,
    decoder_layers=1,
    feed_forward=16,
    projection=8,
    text_positions=128,
)
PROCX_SETTINGS = ModelSettings(
    features=FEATURE_WIDTH,
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
def spoken(count: int) -> Transcript:
    """Return what is said in every video. Of its sentences, no store keeps more than digests."""
    seconds = VIDEO_ROWS / count
    sentences = []
    for number in range(count):
        sentence = Sentence.model_construct(
            text=f"then we {COOKING_VERBS[number % 8]} the onion number {number}",
            words=(),
            span=Span(seconds * number, seconds * (number + 1)),
        )
        sentences.append(sentence)
    return Transcript.model_construct(language="en", sentences=tuple(sentences))


@cache
def lexicon() -> list[str]:
    """Return made-up words, of 2 to 8 letters."""
    rng = np.random.default_rng(0)
    words = []
    for _ in range(LEXICON_WORDS):
        length = rng.integers(2, 9)
        letters = rng.integers(ord("a"), ord("z") + 1, length)
        words.append("".join(map(chr, letters)))
    return words


def drawn_speech(number: int) -> Transcript:
    """Return what is said in one video alone: sentences of some 60 characters, at times of
    milliseconds."""
    words = lexicon()
    rng = np.random.default_rng([number, 1])
    # the n-th word has a share of 1 / n, as Zipf's
    ranks = len(words) ** rng.random(VIDEO_SENTENCES * WORDS_PER_SENTENCE)
    drawn = [words[int(rank) - 1] for rank in ranks]
    # in no other video
    drawn[0] = f"name{number}"
    drawn[-1] = f"brand{number}"
    positions = np.arange(VIDEO_SENTENCES) + rng.random(VIDEO_SENTENCES) / 2
    starts = (positions * VIDEO_ROWS / VIDEO_SENTENCES).round(3).tolist()
    sentences = []
    for index, start in enumerate(starts):
        text = " ".join(drawn[index::VIDEO_SENTENCES])
        span = Span(start, start + 0.09)
        sentences.append(Sentence.model_construct(text=text, words=(), span=span))
    return Transcript.model_construct(language="en", sentences=tuple(sentences))


def record(
    number: int, sentences: int = VIDEO_SENTENCES, transcript: Transcript | None = None
) -> Record:
    """Return a video in which someone speaks all the time. Its steps are its own. transcript:
    None: that of all."""
    steps = []
    for index in range(VIDEO_STEPS):
        verb = COOKING_VERBS[(index + number) % 8]
        step = Step.model_construct(
            id=str(index),
            text=f"{verb} the onion of pan {number % 999} for {index} minutes, then turn",
            spans=(Span(2.0 * index, 2.0 * index + 1.5),),
            said=Span(2.0 * index, 2.0 * index + 1.0),
            alternatives=(),
            status="shown",
        )
        steps.append(step)
    video = Video.model_construct(id=f"v{number:07d}", duration=float(VIDEO_ROWS), task=None)
    return Record.model_construct(
        id=video.id,
        video=video,
        transcript=transcript or spoken(sentences),
        steps=tuple(steps),
        reference=(),
        dropped=(),
    )


class DrawnStore(DrawnRows):
    """The index of a store of that many videos. Rows are drawn when they are read, digests made
    when they are asked for.

    texts: what the rows of a video are vectors of, of a store that knows it.
    """

    def __init__(self, videos: int, rows: int, kind: str | None = None) -> None:
        super().__init__(videos, rows)
        self.folder = Path("drawn")
        self.shown = "drawn"
        self._kind = kind
        self._digests: dict[str, Digests] = {}

    def forget_texts(self) -> None:
        """Let go of the digests."""
        self._digests.clear()

    def texts(self, id: str) -> RowTexts | None:
        """Return what is said in a video."""
        sentences = record(int(id[1:]), self[id].rows).sentences
        return RowTexts(tuple(sentence.text for sentence in sentences))

    def text_digests(self, id: str) -> Digests | None:
        """Return, and keep, the digests of a video's texts."""
        if self._kind is not None and id not in self._digests:
            (texts,) = labelled_texts([record(int(id[1:]))], self._kind)  # type: ignore[arg-type]
            digests = [text_digest(text) for text in texts.texts]
            self._digests[id] = np.array(digests, np.uint64)
        return self._digests.get(id)


class EnoughError(Exception):
    """Ends a training after a few steps."""


def few_steps(progress: Progress) -> None:
    """End a training."""
    if progress.steps_taken == STEPS_TAKEN:
        raise EnoughError


def stores(videos: int) -> tuple[DrawnStore, DrawnStore, DrawnStore]:
    """Return the stores of videos, steps and narrations."""
    return (
        DrawnStore(videos, VIDEO_ROWS),
        DrawnStore(videos, VIDEO_STEPS, "step"),
        DrawnStore(videos, VIDEO_SENTENCES, "narration"),
    )


def nasva(videos: int, folder: Path) -> None:
    """Gather steps and narrations, and take a few steps."""
    features, steps, narrations = stores(videos)
    texts: list[Iterable[LabelledTexts]] = []
    for kind in ("step", "narration"):
        texts.append(labelled_texts(map(record, range(videos)), kind))  # type: ignore[arg-type]
    all_texts = itertools.chain.from_iterable(texts)
    samples = gather_samples(all_texts, features, {"step": steps, "narration": narrations})
    assert len(samples) == 2 * videos
    train_aligner(samples, folder, model=ALIGNER_SETTINGS, report=few_steps)


def procx(videos: int, folder: Path, speech: float = 0.0) -> None:
    """Gather steps, with what is said around them where it is asked for, make the vocabulary, and
    take a few steps."""
    data = DataSettings(target="steps", speech=speech)
    if speech:
        records = (record(number, transcript=drawn_speech(number)) for number in range(videos))
    else:
        records = (record(number) for number in range(videos))
    samples = gather_step_samples(records, DrawnStore(videos, VIDEO_ROWS), data)
    assert len(samples) == videos
    vocabulary = train_vocabulary(samples.texts(), VocabularySettings(size=1_000))
    train_procx(
        samples, folder, vocabulary=vocabulary, model=PROCX_SETTINGS, data=data, report=few_steps
    )


def wys2(videos: int, folder: Path, sentences: int = 5) -> None:
    """Go through unlabelled clips, choose among them, and take steps on what is chosen."""

    def store(texts: Iterable[LabelledTexts]) -> DrawnStore:
        for _ in texts:  # vectors are not written, which would fill a disk
            pass
        return DrawnStore(videos, sentences)

    records = partial(map, partial(record, sentences=sentences), range(videos))
    features = DrawnStore(videos, VIDEO_ROWS)
    stream = ClipStream(NarratedRecords(records), features, store, ClipSettings(resolve=False))
    pairs = []
    for number in (1, 2):
        rows = np.full((3, FEATURE_WIDTH), number, np.float32)
        pairs.append(ClipTextPair(str(number), rows, np.ones((1, FEATURE_WIDTH), np.float32)))
    validation = ValidationClips(pairs, np.array([False, True]))
    network = Detector(DetectorSettings(video_width=FEATURE_WIDTH, text_width=FEATURE_WIDTH))
    settings = PseudoSettings(threshold="share", share=0.9)
    rng = np.random.default_rng(0)
    _, references = choose_clips(network, stream, validation, settings, rng)
    training = TrainSettings(epochs=1, batch=128)
    training_pairs = stream.pairs(references)
    train_detector(
        training_pairs, folder, detector=network.settings, settings=training, report=few_steps
    )


def refine(videos: int, folder: Path) -> None:
    """Gather videos and narrations, label all by two teachers, and take a few steps of the final
    training."""
    features, steps, narrations = stores(videos)
    settings = RefineRunSettings(said="given")
    reader = _VideoReader(features, steps, settings)
    read_videos = []
    for number in range(videos):
        video = reader.read(record(number))
        if video is not None:
            read_videos.append(video)
    assert len(read_videos) == videos
    samples = gather_samples(
        labelled_texts(map(record, range(videos)), "narration"),
        features,
        {"narration": narrations},
        settings.data,
    )
    labelling = RefineSettings(threshold=0.0, agree=None)
    training = SelfTraining(
        read_videos,
        folder,
        samples,
        ALIGNER_SETTINGS,
        settings=settings.rounds.model_copy(update={"refine": labelling}),
        progress=lambda _, progress: few_steps(progress),
    )
    teachers = [Aligner(ALIGNER_SETTINGS), Aligner(ALIGNER_SETTINGS)]
    SelfTraining._teachers = lambda *_: teachers  # type: ignore[method-assign]
    SelfTraining._done = lambda _, reports: len(reports) == 2  # type: ignore[method-assign]
    training.run()


SPEECH_TRAINER = "procx with speech"
RUN_BY_TRAINER = {
    "refine": refine,
    "nasva": nasva,
    "procx": procx,
    SPEECH_TRAINER: partial(procx, speech=1.0),
    "wys2": wys2,
}


def run(name: str, videos: int) -> dict[str, float]:
    """Return what a trainer has held at most, in this process, whose earlier sizes were smaller."""
    with tempfile.TemporaryDirectory() as scratch, suppress(EnoughError):
        RUN_BY_TRAINER[name](videos, Path(scratch))
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "videos": videos,
        "MiB": round(usage.ru_maxrss / 1024, 1),
        "CPU seconds so far": round(usage.ru_utime + usage.ru_stime, 1),
    }


def main() -> None:
    """Print and keep what each trainer holds at two sizes, at the whole by the line through them,
    and at a third."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--check", type=int, help="a third number of videos, which the line did not see"
    )
    parser.add_argument("--only", nargs="+", choices=RUN_BY_TRAINER, default=list(RUN_BY_TRAINER))
    parser.add_argument("--one", choices=RUN_BY_TRAINER)
    options = parser.parse_args()
    if options.one:
        counts = list(VIDEO_COUNTS)
        if options.check is not None:
            counts.append(options.check)
        print(json.dumps([run(options.one, count) for count in counts]))
        return
    for name in options.only:
        command = [sys.executable, __file__, "--one", name]
        if options.check is not None:
            command += ["--check", str(options.check)]
        child = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        rows = json.loads(child.stdout)
        few, many = VIDEO_COUNTS
        video_mib = (rows[1]["MiB"] - rows[0]["MiB"]) / (many - few)
        all_gib = (rows[0]["MiB"] + video_mib * (ALL_VIDEOS - few)) / 1024
        results = {}
        if RESULT_PATH.exists():
            results = json.loads(RESULT_PATH.read_text())
        results[name] = {
            "rows": rows,
            "bytes a video": round(video_mib * 2**20),
            f"GiB at {ALL_VIDEOS}": round(all_gib, 2),
        }
        print(name, results[name], flush=True)
        RESULT_PATH.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
