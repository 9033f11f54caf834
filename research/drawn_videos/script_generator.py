"""Scripts by seed: who says what when, and what the picture shows during this."""

from collections.abc import Sequence
from random import Random

from research.drawn_videos.layout import TITLE, StepLayout, free_spans, lay_out_steps, on_grid
from research.drawn_videos.script import Scene, Script, Shot, TrueStep, Utterance
from research.drawn_videos.settings import ScriptSettings
from research.drawn_videos.speech import choose_voice
from research.drawn_videos.tasks import Task, TaskStep, chat_lines, read_tasks
from stepline.records import Span

LEAST_GAP = 0.5  # s between two utterances
OPENING = 0.5  # s before the first word
CLOSING = 2.0  # s after the last
LONG_FILLER = 7.0  # s; a longer stretch without a step is cut in two
LONG_STEP = 6.0  # s; a longer step may be cut to another camera
# spoken per second at 160 words per minute, least squares over espeak-ng 1.51 (residual 0.12 s)
LETTERS = 17.8
COMMA = 0.24  # s of pause a comma, measured likewise
WORDS_PER_MINUTE = 160  # at which LETTERS was measured


def make_script(seed: int, settings: ScriptSettings | None = None) -> Script:
    """Return the script of a seed. The same seed and settings give the same script."""
    settings = settings or ScriptSettings()
    rng = Random(f"script {seed}")
    task = rng.choice(read_tasks())
    steps = _choose_steps(task, settings, rng)
    lines = _spoken_lines(task, steps, settings, rng)
    speed = choose_voice(seed).speed
    lengths = [spoken_length(text, speed) for text, _ in lines]
    starts, duration = _utterance_times(lengths, settings, rng)
    said = {
        k: Span(at, at + length)
        for (_, k), at, length in zip(lines, starts, lengths, strict=True)
        if k is not None
    }
    layout = lay_out_steps([said[k] for k in range(len(steps))], duration, settings, rng)
    utterances = tuple(
        Utterance(at=at, text=text) for (text, _), at in zip(lines, starts, strict=True)
    )
    index = {k: position for position, (_, k) in enumerate(lines) if k is not None}
    true = tuple(
        TrueStep(id=str(k + 1), text=step.text, utterance=index[k], spans=layout.spans[k])
        for k, step in enumerate(steps)
    )
    speaking = [Span(at, at + length) for at, length in zip(starts, lengths, strict=True)]
    shots = _shots(task, steps, layout, speaking, duration, rng)
    return Script(
        id=f"world_{seed:05d}",
        seed=seed,
        title=task.title,
        task=task.name,
        duration=duration,
        shots=shots,
        utterances=utterances,
        steps=true,
    )


def spoken_length(text: str, speed: int) -> float:
    """Return about how many seconds it takes to speak a text at a speed in words per minute.

    It is rather too long than too short.
    """
    return round(
        0.20 + (len(text) / LETTERS) * WORDS_PER_MINUTE / speed + COMMA * text.count(","), 2
    )


def _choose_steps(task: Task, settings: ScriptSettings, rng: Random) -> list[TaskStep]:
    """Return some of the task's steps, in order."""
    most = min(settings.most_steps, len(task.steps))
    count = rng.randint(min(settings.least_steps, most), most)
    return [task.steps[k] for k in sorted(rng.sample(range(len(task.steps)), count))]


def _spoken_lines(
    task: Task, steps: Sequence[TaskStep], settings: ScriptSettings, rng: Random
) -> list[tuple[str, int | None]]:
    """Return everything that is said, in order, with the step that it says or None."""
    talk = chat_lines()
    lines: list[tuple[str, int | None]] = [
        (rng.choice(talk.greeting), None),
        (rng.choice(talk.promise).format(task=task.name), None),
    ]
    asides = rng.sample(talk.aside, len(talk.aside))
    sponsored = rng.randrange(len(steps))
    for index, step in enumerate(steps):
        lines.append((rng.choice(step.say), index))
        if index == sponsored:
            lines.append((rng.choice(talk.sponsor), None))
        elif rng.random() < settings.chat:
            lines.append((asides.pop(), None))
    return [*lines, (rng.choice(talk.outro), None)]


def _utterance_times(
    lengths: Sequence[float], settings: ScriptSettings, rng: Random
) -> tuple[list[float], float]:
    """Return when each utterance starts, and the video's duration."""
    spoken = sum(lengths) + OPENING + CLOSING
    least = spoken + LEAST_GAP * (len(lengths) - 1)
    duration = on_grid(
        min(settings.longest, max(least + 1.0, rng.uniform(settings.shortest, settings.longest)))
    )
    weights = [rng.expovariate(1.0) for _ in lengths[1:]]
    spare = max(0.0, duration - least)
    starts, at = [OPENING], OPENING
    for length, weight in zip(lengths, weights, strict=False):
        at += length + LEAST_GAP + spare * weight / sum(weights)
        starts.append(round(at, 2))
    return starts, max(duration, on_grid(at + lengths[-1] + CLOSING))


# ------------------------------------------------------------ the picture


def _shots(
    task: Task,
    steps: Sequence[TaskStep],
    layout: StepLayout,
    speaking: Sequence[Span],
    duration: float,
    rng: Random,
) -> tuple[Shot, ...]:
    """Return shots that tile the video: steps where they are shown, talk and still life between."""
    shown = [(span, steps[k]) for k, spans in enumerate(layout.spans) for span in spans]
    shots = [shot for span, step in shown for shot in _step_shots(task, span, step, rng)]
    for gap in free_spans([span for span, _ in shown], 0.0, duration):
        shots += _filler_shots(task, steps, gap, speaking, rng)
    return tuple(sorted(shots, key=lambda shot: shot.span.start))


def _step_shots(task: Task, span: Span, step: TaskStep, rng: Random) -> list[Shot]:
    """Return a step's action, through one camera or cut from one to another."""
    cameras = rng.choice([("wide", "close"), ("close", "wide")])
    scenes = [
        Scene(
            kind="table",
            place=task.place,
            camera="close" if camera == "close" else "wide",
            action=step.action,
            item=step.item,
            target=step.target,
            props=step.props,
        )
        for camera in cameras
    ]
    if span.duration < LONG_STEP or rng.random() < 0.5:
        return [Shot(span=span, scene=scenes[0])]
    middle = on_grid(span.start + span.duration * rng.uniform(0.4, 0.6))
    return [
        Shot(span=Span(span.start, middle), scene=scenes[0]),
        Shot(span=Span(middle, span.end), scene=scenes[1]),
    ]


def _filler_shots(
    task: Task, steps: Sequence[TaskStep], gap: Span, speaking: Sequence[Span], rng: Random
) -> list[Shot]:
    """Return what fills a stretch without a step."""
    if gap.start == 0.0 and gap.duration > TITLE and rng.random() < 0.6:
        title = Shot(
            span=Span(0.0, TITLE), scene=Scene(kind="title", place=task.place, caption=task.title)
        )
        rest = Span(TITLE, gap.end)
        return [title, *_filler_shots(task, steps, rest, speaking, rng)]
    if gap.duration > LONG_FILLER:
        middle = on_grid(gap.start + gap.duration * rng.uniform(0.4, 0.6))
        return [
            Shot(span=part, scene=_filler_scene(task, steps, part, speaking, rng))
            for part in (Span(gap.start, middle), Span(middle, gap.end))
        ]
    return [Shot(span=gap, scene=_filler_scene(task, steps, gap, speaking, rng))]


def _filler_scene(
    task: Task, steps: Sequence[TaskStep], span: Span, speaking: Sequence[Span], rng: Random
) -> Scene:
    """Return the presenter where someone speaks, mostly, and things that no one touches
    elsewhere."""
    step = rng.choice(steps)
    heard = sum(span.overlap(each) for each in speaking) > 0.4 * span.duration
    camera = "close" if rng.random() < 0.5 else "wide"
    if rng.random() < (0.75 if heard else 0.3):
        return Scene(
            kind="talk",
            place=task.place,
            camera="close" if camera == "close" else "wide",
            props=step.props[:2] if camera == "wide" else (),
        )
    return Scene(
        kind="roll",
        place=task.place,
        camera="close" if camera == "close" else "wide",
        target=step.target,
        props=step.props,
    )
