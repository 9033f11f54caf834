"""Settings of WYS2: clips, labels, detector and its training, judge, summaries. Importing this file
does not import torch."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from stepline.models.training.settings import TrainSettings
from stepline.settings import Count, Fraction, NonNegative, Positive, Settings, Width

Score = Literal["dot", "cosine", "joint"]

# For ready features. WYS2's 1e-5 (section 4, epochs unsaid) is for S3D, and leaves two heads at
# chance.
DETECTOR_TRAINING = TrainSettings(epochs=30, batch=128, learning_rate=1e-3, weight_decay=0.0)


class ClipSettings(Settings):
    """How narration is cut into clips (WYS2, section 4)."""

    seconds: Positive = 3.0
    """length of a clip in seconds; VideoCLIP's overlapping clips: 16"""
    stride: Positive = 3.0
    """seconds between centers of a sentence's clips; the paper's counts imply 1"""
    candidates: Count = 1
    """number of nearest sentences that may describe a clip; MIL-NCE: 3"""
    resolve: bool = True
    """replace pronouns by their antecedents before texts are compared"""


class LabelSettings(Settings):
    """Rule by which clips are labelled as visual narrations (WYS2, section 3.1)."""

    kind: Literal["ss", "vr", "mc"] = "ss"
    """ss: sentence similarity. vr: visual relevance. mc: modality consensus"""
    similarity: Fraction = 0.5
    """ss: least similarity of narration and key-step; c in the paper"""
    quantile: Fraction | None = None
    """ss: instead of c, the share of clips with a key-step that is kept, the most similar first"""
    rank: Fraction = 0.35
    """mc: share of the clips of a task that rank high; k in the paper"""


class DetectorSettings(Settings):
    """Encoders and score of the network that compares clips with texts (WYS2, section 3.2)."""

    video_width: Width = 512
    """width of a feature row; S3D: 512"""
    text_width: Width = 512
    """width of a text vector"""
    video: Literal["head", "s3d"] = "head"
    """head: two layers on stored features. s3d: S3D, trained on frames"""
    frames: Annotated[int, Field(ge=2, le=512, multiple_of=2)] = 32
    """s3d: evenly spaced frames per clip, as in MIL-NCE; not in the paper"""
    side: Annotated[int, Field(ge=32, le=1024, multiple_of=2)] = 224
    """s3d: side in pixels of the cropped square; not in the paper"""
    text: Literal["head", "frozen"] = "head"
    """head: two layers. frozen: unchanged text vectors, as in the paper"""
    hidden: Width = 128
    """width between a head's two layers"""
    width: Width = 64
    """width of the joint embedding; with "frozen" texts: their width"""
    score: Score = "cosine"
    """cosine: over the temperature. dot: dot product, as in the paper. joint: TAN's joint head"""
    temperature: Positive = 0.1
    """cosine: divisor of the cosine"""
    dropout: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0
    """between a head's two layers"""


class ContrastSettings(Settings):
    """Contrastive loss of the detector (WYS2, section 3.2, and its baselines)."""

    objective: Literal["nce", "mil-nce", "mil-nce-released"] = Field(
        "nce",
        description="nce: WYS2. mil-nce: MIL-NCE. mil-nce-released: as in the published code, which "
        "counts a clip's own candidates twice in the denominator",
    )
    negatives: Count | None = 4
    """number of other texts of the batch used as negatives; None: all"""


class PseudoSettings(Settings):
    """Pseudo-labels for unlabelled clips (WYS2, section 3.1)."""

    rounds: Annotated[int, Field(ge=1, le=100)] = 1
    """number of rounds of pseudo-labelling and training"""
    threshold: Literal["best F1", "share"] = "best F1"
    """least score of a positive clip: best F1 on the validation clips, or a share of the unlabelled clips"""
    share: Fraction = 0.1
    """share: fraction of the unlabelled clips to keep, best scores first"""


class Wys2Settings(Settings):
    """All settings of `stepline train wys2`.

    Attributes:
        clips: length and spacing of the clips.
        labels: rule for positive clips.
        detector: sizes and forms of the network.
        contrast: loss.
        pseudo: pseudo-labels for unlabelled clips.
        train: length and learning rate of the training.
    """

    clips: ClipSettings = ClipSettings()
    labels: LabelSettings = LabelSettings()
    detector: DetectorSettings = DetectorSettings()
    contrast: ContrastSettings = ContrastSettings()
    pseudo: PseudoSettings = PseudoSettings()
    train: TrainSettings = DETECTOR_TRAINING


class JudgeSettings(Settings):
    """A trained detector of whether the picture shows what is said."""

    detector: Path | None = Field(
        None,
        description="file or run folder of a trained detector, which decides where it is sure. None: a "
        "sentence is judged as the steps that rest on it",
    )
    seconds: Positive = 3.0
    """seconds: shorter sentences are judged in a clip of this length around them"""


class SummarySettings(Settings):
    """Length of a video summary, and pauses kept around speech."""

    seconds: Positive | None = None
    """maximum length in seconds; None: every seen or placed step"""
    share: Annotated[float, Field(gt=0.0, le=1.0)] | None = None
    """maximum share of the video's length; the smaller of both limits counts"""
    pad: NonNegative = 0.15
    """seconds of pause kept before and after speech"""

    def compute_target(self, duration: float) -> float | None:
        """Return the maximum length of a summary in seconds, or None for no limit. duration: length
        of the video in seconds."""
        limits = [self.seconds, None if self.share is None else self.share * duration]
        return min((limit for limit in limits if limit is not None), default=None)
