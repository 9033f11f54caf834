"""Settings of the simulated world: one class per part, and the named worlds, backbones and
recognisers.

The defaults are a short-video world (T about 130 s) that a small model learns in seconds.
`YOUCOOK2_WORLD` has the lengths of real cooking videos. "Measured" numbers are those of YouCook2,
WhenAct, CrossTask and COIN (docs/world.md).
"""

from typing import Annotated, Literal, TypeAlias

from pydantic import Field, model_validator

from stepline.settings import Count, CountOrZero, Fraction, NonNegative, Positive, Settings


class TaskSettings(Settings):
    """What there is to do: tasks of steps, a step an (action, object) pair."""

    tasks: Annotated[int, Field(ge=1, le=1000)] = 12
    actions: Annotated[int, Field(ge=2, le=32)] = 24  # at most as many as texts.py has verbs
    objects: Annotated[int, Field(ge=2, le=64)] = 48  # at most as many as texts.py has nouns
    objects_per_task: Count = 6  # steps of a task share objects: the hard negatives
    fewest_steps: Count = 9  # of a task's article
    most_steps: Count = 13
    latent: Annotated[int, Field(ge=2)] = 12  # dimensions of an action's and of an object's meaning
    unseen: CountOrZero = 0  # of the tasks, how many only held-out videos follow
    # the article's lines are in an order of their own, not in that of the videos
    shuffled: bool = True

    @model_validator(mode="after")
    def _possible(self) -> "TaskSettings":
        if (
            self.fewest_steps > self.most_steps
            or self.most_steps > self.actions * self.objects_per_task
        ):
            raise ValueError("need fewest_steps <= most_steps <= actions * objects_per_task")
        if self.objects_per_task > self.objects or self.unseen >= self.tasks:
            raise ValueError("need objects_per_task <= objects and unseen < tasks")
        return self


class TimelineSettings(Settings):
    """Which steps are shown in a video, and when. Seconds."""

    # fraction of the article's steps that a video shows. HT-Step: about half
    present: Fraction = 0.5
    least_present: Count = 3
    swapped: Fraction = 0.15  # probability that a shown step changes places with the next
    repeated: Fraction = 0.0  # probability that a shown step is shown once more later
    previewed: Fraction = 0.0  # probability that a shown step is shown for a moment before its turn
    preview_median: Positive = 3.0  # of a preview's lognormal duration
    window_median: Positive = 9.8  # of the lognormal duration; YouCook2: 14
    window_sigma: NonNegative = 0.45  # of its logarithm; YouCook2: 0.86
    window_least: Positive = 4.0
    window_most: Positive = 45.0
    gap_mean: Positive = 9.6  # of the gamma-distributed time between windows; YouCook2: 9.4
    gap_shape: Positive = 2.3  # YouCook2: 0.55, many short and few long ones
    # of the time before the first window and after the last. YouCook2: 51
    margin_mean: Positive = 9.6
    margin_shape: Positive = 2.3
    # of a video. One outside the limits is stretched or shrunk as a whole
    shortest: Positive = 60.0
    longest: Positive = 260.0


class NarrationSettings(Settings):
    """What is said, and how far from where it is shown. Seconds."""

    # Poisson mean of the mentions of a shown step after its first
    more_mentions: NonNegative = 0.42
    sentence_least: Positive = 2.0  # uniform duration of a sentence
    sentence_most: Positive = 6.0
    pause: NonNegative = 0.7  # mean of the exponential silence between sentences
    # of the other sentences, those that tell a step which the video does not show
    absent: Fraction = 0.12
    # and those that talk about an object without doing anything. The rest is chat
    object_chat: Fraction = 0.30
    object_dropped: Fraction = 0.25  # "it" in place of the object
    action_dropped: Fraction = 0.20  # "do that" in place of the action
    # of the mentions, those said at any time of the video: overviews, recaps
    anywhere: Fraction = 0.34
    offset: float = 0.0  # median of shown start - said start of the others
    offset_scale: NonNegative = 2.5  # of the Student t that is added
    offset_freedom: Positive = 1.2  # its degrees of freedom; small = heavy tails
    offset_most: Positive = 90.0  # the greatest offset
    # standard deviation, between videos, of what a whole video adds to `offset`
    lag_spread: NonNegative = 0.0
    again_told: Fraction = 1.0  # probability that a preview or a repetition is said as a step is


class WriterSettings(Settings):
    """The stand-in for the language model that writes steps from the transcript."""

    chunk: Count = 10  # sentences that it sees together; NaSVA section 3.1
    # probability that a sentence which describes a step (shown or not) becomes a step
    step_kept: Fraction = 0.9
    object_chat_kept: Fraction = 0.3  # probability that object chat does
    chat_kept: Fraction = 0.05  # probability that chat does
    # probability that a dropped object or action is written from the context
    restored: Fraction = 0.9
    corrected: Fraction = 0.5  # the same for one that the recogniser misheard


class StyleSettings(Settings):
    """How the text encoder treats one kind of text."""

    # sine of the angle by which the map of this kind is turned away from that of all kinds
    distortion: Fraction
    noise: NonNegative  # norm, next to an action and an object of norm 1 each


class BackboneSettings(Settings):
    """A pair of a video and a text encoder. Norms next to an action and an object of norm 1
    each."""

    width: Annotated[int, Field(ge=32)] = 128  # C
    # cosine between an action as text and as picture. CLIP: objects are better known
    action_shared: Fraction = 0.20
    object_shared: Fraction = 0.40
    walk: NonNegative = 1.75  # nuisance that drifts: AR(1); the strongest dial of difficulty
    walk_memory: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.8  # its correlation over one second
    white: NonNegative = 0.8  # nuisance without memory
    video: NonNegative = 0.8  # constant over a video
    instance: NonNegative = 0.45  # how one showing of a step differs from the step
    narration: StyleSettings = StyleSettings(distortion=0.75, noise=0.9)
    step: StyleSettings = StyleSettings(distortion=0.4, noise=0.8)
    recipe: StyleSettings = StyleSettings(distortion=0.4, noise=0.7)
    style_bias: NonNegative = 0.6  # norm of what all texts of one kind have in common
    # of the distortion's variance, what written steps and articles share
    style_shared: Fraction = 0.7


class SceneSettings(Settings):
    """What a second of the video shows, whatever encodes it."""

    action_seen: Fraction = 0.75  # probability that the action is visible in a block of a window
    block: Positive = 3.0  # s
    backgrounds: Count = 6  # other actions, seen between the windows
    # its object just outside its windows: THE bias of labels from pictures
    object_left: Fraction = 0.85
    object_fades: Positive = 25.0  # s, over which it fades by e
    preparation: Fraction = 0.0  # of a window, what comes before the act
    result: Fraction = 0.0  # of a window, what comes after it
    seen_around_act: Fraction = 1.0  # factor of `action_seen` in preparation and result

    @model_validator(mode="after")
    def _leaves_the_act(self) -> "SceneSettings":
        if self.preparation + self.result >= 1:
            raise ValueError("preparation and result must leave a part of the window for the act")
        return self


class RecogniserSettings(Settings):
    """How far a recogniser's transcript is from what was said."""

    word_error: Fraction = 0.0  # probability that a word is misheard
    jitter: NonNegative = 0.0  # s, standard deviation of a sentence's time error
    punctuated: bool = True  # writes capitals and full stops
    # added to the text vectors' own, for what the other misheard words do to them
    noise: NonNegative = 0.0


BACKBONE_SETTINGS: dict[str, BackboneSettings] = {
    "usual": BackboneSettings(),
    "sharp": BackboneSettings(action_shared=0.30, object_shared=0.50, walk=1.4, white=0.7),
    "dull": BackboneSettings(width=96, action_shared=0.10, object_shared=0.35, walk=2.3, white=1.0),
}

RECOGNISER_SETTINGS: dict[str, RecogniserSettings] = {
    "clean": RecogniserSettings(),
    "aligned": RecogniserSettings(word_error=0.06, jitter=0.3, noise=0.2),  # WhisperX-like
    # old automatic captions
    "noisy": RecogniserSettings(word_error=0.22, jitter=2.0, punctuated=False, noise=0.5),
}

EMBEDDER_NAME = (
    "embedder"  # the text encoder that links steps with narration, next to the backbones
)

Recogniser: TypeAlias = Literal["clean", "aligned", "noisy"]


class SimulationSettings(Settings):
    """The whole world."""

    videos: Count = 60
    held_out: Fraction = 0.3  # fraction of the videos, the last ones, that are not for training
    tasks: TaskSettings = TaskSettings()
    timeline: TimelineSettings = TimelineSettings()
    narration: NarrationSettings = NarrationSettings()
    writer: WriterSettings = WriterSettings()
    scene: SceneSettings = SceneSettings()
    backbone: str = "usual"  # the one of `backbones` that is used where none is named
    backbones: dict[str, BackboneSettings] = BACKBONE_SETTINGS
    # what the transcript, the written steps and their vectors come from
    recogniser: Recogniser = "clean"
    difficulty: NonNegative = 1.0  # factor of the walk and of the white noise in the video features
    # norm next to unit vectors, of the text embedder that links steps with narration
    embedder_noise: NonNegative = 0.6

    @model_validator(mode="after")
    def _known(self) -> "SimulationSettings":
        if EMBEDDER_NAME in self.backbones:
            use = "the text encoder that links steps with narration"
            raise ValueError(f"the name {EMBEDDER_NAME!r} is taken by {use}")
        if self.backbone not in self.backbones:
            names = ", ".join(self.backbones)
            raise ValueError(f"backbone {self.backbone!r} is not one of {names}")
        # an action and an object have two maps each, at right angles to the others
        for name, backbone in self.backbones.items():
            if backbone.width < 4 * self.tasks.latent:
                raise ValueError(f"backbone {name!r}: its width must be at least 4 * tasks.latent")
        return self


SHORT_WORLD = SimulationSettings()

YOUCOOK2_WORLD = SimulationSettings(
    tasks=TaskSettings(fewest_steps=9, most_steps=18),
    timeline=TimelineSettings(
        least_present=4,
        repeated=0.05,
        window_median=14.0,
        window_sigma=0.86,
        window_least=2.0,
        window_most=120.0,
        gap_mean=9.4,
        gap_shape=0.55,
        margin_mean=51.0,
        margin_shape=1.7,
        longest=600.0,
    ),
    narration=NarrationSettings(more_mentions=1.6),
)

# ProcX section E.1: 54 s, nine steps of six seconds, one after the other
TASTY_WORLD = SimulationSettings(
    timeline=TimelineSettings(
        present=0.8,
        least_present=4,
        swapped=0.05,
        window_median=5.4,
        window_sigma=0.4,
        window_least=1.5,
        window_most=18.0,
        gap_mean=0.3,
        gap_shape=0.5,
        margin_mean=1.0,
        margin_shape=1.0,
        shortest=20.0,
        longest=120.0,
    )
)

EASY_WORLD = SimulationSettings(difficulty=0.6)


def version_2(world: SimulationSettings) -> SimulationSettings:
    """Return a world of version 1 with what real videos have next to it: docs/world.md.

    Narration as far from its windows as in WhenAct. In the shared clips a tenth of a window comes
    before its words and 36 % after them. 12.5 % of the steps are shown again and 4.8 % in advance,
    and none of these is narrated again. That an action is seen a third as often around its act is
    a choice: no label says it.
    """
    narration = {
        "offset": -2.3,
        "offset_scale": 2.9,
        "offset_freedom": 1.4,
        "anywhere": 0.30,
        "lag_spread": 1.0,
        "again_told": 0.0,
    }
    changes = {
        "timeline": {"repeated": 0.125, "previewed": 0.05},
        "narration": narration,
        "scene": {"preparation": 0.10, "result": 0.36, "seen_around_act": 1 / 3},
    }
    parts = {}
    for name, values in changes.items():
        parts[name] = getattr(world, name).model_copy(update=values)
    return world.model_copy(update=parts)


SHORT_2 = version_2(SHORT_WORLD)
WORLD_SETTINGS: dict[str, SimulationSettings] = {
    "short": SHORT_WORLD,
    "youcook2": YOUCOOK2_WORLD,
    "tasty": TASTY_WORLD,
    "easy": EASY_WORLD,
    "short-2": SHORT_2,
    "youcook2-2": version_2(YOUCOOK2_WORLD),
}
