"""The table of benchmarks, and the one function that scores by it."""

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeAlias

from stepline.errors import DatasetError
from stepline.evaluate.protocols import alignment, crosstask, dense, detection, htstep, placing, rules, summary
from stepline.evaluate.protocols.case import Case
from stepline.evaluate.report import Scores

Scorer: TypeAlias = Callable[[Case], Scores]


@dataclass(frozen=True)
class Convention:
    """One way to score: its exact rule, and what does it."""

    rule: str
    score: Scorer


@dataclass(frozen=True)
class Benchmark:
    """What it is, where its rules come from, its inputs, and its conventions; the first is the default, and why.

    splits: whether its annotations state subsets, so that one can be chosen.
    """

    name: str
    what: str
    source: str
    reference: str
    predictions: str
    why: str
    conventions: dict[str, Convention]
    splits: bool = False

    @property
    def default(self) -> str:
        """The first convention."""
        return next(iter(self.conventions))


SECONDS = "JSON {id: [second or null a row]} or {id: {row id: second}}; or segments with texts (docs/evaluation.md)"


BY_ID = "JSON {id: {step id: second}}; or segments with texts (docs/evaluation.md)"


def _placed(name: str, what: str, source: str, reference: str, predictions: str = SECONDS) -> Benchmark:
    conventions = {
        "grounding": Convention(rules.PLACED, placing.grounding),
        "segmentation": Convention(rules.FOUND, placing.segmentation),
    }
    why = "no official scorer asks for texts and times at once, so the usual measures of grounding are given"
    return Benchmark(name, what, source, reference, predictions, why, conventions, splits=True)


def _captioned(name: str, what: str, reference: str) -> Benchmark:
    conventions = {
        "stepline": Convention(rules.DENSE, dense.score),
        "2018": Convention(rules.DENSE_2018, partial(dense.score, version="2018")),
        "2021": Convention(rules.DENSE_2021, partial(dense.score, version="2021")),
        "vidchapters": Convention(rules.DENSE_VIDCHAPTERS, partial(dense.score, version="vidchapters")),
        **_placed(name, what, "", reference).conventions,
    }
    source = "SODA (ECCV 2020), fujiso/SODA 1.1; densevid_eval as in PDVC and VidChapters"
    why = "every video counts, whether it was predicted or not, and nothing is drawn at random"
    predictions = "segments with texts (docs/evaluation.md)"
    return Benchmark(name, what, source, reference, predictions, why, conventions, splits=True)


BENCHMARKS = {
    row.name: row
    for row in (
        Benchmark(
            "htm-align", "narration alignment and alignability in 80 HowTo100M videos",
            "TAN, eval_zeroshot_align; NaSVA, train.py; WYS2 section 4", "htm_align.json",
            "JSON {id: matrix (sentences, seconds)}, {id: [second or null a sentence]} or both with alignability",
            "TAN's rule is the benchmark's own, and the papers before NaSVA report it; NaSVA's is stricter",
            {
                "tan": Convention(rules.TAN, alignment.score),
                "tan-windows": Convention(rules.TAN_WINDOWS, partial(alignment.score, windows=True)),
                "nasva": Convention(rules.NASVA, partial(alignment.score, convention="nasva")),
                "narration": Convention(rules.NARRATION, alignment.score_narration),
            },
        ),
        Benchmark(
            "ht-step", "wikiHow steps placed in cooking videos",
            "HT-Step, eval_article_grounding (mAP); HT-Step paper and EvalAI 2082 (R@1, run on a server)",
            "the release's folder: annotations.json, taxonomy.csv",
            "its CSV video-id,t-start,t-end,label,score; or JSON {id: [second a step]} or {id: {step: second}}",
            "there is one official rule; the mAP that looks at labels stands beside it",
            {"official": Convention(rules.HT_STEP, htstep.score)},
            splits=True,
        ),
        Benchmark(
            "crosstask", "step localisation in 18 tasks", "CrossTask (CVPR 2019) section 6, train.py; NaSVA 4.1",
            "the release's folder: tasks_primary.txt, videos_val.csv, annotations/",
            "JSON {task_video: [second or null a step]} or {task_video: matrix (seconds, steps)}",
            "zero-shot papers (UniVL, VINA, NaSVA) place each step by itself; the original decodes them in order",
            {
                "each": Convention(rules.EACH, crosstask.score),
                "ordered": Convention(rules.ORDERED, partial(crosstask.score, ordered=True)),
                "official": Convention(rules.ORDERED_SHARED, partial(crosstask.score, ordered=True, skip=True)),
                "each-all": Convention(rules.EACH_ALL, partial(crosstask.score, sets=False)),
            },
        ),
        _captioned("youcook2", "recipe steps in cooking videos", "its JSON in either form"),
        _captioned("tasty", "recipe steps in Tasty videos", "tasty_{split}.json of Sieve & Swap"),
        _placed("coin", "steps of 180 everyday tasks", "COIN", "COIN.json", BY_ID),
        _placed("hirest", "step headings of videos that answer a query", "HiREST", "all_data_{split}.json or folder"),
        _placed("whenact", "actions named in vlogs", "WhenAct (arXiv 2202.08138)", "its data folder or joined JSON"),
        Benchmark(
            "vnd", "clips whose narration is shown or not", "WYS2 section 4 (VND-Test)",
            "JSON {id: 0 or 1, or one a clip}", "JSON {id: score, or one a clip}",
            "the paper's only measure, with average precision beside it",
            {"official": Convention(rules.DETECTED, detection.score)},
        ),
        Benchmark(
            "ivsum", "summaries of wikiHow videos", "IV-Sum, utils/evaluate_and_log; WYS2 section 4.4 (tau, rho)",
            "JSON {id: [0 or 1 a frame]}", "JSON {id: [score a frame]} or IV-Sum's results file",
            "the official rule gives F = 1 to videos without a summary and multiplies probabilities",
            {
                "frames": Convention(rules.FRAMES, summary.score),
                "official": Convention(rules.FRAMES_OFFICIAL, partial(summary.score, official=True)),
            },
        ),
    )
}  # fmt: skip


def evaluate(
    name: str, predictions: Path | str, reference: Path | str, *,
    convention: str | None = None, subset: str | None = None,
) -> Scores:  # fmt: skip
    """Return the scores of predictions under a benchmark's convention, its default when None.

    Raises DatasetError for unknown names and for files that are missing, malformed or hold nothing to score.
    """
    row = benchmark(name)
    chosen = convention or row.default
    if chosen not in row.conventions:
        raise DatasetError(f"{name} has no convention {chosen!r}; {_near(chosen, list(row.conventions))}")
    if subset is not None and not row.splits:
        raise DatasetError(f"{name}: its reference states no subsets, so {subset!r} cannot be chosen; leave it out")
    found = row.conventions[chosen]
    return found.score(Case(name, chosen, found.rule, Path(reference), Path(predictions), subset))


def benchmark(name: str) -> Benchmark:
    """Return a row of the table. Raises DatasetError with the nearest name."""
    if name not in BENCHMARKS:
        raise DatasetError(f"no benchmark is called {name!r}; {_near(name, list(BENCHMARKS))}")
    return BENCHMARKS[name]


def _near(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name.lower(), known, n=1)
    return f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}"
