"""Scripts by seed: who says what when, and what the picture shows during this."""

from collections.abc import Sequence
from random import Random

from lab.drawn_videos.layout import TITLE_SECONDS, StepLayout, free_spans, lay_out_steps, on_grid
from lab.drawn_videos.script import Camera, Scene, Script, Shot, TrueStep, Utterance
from lab.drawn_videos.settings import ScriptSettings
from lab.drawn_videos.speech import choose_voice
from lab.drawn_videos.tasks import Task, TaskStep, chat_lines, read_tasks
from stepline.records import Span

MIN_GAP = 0.5  # s between two utterances
OPENING_SECONDS = 0.5  # before the first word
CLOSING_SECONDS = 2.0  # after the last
LONG_FILLER = 7.0  # s; a longer stretch without a step is cut in two
LONG_STEP = 6.0  # s; a longer step may be cut to another camera
# At 160 words per minute, least squares over espeak-ng 1.51 (residual 0.12 s).
LETTERS_PER_SECOND = 17.8
COMMA_SECONDS = 0.24  # of pause per comma, measured likewise
WORDS_PER_MINUTE = 160  # at which LETTERS_PER_SECOND was measured


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

    # what is said, and which line says which step
    speech: list[Span] = []
    utterances: list[Utterance] = []
    line_of_step: dict[int, int] = {}
    for index, (text, step_index) in enumerate(lines):
        speech.append(Span(starts[index], starts[index] + lengths[index]))
        utterances.append(Utterance(at=starts[index], text=text))
        if step_index is not None:
            line_of_step[step_index] = index

    # where the steps are shown
    said_spans = [speech[line_of_step[k]] for k in range(len(steps))]
    layout = lay_out_steps(said_spans, duration, settings, rng)
    true_steps = []
    for k, step in enumerate(steps):
        true_step = TrueStep(
            id=str(k + 1), text=step.text, utterance=line_of_step[k], spans=layout.spans[k]
        )
        true_steps.append(true_step)
    shots = _shots(task, steps, layout, speech, duration, rng)
    return Script(
        id=f"world_{seed:05d}",
        seed=seed,
        title=task.title,
        task=task.name,
        duration=duration,
        shots=shots,
        utterances=tuple(utterances),
        steps=tuple(true_steps),
    )


def spoken_length(text: str, speed: int) -> float:
    """Return about how many seconds it takes to speak a text at a speed in words per minute.

    It is rather too long than too short.
    """
    letters = (len(text) / LETTERS_PER_SECOND) * WORDS_PER_MINUTE / speed
    pauses = COMMA_SECONDS * text.count(",")
    return round(0.20 + letters + pauses, 2)


def _choose_steps(task: Task, settings: ScriptSettings, rng: Random) -> list[TaskStep]:
    """Return some of the task's steps, in order."""
    max_steps = min(settings.most_steps, len(task.steps))
    min_steps = min(settings.least_steps, max_steps)
    count = rng.randint(min_steps, max_steps)
    indices = rng.sample(range(len(task.steps)), count)
    return [task.steps[k] for k in sorted(indices)]


def _spoken_lines(
    task: Task, steps: Sequence[TaskStep], settings: ScriptSettings, rng: Random
) -> list[tuple[str, int | None]]:
    """Return everything that is said, in order, with the step that it says or None."""
    talk = chat_lines()
    greeting = rng.choice(talk.greeting)
    promise = rng.choice(talk.promise).format(task=task.name)
    lines: list[tuple[str, int | None]] = [(greeting, None), (promise, None)]
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
    spoken = sum(lengths) + OPENING_SECONDS + CLOSING_SECONDS
    min_duration = spoken + MIN_GAP * (len(lengths) - 1)
    duration = rng.uniform(settings.shortest, settings.longest)
    duration = max(min_duration + 1.0, duration)
    duration = on_grid(min(settings.longest, duration))

    # the spare time, shared at random among the pauses
    weights = [rng.expovariate(1.0) for _ in lengths[1:]]
    spare = max(0.0, duration - min_duration)
    at = OPENING_SECONDS
    starts = [at]
    for length, weight in zip(lengths, weights, strict=False):
        at += length + MIN_GAP + spare * weight / sum(weights)
        starts.append(round(at, 2))
    end = on_grid(at + lengths[-1] + CLOSING_SECONDS)
    return starts, max(duration, end)


# ------------------------------------------------------------ the picture


def _shots(
    task: Task,
    steps: Sequence[TaskStep],
    layout: StepLayout,
    speech: Sequence[Span],
    duration: float,
    rng: Random,
) -> tuple[Shot, ...]:
    """Return shots that tile the video: steps where they are shown, talk and still life between."""
    step_spans: list[Span] = []
    shots: list[Shot] = []
    for step, spans in zip(steps, layout.spans, strict=True):
        for span in spans:
            step_spans.append(span)
            shots += _step_shots(task, span, step, rng)
    for gap in free_spans(step_spans, 0.0, duration):
        shots += _filler_shots(task, steps, gap, speech, rng)
    return tuple(sorted(shots, key=lambda shot: shot.span.start))


def step_scene(task: Task, step: TaskStep, camera: Camera) -> Scene:
    """Return a step's action on the table, as a camera sees it."""
    return Scene(
        kind="table",
        place=task.place,
        camera=camera,
        action=step.action,
        item=step.item,
        target=step.target,
        props=step.props,
    )


def _step_shots(task: Task, span: Span, step: TaskStep, rng: Random) -> list[Shot]:
    """Return a step's action, through one camera or cut from one to another."""
    orders: list[tuple[Camera, Camera]] = [("wide", "close"), ("close", "wide")]
    scenes = [step_scene(task, step, camera) for camera in rng.choice(orders)]
    if span.duration < LONG_STEP or rng.random() < 0.5:
        return [Shot(span=span, scene=scenes[0])]
    parts = _halves(span, rng)
    return [Shot(span=part, scene=scene) for part, scene in zip(parts, scenes, strict=True)]


def _halves(span: Span, rng: Random) -> tuple[Span, Span]:
    """Return a span cut in two at a random point near its middle."""
    middle = on_grid(span.start + span.duration * rng.uniform(0.4, 0.6))
    return Span(span.start, middle), Span(middle, span.end)


def _filler_shots(
    task: Task, steps: Sequence[TaskStep], gap: Span, speech: Sequence[Span], rng: Random
) -> list[Shot]:
    """Return what fills a stretch without a step."""
    if gap.start == 0.0 and gap.duration > TITLE_SECONDS and rng.random() < 0.6:
        card = Scene(kind="title", place=task.place, caption=task.title)
        title = Shot(span=Span(0.0, TITLE_SECONDS), scene=card)
        rest = Span(TITLE_SECONDS, gap.end)
        return [title, *_filler_shots(task, steps, rest, speech, rng)]
    parts = _halves(gap, rng) if gap.duration > LONG_FILLER else (gap,)
    shots = []
    for part in parts:
        scene = _filler_scene(task, steps, part, speech, rng)
        shots.append(Shot(span=part, scene=scene))
    return shots


def _filler_scene(
    task: Task, steps: Sequence[TaskStep], span: Span, speech: Sequence[Span], rng: Random
) -> Scene:
    """Return mostly the presenter where someone speaks, and mostly still things elsewhere."""
    step = rng.choice(steps)
    spoken = sum(span.overlap(utterance) for utterance in speech)
    has_speech = spoken > 0.4 * span.duration
    camera: Camera = "close" if rng.random() < 0.5 else "wide"
    talk_probability = 0.75 if has_speech else 0.3
    if rng.random() < talk_probability:
        props = step.props[:2] if camera == "wide" else ()
        return Scene(kind="talk", place=task.place, camera=camera, props=props)
    return Scene(kind="roll", place=task.place, camera=camera, target=step.target, props=step.props)
