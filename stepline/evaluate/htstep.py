"""HT-Step: recall at 1 (R@1) of the steps of wikiHow articles.

The reference is the release's folder (annotations.json, taxonomy.csv). Predictions are JSON by video
id: one second per step of the video's variation, in the order of the global_step_index, or
{step id or headline: second}. `stepline predict ht-step --out result.json` writes such a file.

The CSV of article grounding holds windows, not seconds. The official program scores it:
facebookresearch/htstep, eval_article_grounding.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from stepline.datasets.files import Node, find_required_file
from stepline.datasets.htstep import ANNOTATIONS_FILE, ArticleStep, find_taxonomy, read_taxonomy
from stepline.errors import DatasetError
from stepline.evaluate.bootstrap import Floats, ratio_statistic
from stepline.evaluate.report import Scores
from stepline.evaluate.scoring_task import ScoringTask, entries_by_id, read_number, read_numbers
from stepline.evaluate.span_overlaps import is_inside_any, span_array

# An annotation shorter than this is left out, as by the official evaluator.
MIN_SEGMENT_SECONDS = 1e-3
TABLE_ENDINGS = (".csv", ".csv.gz", ".tsv")
MAX_QUOTED_CHARS = 40  # of a faulty id in an error
Taxonomy = Mapping[int, ArticleStep]  # by global_step_index


@dataclass(frozen=True)
class AnnotatedVideo:
    """The annotated steps of one video.

    Attributes:
        activity: title of the wikiHow article that the video follows.
        segments_by_step: global_step_index -> (M, 2) start and end in seconds of each time the
            video shows the step.
    """

    activity: str
    segments_by_step: dict[int, Floats]


def candidate_steps(video: AnnotatedVideo, taxonomy: Taxonomy) -> list[int]:
    """Return the sorted global_step_index of every step of the method or part that a video follows.

    Args:
        video: the annotation of the video.
        taxonomy: the steps of all wikiHow articles.

    Raises DatasetError when the annotation mixes several methods or parts, or names an unknown
    step.
    """
    for step in video.segments_by_step:
        if step not in taxonomy:
            raise DatasetError(
                f"step {step} is not in the taxonomy; give the taxonomy of these annotations"
            )
    variations = {taxonomy[step].variation for step in video.segments_by_step}
    if len(variations) > 1:
        raise DatasetError(
            f"a video of {video.activity!r} mixes the variations {sorted(variations)}; correct it"
        )
    return sorted(
        number
        for number, step in taxonomy.items()
        if step.activity == video.activity and step.variation in variations
    )


def _read_annotations(
    scoring: ScoringTask, file: Path, taxonomy: Taxonomy
) -> dict[str, AnnotatedVideo]:
    videos = {}
    for id, node in entries_by_id(file).items():
        subset = node.get("subset")
        if scoring.subset is not None and (subset is None or subset.value != scoring.subset):
            continue
        rows = list(node["annotations"].rows())
        spans = span_array([row["segment"].pair() for row in rows], node.location)
        steps = np.array([_parse_step(row["id"].name(), row.location) for row in rows], dtype=int)
        is_long_enough = spans[:, 1] - spans[:, 0] >= MIN_SEGMENT_SECONDS
        spans, steps = spans[is_long_enough], steps[is_long_enough]
        segments_by_step = {step: spans[steps == step] for step in sorted(set(steps.tolist()))}
        video = AnnotatedVideo(node["activity"].text(), segments_by_step)
        candidate_steps(video, taxonomy)  # raises where the annotation does not fit the taxonomy
        if segments_by_step:
            videos[id] = video
    return videos


def _parse_step(id: str, location: str) -> int:
    try:
        return int(id)
    except ValueError as error:
        raise DatasetError(
            f"{location}: step {id[:MAX_QUOTED_CHARS]!r} is not a whole number; give a "
            "global_step_index"
        ) from error


def score(scoring: ScoringTask) -> Scores:
    """Return R@1: the fraction of annotated steps whose predicted second is in any annotated span
    of the step.

    scoring: the reference folder and the file of predictions, as in the module's docstring.

    Raises DatasetError for predictions in a .csv or .tsv file, which hold time windows instead of
    seconds, and for predictions that do not match the annotations.
    """
    if scoring.predictions.name.endswith(TABLE_ENDINGS):
        raise DatasetError(
            f"{scoring.predictions}: a table of windows, and R@1 is scored from seconds"
            "; `stepline predict ht-step --out result.json` writes them"
        )
    file = find_required_file(scoring.reference, ANNOTATIONS_FILE)
    table = find_taxonomy(file)
    taxonomy = {_parse_step(id, str(table)): step for id, step in read_taxonomy(table).items()}
    videos = _read_annotations(scoring, file, taxonomy)
    predictions = entries_by_id(scoring.predictions)
    unknown_names: list[str] = []
    hits = np.zeros(len(videos))
    step_counts = np.zeros(len(videos))
    for index, (id, video) in enumerate(videos.items()):
        step_counts[index] = len(video.segments_by_step)
        if id not in predictions:
            continue
        seconds, video_unknown_names = _predicted_seconds(predictions[id], video, taxonomy)
        unknown_names += video_unknown_names
        for step, instances in video.segments_by_step.items():
            if step in seconds:
                hits[index] += is_inside_any(seconds[step], instances, closed=True)
    notes = []
    if unknown_names:
        notes.append(
            f"{len(unknown_names)} seconds name no single step of their video's article variation: "
            f"{unknown_names[0]!r}"
        )
    return scoring.make_scores(
        {"R@1": ratio_statistic(hits, step_counts)},
        {"hits": hits, "steps": step_counts},
        items=step_counts.sum(),
        reference_ids=videos,
        predicted_ids=predictions,
        notes=notes,
    )


def _predicted_seconds(
    node: Node, video: AnnotatedVideo, taxonomy: Taxonomy
) -> tuple[dict[int, float], list[str]]:
    """Return global_step_index -> predicted second, and the names that fit no step or several
    steps.

    Args:
        node: the JSON prediction of one video, a list of seconds or {step id or headline: second}.
        video: the annotation of the video.
        taxonomy: the steps of all wikiHow articles.
    """
    steps = candidate_steps(video, taxonomy)
    unknown_names = []
    if not isinstance(node.value, dict):
        # One second per step of the variation, in the order of the ids.
        numbers = read_numbers(node, len(steps), "steps of the article's variation").tolist()
        pairs = list(zip(steps, numbers, strict=True))
    else:
        # Ids come last, so that they win over a headline that reads like one.
        headlines = [taxonomy[step].text for step in steps]
        step_of_name = {
            text: step
            for step, text in zip(steps, headlines, strict=True)
            if headlines.count(text) == 1
        }
        step_of_name |= {str(step): step for step in steps}
        unknown_names = [name for name in node.value if name not in step_of_name]
        pairs = [
            (step_of_name[name], read_number(value))
            for name, value in node.entries()
            if name in step_of_name
        ]
    # A later null does not remove an earlier second of the same step.
    return {step: second for step, second in pairs if not np.isnan(second)}, unknown_names
