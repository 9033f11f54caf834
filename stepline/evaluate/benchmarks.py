"""Table of all benchmarks and their scoring conventions, and the function that scores by it.

The exact rule of each convention is printed with the scores and kept in docs/evaluation.md.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from stepline.datasets.predictions import Cut
from stepline.datasets.registry import suggest_name
from stepline.errors import DatasetError
from stepline.evaluate import (
    crosstask,
    dense_captioning,
    htm_align,
    htstep,
    ranking,
    temporal_grounding,
    video_summaries,
)
from stepline.evaluate.report import Scores
from stepline.evaluate.scoring_task import ScoringTask


@dataclass(frozen=True)
class ScoringConvention:
    """A scoring convention of a benchmark: a fixed choice of metrics and rules.

    Attributes:
        rule: exact text of the rules, which is printed with the scores.
        score: function that scores the files of an evaluation by this convention.
    """

    rule: str
    score: Callable[[ScoringTask], Scores]


@dataclass(frozen=True)
class Benchmark:
    """A benchmark with its scoring conventions.

    Attributes:
        name: name of the benchmark in commands.
        description: what the benchmark measures.
        source: papers or programs that define its rules.
        reference_form: file format of the annotations.
        predictions_form: file format of the predictions.
        default_reason: why the default convention is the default.
        conventions: name -> convention. The first one is the default.
        has_subsets: whether the annotations state splits, so that one split can be scored.
        supports_pdvc_cut: whether PDVC's proposals can be ranked and cut before they are scored.
    """

    name: str
    description: str
    source: str
    reference_form: str
    predictions_form: str
    default_reason: str
    conventions: dict[str, ScoringConvention]
    has_subsets: bool = False
    supports_pdvc_cut: bool = False

    @property
    def default_convention(self) -> str:
        """Name of the default scoring convention."""
        return next(iter(self.conventions))


# Forms of predictions that several benchmarks take.
SECONDS_BY_ROW = (
    "JSON {id: [second or null per row]} or {id: {row id: second}}; or segments with texts "
    "(docs/evaluation.md)"
)
SECONDS_BY_STEP_ID = "JSON {id: {step id: second}}; or segments with texts (docs/evaluation.md)"


def _grounding_benchmark(
    name: str, description: str, source: str, reference: str, predictions: str = SECONDS_BY_ROW
) -> Benchmark:
    conventions = {
        "grounding": ScoringConvention(
            "of the texts that the video shows: R@1: the predicted second (a segment's middle) "
            "lies in [start, end) of any instance; Recall@IoU: the predicted segment overlaps an "
            "instance at least so much; mean IoU: the best overlap, 0 where nothing was "
            "predicted; texts of all videos pooled",
            temporal_grounding.score_grounding,
        ),
        "segmentation": ScoringConvention(
            "texts not looked at: recall: share of reference spans that some predicted span "
            "overlaps at least so much (one may serve several); precision: the reverse; mean IoU:"
            " the best overlap of each reference span; all videos pooled",
            temporal_grounding.score_segmentation,
        ),
    }
    reason = (
        "no official scorer asks for both texts and times, so the usual measures of grounding "
        "are given"
    )
    return Benchmark(
        name, description, source, reference, predictions, reason, conventions, has_subsets=True
    )


def _captioning_benchmark(name: str, description: str, reference: str) -> Benchmark:
    conventions = {
        "stepline": ScoringConvention(
            "SODA a to d: one-to-one pairing that keeps the order, METEOR with the prediction as "
            "reference as officially, F1 of a video, mean over videos; densevid: metrics of all "
            "(prediction, reference) pairs with IoU >= .3, .5, .7, .9, video by video (METEOR's "
            "aggregate, CIDEr's idf), an unmatched prediction against one garbage word; precision"
            " and recall at IoU > tIoU; mean over videos, then tIoUs; an empty list scores 0",
            dense_captioning.score,
        ),
        "2018": ScoringConvention(
            "as stepline, with densevid_eval 2018's garbage caption of several tokens; SODA over "
            "videos in both files",
            partial(dense_captioning.score, version="2018"),
        ),
        "2021": ScoringConvention(
            "as stepline, densevid_eval as PDVC's evaluate2021; SODA over videos in both files",
            partial(dense_captioning.score, version="2021"),
        ),
        "vidchapters": ScoringConvention(
            "as stepline, only videos in both files, as VidChapters and Vid2Seq score",
            partial(dense_captioning.score, version="vidchapters"),
        ),
        **_grounding_benchmark(name, description, "", reference).conventions,
    }
    source = "SODA (ECCV 2020), fujiso/SODA 1.1; densevid_eval as in PDVC and VidChapters"
    reason = "every video counts, whether it was predicted or not, and nothing is drawn at random"
    predictions = "segments with texts (docs/evaluation.md); PDVC's results with --cut pdvc"
    return Benchmark(
        name,
        description,
        source,
        reference,
        predictions,
        reason,
        conventions,
        has_subsets=True,
        supports_pdvc_cut=True,
    )


BENCHMARKS = {
    row.name: row
    for row in (
        # Narration and steps, by the rules of their own papers.
        Benchmark(
            "htm-align",
            "narration alignment and alignability in 80 HowTo100M videos",
            "TAN, eval_zeroshot_align; NaSVA, train.py; WYS2 section 4",
            "htm_align.json",
            "JSON {id: matrix (sentences, seconds)}, {id: [second or null per sentence]} or both "
            "with alignability",
            "TAN's rule is the benchmark's own, and the papers before NaSVA report it; NaSVA's is "
            "stricter",
            {
                "tan": ScoringConvention(
                    "hit: floor(start) <= second <= ceil(end), both ends included; R@1 over alignable "
                    "sentences, all videos pooled; ROC-AUC of alignable against not, over all sentences, "
                    "by the alignability score or else the best score over the video; the first of equal "
                    "seconds; a score of exactly 0 means not scored",
                    htm_align.score,
                ),
                "nasva": ScoringConvention(
                    "hit: start <= second <= end, nothing rounded; R@1 over alignable sentences, all "
                    "videos pooled; videos without an alignable sentence are left out",
                    partial(htm_align.score, rule="nasva"),
                ),
                "narration": ScoringConvention(
                    "positive: alignable and shown while it is said; ROC-AUC and average precision of the"
                    " score `shown`, sentences of all videos pooled, ties count half",
                    htm_align.score_narration,
                ),
            },
        ),
        Benchmark(
            "ht-step",
            "wikiHow steps placed in cooking videos",
            "HT-Step paper and EvalAI 2082 (run on a server)",
            "the release's folder: annotations.json, taxonomy.csv",
            "JSON {id: [second per step]} or {id: {step: second}}",
            "there is one official rule",
            {
                "official": ScoringConvention(
                    "R@1: the second lies in [start, end] of any instance of the step, over steps with an"
                    " instance, all videos pooled",
                    htstep.score,
                )
            },
            has_subsets=True,
        ),
        Benchmark(
            "crosstask",
            "step localisation in 18 tasks",
            "CrossTask (CVPR 2019) section 6, train.py; NaSVA 4.1",
            "the release's folder: tasks_primary.txt, videos_val.csv, annotations/",
            "JSON {task_video: [second or null per step]} or {task_video: matrix (seconds, steps)}",
            "zero-shot papers (UniVL, VINA, NaSVA) place each step by itself; the original "
            "decodes them in order",
            {
                "each": ScoringConvention(
                    "the best second of each step by itself; hit: it is in rows floor(start):ceil(end) "
                    "without the last; recall of a task over its annotated steps, unweighted mean over "
                    "tasks, mean over 20 test sets that leave 30 random videos per task out (seeds 0 to "
                    "19)",
                    crosstask.score,
                ),
                "ordered": ScoringConvention(
                    "as each, but all steps of the task once and in order, by dynamic programming on -log"
                    " softmax over steps",
                    partial(crosstask.score, ordered=True),
                ),
                "official": ScoringConvention(
                    "as ordered; videos without predictions are left out, and so are steps shown only "
                    "after the last row of the scores",
                    partial(crosstask.score, ordered=True, skip_missing=True),
                ),
                "each-all": ScoringConvention(
                    "as each, but one test set of all annotated videos that are not in videos_val.csv",
                    partial(crosstask.score, use_test_sets=False),
                ),
            },
        ),
        # Recipes, as captions and as spans. Then spans alone.
        _captioning_benchmark(
            "youcook2", "recipe steps in cooking videos", "its JSON in either form"
        ),
        _captioning_benchmark(
            "tasty", "recipe steps in Tasty videos", "tasty_{split}.json of Sieve & Swap"
        ),
        _grounding_benchmark(
            "coin", "steps of 180 everyday tasks", "COIN", "COIN.json", SECONDS_BY_STEP_ID
        ),
        _grounding_benchmark(
            "hirest",
            "step headings of videos that answer a query",
            "HiREST",
            "all_data_{split}.json or folder",
        ),
        _grounding_benchmark(
            "interactive-cooking",
            "instructions placed while someone cooks",
            "Qualcomm Interactive Cooking (arXiv 2511.21998)",
            "main_{split}.json, .parquet or folder",
        ),
        _grounding_benchmark(
            "whenact", "actions named in vlogs", "WhenAct (arXiv 2202.08138)", "its data folder"
        ),
        # Clips and frames, without spans.
        Benchmark(
            "vnd",
            "clips whose narration is shown or not",
            "WYS2 section 4 (VND-Test)",
            "JSON {video:clip: 0 or 1}, or {video: [one per clip]}",
            "JSON {video:clip: score}, or {video: [one per clip]}",
            "the paper's only measure, with average precision added",
            {
                "official": ScoringConvention(
                    "ROC-AUC of shown against not, clips pooled, ties count half (scikit-learn); AP: sum "
                    "of recall gained times precision, not interpolated",
                    ranking.score_clips,
                )
            },
        ),
        Benchmark(
            "ivsum",
            "summaries of wikiHow videos",
            "IV-Sum, utils/evaluate_and_log; WYS2 section 4.4 (tau, rho)",
            "JSON {id: [0 or 1 per frame]}",
            "JSON {id: [score per frame]} or IV-Sum's results file",
            "the official rule gives F = 1 to videos without a summary and multiplies "
            "probabilities",
            {
                "frames": ScoringConvention(
                    "frames above 0.5 are in; F of frames, mean over videos whose reference holds a "
                    "frame; cut or filled with 0 to the reference's length; Kendall's tau-b and "
                    "Spearman's rho of scores with the reference, 0 where all scores are equal",
                    video_summaries.score,
                ),
                "official": ScoringConvention(
                    "frames above 0.5 are 1, the others keep their score; a reference without frames "
                    "gives F = 1; only videos in both files; tau and rho left out where undefined",
                    partial(video_summaries.score, official=True),
                ),
            },
        ),
    )
}


def evaluate(
    name: str,
    predictions: Path | str,
    reference: Path | str,
    *,
    convention: str | None = None,
    subset: str | None = None,
    cut: Cut | None = None,
) -> Scores:
    """Return the scores of predictions by a scoring convention of a benchmark.

    Args:
        name: name of the benchmark.
        predictions: file or folder of the predictions.
        reference: file or folder of the annotations.
        convention: name of the scoring convention. None: the default of the benchmark.
        subset: name of the split of the reference that is scored. None: all splits.
        cut: "pdvc" ranks and cuts PDVC's proposals, as PDVC does before scoring. Predictions in
            other forms are unchanged. None: all proposals are scored.

    Raises DatasetError for unknown names, and for files that are missing, malformed or empty.
    """
    benchmark = find_benchmark(name)
    protocol = convention or benchmark.default_convention
    if protocol not in benchmark.conventions:
        cure = suggest_name(protocol, benchmark.conventions)
        raise DatasetError(f"{name} has no convention {protocol!r}; {cure}")
    if subset is not None and not benchmark.has_subsets:
        raise DatasetError(
            f"{name}: its reference states no subsets, so {subset!r} cannot be chosen; leave it out"
        )
    if cut is not None and not benchmark.supports_pdvc_cut:
        raise DatasetError(f"{name}: its predictions are not proposals; leave --cut out")
    if not Path(predictions).exists():
        cure = f"correct the path; `stepline evaluate {name}` shows the form of predictions"
        raise DatasetError(f"{predictions}: no such predictions; {cure}")
    scorer = benchmark.conventions[protocol]
    return scorer.score(
        ScoringTask(name, protocol, scorer.rule, Path(reference), Path(predictions), subset, cut)
    )


def find_benchmark(name: str) -> Benchmark:
    """Return the benchmark of a name. Raises DatasetError, with the nearest name, if unknown."""
    if name not in BENCHMARKS:
        cure = suggest_name(name, BENCHMARKS)
        raise DatasetError(f"no benchmark is called {name!r}; {cure}")
    return BENCHMARKS[name]
