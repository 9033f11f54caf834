"""What the product writes of real narration, and where it places given lines by words alone.

    python lab/narration.py NARRATION.json.gz --predictions OUT.json [--only written|given|lists]
    python lab/narration.py NARRATION.json.gz --predictions OUT.json --only written --sample 40 \\
        [--sentences 10] --set writer=llm [--prompt steps]
    python lab/narration.py --transcripts FOLDER --predictions OUT_FOLDER

The first writes what the yardstick's score.py reads: {"<video>": {"written": [{"text", "sources",
"at"}], "given": [{"at"}]}}. The second draws videos at random, so many consecutive sentences of each,
and writes them to OUT.json.gz, for score.py. `--prompt` asks a language model as in a row of NaSVA's
table 6. The third writes a record NAME.json a caption file, for the transcripts' score.py. `lists`
prints how parts of the given lines are placed, alone and among lines of other videos, and writes
nothing.
"""

import argparse
import gzip
import json
import random
import time
from pathlib import Path
from statistics import fmean
from typing import Any

from lab.nasva.prompts import experiment_prompts, write_timed_lines
from stepline.records import Sentence, Span, Transcript
from stepline.settings import load_settings
from stepline.speech import read_captions
from stepline.writing import WritingSettings, write_steps
from stepline.writing.llm.prompts import nasva_prompt
from stepline.writing.llm.writer import write_llm
from stepline.writing.types import WrittenSteps

# A sentence ends where the next begins, or earlier: SOURCE.md of the yardstick.
LEAST_SECONDS = 1.0
SECONDS_PER_WORD = 0.6
SAMPLE_SEED = 49

Row = dict[str, Any]


def transcript_of(video: Row) -> Transcript:
    """Return the sentences of a video of narration.json.gz as a transcript."""
    rows = video["sentences"]
    sentences = []
    for number, row in enumerate(rows):
        text = row["text"]
        start = row["start"]
        end = start + LEAST_SECONDS + SECONDS_PER_WORD * len(text.split())
        if number + 1 < len(rows):
            next_start = rows[number + 1]["start"]
            end = min(end, max(next_start, start + 0.1))
        sentences.append(Sentence(text=text, span=Span(start, end)))
    return Transcript(language="en", sentences=tuple(sentences), recogniser="captions")


def draw_parts(videos: Row, count: int, length: int) -> Row:
    """Return `count` videos drawn at random, of each `length` consecutive sentences and the steps
    within them. Draws of other counts begin alike."""
    rng = random.Random(SAMPLE_SEED)
    names = rng.sample(sorted(videos), len(videos))[:count]
    parts: Row = {}
    for name in names:
        video = videos[name]
        first = rng.randint(0, max(0, len(video["sentences"]) - length))
        rows = video["sentences"][first : first + length]
        bounds = (rows[0]["start"], transcript_of({"sentences": rows}).sentences[-1].span.end)
        steps = [step for step in video["steps"] if bounds[0] <= sum(step["span"]) / 2 <= bounds[1]]
        parts[name] = {**video, "sentences": rows, "steps": steps}
    return parts


def written_rows(transcript: Transcript, settings: WritingSettings, prompt: str = "") -> list[Row]:
    """Return the steps that the writer makes, each with its sentences and a second.

    prompt: one of NaSVA's table 6, for the language model alone: what it does not answer has no
        steps. By `steps_with_times` a line has the model's own second, and the sentence that is
        spoken then.
    """
    rows: list[Row] = []
    if prompt == "steps_with_times":
        starts = [sentence.span.start for sentence in transcript.sentences]
        for line in write_timed_lines(transcript, settings.llm):
            source = max(0, sum(start <= line.second for start in starts) - 1)
            rows.append({"text": line.text, "sources": [source], "at": line.second})
        return rows
    if prompt:
        template = nasva_prompt() if prompt == "steps" else experiment_prompts()[prompt]
        written = write_llm(
            transcript, settings.llm, prompt=template, fallback=lambda _: WrittenSteps()
        )
    else:
        written = write_steps(transcript, settings)
    for step in written.steps:
        at = None if step.said is None else (step.said.start + step.said.end) / 2
        row = {"text": step.text, "sources": list(step.sources), "at": at}
        rows.append(row)
    return rows


def given_rows(transcript: Transcript, texts: list[str]) -> list[Row]:
    """Return the second at which each given line is most likely shown, by the narration alone."""
    from stepline.pipeline.pictures import VisualFeatures
    from stepline.pipeline.placing import ground_steps
    from stepline.pipeline.request import StepsSettings
    from stepline.pipeline.understand import place_user_lines

    if not texts:
        return []
    settings = StepsSettings()
    steps = place_user_lines(texts, transcript, settings).steps
    grounding = ground_steps(
        steps,
        transcript.sentences[-1].span.end,
        transcript,
        VisualFeatures(),
        settings,
        written=False,
    )
    rows = []
    for step, scores in zip(grounding.steps, grounding.alignment.scores, strict=True):
        second = float(scores.argmax()) + 0.5 if step.at is None else step.at
        rows.append({"at": second, "shown": step.status in ("seen", "placed")})
    return rows


def print_lists(narration: Path) -> None:
    """Print how one to four neighbouring lines of each video are placed, alone and among others."""
    videos = json.loads(gzip.decompress(narration.read_bytes()))
    names = [name for name in sorted(videos) if videos[name]["steps"]]
    for has_strange_lines in (False, True):
        rng = random.Random(7)
        hits, shown, strange_shown = [], [], []
        for number, name in enumerate(names):
            steps = videos[name]["steps"]
            count = min(len(steps), rng.randint(1, 4))
            first = rng.randint(0, len(steps) - count)
            lines = [(step["text"], step["span"]) for step in steps[first : first + count]]
            if has_strange_lines:
                for step in videos[names[number - 37]]["steps"][: max(1, count // 2)]:
                    lines.insert(rng.randint(0, len(lines)), (step["text"], None))
            rows = given_rows(transcript_of(videos[name]), [text for text, _ in lines])
            for (_, span), row in zip(lines, rows, strict=True):
                if span is None:
                    strange_shown.append(row["shown"])
                else:
                    hits.append(span[0] <= row["at"] <= span[1])
                    shown.append(row["shown"])
        counts = {"R@1": hits, "shown": shown, "strange lines shown": strange_shown}
        print({key: (round(fmean(row), 3), len(row)) for key, row in counts.items() if row})


def predict_videos(videos: Row, only: str, settings: WritingSettings, prompt: str) -> Row:
    """Return the predictions for videos of a narration.json.gz."""
    predictions: Row = {}
    for name, video in videos.items():
        transcript = transcript_of(video)
        rows: Row = {}
        if only != "given":
            rows["written"] = written_rows(transcript, settings, prompt)
        if only != "written":
            texts = [step["text"] for step in video["steps"]]
            rows["given"] = given_rows(transcript, texts)
        predictions[name] = rows
    return predictions


def write_transcripts(folder: Path, out: Path, settings: WritingSettings) -> None:
    """Write a record per caption file, with what the transcripts' score.py reads."""
    files = sorted(folder.glob("*.vtt"))
    if not files:
        raise SystemExit(f"{folder}: no .vtt file; name the folder of the transcripts' captions")
    out.mkdir(parents=True, exist_ok=True)
    for file in files:
        transcript = read_captions(file).transcript
        steps = write_steps(transcript, settings).steps
        rows = [json.loads(step.model_dump_json()) for step in steps]
        text = json.dumps({"steps": rows}, indent=1)
        (out / f"{file.stem}.json").write_text(text)


def main() -> None:
    """Predict and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("narration", type=Path, nargs="?")
    parser.add_argument("--transcripts", type=Path)
    parser.add_argument("--predictions", type=Path, required=True)
    parser.add_argument("--only", choices=("written", "given", "lists"), default="")
    parser.add_argument("--scorer", type=Path, help="a tagger that lab/writer_training wrote")
    parser.add_argument("--sample", type=int, help="so many videos, drawn at random")
    parser.add_argument("--sentences", type=int, default=10_000, help="of each, at most")
    parser.add_argument("--set", action="append", default=[], help="a setting, as writer=llm")
    parser.add_argument("--prompt", choices=("steps", *experiment_prompts()), default="")
    options = parser.parse_args()
    if options.narration is None and options.transcripts is None:
        parser.error("give NARRATION.json.gz or --transcripts FOLDER")
    settings = load_settings(WritingSettings, None, options.set)
    settings = settings.model_copy(update={"step_scorer": options.scorer})
    start = time.process_time()
    if options.transcripts is not None:
        write_transcripts(options.transcripts, options.predictions, settings)
    if options.only == "lists":
        print_lists(options.narration)
    elif options.narration is not None:
        videos = json.loads(gzip.decompress(options.narration.read_bytes()))
        if options.sample:
            videos = draw_parts(videos, options.sample, options.sentences)
            sample = gzip.compress(json.dumps(videos).encode())
            options.predictions.with_suffix(".json.gz").write_bytes(sample)
        predictions = predict_videos(videos, options.only, settings, options.prompt)
        options.predictions.write_text(json.dumps(predictions))
    print(f"{time.process_time() - start:.1f} CPU s")


if __name__ == "__main__":
    main()
