"""What the product writes of real narration, and where it places given lines by words alone.

    python benchmarks/narration.py NARRATION.json.gz --predictions OUT.json [--only written|given]
    python benchmarks/narration.py --transcripts FOLDER --predictions OUT_FOLDER

The first writes what the yardstick's score.py reads: {"<video>": {"written": [{"text", "sources",
"at"}], "given": [{"at"}]}}. The second writes a record NAME.json a caption file, for the
transcripts' score.py.
"""

import argparse
import gzip
import json
import time
from pathlib import Path
from typing import Any

from stepline.asr import read_captions
from stepline.records import Sentence, Span, Transcript
from stepline.writing import WritingSettings, write_steps

# A sentence ends where the next begins, or earlier: SOURCE.md of the yardstick.
LEAST_SECONDS = 1.0
SECONDS_PER_WORD = 0.6


def transcript_of(video: dict[str, Any]) -> Transcript:
    """Return the sentences of a video of narration.json.gz as a transcript."""
    rows = video["sentences"]
    sentences = []
    for number, row in enumerate(rows):
        end = row["start"] + LEAST_SECONDS + SECONDS_PER_WORD * len(row["text"].split())
        if number + 1 < len(rows):
            end = min(end, max(rows[number + 1]["start"], row["start"] + 0.1))
        sentences.append(Sentence(text=row["text"], span=Span(row["start"], end)))
    return Transcript(language="en", sentences=tuple(sentences), recogniser="captions")


def written_rows(transcript: Transcript, settings: WritingSettings) -> list[dict[str, Any]]:
    """Return the steps that the writer makes, each with its sentences and a second."""
    rows = []
    for step in write_steps(transcript, settings).steps:
        at = None if step.said is None else (step.said.start + step.said.end) / 2
        rows.append({"text": step.text, "sources": list(step.sources), "at": at})
    return rows


def given_rows(transcript: Transcript, texts: list[str]) -> list[dict[str, float]]:
    """Return the second at which each given line is most likely shown, by the narration alone."""
    from stepline.grounding import ground
    from stepline.pipeline.request import StepsSettings
    from stepline.pipeline.user_lines import place_user_lines

    placed = place_user_lines(texts, transcript, StepsSettings())
    duration = transcript.sentences[-1].span.end
    grounding = ground(
        placed.steps,
        duration=duration,
        transcript=transcript,
        written=False,
        tellings=placed.tellings,
    )
    return [{"at": float(row.argmax()) + 0.5} for row in grounding.alignment.scores]


def predict_videos(narration: Path, only: str, settings: WritingSettings) -> dict[str, Any]:
    """Return the predictions for all videos of a narration.json.gz."""
    videos = json.loads(gzip.decompress(narration.read_bytes()))
    found: dict[str, Any] = {}
    for name, video in videos.items():
        transcript = transcript_of(video)
        found[name] = {}
        if only != "given":
            found[name]["written"] = written_rows(transcript, settings)
        if only != "written":
            texts = [step["text"] for step in video["steps"]]
            found[name]["given"] = given_rows(transcript, texts) if texts else []
    return found


def write_transcripts(folder: Path, out: Path, settings: WritingSettings) -> None:
    """Write a record a caption file, with what the transcripts' score.py reads."""
    out.mkdir(parents=True, exist_ok=True)
    for file in sorted(folder.glob("*.vtt")):
        transcript = read_captions(file).transcript
        steps = write_steps(transcript, settings).steps
        rows = [json.loads(step.model_dump_json()) for step in steps]
        (out / f"{file.stem}.json").write_text(json.dumps({"steps": rows}, indent=1))


def main() -> None:
    """Predict and write."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("narration", type=Path, nargs="?")
    options.add_argument("--transcripts", type=Path)
    options.add_argument("--predictions", type=Path, required=True)
    options.add_argument("--only", choices=("written", "given"), default="")
    options.add_argument("--scorer", type=Path, help="a tagger that `stepline train writer` wrote")
    chosen = options.parse_args()
    settings = WritingSettings(step_scorer=chosen.scorer)
    start = time.process_time()
    if chosen.transcripts is not None:
        write_transcripts(chosen.transcripts, chosen.predictions, settings)
    if chosen.narration is not None:
        predictions = predict_videos(chosen.narration, chosen.only, settings)
        chosen.predictions.write_text(json.dumps(predictions))
    print(f"{time.process_time() - start:.1f} CPU s")


if __name__ == "__main__":
    main()
