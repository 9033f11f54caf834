"""Table of the public datasets that can be read, and the functions that read by it."""

import difflib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from stepline.datasets import (
    crosstask,
    howto100m,
    htm_align,
    htstep,
    label_studio,
    step_spans,
    whenact,
    youcook2,
)
from stepline.datasets.record_builder import (
    REPEATED_ID,
    DatasetEntry,
    DatasetRecords,
    rejected_entry,
)
from stepline.errors import DatasetError

Reader = Callable[[Path], Iterator[DatasetEntry]]


@dataclass(frozen=True)
class Dataset:
    """A dataset that Stepline can read.

    Attributes:
        name: name of the dataset in commands.
        description: what the dataset holds.
        source: where to get the dataset.
        licence: licence of the annotations.
        files: names of the files that the reader accepts.
        conversion: how rows of the dataset become records.
        rejected: which rows are left out.
        record_field: field of the record that holds the annotation. "reference": steps annotated by
            people. "steps": steps made by models. "transcript": speech.
        reader: function from the path of the dataset to its entries.
        training_splits: names of the splits that no benchmark scores.
        read_hidden_ids: function from the path to split -> ids of the videos whose annotations are
            not public. None: the dataset has no such videos.
    """

    name: str
    description: str
    source: str
    licence: str
    files: tuple[str, ...]
    conversion: str
    rejected: str
    record_field: Literal["reference", "steps", "transcript"]
    reader: Reader
    training_splits: tuple[str, ...] = ("train", "training")
    read_hidden_ids: Callable[[Path], Mapping[str, Sequence[str]]] | None = None


BAD_SPANS = (
    "spans that are empty, reversed, negative, not finite or past the video's end; steps without "
    "text"
)

DATASETS = {
    row.name: row
    for row in (
        # Texts and steps aligned with videos.
        Dataset(
            "htm-align",
            "narrations of 80 HowTo100M videos: alignable with the picture or not, and where",
            "project page of Temporal Alignment Networks (TAN), University of Oxford",
            "none stated by its authors",
            (htm_align.FILE_NAME,),
            "one reference step a sentence, id = row; alignable: with its span; else without, "
            "`said` = its speech time",
            BAD_SPANS,
            "reference",
            htm_align.read,
        ),
        Dataset(
            "ht-step",
            "wikiHow steps placed in 20,000 HowTo100M cooking videos",
            "GitHub repository facebookresearch/htstep",
            "CC BY-NC 4.0",
            (htstep.ANNOTATIONS_FILE, htstep.TAXONOMY_FILE, htstep.SPLITS_FILE),
            "every step of the article's variation, id = global_step_index, with spans or none; "
            "recipe; task; split",
            BAD_SPANS + "; steps of another variation or outside the taxonomy",
            "reference",
            htstep.read,
            read_hidden_ids=htstep.hidden_videos,
        ),
        Dataset(
            "crosstask",
            "the steps of 18 tasks in 2,750 instructional videos",
            "GitHub repository DmZhukov/CrossTask (crosstask_release.zip)",
            "BSD 3-Clause (repository)",
            (
                *crosstask.TASK_FILES,
                crosstask.VIDEOS_FILE,
                crosstask.VALIDATION_FILE,
                "annotations/*.csv",
            ),
            "every step of the task, id = its number, with all its spans or none; recipe; task; "
            "train and val",
            BAD_SPANS + "; step numbers the task lacks; videos without annotations",
            "reference",
            crosstask.read,
            training_splits=(),  # its test sets are drawn from all videos but "val"
        ),
        Dataset(
            "coin",
            "the steps of 180 everyday tasks in 11,827 videos",
            "project page of COIN, Tsinghua University; GitHub repository coin-dataset/annotations",
            "CC BY-NC 4.0",
            (step_spans.COIN_FILE,),
            "one reference step a step id, with all its spans; task; duration; subset",
            BAD_SPANS,
            "reference",
            step_spans.read_coin,
        ),
        # Segments with sentences.
        Dataset(
            "youcook2",
            "recipe steps with sentences in 2,000 cooking videos",
            "project page of YouCook2, University of Michigan; flat form: GitHub repository "
            "ttengwang/PDVC",
            "none stated for the annotations; code MIT",
            youcook2.FILE_NAMES["youcook2"],
            "one reference step a segment, id = row; duration; subset; task = recipe_type",
            BAD_SPANS + "; hidden test sentences",
            "reference",
            youcook2.read,
        ),
        Dataset(
            "tasty",
            "recipe videos with their recipe's sentences, in the flat form that Sieve & Swap ships",
            "Hugging Face dataset anilbatra/sieve_and_swap, folder downstream/tasty",
            "none stated; research use",
            youcook2.FILE_NAMES["tasty"],
            "one reference step a segment, id = row; duration; split by the file's name",
            BAD_SPANS,
            "reference",
            youcook2.read,
        ),
        Dataset(
            "sieve-swap",
            "HowTo100M cooking videos whose narration was replaced by sentences of written recipes",
            "Hugging Face dataset anilbatra/sieve_and_swap, folder pretraining/data",
            "none stated; research use",
            youcook2.FILE_NAMES["sieve_swap"],
            "one step per segment: the first text, the others as its alternatives; duration; split "
            "by the file's name",
            BAD_SPANS,
            "steps",
            youcook2.read_swapped,
        ),
        # What is said in HowTo100M, and steps written from it.
        Dataset(
            "howtostep",
            "4 million steps that a language model wrote from the narration of HowTo100M videos",
            "Hugging Face dataset zeqianli/HowToStep",
            "none stated; research use",
            ("HowToStep.tar.gz", "a folder of {id}.json", "one .json of all videos"),
            "one step a row of the columns start, end, text",
            BAD_SPANS,
            "steps",
            howto100m.read_steps,
        ),
        Dataset(
            "howto100m",
            "what is said in HowTo100M videos: captions, sentencified captions, WhisperX",
            "project page of HowTo100M, Inria; sentencified: project page of TAN; WhisperX: "
            "NaSVA's repository",
            "research use",
            (
                "caption.json",
                "sentencified_htm_*.json",
                "a folder or .tar.gz of WhisperX {id}.json",
            ),
            "a transcript of the rows as they are, sorted by start",
            BAD_SPANS,
            "transcript",
            howto100m.read_narrations,
        ),
        # Actions that are named, and parts with headings.
        Dataset(
            "whenact",
            "actions named in vlogs: when they are spoken of, whether and when they are shown",
            "GitHub repository MichiganNLP/vlog_action_localization, folder data",
            "MIT",
            (whenact.SPOKEN_FILE, whenact.SHOWN_FILE),
            "one reference step an action: `said` = passage, span = window where shown; "
            "transcript with shown 1 or 0",
            BAD_SPANS + "; windows that no action's wording matches",
            "reference",
            whenact.read,
        ),
        Dataset(
            "hirest",
            "step headings of HowTo100M videos that answer a query",
            "GitHub repository j-min/HiREST, folder data/splits",
            "MIT",
            step_spans.HIREST_FILES,
            "one reference step a heading; task = query; duration; split by the file's name",
            BAD_SPANS + "; videos that do not answer their query",
            "reference",
            step_spans.read_hirest,
        ),
        Dataset(
            "interactive-cooking",
            "instructions to people who cook recipes of CaptainCook4D, with the seconds they took",
            "Hugging Face dataset qualcomm/qualcomm-interactive-cooking-dataset",
            "its own (LICENSE there); CaptainCook4D's videos apart",
            ("main_train.json", "main_val.json", "main_test.json"),
            "one reference step an instruction, from its second to the next one's or the end's; "
            "task; split by the "
            "file's name; .parquet as well",
            BAD_SPANS,
            "reference",
            step_spans.read_interactive_cooking,
        ),
        # The user's own.
        Dataset(
            "label-studio",
            "steps that people corrected or marked in Label Studio",
            "Label Studio, Export > JSON, of tasks from `stepline steps --format labelstudio`",
            "your own",
            (label_studio.FILE_NAME,),
            "one reference step per text, with the spans of its regions, none where its label is "
            'not "shown"; duration',
            BAD_SPANS + "; tasks that no one annotated",
            "reference",
            label_studio.read,
            training_splits=(),
        ),
    )
}


def stream(name: str, path: Path | str, *, subset: str | None = None) -> Iterator[DatasetEntry]:
    """Yield the entries of a dataset one at a time. An entry with a repeated id is rejected.

    Args:
        name: name of the dataset.
        path: file or folder of the dataset.
        subset: name of the split that is read. None: all splits.

    Raises DatasetError for an unknown name, and for files that are missing or malformed.
    """
    ids: set[str] = set()
    for entry in find_dataset(name).reader(Path(path)):
        if subset is not None and entry.subset != subset:
            continue
        if entry.id in ids:
            yield rejected_entry(entry.id, REPEATED_ID, subset=entry.subset)
        else:
            ids.add(entry.id)
            yield entry


def read(name: str, path: Path | str, *, subset: str | None = None) -> DatasetRecords:
    """Return a whole dataset: its records, the rejected rows, and the split of each record.

    Args:
        name: name of the dataset.
        path: file or folder of the dataset.
        subset: name of the split that is read. None: all splits.

    Raises DatasetError as `stream` does, and when the files hold no video of the split.
    """
    entries = list(stream(name, path, subset=subset))
    if subset is not None and not entries:
        subsets = {entry.subset for entry in stream(name, path)}
        names = ", ".join(sorted(filter(None, subsets)))
        cure = f"it has {names}" if names else "it states no subsets"
        raise DatasetError(f"{path}: {name} holds no subset {subset!r}; {cure}")
    return DatasetRecords(
        name,
        tuple(entry.record for entry in entries if entry.record is not None),
        tuple(row for entry in entries for row in entry.rejected),
        {entry.id: entry.subset for entry in entries if entry.record and entry.subset is not None},
    )


def find_dataset(name: str) -> Dataset:
    """Return the dataset of a name. Raises DatasetError, with the nearest name, if unknown."""
    if name in DATASETS:
        return DATASETS[name]
    cure = suggest_name(name, DATASETS)
    raise DatasetError(f"no dataset is called {name!r}; {cure}")


def suggest_name(name: str, names: Collection[str]) -> str:
    """Return advice on an unknown name: the nearest of the known names, or all of them."""
    near = difflib.get_close_matches(name.lower().replace("_", "-"), names, n=1, cutoff=0.5)
    return f"did you mean {near[0]!r}?" if near else f"known: {', '.join(names)}"


def describe(name: str | None = None) -> str:
    """Return a text about the datasets.

    name: name of a dataset, whose source, files and licence are described. None: all are listed.
    """
    if name is None:
        width = max(map(len, DATASETS))
        return (
            "\n".join(f"{row.name:<{width}}  {row.description}" for row in DATASETS.values()) + "\n"
        )
    row = find_dataset(name)
    lines = [
        f"{row.name}: {row.description}",
        f"  get it from  {row.source}",
        f"  licence      {row.licence}",
        f"  files        {', '.join(row.files)} (also gzipped)",
        f"  read         {row.conversion} (into Record.{row.record_field})",
        f"  rejected     {row.rejected}",
    ]
    return "\n".join(lines) + "\n"
