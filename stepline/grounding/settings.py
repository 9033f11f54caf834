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

    matching: MatchRule = Field(
        "softmax",
        description="how steps are matched to sentences: softmax of cosines, NaSVA section 3.1, "
        "or line-model: in their order, `grounding/line_model.py`",
    )
    temperature: Positive = Field(
        0.07, description="nu. The paper gives none, 0.07 is its tau elsewhere. Smaller is sharper"
    )
    grow: Fraction = Field(
        0.7,
        description="zeta, share of the peak at which the window stops growing, NaSVA section 4.2",
    )
    floor: Fraction = Field(
        0.20, description="eps1, a step whose best score stays below is dropped, NaSVA section 4.2"
    )
    likeness: Fraction = Field(
        0.35,
        description="cosine below which no sentence speaks of a user's own line. MiniLM: unlike < "
        "0.3",
    )
    graph_wordings: Fraction = Field(
        0.0,
        description="lines of a comparison: how far the words in which other videos do a step "
        "count for its line. 0: the line's own words alone. See docs/results/compare.md",
    )
    graph_order: NonNegative = Field(
        0.0,
        description="how far the order in which other videos do the lines counts, 0: the order of "
        "the lines alone",
    )
    graph_share: NonNegative = Field(
        0.0,
        description="how far a line that fewer videos do is less likely said, or shown where no "
        "one says it",
    )
    label_rule: LabelRule = Field(
        "covering",
        description="which seconds a narration covers, as in "
        "`grounding/speech.py:narration_labels`",
    )


class GroundSettings(Settings):
    """Where a step is shown, by where it is said and what is seen."""

    shown_rate: Fraction = Field(
        0.9,
        description="P(a written step is shown) where the picture does not show it. Real clips: "
        ".92",
    )
    shown_rate_shots: Fraction = Field(
        0.81,
        description="the same of a step whose words are over a talking head. Drawn videos: 0.82",
    )
    unsaid_rate: Fraction = Field(
        0.3, description="the same for a step that no one speaks of (a recipe's line), a guess"
    )
    shown_threshold: Fraction = Field(0.5, description='P(shown) below which a step is only "said"')
    belong_rate: Fraction = Field(
        0.95, description="P(the pictures belong to the speech) before any evidence, a guess"
    )
    belong_least: Offset = Field(
        -0.75,
        description='log odds that they belong from which a step is "shown", below "unclear": 3 '
        "to 7",
    )
    instructs_rate: Fraction = Field(
        0.95, description="P(the speech instructs) before any evidence; a guess"
    )
    instructs_least: Offset = Field(
        -1.6,
        description='nats for that, from which a step is "shown". 73 how-to transcripts have more',
    )
    talk: NonNegative = Field(
        0.2, description="nats against doing from which a talking head may send its steps elsewhere"
    )
    likeness_penalty: NonNegative = Field(
        2.0, description="nats a unit of weight that likeness must earn"
    )
    likeness_penalty_conse: NonNegative = Field(
        4.0, description="the same of ConSE's, which less lets carry steps away on real clips"
    )
    vision_limit: Weight = Field(
        2.0,
        description="greatest weight that vision may earn, a standard deviation. It keeps it "
        "finite",
    )
    vision_alone: Positive = Field(
        2.0, description="the weight of likeness where nothing is said, so that none can be earned"
    )
    lag_reach: NonNegative = Field(
        6.0, description="seconds, the greatest lag of the steps that talking heads send elsewhere"
    )
    lag_spread: Positive = Field(
        2.0,
        description="seconds, how the lag varies from video to video. WhenAct: 1.2 under coarse "
        "windows",
    )
    lag_usual: Offset = Field(
        1.25, description="seconds by which pictures follow the words; WhenAct: 1.0"
    )
    likeness_shots: NonNegative = Field(
        0.4, description="weight of likeness, a standard deviation, among shots"
    )
    unwritten: Fraction = Field(
        0.15, description="share of the shots in which something is done that is not a step"
    )
    order: NonNegative = Field(
        0.8, description="nats that a pair of steps shown in another order costs"
    )
    smooth: NonNegative = Field(
        0.0, description="seconds, width of the smoothing of similarity inside a shot"
    )
    wording: Fraction = Field(
        0.5,
        description="how far a step's wording decides whether it is shown. 1 as in WhenAct's vlogs",
    )
    compete: Fraction = Field(
        1.0, description="how far steps compete for seconds. 0: not at all, 1: one per second"
    )
    typical: Positive = Field(8.0, description="seconds an action is shown; WhenAct's median")
    grow: Fraction = Field(0.5, description="share of the peak at which a shown span stops growing")
    window: Window = Field(
        900.0,
        description="seconds of a long video grounded together. Beyond 1.5 windows it is cut into "
        "several",
    )
    context: NonNegative = Field(
        120.0, description="seconds looked at on either side; WhenAct: 1 % lie farther off"
    )
    alternatives: Count = Field(
        1,
        description="most spans reported of a step, the best first. Of 135 further ones on real "
        "clips 38 are right",
    )
