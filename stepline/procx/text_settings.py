"""Settings of the words that ProcX writes; nothing heavy is imported here.

Depth, width and search of the paper's text decoder are unstated; the defaults here are ours.
"""

from typing import Annotated, Literal, TypeAlias

from pydantic import Field, model_validator

from stepline.settings import Count, CountOrZero, NonNegative, Settings

CaptionerKind: TypeAlias = Literal["transformer", "lstm"]


class VocabularySettings(Settings):
    """The WordPiece vocabulary; ProcX section 6.3."""

    size: Annotated[int, Field(ge=64)] = 10_000  # most tokens; ProcX section 6.3
    lower: bool = True  # all in lower case, as the sentences of YouCook2 are
    rare: Count = 2  # a character seen less often is spelt in bytes, as unseen ones are


class CaptionerSettings(Settings):
    """The network that says what a query saw: CoCa's decoder, or PDVC's LSTM as a baseline."""

    kind: CaptionerKind = "transformer"  # "lstm": PDVC's, one layer
    width: Count = 512  # D, as of the queries; PDVC
    heads: Count = 8
    text_layers: Count = 2  # that see words alone; CoCa has as many as of the next
    joint_layers: Count = 2  # that see the query as well
    transcript_layers: CountOrZero = 1  # that read a transcript, where one is given
    feed_forward: Count = 2048
    projection: Count = 256  # d of the vectors that the contrastive loss compares
    dropout: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.1  # section E.2
    longest: Count = 48  # most tokens of a caption, its end mark included; PDVC: 30 words
    longest_transcript: Count = 128  # most tokens of what is said around a step; the rest is left out

    @model_validator(mode="after")
    def _fits(self) -> "CaptionerSettings":
        if self.width % self.heads:
            raise ValueError(f"width {self.width} must be a multiple of heads {self.heads}")
        return self


class SearchSettings(Settings):
    """How a caption is looked for."""

    beam: Count = 1  # hypotheses kept a caption; 1: the likeliest token each time, as PDVC
    length_penalty: NonNegative = 1.0  # captions are ranked by log P / tokens^this; with a beam
    shortest: CountOrZero = 1  # fewest tokens before the end mark; 0: a caption may be empty
    longest: Count | None = None  # most tokens; None: as many as the network can
