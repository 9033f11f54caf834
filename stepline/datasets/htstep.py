"""HT-Step: wikiHow steps placed in HowTo100M cooking videos.

    annotations.json    {id: {subset, activity, annotations: [{id: global_step_index, segment: [start, end]}]}}
    taxonomy.csv        global_step_index,activity,step_index,variation,variation_index,headline,paragraph
    video_splits.json   {split: [id, ...]}, only where the annotations state no subset
    htm_test_input_headline.json   {id: {"step_headline": [text, ...]}}, what the server asks of its hidden test splits

The reference holds every step of the article's variation that the video follows. A step has its
spans, or none where the annotators did not find it. The variation is that of the video's first
annotation, as in the official evaluator. A video without annotations follows the activity's only
variation, else its reference is empty.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from stepline.datasets.files import Node, find_file, find_required_file, read_csv, read_node
from stepline.datasets.record_builder import DatasetEntry, RecordBuilder
from stepline.errors import DatasetError

ANNOTATIONS_FILE = "annotations.json"
TAXONOMY_FILE = "taxonomy.csv"
SPLITS_FILE = "video_splits.json"
QUERIES_FILE = "htm_test_input_headline.json"
HEADLINES_KEY = "step_headline"  # in the file of queries
# how the names of splits begin whose annotations only the server has: test_seen, test_unseen
HIDDEN_PREFIX = "test"
TAXONOMY_COLUMNS = ("global_step_index", "activity", "variation", "headline")
OTHER_VARIATION = "belongs to another variation of the article than the video's first annotation"
UNKNOWN_STEP = "its step is not in the taxonomy"


@dataclass(frozen=True)
class ArticleStep:
    """One step of a wikiHow article.

    Attributes:
        id: global_step_index of the step.
        activity: title of the article.
        variation: name of the method or part of the article that holds the step.
        text: headline of the step.
    """

    id: str
    activity: str
    variation: str
    text: str


# activity -> variation -> id -> headline
Articles = dict[str, dict[str, dict[str, ArticleStep]]]


def read(path: Path) -> Iterator[DatasetEntry]:
    """Yield one entry per video of HT-Step.

    path: the folder of the release, or its annotations.json with taxonomy.csv in the same folder.
    """
    file = find_required_file(path, ANNOTATIONS_FILE)
    taxonomy = read_taxonomy(find_taxonomy(file))
    articles: Articles = defaultdict(lambda: defaultdict(dict))
    for step in taxonomy.values():
        articles[step.activity][step.variation][step.id] = step
    split_of_video: dict[str, str] = {}
    for split, ids in read_splits(file.parent).items():
        split_of_video |= dict.fromkeys(ids, split)
    for id, video in read_node(file).entries():
        yield _video_entry(id, video, taxonomy, articles, split_of_video.get(id))


def find_taxonomy(annotations: Path) -> Path:
    """Return the path of taxonomy.csv in the folder of the annotations.

    Raises DatasetError if the folder has none.
    """
    table = find_file(annotations.parent, TAXONOMY_FILE)
    if table is None:
        raise DatasetError(
            f"{annotations}: has no {TAXONOMY_FILE} in its folder; give HT-Step's "
            f"{ANNOTATIONS_FILE} and {TAXONOMY_FILE} in one folder"
        )
    return table


def read_taxonomy(path: Path) -> dict[str, ArticleStep]:
    """Return global_step_index -> step, in the order of a taxonomy file."""
    steps: dict[str, ArticleStep] = {}
    for line, row in read_csv(path, TAXONOMY_COLUMNS):
        id = row["global_step_index"].strip()
        if id in steps:
            raise DatasetError(
                f"{path}: line {line} repeats global_step_index {id}; keep one of them"
            )
        steps[id] = ArticleStep(id, row["activity"], row["variation"], row["headline"].strip())
    return steps


def read_splits(folder: Path) -> dict[str, tuple[str, ...]]:
    """Return split -> video ids, from video_splits.json in a folder. {} if the folder has none."""
    file = find_file(folder, SPLITS_FILE)
    if file is None:
        return {}
    return {
        split: tuple(node.name() for node in nodes.rows())
        for split, nodes in read_node(file).entries()
    }


def hidden_videos(path: Path) -> dict[str, tuple[str, ...]]:
    """Return split -> video ids of the test splits, whose annotations are not public.

    path: the folder of the release, or its annotations.json.

    Raises DatasetError if no file names those videos.
    """
    folder = path if path.is_dir() else path.parent
    queries = find_file(folder, QUERIES_FILE)
    splits = read_splits(folder)
    if not splits and queries is None:
        raise DatasetError(
            f"{folder}: no file states which videos are in the hidden test splits; put the "
            f"release's {SPLITS_FILE} there"
        )
    hidden = {split: ids for split, ids in splits.items() if split.startswith(HIDDEN_PREFIX)}
    if queries is not None:
        hidden["test"] = tuple(read_queries(queries))
    return hidden


def find_queries(path: Path, subset: str | None) -> Path | None:
    """Return the file with the queries of the evaluation server, None for an annotated split.

    Args:
        path: the file of queries, whatever its name, or the folder of the release.
        subset: name of the split. None: all splits.

    Raises DatasetError if the folder lacks the queries of a test split.
    """
    if not path.is_dir():
        videos = [video for _, video in read_node(path).entries()]
        return None if not videos or videos[0].get(HEADLINES_KEY) is None else path
    file = find_file(path, QUERIES_FILE)
    annotations = find_file(path, ANNOTATIONS_FILE)
    if annotations is None:
        return file
    if subset is None or not subset.startswith(HIDDEN_PREFIX):
        return None
    if file is None and not _has_subset(annotations, subset):
        raise DatasetError(
            f"{path}: the annotations of {subset} are hidden; put {QUERIES_FILE} of the evaluation "
            "server (EvalAI challenge 2082) there"
        )
    return file


def _has_subset(annotations: Path, subset: str) -> bool:
    videos = [video for _, video in read_node(annotations).entries()]
    splits = [video.get("subset") for video in videos]
    return any(split is not None and split.value == subset for split in splits)


def read_queries(path: Path, subset: str | None = None) -> dict[str, tuple[str, ...]]:
    """Return video id -> headlines of the steps to localize, in the order of the evaluation server.

    Args:
        path: the file of queries.
        subset: name of the split whose videos are returned. None: all videos. A video that the file
            of queries lacks has no headlines.

    Raises DatasetError if no video_splits.json next to the file names the split.
    """
    queries = {id: video[HEADLINES_KEY].texts() for id, video in read_node(path).entries()}
    if subset is None:
        return queries
    splits = read_splits(path.parent)
    if subset not in splits:
        lack = f"put {SPLITS_FILE} next to it, or leave the subset out"
        cure = f"it has {', '.join(splits)}" if splits else lack
        raise DatasetError(f"{path}: no file states which videos are in {subset!r}; {cure}")
    return {id: queries.get(id, ()) for id in splits[subset]}


def _video_entry(
    id: str, video: Node, taxonomy: Mapping[str, ArticleStep], articles: Articles, split: str | None
) -> DatasetEntry:
    activity = video["activity"].text()
    rows = [(row["id"].name(), row["segment"].pair()) for row in video["annotations"].rows()]
    # The variation of the first annotation, or the activity's only one.
    steps: Mapping[str, ArticleStep] = {}
    known_ids = [step_id for step_id, _ in rows if step_id in taxonomy]
    if known_ids:
        first = taxonomy[known_ids[0]]
        steps = articles[first.activity][first.variation]
    elif len(articles.get(activity, ())) == 1:
        (steps,) = articles[activity].values()
    # All steps of the variation are in the reference, shown or not.
    builder = RecordBuilder(id)
    for step in steps.values():
        builder.add_step(step.id, step.text)
    for step_id, (start, end) in rows:
        if step_id in steps:
            builder.add_span(step_id, steps[step_id].text, start, end, keeps_step=True)
        elif step_id in taxonomy:
            builder.reject("span", taxonomy[step_id].text, OTHER_VARIATION, f"step {step_id}")
        else:
            builder.reject("span", "", UNKNOWN_STEP, f"step {step_id}")
    subset = video.optional_text("subset")
    recipe = [step.text for step in steps.values()]
    return builder.build_entry(
        subset=split if subset is None else subset, task=activity, recipe=recipe
    )
