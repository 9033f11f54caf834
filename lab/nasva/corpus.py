"""What NaSVA's networks train and are scored on: narrated videos with steps, and held-out texts.

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
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from pathlib import Path

import numpy as np

from lab.nasva.rows import NasvaSize, NasvaTrial
from lab.simulate import WORLD_SETTINGS, SimulatedVideo
from lab.simulate import stream as simulated_stream
from lab.simulate.narration import TEXT_STYLES, Style
from stepline.datasets.excluded import ExcludedSource, ExcludedVideos, collect_excluded
from stepline.errors import DatasetError
from stepline.evaluate.benchmarks import evaluate
from stepline.evaluate.bootstrap import point_estimate
from stepline.evaluate.ranking import roc_auc
from stepline.features import FeatureStore
from stepline.files.atomic_files import write_atomic
from stepline.models.nasva.benchmarks import (
    BENCHMARK_MODES,
    BenchmarkInputs,
    BenchmarkName,
    TextVectors,
    benchmark_questions,
    score_questions,
)
from stepline.models.nasva.checkpoint import LoadedAligner
from stepline.models.nasva.model import Aligner
from stepline.models.nasva.settings import AlignerSettings
from stepline.models.training.batches import Mask, Sample
from stepline.models.training.benchmark_answers import StoredFeatures
from stepline.models.training.sources import LabelledTexts, read_labelled_texts
from stepline.records import FeatureSequence, Matrix, Sentence, Step

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrainingVideo:
    """A video to train on: its narration and written steps, with the vectors of one backbone.

    step_vectors (K, C), sentence_vectors (S, C), likeness (K, S): of steps to sentences, by a text
    encoder alone. Its vectors of the steps are `linking` (K, D).
    task: what the video shows how to do, None where it is not known.
    truth: (K, T) where each step is shown, sentence_truth (S, T). None without planted truth.
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
    """What one training needs.

    videos: to train on. tests: texts of one kind in held-out videos, `positive` = where they are
    really shown. benchmarks: replace the tests in real data.
    """

    videos: tuple[TrainingVideo, ...]
    tests: Mapping[str, tuple[Sample, ...]] = field(default_factory=dict)
    benchmarks: "BenchmarkFiles | None" = None


@lru_cache(maxsize=2)
def simulated(
    seed: int, backbone: str, recogniser: str, size: NasvaSize, world: str = "short"
) -> Corpus:
    """Return a corpus of the simulated world. Held out are its last videos."""
    count = size.videos + size.held_out
    changes = {"videos": count, "held_out": size.held_out / count, "recogniser": recogniser}
    settings = WORLD_SETTINGS[world].model_copy(update=changes)
    videos = list(simulated_stream(seed, settings))
    training = [_training_video(video, backbone) for video in videos[: size.videos]]
    tests: dict[str, tuple[Sample, ...]] = {}
    for style in TEXT_STYLES:
        samples = [_test_sample(video, style, backbone) for video in videos[size.videos :]]
        tests[style] = tuple(samples)
    return Corpus(tuple(training), tests)


def _training_video(video: SimulatedVideo, backbone: str) -> TrainingVideo:
    features = video.features(backbone)
    step_embeddings = video.embeddings("step")
    return TrainingVideo(
        id=video.id,
        features=features,
        steps=video.record.steps,
        sentences=video.record.sentences,
        step_vectors=video.vectors("step", backbone),
        sentence_vectors=video.vectors("narration", backbone),
        likeness=step_embeddings @ video.embeddings("narration").T,
        linking=step_embeddings,
        task=str(video.task.number),
        truth=_shown_rows(video, "step", features),
        sentence_truth=_shown_rows(video, "narration", features),
    )


def _test_sample(video: SimulatedVideo, style: Style, backbone: str) -> Sample:
    features = video.features(backbone)
    vectors = video.vectors(style, backbone)
    truth = _shown_rows(video, style, features)
    return Sample(video.id, features.values, vectors, truth, style != "recipe")


def _shown_rows(video: SimulatedVideo, style: Style, features: FeatureSequence) -> Mask:
    """Return (K, T): in which rows each text of a style is shown, by the rows' middle seconds."""
    return video.shown(style)[:, : len(features.values)]


# In rows. A video is aligned as a whole, as the released code does.
WHOLE_VIDEO = AlignerSettings(whole=1_000_000)


@dataclass(frozen=True)
class Benchmark:
    """A benchmark of the paper: its files in the folder of real data, its rule and its split."""

    name: BenchmarkName
    file: str
    convention: str
    subset: str | None = None


# By the kind of their texts. The store of that name has the texts' vectors.
BENCHMARK_OF_KIND = {
    "recipe": Benchmark("ht-step", "ht-step", "official", "val_seen"),
    "narration": Benchmark("htm-align", "htm_align.json", "nasva"),
}


@dataclass(frozen=True)
class BenchmarkFiles:
    """The benchmarks in their official files, and the stores of one backbone that answer them."""

    folder: Path
    stores: Path

    def excluded(self) -> ExcludedVideos:
        """Return the videos that nothing is trained on, whether they have features or not."""
        return collect_excluded(
            ExcludedSource(row.name, self.folder / row.file) for row in BENCHMARK_OF_KIND.values()
        )

    def score(self, network: Aligner, folder: Path) -> dict[str, float]:
        """Return the scores by `stepline evaluate` of a network's best seconds.

        In per cent: R@1, and the ROC-AUC of what separates texts that are shown. The seconds are
        written into `folder`. A video without features or vectors counts as wrong. Raises
        DatasetError where no video has them.
        """
        scores: dict[str, float] = {}
        loaded = LoadedAligner(network, folder, "", None, None)
        features = StoredFeatures(self.stores / "video")
        for kind, benchmark in BENCHMARK_OF_KIND.items():
            inputs = BenchmarkInputs(features, TextVectors(self.stores / kind, loaded))
            for name, score in self._benchmark_scores(benchmark, loaded, inputs, folder).items():
                scores[f"{kind} {name}"] = score
        return scores

    def _benchmark_scores(
        self, benchmark: Benchmark, loaded: LoadedAligner, inputs: BenchmarkInputs, folder: Path
    ) -> dict[str, float]:
        reference = self.folder / benchmark.file
        questions = benchmark_questions(benchmark.name, reference, benchmark.subset).questions
        settings = WHOLE_VIDEO.model_copy(update={"mode": BENCHMARK_MODES[benchmark.name]})
        answers = score_questions(questions, loaded, inputs, settings)
        pairs = []
        for question in questions:
            if question.id in answers.by_id:
                pairs.append((question, answers.by_id[question.id]))
        if not pairs:
            raise DatasetError(
                f"{reference}: no video has features and vectors; import them, also of its texts"
            )
        missing = answers.missing
        if missing:
            warning = "%s: %d of %d videos count as wrong: %s"
            log.warning(warning, benchmark.name, len(missing), len(questions), missing)

        # the best second of every text
        seconds = {}
        for question, answer in pairs:
            seconds[question.id] = (answer.scores.argmax(axis=1) / answer.rate).tolist()
        path = folder / f"{benchmark.name}.json"
        write_atomic(path, json.dumps(seconds))
        evaluation = evaluate(
            benchmark.name,
            path,
            reference,
            convention=benchmark.convention,
            subset=benchmark.subset,
        )
        scores = {"R@1": 100 * point_estimate(evaluation.statistics["R@1"])}

        # texts that are shown against texts that are not
        truths = [question.truth for question, _ in pairs if question.truth is not None]
        is_shown = np.concatenate(truths)
        if len(np.unique(is_shown)) == 2:
            cosine = np.concatenate([answer.scores.max(axis=1) for _, answer in pairs])
            scores["AUC cosine"] = 100 * roc_auc(is_shown, cosine)
            heads = [answer.alignable for _, answer in pairs if answer.alignable is not None]
            if heads:
                scores["AUC head"] = 100 * roc_auc(is_shown, np.concatenate(heads))
        return scores


def read_corpus(folder: Path, trial: NasvaTrial) -> Corpus:
    """Return at most `size.videos` real videos to train on, and both benchmarks.

    Raises StoreError where a store is missing, DatasetError when no video is left to train on.
    """
    benchmarks = BenchmarkFiles(folder, folder / trial.backbone)
    narration = "narration" if trial.recogniser == "clean" else "narration-noisy"
    features = FeatureStore(benchmarks.stores / "video")
    excluded = benchmarks.excluded()
    all_videos = _training_videos(folder, benchmarks.stores, narration, features, excluded)
    videos = tuple(islice(all_videos, trial.size.videos))
    if not videos:
        raise DatasetError(
            f"{folder}: no video has features, steps and narration; import them first"
        )
    return Corpus(videos, benchmarks=benchmarks)


def _training_videos(
    folder: Path,
    backbone_folder: Path,
    narration: str,
    features: FeatureStore,
    excluded: ExcludedVideos,
) -> Iterator[TrainingVideo]:
    """Yield the videos that all stores have. narration: name of the store of what is said."""
    narration_folder = backbone_folder / narration
    step_folder = backbone_folder / "step"
    sentence_store = FeatureStore(narration_folder)
    step_store = FeatureStore(step_folder)
    sentence_linking = FeatureStore(folder / "linking" / narration)
    step_linking = FeatureStore(folder / "linking" / "step")
    stores = (features, sentence_linking, step_linking, sentence_store, step_store)

    # videos with both kinds of texts
    sentences = {}
    for texts in read_labelled_texts(str(narration_folder), "narration"):
        sentences[texts.video] = texts
    for texts in read_labelled_texts(str(step_folder), "step"):
        id = texts.video
        if id in excluded or id not in sentences:
            continue
        if any(id not in store for store in stores):
            continue
        linking = _unit(step_linking.matrix(id))
        likeness = linking @ _unit(sentence_linking.matrix(id)).T
        spoken, rows = _spoken(sentences[id])
        yield TrainingVideo(
            id=id,
            features=features.read(id),
            steps=_steps(texts),
            sentences=spoken,
            step_vectors=step_store.matrix(id),
            sentence_vectors=sentence_store.matrix(id)[rows],
            likeness=likeness[:, rows],
            linking=linking,
        )


def _steps(texts: LabelledTexts) -> tuple[Step, ...]:
    steps = []
    for number, text in enumerate(texts.texts, start=1):
        steps.append(Step(id=str(number), text=text or "-"))
    return tuple(steps)


def _spoken(texts: LabelledTexts) -> tuple[tuple[Sentence, ...], list[int]]:
    """Return the sentences that have a time, and their rows among all texts."""
    sentences = []
    rows = []
    for row, spans in enumerate(texts.spans):
        if spans:
            sentences.append(Sentence(text=texts.texts[row], span=spans[0]))
            rows.append(row)
    return tuple(sentences), rows


def _unit(vectors: Matrix) -> Matrix:
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.maximum(norms, 1e-12), dtype=np.float32)
