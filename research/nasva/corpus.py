"""What NaSVA's networks train and are scored on: videos with narration and written steps, and
held-out texts.

Simulated, or real data from feature stores and the benchmarks' own files:

    DATA/BACKBONE/video                      features of all videos
    DATA/BACKBONE/narration, step            vectors of what is said and of the written steps, with texts and times
    DATA/BACKBONE/narration-noisy            the same of the other recogniser's transcripts, for table 4
    DATA/BACKBONE/recipe                     vectors of HT-Step's headlines, an item a video
    DATA/linking/narration, step             vectors of an encoder of texts alone, which links steps to sentences
    DATA/ht-step, DATA/htm_align.json        the benchmarks; what `stepline excluded` lists of them is not trained on

`stepline features import` fills the stores. BACKBONE is sharp, usual or dull, whatever is
behind the name. All that is trained on is in memory: 1.2 MB for 400 seconds of width 768. Real
videos are scored by the benchmarks' own evaluators: HT-Step's on its split val_seen (600 videos, as
many as the paper's), NaSVA's on HTM-Align.
"""

import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import numpy as np

from research.nasva.rows import NasvaSize, NasvaTrial
from research.simulate import WORLDS, SimulatedVideo
from research.simulate import stream as simulated_stream
from research.simulate.narration import STYLES, Style
from stepline.atomic_files import write_atomic
from stepline.datasets.excluded import ExcludedSource, ExcludedVideos, collect_excluded
from stepline.errors import DatasetError
from stepline.evaluate.benchmarks import evaluate
from stepline.evaluate.bootstrap import point_estimate
from stepline.evaluate.ranking import roc_auc
from stepline.features import FeatureStore
from stepline.nasva.benchmarks import (
    BENCHMARK_MODES,
    BenchmarkInputs,
    BenchmarkName,
    TextVectors,
    benchmark_questions,
    score_questions,
)
from stepline.nasva.checkpoint import LoadedAligner
from stepline.nasva.model import Aligner
from stepline.nasva.settings import AlignerSettings
from stepline.records import FeatureSequence, Matrix, Sentence, Step
from stepline.training.batches import Mask, Sample
from stepline.training.benchmark_answers import StoredFeatures
from stepline.training.sources import LabelledTexts, read_labelled_texts

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrainingVideo:
    """A video to train on: its narration and written steps, with the vectors of one backbone.

    step_vectors (K, C), sentence_vectors (S, C), likeness (K, S): of steps to sentences, by a text
    encoder alone. Its vectors of the steps are `linking` (K, D).
    task: what the video shows how to do, None where it is not known.
    truth: (K, T) where each step is shown, sentence_truth (S, T).
    None where no one planted it.
    """

    id: str
    features: FeatureSequence
    steps: tuple[Step, ...]
    sentences: tuple[Sentence, ...]
    step_vectors: Matrix
    sentence_vectors: Matrix
    likeness: Matrix
    linking: Matrix
    task: str | None = None
    truth: Mask | None = None
    sentence_truth: Mask | None = None


@dataclass(frozen=True)
class Corpus:
    """videos: to train on. tests: texts of one kind in held-out videos, `positive` = where they are
    really shown.

    benchmarks: what stands for the tests in real data.
    """

    videos: tuple[TrainingVideo, ...]
    tests: Mapping[str, tuple[Sample, ...]] = field(default_factory=dict)
    benchmarks: "BenchmarkFiles | None" = None


@lru_cache(maxsize=2)
def simulated(
    seed: int,
    backbone: str,
    recogniser: str,
    size: NasvaSize,
    world: str = "short",
    lag: float | None = None,
) -> Corpus:
    """Return a corpus of the simulated world. Held out are its last videos."""
    count = size.videos + size.held_out
    changes = {"videos": count, "held_out": size.held_out / count, "recogniser": recogniser}
    settings = WORLDS[world].model_copy(update=changes)
    if lag is not None:
        settings = settings.model_copy(
            update={"narration": settings.narration.model_copy(update={"offset": lag})}
        )
    videos = list(simulated_stream(seed, settings))
    held_out = videos[size.videos :]
    return Corpus(
        tuple(_training_video(video, backbone) for video in videos[: size.videos]),
        {
            style: tuple(_test_sample(video, style, backbone) for video in held_out)
            for style in STYLES
        },
    )


def _training_video(video: SimulatedVideo, backbone: str) -> TrainingVideo:
    record, features = video.record, video.features(backbone)
    return TrainingVideo(
        video.id,
        features,
        record.steps,
        record.sentences,
        video.vectors("step", backbone),
        video.vectors("narration", backbone),
        video.embeddings("step") @ video.embeddings("narration").T,
        video.embeddings("step"),
        str(video.task.number),
        _shown_rows(video, "step", features),
        _shown_rows(video, "narration", features),
    )


def _test_sample(video: SimulatedVideo, style: Style, backbone: str) -> Sample:
    features = video.features(backbone)
    shown = _shown_rows(video, style, features)
    return Sample(
        video.id, features.values, video.vectors(style, backbone), shown, style != "recipe"
    )


def _shown_rows(video: SimulatedVideo, style: Style, features: FeatureSequence) -> Mask:
    """Return (K, T): in which rows each text of a style is shown, by the rows' middle seconds."""
    return video.shown(style)[:, : len(features.values)]


# rows: a video is aligned as a whole, as the released code does
WHOLE = AlignerSettings(whole=1_000_000)


@dataclass(frozen=True)
class Benchmark:
    """A benchmark of the paper: its files in the folder of real data, and the rule and split that
    are scored."""

    name: BenchmarkName
    file: str
    convention: str
    subset: str | None = None


BENCHMARKS = {
    "recipe": Benchmark("ht-step", "ht-step", "official", "val_seen"),
    "narration": Benchmark("htm-align", "htm_align.json", "nasva"),
}  # by the kind of their texts, whose vectors are in the store of that name


@dataclass(frozen=True)
class BenchmarkFiles:
    """The benchmarks in their official files, and the stores of one backbone that answer them."""

    folder: Path
    stores: Path

    def excluded(self) -> ExcludedVideos:
        """Return the videos that nothing is trained on, whether they have features or not."""
        return collect_excluded(
            ExcludedSource(row.name, self.folder / row.file) for row in BENCHMARKS.values()
        )

    def score(self, network: Aligner, folder: Path) -> dict[str, float]:
        """Return what `stepline evaluate` gives for a network's best seconds, which are written
        into `folder`.

        In per cent: R@1, and the ROC-AUC of what separates texts that are shown. A video without
        features or vectors counts as wrong. Raises DatasetError where none has them.
        """
        found: dict[str, float] = {}
        loaded = LoadedAligner(network, folder, "", None, None)
        features = StoredFeatures(self.stores / "video")
        for kind, row in BENCHMARKS.items():
            reference = self.folder / row.file
            asked = benchmark_questions(row.name, reference, row.subset).questions
            given = BenchmarkInputs(features, TextVectors(self.stores / kind, loaded))
            settings = WHOLE.model_copy(update={"mode": BENCHMARK_MODES[row.name]})
            answers = score_questions(asked, loaded, given, settings)
            missing = answers.missing
            fits = [(one, answers.by_id[one.id]) for one in asked if one.id in answers.by_id]
            if not fits:
                raise DatasetError(
                    f"{reference}: no video has features and vectors; import them, also of its texts"
                )
            if missing:
                log.warning(
                    "%s: %d of %d videos count as wrong: %s",
                    row.name,
                    len(missing),
                    len(asked),
                    missing,
                )
            seconds = {one.id: (fit.scores.argmax(axis=1) / fit.rate).tolist() for one, fit in fits}
            write_atomic(folder / f"{row.name}.json", json.dumps(seconds))
            scores = evaluate(
                row.name,
                folder / f"{row.name}.json",
                reference,
                convention=row.convention,
                subset=row.subset,
            )
            found[f"{kind} R@1"] = 100 * point_estimate(scores.statistics["R@1"])
            shown = np.concatenate([one.truth for one, _ in fits if one.truth is not None])
            if len(np.unique(shown)) == 2:
                cosine = np.concatenate([fit.scores.max(axis=1) for _, fit in fits])
                found[f"{kind} AUC cosine"] = 100 * roc_auc(shown, cosine)
                heads = [fit.alignable for _, fit in fits if fit.alignable is not None]
                if heads:
                    found[f"{kind} AUC head"] = 100 * roc_auc(shown, np.concatenate(heads))
        return found


def read_corpus(folder: Path, trial: NasvaTrial) -> Corpus:
    """Return what a trial needs of real data: at most `size.videos` to train on, and both
    benchmarks.

    Raises StoreError where a store is not there, DatasetError when no video is left to train on.
    """
    benchmarks = BenchmarkFiles(folder, folder / trial.backbone)
    said = "narration" if trial.recogniser == "clean" else "narration-noisy"
    features = FeatureStore(benchmarks.stores / "video")
    videos = tuple(
        _training_videos(
            folder, benchmarks.stores, said, features, benchmarks.excluded(), trial.size
        )
    )
    if not videos:
        raise DatasetError(
            f"{folder}: no video has features, steps and narration; import them first"
        )
    return Corpus(videos, benchmarks=benchmarks)


def _training_videos(
    folder: Path,
    at: Path,
    said: str,
    features: FeatureStore,
    excluded: ExcludedVideos,
    size: NasvaSize,
) -> Iterable[TrainingVideo]:
    narration, step = FeatureStore(at / said), FeatureStore(at / "step")
    linking = {kind: FeatureStore(folder / "linking" / kind) for kind in (said, "step")}
    sentences = {told.video: told for told in read_labelled_texts(str(at / said), "narration")}
    count = 0
    for told in read_labelled_texts(str(at / "step"), "step"):
        id = told.video
        if count == size.videos or id in excluded or id not in features or id not in sentences:
            continue
        if any(id not in store for store in (*linking.values(), narration, step)):
            continue
        count += 1
        link = _unit(linking["step"].matrix(id))
        likeness = link @ _unit(linking[said].matrix(id)).T
        spoken, rows = _spoken(sentences[id])
        yield TrainingVideo(
            id,
            features.read(id),
            _steps(told),
            spoken,
            step.matrix(id),
            narration.matrix(id)[rows],
            likeness[:, rows],
            link,
        )


def _steps(told: LabelledTexts) -> tuple[Step, ...]:
    return tuple(
        Step(id=str(number), text=text or "-") for number, text in enumerate(told.texts, start=1)
    )


def _spoken(told: LabelledTexts) -> tuple[tuple[Sentence, ...], list[int]]:
    """Return the sentences that have a time, and their rows among all texts."""
    rows = [row for row, spans in enumerate(told.spans) if spans]
    return tuple(Sentence(text=told.texts[row], span=told.spans[row][0]) for row in rows), rows


def _unit(vectors: Matrix) -> Matrix:
    return np.asarray(
        vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12),
        dtype=np.float32,
    )
