"""Judges the sentences of the shared real clips and compares P(shown) with what a person saw.

    python benchmarks/judge_clips.py --out DIR

Truth is for the clip that a person marked (steps_seen.json). A sentence may be spoken mostly within
a marked step's spoken span. It is shown when the picture shows the step for half a second or more
of the sentence's clip (3 s at least), else not. Sentences of no marked step are chat, and count as
not shown. The other English clips have no marks: their numbers are listed, not scored. One video: a
check, not a measurement.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from stepline.errors import DatasetError
from stepline.evaluate.ranking import roc_auc
from stepline.files.atomic_files import write_atomic
from stepline.models.wys2.judge import judged_span
from stepline.pipeline.batch import run_video
from stepline.pipeline.output_files import OutputOptions
from stepline.pipeline.request import Request, StepsSettings
from stepline.records import Record, Sentence, Span

PROJECT_FOLDER = Path(__file__).resolve().parents[1]
CLIPS_FOLDER = PROJECT_FOLDER.parent / "shared" / "data" / "videos"
RESULT_PATH = PROJECT_FOLDER / "benchmarks" / "results" / "judge_clips.json"
MARKED_CLIP = "howto100m_money_clip"
UNMARKED_CLIPS = ("cocoa_tv_chef", "mixing_bowl_hosts", "hair_chat")
MIN_OVERLAP_SECONDS = 0.5  # of the clip that must show the step, as in fit_judge.py
Row = dict[str, Any]


def is_spoken_in(sentence: Sentence, step: Row) -> bool:
    """Say whether most of a sentence is within the words of a marked step."""
    spoken = Span(*step["spoken"])
    return spoken.overlap(sentence.span) > sentence.span.duration / 2


def is_in_clip(sentence: Sentence, step: Row) -> bool:
    """Say whether the picture shows a marked step while a sentence is said."""
    clip = judged_span(sentence.span)
    shown_spans = [Span(*span) for span in step["shown"]]
    return any(span.overlap(clip) >= MIN_OVERLAP_SECONDS for span in shown_spans)


def judged(stem: str, out: Path) -> Record:
    request = Request(CLIPS_FOLDER / f"{stem}.mp4", stem)
    options = OutputOptions(out, ("json",))
    return run_video(request, StepsSettings(), options).record


def rows(record: Record, marked_steps: list[Row] | None) -> list[Row]:
    """Return a row per sentence, with what a person saw where the clip is marked."""
    sentence_rows = []
    for sentence in record.sentences:
        row: Row = {"start": sentence.span.start, "shown": sentence.shown}
        if marked_steps is not None:
            steps = [step for step in marked_steps if is_spoken_in(sentence, step)]
            row["told"] = bool(steps)
            row["seen"] = any(is_in_clip(sentence, step) for step in steps)
        sentence_rows.append(row)
    return sentence_rows


def scores(sentence_rows: list[Row]) -> Row:
    """Return counts, accuracy at .5 and ROC-AUC, null where all are of one kind."""
    labels = np.array([row["seen"] for row in sentence_rows], dtype=np.float64)
    probabilities = np.array([row["shown"] for row in sentence_rows], dtype=np.float64)
    try:
        area: float | None = round(roc_auc(labels, probabilities), 3)
    except DatasetError:
        area = None
    is_right = (probabilities > 0.5) == (labels > 0.5)
    return {
        "sentences": len(sentence_rows),
        "seen": int(labels.sum()),
        "right at .5": int(is_right.sum()),
        "AUC": area,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--out", type=Path, required=True, help="folder of the records, reused when run again"
    )
    out = parser.parse_args().out
    labels = json.loads((CLIPS_FOLDER / "steps_seen.json").read_text())
    marked_steps = labels[f"{MARKED_CLIP}.mp4"]["steps"]
    marked_rows = rows(judged(MARKED_CLIP, out), marked_steps)
    step_rows = [row for row in marked_rows if row["told"]]
    marked_report = {
        "all": scores(marked_rows),
        "of marked steps": scores(step_rows),
        "sentences": marked_rows,
    }
    report: Row = {MARKED_CLIP: marked_report}
    for stem in UNMARKED_CLIPS:
        report[stem] = {"sentences": rows(judged(stem, out), None)}
    text = json.dumps(report, indent=1)
    write_atomic(RESULT_PATH, f"{text}\n")
    print(text)


if __name__ == "__main__":
    main()
