"""Settings of placing texts with a trained grounding network; nothing heavy is imported here."""

from pathlib import Path
from typing import Literal, TypeAlias

from pydantic import model_validator

from stepline.settings import Count, Fraction, NonNegative, Positive, Settings

Mode: TypeAlias = Literal["step", "narration"]
Order: TypeAlias = Literal["none", "given"]
SpanRule: TypeAlias = Literal["start", "center", "grown"]


class AlignerSettings(Settings):
    """How a trained network places texts. Its choices were made on two worlds (seeds 10, 11) that no result uses."""

    path: Path | None = None  # the trained network, a .safetensors file or a folder of one; None: none is used
    mode: Mode = "step"  # "narration": the texts are in spoken order, and the network is told their places
    whole: Count = 1200  # rows up to which a video is aligned at once; NaSVA trained on as many
    window: Count = 600  # rows of a window of a longer video; TAN: 64
    stride: Count = 300  # rows from window to window, at most half a window; TAN: 16
    batch: Count = 4  # windows aligned at once
    bf16: bool = False  # reckon in bfloat16, faster where the processor has it; moves a score by up to 0.006
    temperature: Positive = 0.07  # tau that turns cosines into chances; NaSVA section 4.2, smaller is sharper
    compete: NonNegative = 1.0  # how far texts compete for seconds; 0 not at all
    order: Order = "none"  # "given": texts shown in another order than they stand in cost `order_cost`
    order_cost: NonNegative = 1.5  # nats that a text shown before the shown one in front of it costs
    speech: NonNegative = 0.25  # weight of when a text is said, where that is known; 0 not at all
    typical: Count = 8  # rows that a text keeps from others; NaSVA's 8 s
    spans: SpanRule = "grown"  # "start", "center": `duration` from, around the best row; "grown": around the peak
    duration: Positive = 8.0  # seconds of a span that is not grown; NaSVA section 4.2
    smooth: Count = 7  # rows, odd, over which chances are summed before a span is grown
    grow: Fraction = 0.4  # share of the peak at which it stops growing
    shown_threshold: Fraction = 0.5  # P(shown) below which a text counts as not shown

    @model_validator(mode="after")
    def _fits(self) -> "AlignerSettings":
        if 2 * self.stride > self.window:
            raise ValueError(f"stride {self.stride} must be at most half of window {self.window}")
        if self.smooth % 2 == 0:
            raise ValueError(f"smooth {self.smooth} must be odd")
        return self
