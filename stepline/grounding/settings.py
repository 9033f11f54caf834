"""Settings of coarse placing and of grounding. Nothing heavy is imported here."""

from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from stepline.settings import Count, Fraction, NonNegative, Offset, Positive, Settings

# weights up to it are tried one by one
Weight: TypeAlias = Annotated[float, Field(gt=0.0, le=100.0)]
Window: TypeAlias = Annotated[float, Field(ge=1.0, le=1e9)]
LabelRule: TypeAlias = Literal["covering", "inclusive"]
MatchRule: TypeAlias = Literal["softmax", "line-model"]


class CoarseSettings(Settings):
    """Where a step is said, by its likeness to the narration (NaSVA section 3.1)."""

    # how steps are matched to sentences: softmax of cosines, NaSVA section 3.1, or line-model: in
    # their order, `grounding/line_model.py`
    matching: MatchRule = "softmax"
    # nu. The paper gives none, 0.07 is its tau elsewhere. Smaller is sharper
    temperature: Positive = 0.07
    # zeta, share of the peak at which the window stops growing, NaSVA section 4.2
    grow: Fraction = 0.7
    # eps1, a step whose best score stays below is dropped, NaSVA section 4.2
    floor: Fraction = 0.20
    # cosine below which no sentence speaks of a user's own line. MiniLM: unlike < 0.3
    likeness: Fraction = 0.35
    # lines of a comparison: how far the words in which other videos do a step count for its line.
    # 0: the line's own words alone. See docs/results/compare.md
    graph_wordings: Fraction = 0.0
    # how far the order in which other videos do the lines counts, 0: the order of the lines alone
    graph_order: NonNegative = 0.0
    # how far a line that fewer videos do is less likely said, or shown where no one says it
    graph_share: NonNegative = 0.0
    # which seconds a narration covers, as in `grounding/speech.py:narration_labels`
    label_rule: LabelRule = "covering"


class GroundSettings(Settings):
    """Where a step is shown, by where it is said and what is seen."""

    # P(a written step is shown) where the picture does not show it. Real clips: .92
    shown_rate: Fraction = 0.9
    # the same of a step whose words are over a talking head. Drawn videos: 0.82
    shown_rate_shots: Fraction = 0.81
    # the same for a step that no one speaks of (a recipe's line), a guess
    unsaid_rate: Fraction = 0.3
    shown_threshold: Fraction = 0.5  # P(shown) below which a step is only "said"
    # P(the pictures belong to the speech) before any evidence, a guess
    belong_rate: Fraction = 0.95
    # log odds that they belong from which a step is "shown", below "unclear": 3 to 7
    belong_least: Offset = -0.75
    instructs_rate: Fraction = 0.95  # P(the speech instructs) before any evidence; a guess
    # nats for that, from which a step is "shown". 73 how-to transcripts have more
    instructs_least: Offset = -1.6
    # nats against doing from which a talking head may send its steps elsewhere
    talk: NonNegative = 0.2
    likeness_penalty: NonNegative = 2.0  # nats a unit of weight that likeness must earn
    # the same of ConSE's, which less lets carry steps away on real clips
    likeness_penalty_conse: NonNegative = 4.0
    # greatest weight that vision may earn, a standard deviation. It keeps it finite
    vision_limit: Weight = 2.0
    # the weight of likeness where nothing is said, so that none can be earned
    vision_alone: Positive = 2.0
    # seconds, the greatest lag of the steps that talking heads send elsewhere
    lag_reach: NonNegative = 6.0
    # seconds, how the lag varies from video to video. WhenAct: 1.2 under coarse windows
    lag_spread: Positive = 2.0
    lag_usual: Offset = 1.25  # seconds by which pictures follow the words; WhenAct: 1.0
    likeness_shots: NonNegative = 0.4  # weight of likeness, a standard deviation, among shots
    unwritten: Fraction = 0.15  # share of the shots in which something is done that is not a step
    order: NonNegative = 0.8  # nats that a pair of steps shown in another order costs
    smooth: NonNegative = 0.0  # seconds, width of the smoothing of similarity inside a shot
    # how far a step's wording decides whether it is shown. 1 as in WhenAct's vlogs
    wording: Fraction = 0.5
    compete: Fraction = 1.0  # how far steps compete for seconds. 0: not at all, 1: one per second
    typical: Positive = 8.0  # seconds an action is shown; WhenAct's median
    grow: Fraction = 0.5  # share of the peak at which a shown span stops growing
    # seconds of a long video grounded together. Beyond 1.5 windows it is cut into several
    window: Window = 900.0
    context: NonNegative = 120.0  # seconds looked at on either side; WhenAct: 1 % lie farther off
    # most spans reported of a step, the best first. Of 135 further ones on real clips 38 are right
    alternatives: Count = 1
