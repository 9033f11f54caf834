"""Draws and speaks a corpus of short how-to videos for `stepline curate`, with the truth next to
each.

    python lab/curate_corpus.py DIR --videos 300 [--clips FOLDER] [--captioned]

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
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from lab.drawn_videos import RenderSettings, Script, render, true_record
from lab.drawn_videos.layout import free_spans, on_grid
from lab.drawn_videos.script import Camera, Scene, Shot, TrueStep, Utterance
from lab.drawn_videos.script_generator import spoken_length, step_scene
from lab.drawn_videos.speech import choose_voice
from lab.drawn_videos.tasks import Task, TaskStep, chat_lines, read_tasks
from stepline.files.storage import read_record, write_record
from stepline.records import Record, Span, Step

RENDER_SETTINGS = RenderSettings(
    width=192, height=112, frame_rate=6, quality=30, sound_bits=24_000, threads=1
)
# s of silence before the first word, after the last, between two sentences
OPENING_SECONDS = 0.4
CLOSING_SECONDS = 1.2
PAUSE_SECONDS = 0.25
# sentences per video: of steps that are shown, that are not, of chat
SHOWN_SENTENCES = (2, 4)
ABSENT_SENTENCES = (1, 3)
CHAT_SENTENCES = (3, 5)
# share of the shown steps said while they are shown (NaSVA: half), before layouts that do not fit
# go
WELL_ALIGNED_SHARE = 0.4
EARLY_SHARE = 0.6  # of the others: those that are said before they are shown
SILENT_STEP = 0.5  # share of the videos with a step that is shown and never said
# s that a step is shown
MIN_STEP_SECONDS = 3.0
MAX_STEP_SECONDS = 5.0
MAX_VIDEO_SECONDS = 33.0
AWAY_SECONDS = 3.0  # between a step that is said at another time and its picture
LAYOUT_TRIES = 200  # for a video
SPAN_TRIES = 20  # for a step
# kinds of videos that a curator must meet
UNUSUAL_KINDS = ("copy", "redrawn", "chat", "spanish", "silent")
UNUSUAL_STEP = 10  # one video of this many is unusual
SPANISH_LINES = (
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
    if number % UNUSUAL_STEP != UNUSUAL_STEP - 1:
        return "usual"
    return UNUSUAL_KINDS[number // UNUSUAL_STEP % len(UNUSUAL_KINDS)]


def lines_of(
    task: Task, steps: Sequence[TaskStep], spoken: Sequence[int], rng: Random
) -> list[Line]:
    """Return what is said: the steps in order, chat before, between and behind."""
    chat = chat_lines()
    lines = [Line(rng.choice(steps[k].say), k) for k in spoken]
    asides = rng.sample(chat.aside, len(chat.aside))
    for _ in range(rng.randint(*CHAT_SENTENCES) - 2):
        place = rng.randint(0, len(lines))
        lines.insert(place, Line(asides.pop()))
    greeting = rng.choice(chat.greeting)
    promise = rng.choice(chat.promise).format(task=task.name)
    opening = rng.choice([greeting, promise])
    ending = rng.choice([*chat.outro, *chat.sponsor])
    return [Line(opening), *lines, Line(ending)]


def said_spans(lines: Sequence[Line], seed: int, rng: Random) -> tuple[list[Span], float]:
    """Return about when each line is said, and the video's duration."""
    at = OPENING_SECONDS
    spans = []
    for line in lines:
        length = spoken_length(line.text, choose_voice(seed).speed)
        spans.append(Span(round(at, 2), round(at + length, 2)))
        at += length + PAUSE_SECONDS + rng.expovariate(6.0)
    return spans, on_grid(spans[-1].end + CLOSING_SECONDS + 0.25)


def shown_spans(
    said_by_step: dict[int, Span], unsaid: Sequence[int], duration: float, rng: Random
) -> dict[int, Span] | None:
    """Return where each step is shown, at the time it is said or away from it. None where there was
    no room."""
    spans: dict[int, Span] = {}
    for k in sorted([*said_by_step, *unsaid], key=lambda _: rng.random()):
        span = _placed(said_by_step.get(k), list(spans.values()), duration, rng)
        if span is None:
            return None
        spans[k] = span
    return spans


def _placed(
    words: Span | None, occupied: Sequence[Span], duration: float, rng: Random
) -> Span | None:
    length = on_grid(rng.uniform(MIN_STEP_SECONDS, MAX_STEP_SECONDS))
    aligned = words is not None and rng.random() < WELL_ALIGNED_SHARE
    early = rng.random() < EARLY_SHARE
    for _ in range(SPAN_TRIES):
        start = on_grid(rng.uniform(0.5, duration - length - 0.25))
        if words is not None and aligned:
            offset = length * rng.uniform(0.25, 0.75)
            start = on_grid(max(0.5, words.center - offset))
        span = Span(start, start + length)
        overlaps = any(span.overlap(other) != 0 for other in occupied)
        if overlaps or span.end > duration - 0.25:
            continue
        if words is None or aligned or _is_away(span, words, early):
            return span
    return None


def _is_away(span: Span, words: Span, early: bool) -> bool:
    """Say whether a step is shown long after its words, or long before. early: after."""
    if early:
        return span.start >= words.end + AWAY_SECONDS
    return span.end <= words.start - AWAY_SECONDS


@dataclass(frozen=True)
class Layout:
    """What is said and shown in a video.

    lines, line_spans: what is said, and about when. places: step -> where it is shown.
    silent: the steps that are shown without a word.
    """

    steps: tuple[TaskStep, ...]
    lines: Sequence[Line]
    line_spans: Sequence[Span]
    places: dict[int, Span]
    silent: Sequence[int]
    duration: float


def scripted(
    number: int, seed: int, kind: str
) -> tuple[Script, dict[int, Span], tuple[TaskStep, ...]]:
    """Return a video's script, and the steps that are shown without a word: step -> span."""
    rng = Random(f"curate {seed}")
    task = rng.choice(read_tasks())
    for _ in range(LAYOUT_TRIES):
        layout = _draw_layout(task, seed, kind, rng)
        if layout is not None:
            break
    else:
        raise SystemExit(
            f"video {number}: no layout found in {LAYOUT_TRIES} tries;"
            " change SHOWN_SENTENCES or MIN_STEP_SECONDS"
        )
    if kind == "silent":
        layout = replace(layout, lines=[], line_spans=[])
    script = _script(f"howto_{number:05d}", seed, kind, task, layout, rng)
    wordless = {}
    for k, span in layout.places.items():
        if kind == "silent" or k in layout.silent:
            wordless[k] = span
    return script, wordless, layout.steps


def _draw_layout(task: Task, seed: int, kind: str, rng: Random) -> Layout | None:
    """Return a layout drawn at random. None where it does not fit."""
    shown_count = rng.randint(*SHOWN_SENTENCES)
    absent_count = rng.randint(*ABSENT_SENTENCES)
    silent_count = int(rng.random() < SILENT_STEP)
    if kind == "chat":
        shown_count = 0
        absent_count = 0
        silent_count = 1
    # Which steps there are, and which of them are shown
    step_count = shown_count + absent_count + silent_count
    numbers = sorted(rng.sample(range(len(task.steps)), step_count))
    steps = tuple(task.steps[number] for number in numbers)
    shuffled = rng.sample(range(step_count), step_count)
    silent = shuffled[:silent_count]
    pictured = sorted(shuffled[silent_count : silent_count + shown_count])
    # What is said, and when
    lines = lines_of(task, steps, sorted(shuffled[silent_count:]), rng)
    if kind == "spanish":
        lines = [Line(text) for text in SPANISH_LINES]
        silent = [*silent, *pictured]
        pictured = []
    line_spans, duration = said_spans(lines, seed, rng)
    said_by_step = {}
    for line, span in zip(lines, line_spans, strict=True):
        if line.step is not None and line.step in pictured:
            said_by_step[line.step] = span
    places = shown_spans(said_by_step, silent, duration, rng)
    if places is None or duration > MAX_VIDEO_SECONDS:
        return None
    return Layout(steps, lines, line_spans, places, silent, duration)


def _script(name: str, seed: int, kind: str, task: Task, layout: Layout, rng: Random) -> Script:
    # The pictures: steps, and between them the presenter or things
    shots = []
    for k, span in layout.places.items():
        shots.append(_step_shot(task, layout.steps[k], span, rng))
    for gap in free_spans(list(layout.places.values()), 0.0, layout.duration):
        shots.append(_filler(task, layout, gap, rng))
    shots.sort(key=lambda shot: shot.span.start)
    # The words, and the steps that they say
    true_steps = []
    utterances = []
    for number, line in enumerate(layout.lines):
        utterances.append(Utterance(at=layout.line_spans[number].start, text=line.text))
        k = line.step
        if k is None:
            continue
        spans = (layout.places[k],) if k in layout.places else ()
        text = layout.steps[k].text
        true_steps.append(TrueStep(id=str(k + 1), text=text, utterance=number, spans=spans))
    voice = None
    if kind == "spanish":
        voice = type(choose_voice(seed))("es", 160, 50)
    return Script(
        id=name,
        seed=seed,
        title=task.title,
        task=task.name,
        duration=layout.duration,
        utterances=tuple(utterances),
        steps=tuple(true_steps),
        shots=tuple(shots),
        voice=voice,
    )


def _step_shot(task: Task, step: TaskStep, span: Span, rng: Random) -> Shot:
    camera: Camera = "close" if rng.random() < 0.5 else "wide"
    return Shot(span=span, scene=step_scene(task, step, camera))


def _filler(task: Task, layout: Layout, gap: Span, rng: Random) -> Shot:
    """Return the presenter where someone speaks, mostly, and things that no one touches
    elsewhere."""
    step = rng.choice(layout.steps)
    speech_seconds = sum(gap.overlap(span) for span in layout.line_spans)
    someone_speaks = speech_seconds > 0.4 * gap.duration
    presenter_share = 0.75 if someone_speaks else 0.3
    scene = Scene(kind="roll", place=task.place, target=step.target, props=step.props)
    if rng.random() < presenter_share:
        scene = Scene(kind="talk", place=task.place, camera="close")
    return Shot(span=gap, scene=scene)


def corpus_record(
    script: Script, unsaid: dict[int, Span], steps: Sequence[TaskStep], kind: str
) -> Record:
    """Return the truth: the reference holds the steps said (shown or not), then those shown without
    a word."""
    record = true_record(script)
    reference = list(record.reference)
    for k, span in sorted(unsaid.items()):
        text = steps[k].text
        step = Step(id=str(k + 1), text=text, spans=(span,), at=span.center, status="shown")
        reference.append(step)
    settings = {**record.settings, "kind": kind}
    return record.model_copy(update={"reference": tuple(reference), "settings": settings})


def draw(number: int, folder: Path) -> Record:
    """Draw one video unless it is there, and return its truth."""
    kind = kind_of(number)
    original = number - UNUSUAL_STEP + 1  # a copy is of an earlier video
    name = f"howto_{number:05d}"
    original_name = f"howto_{original:05d}"
    file = folder / "videos" / f"{name}.mp4"
    if kind == "copy":
        shutil.copyfile(folder / "videos" / f"{original_name}.mp4", file)
        first = read_record(folder / "truth" / f"{original_name}.json")
        changes = {
            "id": name,
            "video": first.video.model_copy(update={"id": name, "path": file.name}),
            "settings": {**first.settings, "kind": kind},
        }
        return first.model_copy(update=changes)
    seed = number
    settings = RENDER_SETTINGS
    if kind == "redrawn":
        seed = original
        settings = RENDER_SETTINGS.model_copy(update={"quality": 36})
    script, unsaid, steps = scripted(number, seed, kind)
    return corpus_record(render(script, file, settings), unsaid, steps, kind)


def subtitles(record: Record) -> str:
    """Return what is said as WebVTT."""
    cues = ["WEBVTT\n"]
    for sentence in record.sentences:
        start = _clock(sentence.span.start)
        end = _clock(sentence.span.end)
        cues.append(f"{start} --> {end}\n{sentence.text}\n")
    return "\n".join(cues)


def _clock(seconds: float) -> str:
    hours = seconds // 3600
    minutes = seconds // 60 % 60
    return f"{hours:02.0f}:{minutes:02.0f}:{seconds % 60:06.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--videos", type=int, default=300)
    parser.add_argument("--clips", type=Path, help="folder of further clips, taken as they are")
    parser.add_argument("--captioned", action="store_true", help="what is said, next to each video")
    options = parser.parse_args()
    folder = options.folder
    for part in ("videos", "truth"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    rows: list[tuple[str, ...]] = []
    seconds = 0.0
    cpu_start = time.process_time()
    # Videos that are drawn
    for number in range(options.videos):
        file = folder / "truth" / f"howto_{number:05d}.json"
        if not file.exists():
            write_record(draw(number, folder), file)
        record = read_record(file)
        captions = ""
        if options.captioned:
            captions = f"videos/{record.id}.vtt"
            (folder / captions).write_text(subtitles(record), encoding="utf-8")
        video = record.video
        seconds += video.duration or 0.0
        title = video.title or ""
        task = video.task or ""
        rows.append((f"videos/{record.id}.mp4", title, task, "Drawn", captions))
    # Clips as they are
    clips = []
    if options.clips:
        clips = sorted(options.clips.glob("*.m[pk][4v]"))
    for clip in clips:
        shutil.copyfile(clip, folder / "videos" / clip.name)
        rows.append((f"videos/{clip.name}", "", "", "Clip", ""))
    with (folder / "videos.csv").open("w", newline="", encoding="utf-8") as out:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(("video", "title", "task", "category", "captions"))
        writer.writerows(rows)
    counts = {
        "videos": options.videos,
        "clips": len(clips),
        "seconds": round(seconds, 1),
        "cpu_s": round(time.process_time() - cpu_start, 1),
    }
    print(json.dumps(counts))


if __name__ == "__main__":
    main()
