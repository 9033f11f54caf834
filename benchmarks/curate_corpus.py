"""Draws and speaks a corpus of short how-to videos for `stepline curate`, with the truth next to
each.

    python benchmarks/curate_corpus.py DIR --videos 300 [--clips FOLDER] [--captioned]

DIR/videos holds <id>.mp4. DIR/truth/<id>.json is a Record each (what is said, and where it is
really shown). DIR/videos.csv is the list that `stepline curate` reads (video, title, task,
category, captions). A tenth of the videos is what a curator must meet: copies, the same script
drawn again, chat without a step, another language, no speech. `--clips` adds files as they are,
without a truth. `--captioned` puts what is said next to each video (.vtt), so that curate hears
none, which saves half of its time. The same arguments give the same bytes. A video that is there is
not drawn again.
"""

import argparse
import csv
import json
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from research.drawn_videos import RenderSettings, Script, render, true_record
from research.drawn_videos.layout import free_spans, on_grid
from research.drawn_videos.script import Scene, Shot, TrueStep, Utterance
from research.drawn_videos.script_generator import spoken_length
from research.drawn_videos.speech import choose_voice
from research.drawn_videos.tasks import Task, TaskStep, chat_lines, read_tasks
from stepline.records import Record, Span, Step
from stepline.storage import read_record, write_record

RENDER = RenderSettings(
    width=192, height=112, frame_rate=6, quality=30, sound_bits=24_000, threads=1
)
# s of silence before the first word, after the last, between two sentences
OPENING, CLOSING, PAUSE = 0.4, 1.2, 0.25
# sentences per video: of steps that are shown, that are not, of chat
SHOWN, ABSENT, TALK = (2, 4), (1, 3), (3, 5)
# share of the shown steps said while they are shown (NaSVA: half), before layouts that do not fit
# go
WELL = 0.4
EARLY = 0.6  # share of the others that are said before they are shown
SILENT_STEP = 0.5  # share of the videos with a step that is shown and never said
LEAST, MOST = 3.0, 5.0  # s that a step is shown
LONGEST = 33.0  # s of a video
AWAY = 3.0  # s between a step that is said at another time and its picture
TRIES = 200  # layouts tried for a video
# kinds of videos that a curator must meet
UNUSUAL = ("copy", "redrawn", "chat", "spanish", "silent")
EVERY = 10  # one video of this many is unusual
SPANISH = (
    "Hola a todos, bienvenidos otra vez a mi cocina.",
    "Primero cortamos la cebolla en trozos muy finos.",
    "Ahora ponemos el aceite en la sartén y esperamos.",
    "Después mezclamos los huevos con un poco de sal.",
    "Mi abuela siempre lo hacía de esta manera.",
    "Lo dejamos cocinar durante diez minutos más.",
    "Muchas gracias por ver este video, hasta la próxima.",
)


@dataclass(frozen=True)
class Line:
    """One sentence to say, with the step that it says (None: chat) and whether that step is shown
    at all."""

    text: str
    step: int | None = None


def kind_of(number: int) -> str:
    """Return what sort of video a number is."""
    return UNUSUAL[number // EVERY % len(UNUSUAL)] if number % EVERY == EVERY - 1 else "usual"


def lines_of(task: Task, steps: Sequence[TaskStep], said: Sequence[int], rng: Random) -> list[Line]:
    """Return what is said: the steps in order, chat before, between and behind."""
    talk = chat_lines()
    spoken = [Line(rng.choice(steps[k].say), k) for k in said]
    asides = rng.sample(talk.aside, len(talk.aside))
    lines: list[Line] = list(spoken)
    for _ in range(rng.randint(*TALK) - 2):
        lines.insert(rng.randint(0, len(lines)), Line(asides.pop()))
    opening = rng.choice(
        [rng.choice(talk.greeting), rng.choice(talk.promise).format(task=task.name)]
    )
    return [Line(opening), *lines, Line(rng.choice([*talk.outro, *talk.sponsor]))]


def said_spans(lines: Sequence[Line], seed: int, rng: Random) -> tuple[list[Span], float]:
    """Return about when each line is said, and the video's duration."""
    at, spans = OPENING, []
    for line in lines:
        length = spoken_length(line.text, choose_voice(seed).speed)
        spans.append(Span(round(at, 2), round(at + length, 2)))
        at += length + PAUSE + rng.expovariate(6.0)
    return spans, on_grid(spans[-1].end + CLOSING + 0.25)


def shown_spans(
    said: dict[int, Span], unsaid: Sequence[int], duration: float, rng: Random
) -> dict[int, Span] | None:
    """Return where each step is shown, at the time it is said or away from it. None where there was
    no room."""
    spans: dict[int, Span] = {}
    for k in sorted([*said, *unsaid], key=lambda _: rng.random()):
        span = _placed(said.get(k), list(spans.values()), duration, rng)
        if span is None:
            return None
        spans[k] = span
    return spans


def _placed(said: Span | None, taken: Sequence[Span], duration: float, rng: Random) -> Span | None:
    length = on_grid(rng.uniform(LEAST, MOST))
    well = said is not None and rng.random() < WELL
    early = rng.random() < EARLY
    for _ in range(20):
        start = on_grid(rng.uniform(0.5, duration - length - 0.25))
        if said is not None and well:
            start = on_grid(max(0.5, said.center - length * rng.uniform(0.25, 0.75)))
        span = Span(start, start + length)
        free = span.end <= duration - 0.25 and all(span.overlap(other) == 0 for other in taken)
        later = said is not None and (
            span.start >= said.end + AWAY if early else span.end <= said.start - AWAY
        )
        if free and (said is None or well or later):
            return span
    return None


def scripted(
    number: int, seed: int, kind: str
) -> tuple[Script, dict[int, Span], tuple[TaskStep, ...]]:
    """Return a video's script, and the steps that are shown without a word: step -> span."""
    rng = Random(f"curate {seed}")
    task = rng.choice(read_tasks())
    for _ in range(TRIES):
        shown, absent = rng.randint(*SHOWN), rng.randint(*ABSENT)
        unsaid = int(rng.random() < SILENT_STEP)
        if kind == "chat":
            shown, absent, unsaid = 0, 0, 1
        chosen = sorted(rng.sample(range(len(task.steps)), shown + absent + unsaid))
        steps = tuple(task.steps[k] for k in chosen)
        parts = rng.sample(range(len(steps)), len(steps))
        silent, pictured = parts[:unsaid], sorted(parts[unsaid : unsaid + shown])
        lines = lines_of(task, steps, sorted(parts[unsaid:]), rng)
        if kind == "spanish":
            lines = [Line(text) for text in SPANISH]
            silent, pictured = [*silent, *pictured], []
        spans, duration = said_spans(lines, seed, rng)
        told = {
            line.step: span
            for line, span in zip(lines, spans, strict=True)
            if line.step in pictured
        }
        places = shown_spans(
            {k: s for k, s in told.items() if k is not None}, silent, duration, rng
        )
        if places is not None and duration <= LONGEST:
            break
    else:
        raise SystemExit(f"video {number}: no layout found in {TRIES} tries; change SHOWN or LEAST")
    if kind == "silent":
        lines, spans = [], []
    script = _script(
        f"howto_{number:05d}", seed, task, steps, lines, spans, places, duration, kind, rng
    )
    return script, {k: places[k] for k in places if k in silent or kind == "silent"}, steps


def _script(
    name: str,
    seed: int,
    task: Task,
    steps: Sequence[TaskStep],
    lines: Sequence[Line],
    spans: Sequence[Span],
    places: dict[int, Span],
    duration: float,
    kind: str,
    rng: Random,
) -> Script:
    shots = [_step_shot(task, steps[k], span, rng) for k, span in places.items()]
    for gap in free_spans(list(places.values()), 0.0, duration):
        shots.append(_filler(task, steps, gap, spans, rng))
    true = tuple(
        TrueStep(
            id=str(k + 1),
            text=steps[k].text,
            utterance=n,
            spans=(places[k],) if k in places else (),
        )
        for n, line in enumerate(lines)
        if (k := -1 if line.step is None else line.step) >= 0
    )
    utterances = tuple(
        Utterance(at=span.start, text=line.text) for line, span in zip(lines, spans, strict=True)
    )
    return Script(
        id=name,
        seed=seed,
        title=task.title,
        task=task.name,
        duration=duration,
        utterances=utterances,
        steps=true,
        shots=tuple(sorted(shots, key=lambda shot: shot.span.start)),
        voice=type(choose_voice(seed))("es", 160, 50) if kind == "spanish" else None,
    )


def _step_shot(task: Task, step: TaskStep, span: Span, rng: Random) -> Shot:
    camera = "close" if rng.random() < 0.5 else "wide"
    return Shot(
        span=span,
        scene=Scene(
            kind="table",
            place=task.place,
            camera=camera,
            action=step.action,
            item=step.item,
            target=step.target,
            props=step.props,
        ),
    )


def _filler(
    task: Task, steps: Sequence[TaskStep], gap: Span, said: Sequence[Span], rng: Random
) -> Shot:
    """Return the presenter where someone speaks, mostly, and things that no one touches
    elsewhere."""
    step = rng.choice(steps)
    heard = sum(gap.overlap(each) for each in said) > 0.4 * gap.duration
    if rng.random() < (0.75 if heard else 0.3):
        return Shot(span=gap, scene=Scene(kind="talk", place=task.place, camera="close"))
    return Shot(
        span=gap, scene=Scene(kind="roll", place=task.place, target=step.target, props=step.props)
    )


def corpus_record(
    script: Script, unsaid: dict[int, Span], steps: Sequence[TaskStep], kind: str
) -> Record:
    """Return the truth: the reference holds the steps said (shown or not), then those shown without
    a word."""
    record = true_record(script)
    more = tuple(
        Step(id=str(k + 1), text=steps[k].text, spans=(span,), at=span.center, status="shown")
        for k, span in sorted(unsaid.items())
    )
    told = {**record.settings, "kind": kind}
    return record.model_copy(update={"reference": (*record.reference, *more), "settings": told})


def draw(number: int, folder: Path) -> Record:
    """Draw one video unless it is there, and return its truth."""
    kind = kind_of(number)
    original = number - EVERY + 1  # a copy is of an earlier video
    name, file = f"howto_{number:05d}", folder / "videos" / f"howto_{number:05d}.mp4"
    script, unsaid, steps = scripted(
        number, original if kind in ("copy", "redrawn") else number, kind
    )
    if kind == "copy":
        shutil.copyfile(folder / "videos" / f"howto_{original:05d}.mp4", file)
        first = read_record(folder / "truth" / f"howto_{original:05d}.json")
        video = first.video.model_copy(update={"id": name, "path": file.name})
        return first.model_copy(
            update={"id": name, "video": video, "settings": {**first.settings, "kind": kind}}
        )
    settings = RENDER.model_copy(update={"quality": 36}) if kind == "redrawn" else RENDER
    return corpus_record(render(script, file, settings), unsaid, steps, kind)


def subtitles(record: Record) -> str:
    """Return what is said as WebVTT."""
    clock = "{:02.0f}:{:02.0f}:{:06.3f}".format
    cues = (
        f"{' --> '.join(clock(t // 3600, t // 60 % 60, t % 60) for t in (one.span.start, one.span.end))}\n{one.text}\n"
        for one in record.sentences
    )
    return "\n".join(("WEBVTT\n", *cues))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--videos", type=int, default=300)
    parser.add_argument("--clips", type=Path, help="folder of further clips, taken as they are")
    parser.add_argument("--captioned", action="store_true", help="what is said beside each video")
    args = parser.parse_args()
    for part in ("videos", "truth"):
        (args.folder / part).mkdir(parents=True, exist_ok=True)
    rows: list[tuple[str, ...]] = []
    seconds, began = 0.0, time.process_time()
    for number in range(args.videos):
        file = args.folder / "truth" / f"howto_{number:05d}.json"
        if not file.exists():
            record = draw(number, args.folder)
            write_record(record, file)
        record = read_record(file)
        if args.captioned:
            (args.folder / "videos" / f"{record.id}.vtt").write_text(
                subtitles(record), encoding="utf-8"
            )
        seconds += record.video.duration or 0.0
        captions = f"videos/{record.id}.vtt" if args.captioned else ""
        rows.append(
            (
                f"videos/{record.id}.mp4",
                record.video.title or "",
                record.video.task or "",
                "Drawn",
                captions,
            )
        )
    clips = sorted(args.clips.glob("*.m[pk][4v]")) if args.clips else []
    for clip in clips:
        shutil.copyfile(clip, args.folder / "videos" / clip.name)
        rows.append((f"videos/{clip.name}", "", "", "Clip", ""))
    with (args.folder / "videos.csv").open("w", newline="", encoding="utf-8") as out:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(("video", "title", "task", "category", "captions"))
        writer.writerows(rows)
    cpu = round(time.process_time() - began, 1)
    print(
        json.dumps(
            {"videos": args.videos, "clips": len(clips), "seconds": round(seconds, 1), "cpu_s": cpu}
        )
    )


if __name__ == "__main__":
    main()
